"""Lanes as an operator sees them: settings, pause, drain, moving, and why one is not served."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import redis

from echomq import Client, JobNotFoundError, JobStateError, LaneInfo, Queue, Rate, State, sync
from echomq.protocol.ids import mint
from echomq.transitions import claim
from tests.integration.working import claim_one, complete, fail

pytestmark = pytest.mark.anyio


async def claim_all(client: Client, queue: Queue) -> list[str]:
    """Claim what can be had in one call, and answer the payloads."""
    reply = await client.wire.remembered(
        queue.keys, lambda call: claim(queue.keys, call, count=100, lease_ms=30_000), verb="claim"
    )
    return [job.record.payload.decode() for job in reply.jobs]


async def test_job_waits_in_its_lane(client: Client, queue: Queue) -> None:
    """Its row says so, its lane counts it, and so does the queue; it runs, and the lane is gone."""
    handle = await queue.enqueue(b"x", lane="Zoë & sons")
    await queue.enqueue(b"y")
    job = await handle.info()
    assert job is not None
    assert job.record.lane == "Zoë & sons"
    lane = queue.lane("Zoë & sons")
    info = await lane.info()
    assert (info.name, info.pending, info.active, info.servable, info.weight) == ("Zoë & sons", 1, 0, True, 1)
    assert info.oldest is not None
    assert 0 <= info.oldest < 60
    assert (await queue.counts()).pending == 2
    assert [record.id for record, _ in (await lane.browse()).jobs] == [handle.id]
    assert [record.payload for record, _ in (await queue.lane("").browse()).jobs] == [b"y"]
    assert sorted(await claim_all(client, queue)) == ["x", "y"]
    assert [record.id for record, _ in (await lane.browse("active")).jobs] == [handle.id]
    assert [record.id for record, _ in (await queue.browse("active", lane=lane.name)).jobs] == [handle.id]
    assert (await lane.info()).active == 1
    assert (await queue.lane("").info()).active is None


async def test_lane_settings_are_kept_and_cleared(queue: Queue, redis_client: redis.Redis) -> None:
    """What is not named stays, None clears, an answer says whether anything changed; they need no jobs."""
    lane = queue.lane("acme")
    assert await lane.configure(weight=3, limit=2, rate=Rate(10, per=60, burst=5))
    info = await lane.info()
    assert (info.weight, info.limit, info.rate, info.paused) == (3, 2, Rate(10, per=60, burst=5), False)
    assert not await lane.configure(weight=3)
    assert await lane.configure(limit=None, rate=None)
    info = await lane.info()
    assert (info.weight, info.limit, info.rate) == (3, None, None)
    assert [each.name async for each in queue.lanes] == ["acme"]
    assert await lane.configure(weight=None)
    assert [each.name async for each in queue.lanes] == []
    assert not redis_client.exists(queue.keys.lanes)
    with pytest.raises(ValueError, match="limit"):
        await queue.lane("").configure(limit=1)
    assert await queue.lane("").configure(weight=2, rate=Rate(1))
    assert (await queue.lane("").info()).weight == 2


async def test_lane_pauses_alone(client: Client, queue: Queue) -> None:
    """The others go on; the queue's lanes say which one is not served, and why."""
    await queue.enqueue(b"1", lane="a")
    await queue.enqueue(b"2", lane="b")
    await queue.enqueue(b"3")
    lane = queue.lane("a")
    assert [await lane.pause(), await lane.pause()] == [True, False]
    assert [await queue.lane("").pause(), await queue.lane("").pause()] == [True, False]
    assert await claim_all(client, queue) == ["2"]
    info = await lane.info()
    assert (info.paused, info.servable, info.closed, info.again_in) == (True, False, ("paused",), None)
    assert info.reasons == ("it is paused",)
    assert [await lane.resume(), await lane.resume()] == [True, False]
    assert await claim_all(client, queue) == ["1"]
    assert await queue.lane("").resume()
    assert await claim_all(client, queue) == ["3"]


async def test_lane_tells_each_reason_and_when_it_is_looked_at_again(client: Client, queue: Queue) -> None:
    """Its limit and its rate at once."""
    lane = queue.lane("acme")
    await lane.configure(limit=1, rate=Rate(1, per=60))
    await queue.enqueue_many([b""] * 3, lane="acme")
    assert len(await claim_all(client, queue)) == 1
    info = await lane.info()
    assert (info.pending, info.active) == (2, 1)
    assert set(info.closed) == {"rate", "limit"}
    assert len(info.reasons) == 2
    assert info.again_in is not None
    assert 0 < info.again_in <= 61


async def test_drain_takes_the_lanes_ready_jobs_only(
    client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In rounds, told of; what runs, is scheduled, or waits elsewhere stays."""
    monkeypatch.setattr("echomq.clearing.MAX_ROUND", 10)
    await queue.enqueue(b"runs", lane="acme")
    await claim_one(client, queue)
    await queue.enqueue(b"later", lane="acme", delay=60)
    await queue.enqueue_many([b"goes"] * 25, lane="acme")
    await queue.enqueue(b"other", lane="b")
    await queue.enqueue(b"none")
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    assert await queue.lane("acme").drain(progress) == 25
    assert told == [10, 20, 25]
    counts = await queue.counts()
    assert (counts.pending, counts.active, counts.schedule) == (2, 1, 1)
    assert await queue.lane("acme").drain() == 0
    assert await queue.lane("").drain() == 1
    assert (await queue.counts()).pending == 1


async def test_drain_ends_under_load(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as were there at the start are gone, though others come as fast."""
    monkeypatch.setattr("echomq.clearing.MAX_ROUND", 10)
    await queue.enqueue_many([b""] * 25, lane="acme")

    async def progress(_: int) -> None:
        await queue.enqueue_many([b""] * 20, lane="acme")

    assert await queue.lane("acme").drain(progress) == 25
    assert (await queue.lane("acme").info()).pending == 60


async def test_reassign_moves_what_waits_and_says_what_it_could_not(client: Client, queue: Queue) -> None:
    """Ready, scheduled and dead jobs move; one that runs is refused, and one that is gone."""
    await queue.enqueue(b"dead", lane="a")
    dead = await fail(client, queue, KeyError())
    await queue.enqueue(b"runs", lane="a")
    running = (await claim_one(client, queue)).id
    ready = await queue.enqueue(b"ready", lane="a")
    later = await queue.enqueue(b"later", delay=60)
    gone = mint()
    answers = await queue.reassign([ready.id, later.id, dead, running, gone], lane="b")
    assert answers[:3] == [None, None, None]
    assert isinstance(answers[3], JobStateError)
    assert (answers[3].actual, answers[3].expected) == ("active", "pending, schedule or dead")
    assert isinstance(answers[4], JobNotFoundError)
    assert [record.id for record, _ in (await queue.lane("b").browse()).jobs] == [ready.id]
    for id in (ready.id, later.id, dead):
        job = await queue.job(id)
        assert job is not None
        assert job.record.lane == "b"
    assert await queue.redrive([dead]) == [None]
    assert (await queue.lane("b").info()).pending == 2
    assert await queue.reassign([ready.id], lane="") == [None]
    assert (await queue.lane("").info()).pending == 1
    for bad in ("a{b", 5):
        with pytest.raises(ValueError, match="lane"):
            await queue.reassign([ready.id], lane=bad)  # type: ignore[arg-type]


async def test_lanes_come_by_pages_and_all_at_once(queue: Queue) -> None:
    """Each at least once, over as many pages as it takes; an iterator may be dropped half way."""
    names = {f"tenant-{n}" for n in range(700)}
    for name in sorted(names):
        await queue.enqueue(name.encode(), lane=name)
    await queue.enqueue(b"")
    found = [lane async for lane in queue.lanes]
    assert {lane.name for lane in found} == names | {""}
    assert all(lane.pending == 1 for lane in found)
    cursor, pages, seen = 0, 0, set()
    while True:
        page = await queue.lanes.page(cursor=cursor, count=20)
        seen |= {lane.name for lane in page.lanes}
        pages, cursor = pages + 1, page.cursor
        if not cursor:
            break
    assert seen == names | {""}
    assert pages > 5
    async for lane in queue.lanes:
        assert isinstance(lane, LaneInfo)
        break
    gc.collect()  # nothing complains
    wrong: list[dict[str, Any]] = [{"count": 0}, {"count": 257}, {"cursor": -1}, {"cursor": "x"}]
    for bad in wrong:
        with pytest.raises(ValueError, match=r"lanes|cursor"):
            await queue.lanes.page(**bad)


async def test_browse_by_lane_refuses_what_lanes_do_not_have(queue: Queue) -> None:
    """Before any I/O."""
    with pytest.raises(ValueError, match="schedule"):
        await queue.browse(State.SCHEDULE, lane="a")
    with pytest.raises(ValueError, match="active"):
        await queue.lane("").browse("active")
    with pytest.raises(ValueError, match="lane"):
        await queue.browse("pending", lane="{}")
    with pytest.raises(ValueError, match="lane"):
        queue.lane("\n")


async def test_lane_of_a_result_is_told_like_any(client: Client, queue: Queue) -> None:
    """A handle waits for a job of a lane as for another."""
    handle = await queue.enqueue(b"", lane="a", result_ttl=60)
    await complete(client, queue, b"5")
    assert await handle.result(timeout=10) == 5


def test_sync_lanes_have_the_same_verbs(
    sync_client: sync.Client, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answers what its sibling does."""
    monkeypatch.setattr("echomq.clearing.MAX_ROUND", 10)
    queue = sync_client.queue(queue_name)
    lane = queue.lane("acme")
    assert lane.configure(weight=3, limit=2, rate=Rate(7, burst=2))
    info = lane.info()
    assert (info.weight, info.limit, info.rate, info.pending) == (3, 2, Rate(7, burst=2), 0)
    handles = queue.enqueue_many([b""] * 25, lane="acme")
    assert [lane.pause(), lane.pause(), lane.resume(), lane.resume()] == [True, False, True, False]
    assert lane.browse(count=5).total == 25
    first = handles[0]
    assert isinstance(first, sync.JobHandle)
    assert queue.reassign([first.id], lane="b") == [None]
    assert {each.name: each.pending for each in queue.lanes} == {"acme": 24, "b": 1}
    assert {each.name for each in queue.lanes.page().lanes} == {"acme", "b"}
    told: list[int] = []
    assert lane.drain(told.append) == 24
    assert told == [10, 20, 24]
    assert queue.browse("pending", lane="b").total == 1
    assert isinstance(queue.reassign([mint()], lane="")[0], JobNotFoundError)
    with pytest.raises(ValueError, match="limit"):
        queue.lane("").configure(limit=1)
