"""Functions around handling: what they see, what they may do, and what becomes of the job."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from echomq import (
    App,
    Batch,
    Discard,
    Fixed,
    HandlerCall,
    Job,
    JobBatch,
    JobCall,
    JobFailedError,
    Retry,
    Snooze,
    SyncJob,
)
from echomq.protocol.failures import ErrorRecord
from tests.worker import process_jobs
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
        await until(lambda: peek.count("completed") == 1 and not peek.active() and peek.state(jobs["snooze"].id))
        await until(lambda: peek.state(jobs["value"].id) == "dead" and peek.state(jobs["snooze"].id) == "schedule")
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


@pytest.mark.parametrize("where", ["before", "within", "after"])
async def test_around_handling_is_cancelled_with_its_job(app: App, queue_name: str, peek: Peek, where: str) -> None:
    """A person's cancel reaches it wherever it is; what it cleans up still has the lease."""
    began, told = anyio.Event(), []

    @app.task(queue=queue_name)
    async def handle() -> None:
        if where == "within":
            began.set()
            await anyio.sleep_forever()

    @app.around_handling
    async def waits(job: Job, call: HandlerCall) -> Any:
        try:
            if where == "before":
                began.set()
                await anyio.sleep_forever()
            await call()
            began.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            told.append(job.cancel_reason)
            with anyio.CancelScope(shield=True):
                await job.log("left")
            raise

    async with app, running(app):
        job = await handle.enqueue()
        await began.wait()
        await app.queue(queue_name).cancel(job.id)
        await until(lambda: not peek.active())
    assert told == ["cancelled"]
    assert peek.count("cancelled") == 1


async def test_around_handling_is_within_the_timeout(app: App, queue_name: str, peek: Peek) -> None:
    """A middleware that hangs is the attempt's failure."""
    task = declare(app, queue_name, "coroutine", timeout=0.05, backoff=Fixed(600))

    @app.around_handling
    async def hangs(job: Job, call: HandlerCall) -> Any:
        await call()
        await anyio.sleep_forever()

    async with app, running(app):
        job = await task.enqueue(1)
        await until(lambda: peek.state(job.id) == "schedule")
    assert error_of(peek, job.id).type == "TimeoutError"


async def test_around_handling_is_given_back_at_shutdown(app: App, queue_name: str, peek: Peek) -> None:
    """The handler is cancelled through it, and the job is pending again."""
    began = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        began.set()
        await anyio.sleep_forever()

    @app.around_handling
    async def plain(job: Job, call: HandlerCall) -> Any:
        return await call()

    async with app:
        async with running(app):
            job = await handle.enqueue()
            await began.wait()
        assert peek.state(job.id) == "pending"


async def test_around_handling_hears_of_a_threads_error(app: App, queue_name: str, peek: Peek) -> None:
    """What a plain function raises is raised at the call, in the event loop; the thread is the handler's own."""
    threads: list[int] = []

    @app.task(queue=queue_name, max_attempts=1)
    def handle() -> None:
        threads.append(threading.get_ident())
        raise SystemExit(3)

    @app.around_handling
    async def hears(job: Job, call: HandlerCall) -> Any:
        threads.append(threading.get_ident())
        try:
            await call()
        except SystemExit as error:
            raise LookupError(error.code) from error

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    assert threads[0] != threads[1]
    assert error_of(peek, job.id).type == "LookupError"


async def test_around_handling_that_hangs_is_shown_in_the_log(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What will not end is named with the line where it stands, also when its handler has ended."""
    task, free = declare(app, queue_name, "coroutine", timeout=0.05), anyio.Event()

    @app.around_handling
    async def stubborn(job: Job, call: HandlerCall) -> Any:
        await call()
        with anyio.CancelScope(shield=True):
            await free.wait()

    with capture_logs() as logs:
        async with app, running(app, cleanup=0.1):
            await task.enqueue(1)
            await until(lambda: [line for line in logs if line["event"] == "handler_will_not_end"])
            free.set()
    (line,) = (line for line in logs if line["event"] == "handler_will_not_end")
    assert "in stubborn" in line["stack"]


async def test_around_handling_is_around_a_process(app: App, queue_name: str, peek: Peek) -> None:
    """The payload is replaced before the process gets its arguments; what it raises is raised at the call, and tells where."""
    seen = []

    @app.around_handling
    async def around(job: Job, call: HandlerCall) -> Any:
        assert type(job) is Job
        await job.log("on its way")
        try:
            return await call(payload=b'{"args":[2,3]}' if job.task == "add" else None)
        except LookupError as error:
            seen.append(str(error))
            raise

    add = app.task(name="add", queue=queue_name, result_ttl=60, run_in="process")(process_jobs.add)
    fail = app.task(name="fail", queue=queue_name, max_attempts=1, run_in="process")(process_jobs.fail)
    async with app, running(app):
        assert await (await add.enqueue(0, 0)).result(timeout=20) == 5
        job = await fail.enqueue("deep")
        await until(lambda: peek.state(job.id) == "dead")
    assert seen == ["deep"]
    assert "process_jobs.py" in error_of(peek, job.id).traceback


async def test_around_handling_does_not_count_the_wait_for_a_thread(app: App, queue_name: str) -> None:
    """A plain function's timeout begins when its thread is had, middleware or not."""

    @app.around_handling
    async def around(job: Job, call: HandlerCall) -> Any:
        return await call()

    @app.task(queue=queue_name, timeout=0.4, result_ttl=60, max_attempts=1)
    def handle() -> str:
        time.sleep(0.25)
        return "done"

    async with app, running(app, threads=1):
        handles = [await handle.enqueue() for _ in range(3)]
        assert [await each.result(timeout=10) for each in handles] == ["done"] * 3


# --- batches ----------------------------------------------------------------------------------


def declare_batch(app: App, queue: str, handled: list[Any], **options: Any) -> Any:
    """A task of batches that notes its items."""

    @app.task(queue=queue, batch=Batch(max_size=3, linger=0.5), result_ttl=60, **options)
    async def handle(batch: JobBatch[int]) -> None:
        handled.append([item.value for item in batch])
        for item in batch:
            batch.done(item, item.value * 2)

    return handle


async def test_around_handling_is_once_around_a_batch(app: App, queue_name: str) -> None:
    """It gets the batch, its items without values until it calls; what it returns is nobody's result."""
    handled: list[Any] = []
    task, seen = declare_batch(app, queue_name, handled), []

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        assert type(batch) is JobBatch
        seen.append([(item.payload, item.value) for item in batch])
        assert await call() is None
        seen.append([item.value for item in batch.items])
        return "ignored"

    async with app, running(app):
        handles = [await task.enqueue(n) for n in range(3)]
        assert [await each.result(timeout=10) for each in handles] == [0, 2, 4]
    assert handled == [[0, 1, 2]]
    assert seen == [[(b'{"args":[%d]}' % n, None) for n in range(3)], [0, 1, 2]]


async def test_around_handling_may_turn_a_batchs_payloads_back(app: App, queue_name: str, peek: Peek) -> None:
    """By item; what cannot be decoded then is settled alone, and the handler does not see it."""
    handled: list[Any] = []
    task = declare_batch(app, queue_name, handled)

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        values = {b'{"args":[0]}': b'{"args":[100]}', b'{"args":[1]}': b"poison"}
        return await call(payload={item: values[item.payload] for item in batch if item.payload in values})

    async with app, running(app):
        handles = [await task.enqueue(n) for n in range(3)]
        assert await handles[0].result(timeout=10) == 200
        assert await handles[2].result(timeout=10) == 4
        await until(lambda: peek.state(handles[1].id) == "dead")
    assert handled == [[100, 2]]


async def test_around_handling_of_a_batch_that_is_all_poison_calls_nobody(
    app: App, queue_name: str, peek: Peek
) -> None:
    """Nothing is left to be handled; the middleware goes on."""
    handled: list[Any] = []
    declare_batch(app, queue_name, handled)
    seen = []

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        seen.append(await call())

    async with app, running(app):
        jobs = [await app.queue(queue_name).enqueue(b"no call", task="handle") for _ in range(2)]
        await until(lambda: all(peek.state(job.id) == "dead" for job in jobs))
    assert handled == []
    assert set(seen) == {None}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"x", "the payloads of a batch are a mapping of its items to bytes, not b'x'"),
        ({"no item": b"x"}, "the payloads of a batch are by its items, and this is none: 'no item'"),
    ],
)
async def test_around_handling_of_a_batch_wants_payloads_by_item(
    app: App, queue_name: str, peek: Peek, payload: Any, message: str
) -> None:
    """Anything else fails all of the batch."""
    task = declare_batch(app, queue_name, [], max_attempts=1)

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        await call(payload=payload)

    async with app, running(app):
        job = await task.enqueue(1)
        await until(lambda: peek.state(job.id) == "dead")
    assert error_of(peek, job.id).message == message


async def test_around_handling_that_swallows_a_batchs_error_completes_it(app: App, queue_name: str) -> None:
    """Items that are not settled are done; one that never calls completes them too."""

    @app.task(queue=queue_name, batch=Batch(max_size=2), result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        raise LookupError

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        try:
            if batch.items[0].headers:
                await call()
        except LookupError:
            pass

    async with app, running(app):
        assert await (await handle.enqueue(1)).result(timeout=10) is None
        assert await (await handle.options(headers={"call": "1"}).enqueue(1)).result(timeout=10) is None


# --- declaring --------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [3, lambda job, call: None, Job])
async def test_around_handling_is_a_coroutine_function(app: App, function: Callable[..., Awaitable[Any]]) -> None:
    """Anything else is refused where it is declared."""
    with pytest.raises(TypeError, match="is a coroutine function"):
        app.around_handling(function)
    assert not app.around_handling
