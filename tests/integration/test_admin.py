"""What operators change and look at: payloads, priorities, waits, jobs of any state, draining and trimming."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import redis

from echomq import App, Client, InvalidJobError, JobNotFoundError, JobStateError, Queue, flow, open_client, sync
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import take
from echomq.protocol.records import NewJob
from echomq.transitions import Completion
from tests.integration.working import claim_one, complete, fail, until

pytestmark = pytest.mark.anyio


async def payload(queue: Queue, id: str) -> bytes:
    """Read a job's payload."""
    job = await queue.job(id)
    assert job is not None
    return job.record.payload


@pytest.mark.parametrize("size", [0, 1, 64, 65, 200, 256, 257, 5000])
async def test_update_replaces_a_payload_of_any_size(queue: Queue, size: int) -> None:
    """Large for small and small for large: no piece of the old one is left."""
    for old in (0, 64, 200, 1000):
        handle = await queue.enqueue(b"o" * old, lane="a")
        await queue.update(handle.id, b"n" * size)
        assert await payload(queue, handle.id) == b"n" * size
        await queue.remove([handle.id])


async def test_update_and_reprioritise_wherever_a_job_waits(
    client: Client, app: App, queue: Queue, redis_client: redis.Redis
) -> None:
    """Ready, scheduled, waiting for children, dead; a worker then gets the new payload."""

    @app.task(queue=queue.name)
    async def job() -> None: ...

    ready, later, dead = [await queue.enqueue(b"1", delay=delay) for delay in (0, 60, 0)]
    await queue.reprioritise([dead.id], priority=9)
    assert await fail(client, queue, KeyError("x")) == dead.id
    parent = (await client.flows.add(flow(job.call(), [job.options(delay=60).call()]))).id
    ids = [ready.id, later.id, parent, dead.id]
    for id in ids:
        await queue.update(id, b"2")
    assert await queue.reprioritise(ids, priority=-5) == [None] * 4
    jobs = [await queue.job(id) for id in ids]
    assert [(each.record.state, each.record.payload, each.record.priority) for each in jobs if each] == [
        ("pending", b"2", -5), ("schedule", b"2", -5), ("waiting", b"2", -5), ("dead", b"2", -5),
    ]  # fmt: skip
    assert violations(take(redis_client, queue.keys)) == []


async def test_update_and_reprioritise_refuse_what_runs_or_has_ended(client: Client, queue: Queue) -> None:
    """Each says where the job is; nothing changes."""
    handle = await queue.enqueue(b"1", result_ttl=60)
    await claim_one(client, queue)
    with pytest.raises(JobStateError, match="pending, schedule, waiting or dead") as raised:
        await queue.update(handle.id, b"2")
    assert raised.value.actual == "active"
    (error,) = await queue.reprioritise([handle.id], priority=1)
    assert isinstance(error, JobStateError)
    absent = NewJob().id
    with pytest.raises(JobNotFoundError):
        await queue.update(absent, b"2")
    (error,) = await queue.reprioritise([absent], priority=1)
    assert isinstance(error, JobNotFoundError)
    assert await payload(queue, handle.id) == b"1"
    with pytest.raises(TypeError, match="bytes"):
        await queue.update(absent, "2")  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="1048577"):
        await queue.update(absent, b"x" * 1048577)
    for bad, kind in ((2048, ValueError), (-2048, ValueError), ("1", TypeError), (True, TypeError)):
        with pytest.raises(kind, match=str(bad)):
            await queue.reprioritise([absent], priority=bad)  # type: ignore[arg-type]


async def test_find_answers_jobs_of_any_state_in_full(
    client: Client, app: App, queue: Queue, redis_client: redis.Redis
) -> None:
    """By task, lane and age, over all lanes, from either end, and no more than asked for."""

    @app.task(queue=queue.name, name="parent")
    async def job() -> None: ...

    plain = [(await queue.enqueue(b"%d" % n, task="a" if n % 2 else "b")).id for n in range(4)]
    laned = {lane: (await queue.enqueue(b"l", lane=lane, task="a")).id for lane in ("x", "y")}
    later = (await queue.enqueue(b"", delay=60, lane="x", task="a")).id
    parent = (await client.flows.add(flow(job.call(), [job.options(delay=60).call()]))).id

    async def ids(state: str, **options: Any) -> list[str]:
        found = [each async for each in queue.find(state, **options)]
        assert all(each.record.state == state for each in found)
        return [each.record.id for each in found]

    assert await ids("pending", lane="") == plain
    assert await ids("pending", lane="", reverse=True, limit=3) == plain[:0:-1]
    assert await ids("pending", lane="x") == [laned["x"]]
    assert (await ids("pending"))[:4] == plain
    assert sorted((await ids("pending"))[4:]) == sorted(laned.values())
    assert sorted(await ids("pending", task="a")) == sorted([plain[1], plain[3], *laned.values()])
    assert await ids("schedule", lane="x") == [later]
    assert await ids("schedule", lane="y") == []
    assert await ids("waiting", task="parent") == [parent]
    assert [row.id for row, _ in (await queue.browse("waiting")).jobs] == [parent]
    redis_client.hset(queue.keys.job(plain[2]), "since", 1000)
    assert await ids("pending", older=3600) == [plain[2]]
    dead = await fail(client, queue, KeyError("x"))
    assert await ids("dead", error="KeyError") == [dead]
    running = (await claim_one(client, queue)).id
    assert await ids("active") == await ids("active", task="b") + await ids("active", task="a") == [running]
    for bad, kind in (
        ({"state": "ended"}, ValueError), ({"state": "dead", "limit": 0}, ValueError), ({"state": "dead", "lane": "{"}, ValueError),
        ({"state": "dead", "tasks": "a"}, TypeError),
    ):  # fmt: skip
        with pytest.raises(kind):
            queue.find(**bad)


async def test_find_of_a_large_state_answers_each_once(queue: Queue) -> None:
    """Step by step, also when each is removed on the way."""
    made = {
        handle.id for handle in await queue.enqueue_many([b""] * 300, task="a") if not isinstance(handle, Exception)
    }
    assert [job.record.id async for job in queue.find("pending", task="a")] == sorted(made)
    seen = []
    async for job in queue.find("pending"):
        seen.append(job.record.id)
        await queue.remove([job.record.id])
    assert sorted(seen) == sorted(made)


async def test_waits_tell_the_first_of_each_state_and_lane(
    client: Client, app: App, queue: Queue, redis_client: redis.Redis
) -> None:
    """For how long it has waited, run, been due; ahead is below nought."""

    @app.task(queue=queue.name)
    async def job() -> None: ...

    empty = await queue.waits()
    assert (empty.pending.jobs, empty.pending.id, empty.pending.seconds, empty.lanes) == (0, None, None, ())
    parent = (await client.flows.add(flow(job.call(), [job.options(delay=100).call()]))).id
    dead, kept, running, quick, ready = [(await queue.enqueue(b"", result_ttl=50)).id for _ in range(5)]
    assert await fail(client, queue, KeyError("x")) == dead
    assert await complete(client, queue) == kept
    assert [(await claim_one(client, queue)).id for _ in range(2)] == [running, quick]
    laned = (await queue.enqueue(b"", lane="x")).id
    await queue.lane("x").pause()
    at = int(redis_client.time()[0]) * 1000
    redis_client.hset(queue.keys.job(running), "since", at - 30_000)
    redis_client.hset(queue.keys.job(ready), "since", at - 20_000)
    redis_client.hset(queue.keys.job(laned), "since", at)
    redis_client.zadd(queue.keys.waiting, {parent: at - 10_000})
    redis_client.zadd(queue.keys.dead, {dead: at - 40_000})
    waits = await queue.waits()
    firsts = {
        name: (wait.jobs, wait.id, None if wait.seconds is None else wait.seconds // 10 * 10)
        for name in ("pending", "active", "waiting", "dead", "done")
        for wait in [getattr(waits, name)]
    }
    assert firsts == {
        "pending": (2, ready, 20), "active": (2, running, 30), "waiting": (1, parent, 10), "dead": (1, dead, 40),
        "done": (1, kept, -50),
    }  # fmt: skip
    assert waits.schedule.jobs == 1
    assert waits.schedule.seconds is not None
    assert -100 <= waits.schedule.seconds < -90
    assert waits.cursor == 0
    assert {lane.name: (lane.pending, lane.oldest and lane.oldest // 10 * 10) for lane in waits.lanes} == {
        "": (1, 20),
        "x": (1, 0),
    }
    oldest = await queue.age()
    assert oldest is not None
    assert oldest[0] == ready
    with pytest.raises(ValueError, match="257"):
        await queue.waits(lanes=257)


async def test_drain_removes_what_is_ready_and_leaves_the_rest(
    client: Client, queue: Queue, redis_client: redis.Redis
) -> None:
    """All lanes; on request the scheduled, too. Recurring definitions, settings, running and dead stay."""
    await queue.schedules.put("nightly", b"x", cron="0 0 1 1 *")
    await queue.lane("x").configure(weight=2)
    await queue.enqueue(b"")
    dead = await fail(client, queue, KeyError("x"))
    await queue.enqueue(b"")
    running = (await claim_one(client, queue)).id
    for lane in (None, "x", "y"):
        await queue.enqueue_many([b""] * 150, lane=lane, dedup=None)
    later = [(await queue.enqueue(b"", delay=60, lane=lane)).id for lane in (None, "x")]
    told: list[int] = []

    async def tell(count: int) -> None:
        told.append(count)

    assert await queue.drain(progress=tell) == 450 == told[-1]
    counts = await queue.counts()
    assert (counts.pending, counts.active, counts.schedule, counts.dead) == (0, 1, 2, 1)
    assert await queue.lane("x").drain(scheduled=True) == 1
    assert await queue.job(later[0]) is not None
    assert await queue.drain(scheduled=True) == 1
    assert {job.record.id async for job in queue.find("active")} == {running}
    assert {job.record.id async for job in queue.find("dead")} == {dead}
    assert [schedule.name async for schedule in queue.schedules] == ["nightly"]
    assert (await queue.lane("x").info()).weight == 2
    assert violations(take(redis_client, queue.keys)) == []


async def test_drain_may_be_broken_off_and_called_again(queue: Queue, redis_client: redis.Redis) -> None:
    """What was removed is gone, all else is whole."""
    await queue.enqueue_many([b""] * 400)

    async def enough(_: int) -> None:
        scope.cancel()

    with anyio.CancelScope() as scope:
        await queue.drain(progress=enough)
    assert scope.cancelled_caught
    left = (await queue.counts()).pending
    assert 0 < left < 400
    assert violations(take(redis_client, queue.keys)) == []
    assert await queue.drain() == left


async def test_trim_keeps_to_the_limits_that_are_given(client: Client, queue: Queue) -> None:
    """The queue's settings spare those that died today; a number that is given does not."""
    for _ in range(5):
        await queue.enqueue(b"")
        await fail(client, queue, KeyError("x"))
    for _ in range(3):
        await queue.enqueue(b"", result_ttl=3600)
        await complete(client, queue)
    await queue.configure(dead_max=1)
    assert await queue.trim() == 0
    assert await queue.trim(dead_max=3) == 2
    assert await queue.trim(done_max=1) == 2
    assert await queue.trim(dead_age=3600) == 0
    assert await queue.trim(dead_max=0, done_max=0) == 4
    counts = await queue.counts()
    assert (counts.dead, counts.done, counts.totals["trimmed"]) == (0, 0, 8)
    for bad in ({"dead_max": -1}, {"done_max": 10**10}, {"dead_age": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            await queue.trim(**bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dead_max"):
        await queue.trim(dead_max=True)


async def test_job_in_full_tells_its_lease_and_its_children(client: Client, app: App, queue: Queue) -> None:
    """How long the lease lasts, nobody known who holds it; children by name with their ends."""

    @app.task(queue=queue.name)
    async def job() -> None: ...

    added = await client.flows.add(flow(job.call(), {"b": job.call(), "a": job.options(delay=60).call()}))
    running = await claim_one(client, queue)
    full = await queue.job(running.id)
    assert full is not None
    assert full.lease_left is not None
    assert 0 < full.lease_left <= 30
    assert full.worker is None
    await client.wire.group(queue.keys, "complete")(Completion(running.id, running.token, running.nonce, b"1"))
    parent = await queue.job(added.id, children=True)
    assert parent is not None
    assert parent.lease_left is None
    assert [(each.name, each.outcome and each.outcome.kind) for each in parent.children] == [
        ("a", None),
        ("b", "completed"),
    ]
    bare = await queue.job(added.id)
    assert bare is not None
    assert bare.children == ()


async def test_use_is_noted_once_and_never_in_the_way(
    client: Client, queue: Queue, redis_client: redis.Redis, server_url: str
) -> None:
    """Neither by a key of another type nor by one that a user may not write."""
    key = queue.keys.known
    await queue.enqueue(b"")
    await until(lambda: redis_client.zscore(key, queue.name))
    redis_client.zrem(key, queue.name)
    await queue.enqueue(b"")
    await client.wire.command("PING")
    assert redis_client.zscore(key, queue.name) is None
    prefixed = f"{queue.name}"[:60].replace("_", "-")
    async with open_client(server_url, prefix=prefixed) as other:
        redis_client.set(f"{prefixed}:queues", "no set")  # as good as one that may not be written
        try:
            handle = await other.queue("q").enqueue(b"")
            assert handle.admitted
        finally:
            await other.queue("q").obliterate(force=True)
            redis_client.delete(f"{prefixed}:queues")


def test_admin_verbs_block_too(sync_client: sync.Client, queue_name: str) -> None:
    """The synchronous twins."""
    queue = sync_client.queue(queue_name)
    ids = [queue.enqueue(b"1", lane=lane, delay=delay).id for lane, delay in ((None, 0), ("x", 0), ("x", 60))]
    queue.update(ids[0], b"2")
    assert queue.reprioritise(ids, priority=3) == [None] * 3
    assert [job.record.payload for job in queue.find("pending")] == [b"2", b"1"]
    assert [job.record.priority for job in queue.find("schedule", lane="x", limit=1)] == [3]
    waits = queue.waits()
    assert (waits.pending.jobs, waits.schedule.jobs, {lane.name for lane in waits.lanes}) == (2, 1, {"", "x"})
    oldest = queue.age()
    assert oldest is not None
    assert oldest[0] == waits.pending.id
    job = queue.job(ids[0], children=True)
    assert job is not None
    assert (job.children, job.worker, job.lease_left) == ((), None, None)
    assert queue.workers() == []
    assert queue_name in {name for name, _ in sync_client.queues()}
    with pytest.raises(JobNotFoundError):
        queue.update(NewJob().id, b"")
    assert queue.drain() == 2
    assert queue.lane("x").drain(scheduled=True) == 1
    assert queue.trim(dead_max=0) == 0
    queue.obliterate(force=True)
    assert queue_name not in {name for name, _ in sync_client.queues()}
