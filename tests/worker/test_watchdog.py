"""The watchdog: who blocks the loop is named, and a machine that slept ends what is over."""

from __future__ import annotations

import time
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.job import Job
from tests.worker.support import TRIO, Peek, running, until

pytestmark = pytest.mark.anyio


@TRIO
async def test_handler_that_blocks_the_loop_is_named(app: App, queue_name: str) -> None:
    """The log shows the stack of whoever blocks, while he does it."""

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        await within(2.4 if job.priority else 0.0)

    async def within(seconds: float) -> None:
        if not seconds:
            await gate.wait()
        time.sleep(seconds)
        gate.set()

    gate = anyio.Event()
    with capture_logs() as logs:
        async with app, running(app, lease=10.0) as worker:
            waits = await handle.enqueue()
            await until(lambda: worker.statistics().running)
            blocks = await handle.options(priority=1).enqueue()
            await until(lambda: worker.statistics().counters.completed == 2)
            await until(lambda: worker.statistics().ready)
    assert waits.id != blocks.id
    (line,) = [line for line in logs if line["event"] == "event_loop_blocked"]
    assert "time.sleep(seconds)" in line["stack"]
    assert "in handle" in line["stack"]
    assert (line["queue"], line["job"], line["task"], line["attempt"]) == (queue_name, blocks.id, "handle", 1)


@TRIO
async def test_handler_of_a_batch_that_blocks_the_loop_is_named(app: App, queue_name: str) -> None:
    """By one of its jobs, and how many they are."""

    @app.task(queue=queue_name, batch=Batch(max_size=2))
    async def handle(batch: JobBatch[int]) -> None:
        time.sleep(2.2)

    with capture_logs() as logs:
        async with app:
            jobs = [await handle.enqueue(n) for n in range(2)]
            async with running(app, lease=10.0) as worker:
                await until(lambda: worker.statistics().counters.completed == 2)
    (line,) = [line for line in logs if line["event"] == "event_loop_blocked"]
    assert (line["job"], line["task"], line["batch"]) == (jobs[0].id, "handle", 2)


@TRIO
async def test_loop_that_no_handler_blocks_names_none(app: App, queue_name: str) -> None:
    """The program around an embedded worker may block the loop itself: no handler is blamed for it."""

    @app.task(queue=queue_name)
    async def handle() -> None:
        await anyio.sleep_forever()

    with capture_logs() as logs:
        async with app, running(app, lease=10.0) as worker:
            await handle.enqueue()
            await until(lambda: worker.statistics().running)
            time.sleep(2.2)
            await until(lambda: worker.statistics().ready)
    (line,) = [line for line in logs if line["event"] == "event_loop_blocked"]
    assert "time.sleep(2.2)" in line["stack"]
    assert "job" not in line


async def test_late_loop_claims_nothing_until_it_keeps_time_again(app: App, queue_name: str) -> None:
    """A worker that cannot renew must not take more; the next look on time lets it go on."""
    ran: list[int] = []

    @app.task(queue=queue_name)
    async def handle() -> None:
        ran.append(1)

    async with app, running(app, concurrency=1) as worker:
        watchdog = worker._watchdog
        with capture_logs() as logs:
            watchdog.tick(slept=0.0, lag=9.0)
        assert [line["event"] for line in logs] == ["event_loop_late"]
        assert not worker.statistics().ready
        assert worker._free() == 0
        await handle.enqueue()
        await until(lambda: ran == [1])
        await until(lambda: worker.statistics().ready)


async def test_suspended_machine_loses_what_expired_meanwhile(app: App, queue_name: str, peek: Peek) -> None:
    """Deadlines stood still while it slept: they are pulled in by what was slept, and what is over ends as lost."""
    seen: list[Any] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(job.cancel_reason)

    async with app, running(app, lease=60.0) as worker:
        job = await handle.enqueue()
        await until(lambda: worker.statistics().running)
        row = peek.record(job.id).row
        worker._watchdog.tick(slept=20.0, lag=0.0)
        await anyio.sleep(0.05)
        assert seen == []
        worker._watchdog.tick(slept=40.0, lag=0.0)
        await until(lambda: worker.statistics().counters.lost == 1)
        assert peek.record(job.id).row == row
        assert list(peek.active()) == [job.id]
    assert seen == ["lease_lost"]


@TRIO
async def test_handler_that_outlives_its_timeout_is_named_while_the_worker_runs(
    app: App, queue_name: str, peek: Peek
) -> None:
    """A handler that shields itself cannot be made to end: its lease is renewed, and the log says who it is, once."""

    @app.task(queue=queue_name, timeout=0.1, max_attempts=1)
    async def handle() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(1.5)
        await anyio.lowlevel.checkpoint()

    with capture_logs() as logs:
        async with app, running(app, lease=1.4, cleanup=0.2) as worker:
            await handle.enqueue()
            await until(lambda: worker.statistics().counters.dead == 1)
    (line,) = [line for line in logs if line["event"] == "handler_will_not_end"]
    assert "in handle" in line["stack"]
    assert line["reason"] == "timeout"
    assert peek.count("stalled") == 0
