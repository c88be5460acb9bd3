"""Follow-ups: admitted with the completion, if and only if it counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import pytest

from echomq import App, Batch, JobBatch, JobCall
from echomq.job import Job, SyncJob
from echomq.verdicts import Discard, Snooze
from echomq.worker.reasons import Returned
from echomq.worker.timers import Timers
from tests.worker.fakes import FakeCalls, make_lease, make_settler
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("how", ["coroutine", "thread", "batch"])
async def test_follow_ups_come_with_the_completion(app: App, queue_name: str, how: str) -> None:
    """Same queue and others, with their options, after middleware, and not before the handler has returned."""
    ran: list[Any] = []

    @app.around_enqueue
    def signed(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        yield call.with_headers({"signed": "yes"})

    @app.task(queue=f"{queue_name}-next")
    async def near(job: Job, text: str) -> None:
        ran.append((text, job.priority, job.headers.get("signed")))

    def stage(job: Job | SyncJob) -> None:
        id = job.on_complete.enqueue(near.options(priority=3).call("far"))
        assert id.startswith("JOB")
        job.on_complete.enqueue(same.call("same"))
        ran.append("returns")

    same: Any = near
    if how == "coroutine":

        @app.task(queue=queue_name)
        async def coroutine(job: Job, n: int) -> None:
            stage(job)

    elif how == "thread":

        @app.task(queue=queue_name)
        def thread(job: SyncJob, n: int) -> None:
            stage(job)

    else:

        @app.task(queue=queue_name, batch=Batch(max_size=2))
        async def batch(batch: JobBatch[int]) -> None:
            for item in batch:
                stage(item)

    async with app, running(app):
        await app.enqueue(app.tasks[how].call(1))
        await until(lambda: len(ran) == 3)
    assert ran[0] == "returns"
    assert sorted(ran[1:]) == [("far", 3, "yes"), ("same", 0, "yes")]


@pytest.mark.parametrize("end", ["raises", "snoozes", "discards", "is lost", "is stopped"])
async def test_follow_ups_of_what_does_not_complete_never_come(app: App, queue_name: str, peek: Peek, end: str) -> None:
    """Whatever ends the attempt otherwise, nothing of what it staged is sent."""
    begun = anyio.Event()

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(job: Job) -> None:
        job.on_complete.enqueue(after.call())
        begun.set()
        match end:
            case "raises":
                raise ValueError("bad")
            case "snoozes":
                raise Snooze(600)
            case "discards":
                raise Discard("no")
        await anyio.sleep_forever()

    @app.task(queue=queue_name)
    async def after() -> None: ...

    async with app, running(app, lease=0.6 if end == "is lost" else 5.0) as worker:
        await app.queue(queue_name).configure(events="all")
        job = await handle.enqueue()
        await begun.wait()
        if end == "is lost":
            peek.expire(job.id)
            peek.reap()
            peek.claim()
        elif end == "is stopped":
            await job.cancel()
        await until(lambda: worker.statistics().running == 0 and worker.statistics().unsettled == 0)
    assert len(peek.events("enqueued")) == 1


async def test_follow_ups_have_a_limit_that_is_told_at_once(app: App, queue_name: str, peek: Peek) -> None:
    """Too many, too large, or what makes no sense is an error where it is staged."""
    seen: list[str] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        stage = job.on_complete.enqueue
        for _ in range(2):
            stage(after.options(delay=60).call("x" * 100_000))
        with pytest.raises(ValueError, match="bytes are more") as large:
            stage(after.call("x" * 100_000))
        for _ in range(126):
            stage(after.options(delay=60).call(""))
        with pytest.raises(ValueError, match="129 jobs are more") as many:
            stage(after.call(""))
        with pytest.raises(ValueError, match="dedup_mode"):
            job.on_complete.enqueue(after.options(dedup="k", dedup_mode="replace").call(""))
        with pytest.raises(TypeError, match="task's call"):
            job.on_complete.enqueue(after)  # type: ignore[arg-type]
        seen.extend((str(large.value), str(many.value)))

    @app.task(queue=queue_name)
    async def after(text: str) -> None: ...

    async with app, running(app):
        await handle.enqueue()
        await until(lambda: seen)
        await until(lambda: peek.client.zcard(peek.keys.schedule) == 128)


async def test_follow_up_whose_key_is_held_stays_out(app: App, queue_name: str, peek: Peek) -> None:
    """It is left out, and the completion counts."""

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(job: Job) -> str:
        job.on_complete.enqueue(after.options(dedup="k").call())
        return "done"

    @app.task(queue=queue_name)
    async def after() -> None: ...

    async with app, running(app):
        first = await after.options(dedup="k", delay=60).enqueue()
        assert await (await handle.enqueue()).result(timeout=10) == "done"
        counts = await app.queue(queue_name).counts()
        assert (counts.schedule, counts.pending) == (1, 0)
        assert await after.options(dedup="k").enqueue() == first


async def test_completion_that_is_taken_over_keeps_its_follow_ups() -> None:
    """What could not be delivered under one lease comes whole under the next."""
    timers, calls = Timers(), FakeCalls()
    settler = make_settler(timers)
    old = make_lease(calls)
    old.notes = _Staged()  # type: ignore[assignment]
    settler.settle(old, Returned(None), None)
    ((first, _),) = calls.complete.submitted
    assert settler.take_over(make_lease(calls, token=2, holder="nonce-1"))
    second = calls.complete.submitted[1][0]
    assert (first.follow, second.follow, second.token) == (b"follow", b"follow", 2)


class _Staged:
    """Notes that keep follow-ups."""

    follow = b"follow"

    @property
    def staged(self) -> _Staged:
        return self

    def flush(self) -> None: ...
