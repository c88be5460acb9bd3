"""When jobs run, and until when: another time for those that wait, moments by which they expire, deadlines."""

from __future__ import annotations

import datetime as dt

import anyio
import pytest
import redis

from echomq import App, Client, JobExpiredError, JobFailedError, JobNotFoundError, JobStateError, Queue, State, sync
from echomq.protocol.ids import mint
from echomq.transitions import claim
from tests.integration.working import claim_one, complete, fail
from tests.worker.support import running

pytestmark = pytest.mark.anyio


async def test_reschedule_moves_what_waits(client: Client, queue: Queue) -> None:
    """Ready and scheduled ones, by a delay or a moment; what runs or is gone says so."""
    ready = await queue.enqueue(b"")
    later = await queue.enqueue(b"", delay=600)
    at = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    assert await queue.reschedule([ready.id, later.id], at=at) == [None, None]
    page = await queue.browse("schedule")
    assert {score for _, score in page.jobs} == {at.timestamp() * 1000 // 1}
    assert await queue.reschedule([ready.id], delay=dt.timedelta(minutes=1)) == [None]
    info = await ready.info()
    assert info is not None
    assert info.score is not None
    assert 50_000 < info.score - info.now_ms <= 60_000
    assert await queue.promote([later.id]) == [None]
    assert await later.state() is State.PENDING
    await claim_one(client, queue)
    outcomes = await queue.reschedule([later.id, mint()], delay=1)
    assert isinstance(outcomes[0], JobStateError)
    assert (outcomes[0].actual, outcomes[0].expected) == ("active", "pending or schedule")
    assert isinstance(outcomes[1], JobNotFoundError)


async def test_handles_reschedule_and_promote(client: Client, queue: Queue) -> None:
    """One job each; a refusal is raised."""
    handle = await queue.enqueue(b"", delay=600)
    await handle.promote()
    assert await handle.state() is State.PENDING
    await handle.promote()
    await handle.reschedule(delay=60)
    assert await handle.state() is State.SCHEDULE
    await handle.reschedule(at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))  # not ahead: now
    assert await handle.state() is State.PENDING
    assert await complete(client, queue) == handle.id
    with pytest.raises(JobNotFoundError):
        await handle.promote()
    dead = await queue.enqueue(b"")
    await fail(client, queue, KeyError())
    with pytest.raises(JobStateError, match="dead"):
        await dead.reschedule(delay=5)


async def test_reschedule_refuses_what_is_no_time(queue: Queue) -> None:
    """Before anything is sent."""
    handle = await queue.enqueue(b"")
    now = dt.datetime.now(dt.UTC)
    for bad in ({}, {"delay": 1, "at": now}, {"delay": "1"}, {"at": 5}):
        with pytest.raises(TypeError, match=r"delay|at"):
            await handle.reschedule(**bad)
    for wrong in ({"delay": -1}, {"delay": float("nan")}, {"at": dt.datetime(2030, 1, 1)}):  # noqa: DTZ001 - naive
        with pytest.raises(ValueError, match=r"delay: |at: "):
            await queue.reschedule([handle.id], **wrong)
    with pytest.raises(ValueError, match="id"):
        await queue.promote(["nothing"])
    assert await handle.state() is State.PENDING


async def test_rescheduled_job_starts_in_time(app: App, queue_name: str) -> None:
    """A parked worker wakes for the nearer time."""
    ran = anyio.Event()

    @app.task(queue=queue_name, name="work")
    async def work() -> None:
        ran.set()

    async with app, running(app):
        handle = await work.options(delay=600).enqueue()
        await anyio.sleep(0.1)
        await handle.reschedule(delay=0.2)
        with anyio.fail_after(5):
            await ran.wait()


async def test_expired_job_is_told_to_its_waiter(client: Client, queue: Queue) -> None:
    """Nobody claimed it in time: it never runs, and whoever waits hears why."""
    handle = await queue.enqueue(b"late", expires=0.05, result_ttl=60)
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    fine = await queue.enqueue(b"fine", expires=moment)
    await anyio.sleep(0.1)
    reply = await client.wire.remembered(
        queue.keys, lambda call: claim(queue.keys, call, count=5, lease_ms=30_000), verb="claim"
    )
    assert [job.id for job in reply.jobs] == [fine.id]
    with pytest.raises(JobExpiredError, match=handle.id):
        await handle.result(timeout=10)
    assert (await queue.counts()).totals["expired"] == 1
    info = await fine.info()
    assert info is not None
    assert info.record.expires_ms == int(moment.timestamp() * 1000)


async def test_deadline_is_kept_over_all_attempts(client: Client, queue: Queue) -> None:
    """A claim past it buries the job, as the reason says."""
    handle = await queue.enqueue(b"", deadline=0.05, result_ttl=60)
    info = await handle.info()
    assert info is not None
    assert info.record.deadline_ms is not None
    assert info.record.deadline_ms == info.record.since + 50
    await anyio.sleep(0.1)
    reply = await client.wire.remembered(
        queue.keys, lambda call: claim(queue.keys, call, count=1, lease_ms=30_000), verb="claim"
    )
    assert reply.jobs == []
    with pytest.raises(JobFailedError, match="deadline"):
        await handle.result(timeout=10)
    assert [job.reason.startswith("deadline") async for job in queue.dead.find()] == [True]


async def test_dead_jobs_and_results_are_kept_as_told(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """The settings are there to be read, and whoever buries or keeps a job heeds them."""
    settings = await queue.settings()
    assert (settings.dead_max, settings.dead_age, settings.done_max) == (10_000, 90 * 86_400, 100_000)
    assert await queue.configure(dead_max=2, dead_age=dt.timedelta(days=30), done_max=3)
    settings = await queue.settings()
    assert (settings.dead_max, settings.dead_age, settings.done_max) == (2, 30 * 86_400, 3)
    for _ in range(5):
        await queue.enqueue(b"", result_ttl=600)
        await complete(client, queue)
    assert (await queue.counts()).done == 3
    ids = []
    for days in (40, 2, 2, 0):
        await queue.enqueue(b"")
        id = await fail(client, queue, KeyError())
        ids.append(id)
        moment = int(redis_client.zscore(queue.keys.dead, id) - days * 86_400_000)  # type: ignore[operator]
        redis_client.zadd(queue.keys.dead, {id: moment})
        redis_client.hset(queue.keys.job(id), "since", moment)
    await queue.enqueue(b"")
    ids.append(await fail(client, queue, KeyError()))
    assert [job.id async for job in queue.dead.find()] == ids[3:]
    assert await queue.configure(dead_max=None, dead_age=None, done_max=None)
    assert (await queue.settings()).dead_max == 10_000


def test_sync_jobs_get_another_time(sync_client: sync.Client, queue_name: str) -> None:
    """As by the other client."""
    queue = sync_client.queue(queue_name)
    handle = queue.enqueue(b"", delay=600)
    handle.promote()
    assert handle.state() is State.PENDING
    handle.reschedule(delay=60)
    assert queue.reschedule([handle.id, mint()], delay=5)[0] is None
    assert handle.state() is State.SCHEDULE
    assert queue.promote([handle.id]) == [None]
    queue.remove([handle.id])
    with pytest.raises(JobNotFoundError):
        handle.promote()
    late = queue.enqueue(b"", expires=dt.timedelta(milliseconds=1), result_ttl=60)
    assert late.state() is State.PENDING
    assert queue.configure(dead_max=5)
    assert queue.settings().dead_max == 5
