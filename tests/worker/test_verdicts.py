"""What a handler returns or raises decides about its job, and about nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from echomq.app import App
from echomq.backoff import Fixed
from echomq.errors import JobFailedError
from echomq.job import Job
from echomq.transitions.rate_limited import LimitScope
from echomq.verdicts import Discard, RateLimited, Retry, Snooze
from echomq.worker.entry import run_worker
from tests.worker.support import QUICK, Peek, running, until

pytestmark = pytest.mark.anyio


async def test_retry_spends_budget_at_the_delay_it_names(app: App, queue_name: str, peek: Peek) -> None:
    """`Retry(after)` is a failure with a delay of the handler's choice."""

    @app.task(queue=queue_name, backoff=Fixed(1000))
    async def handle() -> None:
        raise Retry(500, reason="the shop is closed")

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    record = peek.record(job.id)
    due = peek.client.zscore(peek.keys.schedule, job.id)
    assert (record.failures, record.holder) == (1, "")
    assert due is not None
    assert 400_000 < float(due) - record.since <= 500_000
    assert record.error is not None
    assert record.error.message == "the shop is closed"


async def test_snooze_spends_nothing(app: App, queue_name: str, peek: Peek) -> None:
    """`Snooze(after)` puts the job off and leaves its budget alone, with a floor of a second."""

    @app.task(queue=queue_name, max_attempts=1)
    async def handle() -> None:
        raise Snooze(0)

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    record = peek.record(job.id)
    assert (record.failures, record.stalls) == (0, 0)
    due = peek.client.zscore(peek.keys.schedule, job.id)
    assert due is not None
    assert float(due) - record.since >= 1000


async def test_discard_ends_the_job_whatever_its_reason_is(app: App, queue_name: str, peek: Peek) -> None:
    """`Discard` ends without retry or morgue; a reason that is no sendable text hurts nobody in the same call."""
    gate = anyio.Event()

    class Rude:
        def __str__(self) -> str:
            raise ValueError

    reasons: list[Any] = ["of no use", "lone \udc80 surrogate", "x" * 100_000, 17, Rude(), None]

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(n: int) -> None:
        await gate.wait()  # all end at the same moment, so their verdicts leave in one call
        raise Discard(reasons[n])

    async with app, running(app):
        jobs = [await handle.enqueue(n) for n in range(len(reasons))]
        gate.set()
        for job in jobs:
            with pytest.raises(JobFailedError) as caught:
                await job.result(timeout=10)
            assert caught.value.type == "Discard"
    found = [peek.record(job.id).reason for job in jobs]
    assert found[0] == "of no use"
    assert len(found[2]) == 1024
    assert found[3] == "17"
    assert peek.count("dead") == 0


async def test_exception_fails_the_job_until_its_budget_is_spent(app: App, queue_name: str, peek: Peek) -> None:
    """Any other exception is a failure; out of budget, the job is buried with type, message and traceback."""

    @app.task(queue=queue_name, max_attempts=2, backoff=Fixed(0))
    async def handle() -> None:
        raise ZeroDivisionError("by zero")

    async with app, running(app):
        job = await handle.enqueue()
        own = await handle.options(max_attempts=1).enqueue()
        await until(lambda: peek.state(job.id) == peek.state(own.id) == "dead")
    record = peek.record(job.id)
    assert (record.failures, record.attempts) == (2, 2)
    assert peek.record(own.id).attempts == 1
    assert record.error is not None
    assert (record.error.type, record.error.message) == ("ZeroDivisionError", "by zero")
    assert "in handle" in record.error.traceback


class NeedsThree(Exception):  # noqa: N818
    """An exception that cannot be made again from its arguments."""

    def __init__(self, a: int, b: int, c: int) -> None:
        super().__init__(a)


class Mute(Exception):  # noqa: N818
    """An exception that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")

    __repr__ = __str__


class Quits(BaseException):
    """Neither an Exception nor one of Python's own."""


def _strange(kind: str) -> BaseException:
    many = ExceptionGroup("several", [ValueError("one"), KeyError("two")])
    return {
        "three": NeedsThree(1, 2, 3),
        "mute": Mute(),
        "group of one": ExceptionGroup("outer", [ExceptionGroup("inner", [LookupError("deep")])]),
        "group": many,
        "group of exits": BaseExceptionGroup("exits", [SystemExit(1), Quits()]),
        "exit": SystemExit(3),
        "base": Quits("quits"),
        "surrogate": ValueError("\udcff"),
        "huge": ValueError("y" * 10_000_000),
    }[kind]


async def test_strange_exceptions_fail_their_job_and_nothing_else(app: App, queue_name: str, peek: Peek) -> None:
    """Whatever a handler raises is kept as bounded text; the worker and the neighbours go on."""
    kinds = {
        "three": "NeedsThree", "mute": "Mute", "group of one": "LookupError", "group": "ExceptionGroup",
        "group of exits": "BaseExceptionGroup", "exit": "SystemExit", "base": "Quits",
        "surrogate": "ValueError", "huge": "ValueError",
    }  # fmt: skip
    done: list[int] = []

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(kind: str) -> None:
        await anyio.lowlevel.checkpoint()
        raise _strange(kind)

    @app.task(queue=queue_name, max_attempts=1)
    def in_thread(kind: str) -> None:
        raise _strange(kind)

    @app.task(queue=queue_name)
    async def neighbour(n: int) -> None:
        done.append(n)

    async with app, running(app, concurrency=50):
        jobs = []
        for n, kind in enumerate(kinds):
            jobs.append((kind, await handle.enqueue(kind)))
            jobs.append((kind, await in_thread.enqueue(kind)))
            await neighbour.enqueue(n)
        await until(lambda: peek.count("dead") == len(jobs) and len(done) == len(kinds))
    for kind, job in jobs:
        error = peek.record(job.id).error
        assert error is not None
        assert error.type.rpartition(".")[2] == kinds[kind]
        assert len(peek.record(job.id).row[b"error"]) <= 4096
    group = peek.record(jobs[6][1].id).error
    assert group is not None
    assert "ValueError: one" in group.message


async def test_verdict_within_a_task_group_is_still_a_verdict(app: App, queue_name: str, peek: Peek) -> None:
    """What a nursery wraps is unfolded."""

    @app.task(queue=queue_name)
    async def handle() -> None:
        async def child() -> None:
            raise Snooze(100)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child)
            await anyio.sleep_forever()

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    assert peek.record(job.id).failures == 0


async def test_handler_hit_by_a_cancellation_of_its_own_has_failed(
    app: App, queue_name: str, peek: Peek, anyio_backend: str
) -> None:
    """On asyncio, awaiting a task that was cancelled raises CancelledError: a failure, not the worker's end."""
    if anyio_backend != "asyncio":
        pytest.skip("trio has no such thing")

    @app.task(queue=queue_name, max_attempts=1)
    async def handle() -> None:
        task = asyncio.ensure_future(asyncio.sleep(100))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    error = peek.record(job.id).error
    assert error is not None
    assert error.type.endswith("CancelledError")


async def test_keyboard_interrupt_in_a_handler_stops_the_worker_in_order(app: App, queue_name: str, peek: Peek) -> None:
    """Ctrl-C gives the job back, lets the others end, and is raised at the end."""
    ended: list[str] = []

    @app.task(queue=queue_name)
    async def handle() -> None:
        await anyio.sleep(0.02)
        raise KeyboardInterrupt

    @app.task(queue=queue_name)
    async def other() -> None:
        await anyio.sleep(0.1)
        ended.append("other")

    async with app:
        await other.enqueue()
        job = await handle.enqueue()
        with pytest.raises(KeyboardInterrupt):
            await run_worker(app, **{**QUICK, "grace": 5.0})
    assert ended == ["other"]
    record = peek.record(job.id)
    assert (peek.state(job.id), record.failures, record.stalls) == ("pending", 0, 0)


@pytest.mark.parametrize("own", [False, True])
async def test_timeout_fails_the_attempt(app: App, queue_name: str, peek: Peek, own: bool) -> None:
    """A handler that runs too long is cancelled, may read why, and its attempt has failed; the job's word goes first."""
    seen: list[Any] = []

    @app.task(queue=queue_name, timeout=100 if own else 0.1, max_attempts=1)
    async def handle(job: Job) -> None:
        assert job.cancel_reason is None
        try:
            await anyio.sleep_forever()
        finally:
            seen.append((job.cancelled, job.cancel_reason))

    async with app, running(app):
        job = await (handle.options(timeout=0.1) if own else handle).enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    error = peek.record(job.id).error
    assert error is not None
    assert error.type == "TimeoutError"
    assert "timeout" in error.message
    assert seen == [(True, "timeout")]


@pytest.mark.parametrize("scope", ["lane", "queue"])
async def test_rate_limited_closes_and_spends_nothing(app: App, queue_name: str, peek: Peek, scope: LimitScope) -> None:
    """The job is pending again and the lane closed; the others go on, unless the queue was meant."""
    tried: list[str] = []

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(lane: str) -> None:
        tried.append(lane)
        if lane == "a":
            raise RateLimited(60, scope=scope)

    async with app, running(app, concurrency=1):
        queue = app.queue(queue_name)
        await queue.configure(events="all")
        job = await handle.options(lane="a").enqueue("a")
        await until(lambda: tried == ["a"] and peek.state(job.id) == "pending")
        other = await handle.options(lane="b").enqueue("b")
        if scope == "lane":
            await until(lambda: peek.state(other.id) == "")
            assert (await queue.lane("a").info()).closed == ("told to wait",)
            assert (await queue.settings()).closed_for == 0
        else:
            await anyio.sleep(0.1)
            assert peek.state(other.id) == "pending"
            assert 50 < (await queue.settings()).closed_for <= 60
    record = peek.record(job.id)
    assert (record.failures, record.stalls, record.holder, record.attempts) == (0, 0, "", 1)
    assert tried == (["a", "b"] if scope == "lane" else ["a"])
    ((_, event),) = peek.events("rate_limited")
    assert event[b"scope"] == scope.encode()


async def test_lane_closed_by_a_handler_is_opened_by_resume(app: App, queue_name: str) -> None:
    """And its jobs run at once."""
    tried: list[int] = []

    @app.task(queue=queue_name)
    async def handle() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise RateLimited(60)

    async with app, running(app):
        await handle.enqueue()
        await until(lambda: tried == [1])
        lane = app.queue(queue_name).lane("")
        while (await lane.info()).servable:  # noqa: ASYNC110 - the server sets no event
            await anyio.sleep(0.01)
        assert await lane.resume()
        await until(lambda: tried == [1, 1])
