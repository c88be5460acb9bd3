"""Cancelling by dedup key, by task and by lane, while jobs come and go."""

from __future__ import annotations

import anyio
import pytest

from echomq import App, CancelReport, Client, Job, JobHandle, JobNotFoundError, JobStateError, Queue, sync
from echomq.protocol.records import JobRecord
from tests.integration.working import claim_one, complete, until
from tests.worker.support import running

pytestmark = pytest.mark.anyio


async def test_cancel_by_dedup_key(client: Client, queue: Queue) -> None:
    """Waiting or running, none, ended with a window; the key is free at once."""
    await queue.enqueue(b"", dedup="k")
    assert await queue.cancel_dedup("k", reason="enough") == "cancelled"
    with pytest.raises(JobNotFoundError, match="'k'"):
        await queue.cancel_dedup("k")
    again = await queue.enqueue(b"", dedup="k")
    assert again.admitted
    await claim_one(client, queue)
    assert await queue.cancel_dedup("k") == "asked"
    kept = await queue.enqueue(b"", dedup="w", dedup_window=60, result_ttl=60)
    await complete(client, queue)
    with pytest.raises(JobStateError, match="'w' is done"):
        await queue.cancel_dedup("w")
    assert kept.admitted
    for bad in ("", "x" * 257, "a\n", 5):
        with pytest.raises(ValueError, match="dedup"):
            await queue.cancel_dedup(bad)  # type: ignore[arg-type]


async def fill(client: Client, queue: Queue) -> None:
    """Two tasks in two lanes and in none: each two ready, one scheduled, one running."""
    for lane in ("a", "b", ""):
        for task in ("t", "u"):
            await queue.enqueue(b"", task=task, lane=lane)
    for _ in range(6):
        await claim_one(client, queue)
    for lane in ("a", "b", ""):
        for task in ("t", "u"):
            await queue.enqueue_many([b""] * 2, task=task, lane=lane)
            await queue.enqueue(b"", task=task, lane=lane, delay=60)


@pytest.mark.parametrize(
    ("task", "lane", "lots"),
    [("t", None, 3), (None, "a", 2), (None, "", 2), ("t", "a", 1), ("t", "", 1), ("none", None, 0), (None, "none", 0)],
)
async def test_cancel_where_ends_what_fits_and_no_other(
    client: Client, queue: Queue, task: str | None, lane: str | None, lots: int
) -> None:
    """Ready, scheduled and running; what runs is asked and counted once."""
    await fill(client, queue)
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    report = await queue.cancel_where(task=task, lane=lane, reason="no more", progress=progress)
    assert report == CancelReport(cancelled=3 * lots, asked=lots)
    assert told == sorted(told)
    assert (told or [0])[-1] == 4 * lots
    counts = await queue.counts()
    assert (counts.pending, counts.schedule, counts.active) == (12 - 2 * lots, 6 - lots, 6)
    asked = [record.cancel for record in await rows(queue, "active") if record.cancel is not None]
    assert asked == ["no more"] * lots
    for record in [*await rows(queue, "schedule"), *await rows(queue, "pending")]:
        assert not (task in {None, record.task} and lane in {None, record.lane})


async def rows(queue: Queue, state: str) -> list[JobRecord]:
    """Read the rows of a state, in lanes or not."""
    pages = [await queue.browse(state, count=256)]
    if state == "pending":
        pages += [await queue.browse(state, count=256, lane=lane) for lane in ("a", "b")]
    return [record for page in pages for record, _ in page.jobs]


async def test_lane_cancels_its_own(client: Client, queue: Queue) -> None:
    """Also the jobs without a lane."""
    await fill(client, queue)
    assert await queue.lane("a").cancel(reason="left") == CancelReport(cancelled=6, asked=2)
    assert await queue.lane("").cancel() == CancelReport(cancelled=6, asked=2)
    assert (await queue.counts()).pending == 4


async def test_cancel_where_finds_all_of_many(queue: Queue) -> None:
    """Over more steps than one, among as many others."""
    await queue.enqueue_many([b""] * 700, task="t")
    await queue.enqueue_many([b""] * 700, task="u")
    await queue.enqueue_many([b""] * 700, task="t", delay=60)
    await queue.enqueue_many([b""] * 300, task="t", lane="a")
    assert await queue.cancel_where(task="t") == CancelReport(cancelled=1700, asked=0)
    counts = await queue.counts()
    assert (counts.pending, counts.schedule) == (700, 0)


async def test_cancel_where_may_be_left_half_way(queue: Queue) -> None:
    """What was cancelled stays so, and another call does the rest."""
    await queue.enqueue_many([b""] * 1000, task="t")
    with anyio.CancelScope() as scope:

        async def leave(count: int) -> None:
            if count > 300:
                scope.cancel()
                await anyio.sleep_forever()

        await queue.cancel_where(task="t", progress=leave)
    assert scope.cancelled_caught
    left = (await queue.counts()).pending
    assert 0 < left < 700
    assert await queue.cancel_where(task="t") == CancelReport(cancelled=left, asked=0)


async def test_cancel_where_while_work_goes_on(app: App, queue_name: str) -> None:
    """A worker claims, fails and retries, producers add: what was there at the start has ended, the others are done."""
    ended: list[str] = []

    @app.task(queue=queue_name, name="keep", result_ttl=60)
    async def keep(job: Job) -> None:
        ended.append(job.id)

    @app.task(queue=queue_name, name="drop", max_attempts=100, backoff=lambda *_: 0.01, result_ttl=60)
    async def drop() -> None:
        await anyio.sleep(0.005)
        raise ValueError("again")

    async with app:
        queue = app.queue(queue_name)
        targets = await app.enqueue_many(drop.call() for _ in range(400))
        async with running(app, concurrency=20):
            kept: list[JobHandle[None]] = []

            async def produce() -> None:
                for _ in range(20):
                    answers = await app.enqueue_many(keep.call() for _ in range(10))
                    kept.extend(each for each in answers if isinstance(each, JobHandle))
                    await anyio.sleep(0.005)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(produce)
                report = await queue.cancel_where(task="drop")
            assert report.cancelled + report.asked >= 300

            async def over() -> bool:
                await queue.cancel_where(task="drop")  # those that moved against the walk each time
                return (await queue.counts()).totals.get("cancelled", 0) == 400

            await until(over)
            await until(lambda: len(ended) == 200)
        assert {handle.id for handle in kept} == set(ended)
        assert all(isinstance(each, JobHandle) for each in targets)


def test_sync_queues_cancel_the_same(sync_client: sync.Client, queue_name: str) -> None:
    """By key, by task, by lane."""
    queue = sync_client.queue(queue_name)
    queue.enqueue(b"", dedup="k")
    assert queue.cancel_dedup("k") == "cancelled"
    with pytest.raises(JobNotFoundError):
        queue.cancel_dedup("k")
    queue.enqueue_many([b""] * 300, task="t", lane="a")
    queue.enqueue_many([b""] * 10, task="t", delay=60)
    told: list[int] = []
    assert queue.lane("a").cancel(progress=told.append) == CancelReport(cancelled=300, asked=0)
    assert told[-1] == 300
    assert queue.cancel_where(task="t", reason="x") == CancelReport(cancelled=10, asked=0)
    with pytest.raises(ValueError, match="task"):
        queue.cancel_where()
