"""Functions around handling: what they see, what they may do, and what becomes of the job."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from echomq import (
    App,
    Discard,
    HandlerCall,
    Job,
    JobCall,
    JobFailedError,
    Retry,
    Snooze,
    SyncJob,
)
from echomq.protocol.failures import ErrorRecord
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio
TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")
KINDS = ("coroutine", "thread")


def declare(app: App, queue: str, kind: str, **options: Any) -> Any:
    """A task that doubles its argument, and says in whose name."""
    if kind == "coroutine":

        @app.task(name="double", queue=queue, result_ttl=60, **options)
        async def double(job: Job, n: int) -> Any:
            return n * 2, TENANT.get(), job.payload.decode()

        return double

    @app.task(name="double", queue=queue, result_ttl=60, **options)
    def plain_double(job: SyncJob, n: int) -> Any:
        return n * 2, TENANT.get(), job.payload.decode()

    return plain_double


def error_of(peek: Peek, id: str) -> ErrorRecord:
    """What a job failed by."""
    error = peek.record(id).error
    assert error is not None
    return error


@pytest.mark.parametrize("kind", KINDS)
async def test_around_handling_wraps_each_kind_of_handler(app: App, queue_name: str, kind: str) -> None:
    """It sees the job, sets context that the handler sees, and answers the result; the first is the outermost."""
    task = declare(app, queue_name, kind)
    told: list[Any] = []

    @app.around_handling
    async def outer(job: Job, call: HandlerCall) -> Any:
        assert type(job) is Job
        told.append(("outer", job.task, job.headers, structlog.contextvars.get_contextvars()["job"] == job.id))
        return [*await call(), "outer"]

    @app.around_handling
    async def inner(job: Job, call: HandlerCall) -> Any:
        told.append("inner")
        token = TENANT.set(job.headers["tenant"])
        try:
            return [*await call(), "inner"]
        finally:
            TENANT.reset(token)
            told.append("inner left")

    async with app, running(app):
        handle = await task.options(headers={"tenant": "acme"}).enqueue(21)
        assert await handle.result(timeout=10) == [42, "acme", '{"args":[21]}', "inner", "outer"]
    assert told == [("outer", "double", {"tenant": "acme"}, True), "inner", "inner left"]


@pytest.mark.parametrize("kind", KINDS)
async def test_around_handling_may_turn_the_payload_back(app: App, queue_name: str, peek: Peek, kind: str) -> None:
    """Encrypted on the way: the server never sees the arguments, the handler sees nothing else."""

    def seal(data: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in data)

    @app.around_enqueue
    def sealed(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        yield call.with_payload(seal(call.payload)).with_headers({"sealed": "1"})

    @app.around_handling
    async def unsealed(job: Job, call: HandlerCall) -> Any:
        return await call(payload=seal(job.payload)) if "sealed" in job.headers else await call()

    seen = []

    @app.around_handling
    async def further_in(job: Job, call: HandlerCall) -> Any:
        seen.append(job.payload)
        return await call()

    task = declare(app, queue_name, kind)
    async with app:
        handle = await task.enqueue(4)
        assert b"args" not in peek.record(handle.id).payload
        async with running(app):
            assert await handle.result(timeout=10) == [8, "nobody", '{"args":[4]}']
    assert seen == [b'{"args":[4]}']


async def test_around_handling_replaces_payloads_of_many_pieces(app: App, queue_name: str) -> None:
    """A payload that its row keeps in pieces is replaced as a whole."""

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(text: str) -> str:
        return text

    @app.around_handling
    async def shortens(job: Job, call: HandlerCall) -> Any:
        assert len(job.payload) > 200
        return await call(payload=b'{"args":["short"]}')

    async with app, running(app):
        assert await (await handle.enqueue("x" * 200)).result(timeout=10) == "short"


async def count(job: Job, call: HandlerCall, counts: dict[str, int]) -> Any:
    """Metrics: how attempts end."""
    try:
        result = await call()
    except BaseException as error:
        name = type(error).__name__
        counts[name] = counts.get(name, 0) + 1
        raise
    counts["done"] = counts.get("done", 0) + 1
    return result


async def test_around_handling_counts_what_happens(app: App, queue_name: str, peek: Peek) -> None:
    """Results, errors and verdicts pass through as they are."""
    counts: dict[str, int] = {}

    @app.around_handling
    async def counted(job: Job, call: HandlerCall) -> Any:
        return await count(job, call, counts)

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(what: str) -> None:
        if what != "done":
            raise {"value": ValueError("v"), "snooze": Snooze(600), "discard": Discard("d")}[what]

    async with app, running(app):
        jobs = {what: await handle.enqueue(what) for what in ("done", "value", "snooze", "discard")}
        ends = {"done": "", "value": "dead", "snooze": "schedule", "discard": ""}
        await until(lambda: {what: peek.state(job.id) for what, job in jobs.items()} == ends)
    assert counts == {"done": 1, "ValueError": 1, "Snooze": 1, "Discard": 1}
    assert error_of(peek, jobs["value"].id).message == "v"


@pytest.mark.parametrize("kind", KINDS)
async def test_around_handling_that_swallows_completes_the_job(app: App, queue_name: str, kind: str) -> None:
    """What it returns is the result."""

    @app.around_handling
    async def swallows(job: Job, call: HandlerCall) -> Any:
        try:
            return await call()
        except ZeroDivisionError:
            return "swallowed"

    if kind == "coroutine":

        @app.task(name="divide", queue=queue_name, result_ttl=60)
        async def divide() -> Any:
            raise ZeroDivisionError
    else:

        @app.task(name="divide", queue=queue_name, result_ttl=60)
        def divide() -> Any:
            raise ZeroDivisionError

    async with app, running(app):
        assert await (await divide.enqueue()).result(timeout=10) == "swallowed"


async def test_around_handling_may_raise_verdicts(app: App, queue_name: str, peek: Peek) -> None:
    """They mean what they mean when a handler raises them."""
    task = declare(app, queue_name, "coroutine")

    @app.around_handling
    async def decides(job: Job, call: HandlerCall) -> Any:
        raise Retry(600) if job.headers["do"] == "retry" else Discard("of no use")

    async with app, running(app):
        retried = await task.options(headers={"do": "retry"}).enqueue(1)
        dropped = await task.options(headers={"do": "discard"}).enqueue(1)
        with pytest.raises(JobFailedError, match="of no use"):
            await dropped.result(timeout=10)
        await until(lambda: peek.state(retried.id) == "schedule")
    assert peek.record(retried.id).failures == 1


async def test_around_handling_that_raises_fails_the_attempt(app: App, queue_name: str, peek: Peek) -> None:
    """As if the handler had, whether that has run or not."""
    task, ran = declare(app, queue_name, "coroutine", max_attempts=1), []

    @app.around_handling
    async def breaks(job: Job, call: HandlerCall) -> Any:
        if job.headers["when"] == "after":
            ran.append(await call())
        raise LookupError("mine")

    async with app, running(app):
        jobs = [await task.options(headers={"when": when}).enqueue(1) for when in ("before", "after")]
        await until(lambda: all(peek.state(job.id) == "dead" for job in jobs))
    assert [error_of(peek, job.id).message for job in jobs] == ["mine"] * 2
    assert len(ran) == 1


async def test_around_handling_that_never_calls_completes_without_the_handler(app: App, queue_name: str) -> None:
    """Its own result takes the place of the handler's; the arguments are not even decoded."""
    task = declare(app, queue_name, "coroutine")

    @app.around_handling
    async def answers(job: Job, call: HandlerCall) -> Any:
        return "cached"

    async with app, running(app):
        assert await (await task.enqueue(1)).result(timeout=10) == "cached"
        assert (
            await (await app.task_stub("double", queue=queue_name, result_ttl=60).enqueue(wrong=1)).result(10)
            == "cached"
        )


async def test_around_handling_that_calls_twice_is_told(app: App, queue_name: str) -> None:
    """An attempt runs its handler once: the second call raises, and the first result still counts if that is caught."""
    ran = []

    @app.task(queue=queue_name, result_ttl=60, max_attempts=1)
    async def handle() -> Any:
        ran.append(1)
        return len(ran)

    @app.around_handling
    async def repeats(job: Job, call: HandlerCall) -> Any:
        first = await call()
        try:
            await call()
        except RuntimeError as error:
            return first, str(error)
        return "ran twice"

    async with app, running(app):
        result = await (await handle.enqueue()).result(timeout=10)
    assert result == [1, "call() was called before: an attempt runs its handler once"]
    assert ran == [1]


@pytest.mark.parametrize("payload", [b"no call", b'{"args":["text"]}'])
@pytest.mark.parametrize("way", ["passes", "wraps in a group", "swallows", "replaces"])
async def test_around_handling_of_what_cannot_be_decoded(
    app: App, queue_name: str, peek: Peek, payload: bytes, way: str
) -> None:
    """Poison is buried and misfits are put off, as without middleware, if it lets the error pass; else its word counts."""
    declare(app, queue_name, "coroutine", max_attempts=1)

    @app.around_handling
    async def meets(job: Job, call: HandlerCall) -> Any:
        if way == "wraps in a group":
            async with anyio.create_task_group():
                return await call()
        try:
            return await call()
        except Exception:
            if way == "passes":
                raise
            if way == "replaces":
                raise LookupError("mine") from None
            return "swallowed"

    with capture_logs() as logs:
        async with app, running(app):
            handle = await app.queue(queue_name).enqueue(payload, task="double", result_ttl=60)
            await until(lambda: not peek.active() and peek.state(handle.id) not in {"", "pending", "active"})
    events = {line["event"] for line in logs}
    state = peek.state(handle.id)
    if way == "swallows":
        assert state == "done"
    elif way == "replaces":
        assert (state, error_of(peek, handle.id).message) == ("dead", "mine")
    elif payload == b"no call":
        assert state == "dead"
        assert "payload_undecodable" in events
    else:
        assert state == "schedule"
        assert "job_unfit" in events
        assert peek.record(handle.id).failures == 0


async def test_around_handling_payload_is_bytes(app: App, queue_name: str, peek: Peek) -> None:
    """Anything else fails the attempt, without the handler."""
    task = declare(app, queue_name, "coroutine", max_attempts=1)

    @app.around_handling
    async def wrong(job: Job, call: HandlerCall) -> Any:
        return await call(payload="text")  # type: ignore[arg-type]

    async with app, running(app):
        handle = await task.enqueue(1)
        await until(lambda: peek.state(handle.id) == "dead")
    assert error_of(peek, handle.id).message == "a payload is bytes, not 'text'"


# --- declaring --------------------------------------------------------------------------------


async def _of_one(job: Job) -> None: ...


async def _of_three(job: Job, call: HandlerCall, more: int) -> None: ...


def _adds(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(function)
    async def adding(*args: Any) -> Any:
        return await function(*args, 3)

    return adding


@pytest.mark.parametrize("function", [_of_one, functools.partial(_of_one)])
async def test_around_handling_takes_two_arguments(app: App, function: Callable[..., Awaitable[Any]]) -> None:
    """One that cannot be called with them is refused where it is declared, by its name; a decorator may add some."""
    with pytest.raises(TypeError, match=r"is called with \(job, call\), and .*_of_one.* takes \(job: "):
        app.around_handling(function)
    assert not app.around_handling
    for right in (_adds(_of_three), functools.partial(_of_three, more=1)):
        app.around_handling(right)


@pytest.mark.parametrize("function", [3, lambda job, call: None, Job])
async def test_around_handling_is_a_coroutine_function(app: App, function: Callable[..., Awaitable[Any]]) -> None:
    """Anything else is refused where it is declared."""
    with pytest.raises(TypeError, match="is a coroutine function"):
        app.around_handling(function)
    assert not app.around_handling
