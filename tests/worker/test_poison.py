"""Whatever a job does to its worker spends that job's budget: it is neither given back for ever nor the worker's end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import anyio
import anyio.lowlevel
import pytest

from echomq.app import App
from echomq.job import Job
from echomq.protocol.codec import JsonCodec
from echomq.verdicts import Retry, Snooze
from echomq.worker.entry import run_worker
from echomq.worker.watchdog import coroutine_stack
from tests.worker.support import QUICK, TRIO, Peek, running, until

pytestmark = pytest.mark.anyio


class Rude(Exception):  # noqa: N818
    """Raises when it is looked at."""

    raises: type[BaseException] = SystemExit

    def __str__(self) -> str:
        raise self.raises(3)

    __repr__ = __str__


class Cancels(Rude):
    """The same, with what a cancellation raises on asyncio."""

    raises = asyncio.CancelledError


class Liar(Exception):  # noqa: N818
    """Raises when its class is asked for."""

    def __getattribute__(self, name: str) -> Any:
        """Fail."""
        if name == "__class__":
            raise GeneratorExit
        return super().__getattribute__(name)


class Endless(ExceptionGroup[Exception]):
    """A group that says that it holds itself."""

    @property
    def exceptions(self) -> Any:
        """Lie."""
        return (self,)


class BadName(type):
    """A class of classes that have no name."""

    def __getattribute__(cls, name: str) -> Any:
        """Fail for names."""
        if name in {"__qualname__", "__module__", "__name__"}:
            raise SystemExit
        return super().__getattribute__(name)


def deep(error: BaseException, times: int = 3000, *, width: int = 1) -> BaseException:
    """Nest an exception in groups."""
    for _ in range(times):
        error = BaseExceptionGroup("group", [error] * width)
    return error


def snooze(after: Any) -> Snooze:
    """Make one that was tampered with."""
    verdict = Snooze(1)
    verdict.after = after
    return verdict


def retry(after: Any) -> Retry:
    """Make one that was tampered with."""
    verdict = Retry(1)
    verdict.after = after
    return verdict


ERRORS: dict[str, Callable[[], BaseException]] = {
    "deep group": lambda: deep(ValueError("deep")),
    "deep and double": lambda: deep(ValueError("deep"), 60, width=2),
    "wide group": lambda: ExceptionGroup("wide", [ValueError(n) for n in range(100_000)]),
    "rude": Rude,
    "rude in a group": lambda: ExceptionGroup("g", [Rude(), Rude()]),
    "cancels": Cancels,
    "liar": Liar,
    "endless": lambda: Endless("g", [ValueError()]),
    "bad name": BadName("Nameless", (Exception,), {}),
    "generator exit": GeneratorExit,
    "recursion": RecursionError,
    "snooze nan": lambda: snooze(float("nan")),
    "snooze huge": lambda: snooze(10**5000),
    "retry text": lambda: retry("soon"),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("in_thread", [False, True])
@pytest.mark.parametrize("kind", ERRORS)
async def test_exception_of_any_kind_buries_its_own_job(
    app: App, queue_name: str, peek: Peek, kind: str, in_thread: bool
) -> None:
    """Nesting, lies, and what raises when it is looked at: the job has failed once; worker and neighbours go on."""

    @app.task(queue=queue_name, max_attempts=1)
    async def bad() -> None:
        raise ERRORS[kind]()  # noqa: RSE102 - it may be a function

    @app.task(queue=queue_name, max_attempts=1)
    def bad_in_thread() -> None:
        raise ERRORS[kind]()  # noqa: RSE102 - it may be a function

    @app.task(queue=queue_name, result_ttl=60)
    async def good() -> int:
        await anyio.lowlevel.checkpoint()
        return 1

    async with app, running(app, concurrency=20):
        goods = [await good.enqueue() for _ in range(3)]
        job = await (bad_in_thread if in_thread else bad).enqueue()
        await until(lambda: peek.state(job.id) == "dead")
        goods += [await good.enqueue() for _ in range(3)]
        for each in goods:
            assert await each.result(timeout=10) == 1
    record = peek.record(job.id)
    assert (record.failures, record.stalls, record.attempts) == (1, 0, 1)
    assert record.error is not None
    assert record.error.type


class Odd:
    """A codec that raises what it is told to."""

    def __init__(self, error: type[BaseException]) -> None:
        self.error, self.json = error, JsonCodec()

    def encode(self, value: Any) -> bytes:
        """Write, or raise at what is marked."""
        if value == "bad":
            raise self.error
        return self.json.encode(value)

    def decode(self, data: bytes, type: Any = Any) -> Any:
        """Read, or raise at what is marked."""
        if data == b"bad":
            raise self.error
        return self.json.decode(data, type)


RAISES = [SystemExit, GeneratorExit, asyncio.CancelledError, RecursionError, StopIteration, BaseException]


@pytest.mark.parametrize("error", RAISES)
async def test_codec_that_raises_anything_fails_its_own_job(
    server_url: str, queue_name: str, peek: Peek, error: type[BaseException]
) -> None:
    """In a result, in notes, in arguments: the job fails or is put off, and the worker serves on."""
    app = App(server_url, codec=Odd(error))

    @app.task(queue=queue_name, max_attempts=1, result_ttl=60)
    async def handle(job: Job, how: str) -> str:
        if how == "checkpoint":
            await job.checkpoint("bad")
        return how

    async with app, running(app) as worker:
        unread = await app.queue(queue_name).enqueue(b"bad", task=handle.name)
        await until(lambda: peek.state(unread.id) == "schedule")
        noted = await app.queue(queue_name).enqueue(b'{"args":["checkpoint"]}', task=handle.name, max_attempts=1)
        result = await app.queue(queue_name).enqueue(
            b'{"args":["bad"]}', task=handle.name, result_ttl=60, max_attempts=1
        )
        await until(lambda: peek.state(noted.id) == peek.state(result.id) == "dead")
        good = await handle.enqueue("good")
        assert await good.result(timeout=10) == "good"
        await until(lambda: not worker.statistics().running)
    assert peek.record(unread.id).row[b"unfit_since"]


@TRIO
@pytest.mark.parametrize("error", RAISES)
async def test_backoff_that_raises_anything_is_replaced(
    app: App, queue_name: str, peek: Peek, error: type[BaseException]
) -> None:
    """The default takes its place."""

    def backoff(*_: Any) -> float:
        raise error

    @app.task(queue=queue_name, max_attempts=2, backoff=backoff)
    async def handle() -> None:
        raise ValueError("on purpose")

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    assert peek.record(job.id).failures == 2


async def test_handler_that_leaves_a_scope_open_fails_or_completes_alone(app: App, queue_name: str, peek: Peek) -> None:
    """Such a scope tears the task's own state: its job is settled, and the worker serves on."""
    left = []

    @app.task(queue=queue_name, max_attempts=1)
    async def leaky() -> None:
        scope = anyio.CancelScope()
        scope.__enter__()
        left.append(scope)

    @app.task(queue=queue_name, result_ttl=60)
    async def good() -> int:
        await anyio.sleep(0.05)
        return 1

    async with app, running(app):
        job = await leaky.enqueue()
        await until(lambda: peek.state(job.id) in {"dead", ""})
        assert [await (await good.enqueue()).result(timeout=10) for _ in range(3)] == [1, 1, 1]
    assert peek.record(job.id).failures == (1 if peek.state(job.id) else 0)
    assert peek.count("stalled") == 0


async def test_interrupt_while_a_verdict_is_made_spends_the_budget(app: App, queue_name: str, peek: Peek) -> None:
    """Ctrl-C stops the worker; the job whose text raised it is not given back to do it again."""

    class Interrupts(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise KeyboardInterrupt

    @app.task(queue=queue_name, max_attempts=1)
    async def handle() -> None:
        raise Interrupts

    async with app:
        job = await handle.enqueue()
        with pytest.raises(KeyboardInterrupt):
            await run_worker(app, **QUICK)
    assert (peek.state(job.id), peek.record(job.id).failures) == ("dead", 1)


def test_stack_of_an_odd_awaitable_is_bounded() -> None:
    """What a handler awaits may be any object: one that answers everything, or raises."""

    class Raises:
        @property
        def cr_frame(self) -> Any:
            raise SystemExit

    assert coroutine_stack(Mock()) == ""
    assert coroutine_stack(Raises()) == ""
