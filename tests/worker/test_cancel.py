"""A person cancels a running job: by channel, by heartbeat when the channel is deaf, and never a later attempt."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from echomq.app import App
from echomq.errors import JobCancelledError
from echomq.job import Job, SyncJob
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


async def test_cancel_by_channel_ends_the_handler_and_the_job(app: App, queue_name: str, peek: Peek) -> None:
    """The request comes at once, long before any heartbeat; cleanup may still write; the reason is told."""
    began, seen = anyio.Event(), []

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(job: Job) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            seen.append((job.cancelled, job.cancel_reason))
            with anyio.CancelScope(shield=True):
                await job.checkpoint("kept")

    async with app, running(app, lease=600.0, concurrency=1) as worker:
        job = await handle.enqueue()
        await began.wait()
        await until(lambda: peek.client.pubsub_numsub(peek.keys.cancel_channel)[0][1])
        assert await job.cancel(reason="not needed any more") == "asked"
        with pytest.raises(JobCancelledError, match="not needed any more"):
            await job.result(timeout=10)
        await until(lambda: worker.statistics().counters.cancelled == 1)
    assert seen == [(True, "cancelled")]
    assert peek.record(job.id).checkpoint == b'"kept"'


async def test_cancel_comes_by_heartbeat_when_the_channel_is_deaf(app: App, queue_name: str, peek: Peek) -> None:
    """A request whose message was lost is in the row, and the next renewal answers it."""
    began = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        began.set()
        await anyio.sleep_forever()

    async with app, running(app, lease=2.0) as worker:
        job = await handle.enqueue()
        await began.wait()
        peek.client.hset(peek.keys.job(job.id), "cancel", "quietly")
        await until(lambda: peek.state(job.id) == "")
        await until(lambda: worker.statistics().counters.cancelled == 1)
    assert peek.count("cancelled") == 1


async def test_cancelled_thread_is_asked_and_notes_what_it_has(app: App, queue_name: str, peek: Peek) -> None:
    """A thread polls `job.cancelled`; its slot and lease stay its own until it returns, and its notes still work."""
    seen: list[Any] = []
    began = anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    def handle(job: SyncJob) -> None:
        anyio.from_thread.run_sync(began.set)
        while not job.cancelled:
            time.sleep(0.005)
        job.progress(1, message="stopping")
        job.checkpoint({"at": 7}, step=7)
        job.log("bye")
        seen.append(job.cancel_reason)
        raise RuntimeError("the noise of a cleanup")

    async with app, running(app):
        job = await handle.enqueue()
        await began.wait()
        await job.cancel(reason="by hand")
        with pytest.raises(JobCancelledError, match="by hand"):
            await job.result(timeout=10)
    assert seen == ["cancelled"]
    record = peek.record(job.id)
    assert (record.progress["message"], record.step) == ("stopping", 7)


async def test_timed_out_thread_is_told_so(app: App, queue_name: str, peek: Peek) -> None:
    """Nothing interrupts a thread, but it can read that its time is up, and why."""
    seen: list[Any] = []

    @app.task(queue=queue_name, timeout=0.05, max_attempts=1)
    def handle(job: SyncJob) -> None:
        while not job.cancelled:
            time.sleep(0.005)
        seen.append(job.cancel_reason)
        job.progress(1, message="late")
        raise RuntimeError

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    record = peek.record(job.id)
    assert seen == ["timeout"]
    assert record.progress["message"] == "late"
    assert record.error is not None
    assert record.error.type == "TimeoutError"


async def test_cancel_of_another_attempt_is_ignored(app: App, queue_name: str, peek: Peek) -> None:
    """A request names the token it is meant for: an old one, or rubbish on the channel, stops nobody."""
    began, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def handle() -> str:
        began.set()
        await gate.wait()
        return "done"

    async with app, running(app):
        job = await handle.enqueue()
        await began.wait()
        await until(lambda: peek.client.pubsub_numsub(peek.keys.cancel_channel)[0][1])
        for message in (
            f"{job.id} 2 x",
            f"{job.id} 0 x",
            f"{job.id} 1",
            "",
            "a b c",
            b"\xff\xff\xff",
            f"{job.id} 1e0 x",
        ):
            assert peek.client.publish(peek.keys.cancel_channel, message) == 1
        await anyio.sleep(0.1)
        gate.set()
        assert await job.result(timeout=10) == "done"


async def test_completion_wins_over_a_request(app: App, queue_name: str) -> None:
    """A handler that finishes although it was asked to stop has finished."""
    began = anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def handle() -> str:
        began.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "done all the same"
        return ""

    async with app, running(app):
        job = await handle.enqueue()
        await began.wait()
        assert await job.cancel() == "asked"
        assert await job.result(timeout=10) == "done all the same"


@pytest.mark.parametrize("how", ["fail", "snooze", "shutdown"])
async def test_cancelled_job_never_becomes_ready_again(app: App, queue_name: str, peek: Peek, how: str) -> None:
    """The attempt ends otherwise, and the request in the row ends the job."""
    from echomq.verdicts import Snooze  # noqa: PLC0415 - here only

    began, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        began.set()
        await gate.wait()
        raise Snooze(1) if how == "snooze" else RuntimeError

    async with app:
        async with running(app, lease=600.0):
            job = await handle.enqueue()
            await began.wait()
            peek.client.hset(peek.keys.job(job.id), "cancel", "quietly")
            if how != "shutdown":
                gate.set()
                await until(lambda: not peek.active())
        assert await job.state() is None
    assert peek.count("cancelled") == 1
    assert peek.empty()


async def test_cancel_works_for_every_queue_of_a_worker(app: App, queue_name: str, peek: Peek) -> None:
    """One subscription follows all of them."""
    began: list[str] = []

    def declare(queue: str) -> Any:
        @app.task(name=queue, queue=queue, result_ttl=60)
        async def handle() -> None:
            began.append(queue)
            await anyio.sleep_forever()

        return handle

    tasks = [declare(f"{queue_name}-{n}") for n in range(3)]
    async with app, running(app, lease=600.0):
        jobs = [await task.enqueue() for task in tasks]
        await until(lambda: len(began) == 3)
        channels = [app.queue(task.queue).keys.cancel_channel for task in tasks]
        await until(lambda: [count for _, count in peek.client.pubsub_numsub(*channels)] == [1] * 3)
        for job in jobs:
            await job.cancel(reason="all")
            with pytest.raises(JobCancelledError):
                await job.result(timeout=10)
