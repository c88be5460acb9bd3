"""Functions around what an app enqueues: whoever enqueues it, and whatever they do."""

from __future__ import annotations

import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from echomq import App, InvalidJobError, JobCall, JobHandle, QueueFullError, Task, sync
from echomq.middleware import outgoing, passed
from echomq.protocol.records import JobRecord

pytestmark = pytest.mark.anyio
TRACE: contextvars.ContextVar[str] = contextvars.ContextVar("trace", default="none")


@pytest.fixture
def task(app: App, queue_name: str) -> Task[[int], None]:
    """A task of one argument."""

    @app.task(queue=queue_name)
    async def handle(n: int) -> None: ...

    return handle


async def rows(app: App, queue: str) -> list[JobRecord]:
    """The jobs that wait, oldest first."""
    return [job for job, _ in (await app.queue(queue).browse("pending")).jobs]


def traced(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
    """Send the caller's trace along."""
    yield call.with_headers({"trace": TRACE.get()})


async def each_way(app: App, task: Task[[int], None]) -> None:
    """Enqueue a job by each way there is, with the numbers 0 to 7."""

    async def calls() -> AsyncIterator[JobCall[None]]:
        yield task.call(4)

    stub = app.task_stub(task.name, queue=task.queue)
    await task.enqueue(0)
    await task.options(priority=0, headers={"own": "1"}).enqueue(1)
    await app.enqueue(task.call(2))
    assert all(isinstance(each, JobHandle) for each in await app.enqueue_many([task.call(3)]))
    assert [isinstance(each, JobHandle) async for each in app.enqueue_stream(calls())] == [True]
    await stub.enqueue(5)
    await app.client.enqueue(stub.call(6))
    assert all(isinstance(each, JobHandle) for each in await app.client.enqueue_many([stub.call(7)]))


async def test_around_enqueue_is_around_each_way_to_enqueue(app: App, task: Task[[int], None]) -> None:
    """By task, options, app, client and stub, one by one and many at once; a job's own headers stay."""
    assert app.around_enqueue(traced) is traced
    TRACE.set("abc")
    async with app:
        await each_way(app, task)
        found = await rows(app, task.queue)
    assert [record.headers["trace"] for record in found] == ["abc"] * 8
    assert found[1].headers == {"own": "1", "trace": "abc"}


async def test_around_enqueue_passes_bytes_by(app: App, task: Task[[int], None]) -> None:
    """What is put into a queue by hand is no call of a task."""
    app.around_enqueue(traced)
    async with app:
        await app.queue(task.queue).enqueue(b"x")
        assert [record.headers for record in await rows(app, task.queue)] == [{}]


def test_around_enqueue_is_around_a_synchronous_client(
    app: App, task: Task[[int], None], sync_client: sync.Client
) -> None:
    """A call brings along what its app has around it: the client knows no app."""
    app.around_enqueue(traced)
    TRACE.set("def")
    sync_client.enqueue(task.call(1))
    assert len(sync_client.enqueue_many(task.call(n) for n in range(3))) == 3
    jobs = sync_client.queue(task.queue).browse("pending").jobs
    assert [job.headers["trace"] for job, _ in jobs] == ["def"] * 4


async def test_around_enqueue_first_is_outermost(app: App, task: Task[[int], None]) -> None:
    """The first sees the call as it was made, and the answer last; each sees what those before it made of the call."""
    told: list[Any] = []

    def make(name: str) -> Callable[[JobCall[Any]], Iterator[JobCall[Any]]]:
        def function(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
            told.append((name, dict(call.headers)))
            yield call.with_headers({name: "x"})
            told.append(name)

        return function

    app.around_enqueue(make("a"))
    app.around_enqueue(contextmanager(make("b")))
    async with app:
        await task.enqueue(1)
        await task.enqueue(2)
    assert told == [("a", {}), ("b", {"a": "x"}), "b", "a"] * 2


async def test_around_enqueue_lasts_until_the_answer(app: App, task: Task[[int], None]) -> None:
    """Of a single job the answer, or the error, comes before its end; of many it ends before the call is sent."""
    told: list[str] = []

    @app.around_enqueue
    def counted(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        told.append("begun")
        try:
            yield call
        except QueueFullError:
            told.append("full")
            raise
        told.append("sent")

    async with app:
        await app.queue(task.queue).configure(max_size=1)
        await task.enqueue(1)
        with pytest.raises(QueueFullError):
            await task.enqueue(2)
        assert told == ["begun", "sent", "begun", "full"]
        told.clear()
        answers = await app.enqueue_many([task.call(1), task.call(2)])
        assert [type(each) for each in answers] == [QueueFullError] * 2
        assert told == ["begun", "sent"] * 2


async def test_around_enqueue_that_swallows_an_error_hides_nothing(app: App, task: Task[[int], None]) -> None:
    """There is no handle to answer: the caller gets the error all the same."""

    @app.around_enqueue
    def swallows(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        with suppress(QueueFullError):
            yield call

    async with app:
        await app.queue(task.queue).configure(max_size=1)
        await task.enqueue(1)
        with pytest.raises(QueueFullError):
            await task.enqueue(2)


class RefusedError(Exception):
    """A middleware's own."""


@pytest.mark.parametrize("kind", [RefusedError, InvalidJobError])
async def test_around_enqueue_that_raises_sends_nothing(
    app: App, task: Task[[int], None], sync_client: sync.Client, kind: type[Exception]
) -> None:
    """Before its yield; the caller gets the error, of a client that blocks too."""

    @app.around_enqueue
    def refuses(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        raise kind("no")
        yield call

    async with app:
        with pytest.raises(kind, match="no"):
            await task.enqueue(1)
        with pytest.raises(kind, match="no"):
            sync_client.enqueue(task.call(1))
        assert await rows(app, task.queue) == []


async def test_around_enqueue_that_raises_late_leaves_the_job_there(app: App, task: Task[[int], None]) -> None:
    """After its yield the job is queued, and the caller hears of the error."""

    @app.around_enqueue
    def late(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        yield call
        raise RefusedError

    async with app:
        with pytest.raises(RefusedError):
            await task.enqueue(1)
        assert len(await rows(app, task.queue)) == 1


def odd_is_refused(kind: type[Exception], odd: int) -> Callable[[JobCall[Any]], Iterator[JobCall[Any]]]:
    """A function that refuses one payload."""

    def refuses(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        if call.payload == b'{"args":[%d]}' % odd:
            raise kind(f"not {odd}")
        yield call

    return refuses


@pytest.mark.parametrize("blocking", [False, True])
async def test_around_enqueue_error_of_ours_answers_its_call_of_many(
    app: App, task: Task[[int], None], sync_client: sync.Client, blocking: bool
) -> None:
    """An EchoMQError is that call's answer, and no other one is concerned."""
    app.around_enqueue(odd_is_refused(InvalidJobError, 2))
    told: list[int] = []
    calls = [task.call(n) for n in range(5)]

    async def progress(count: int) -> None:
        told.append(count)

    async with app:
        if blocking:
            answers: list[Any] = [*sync_client.enqueue_many(calls, progress=told.append)]
        else:
            answers = [*await app.enqueue_many(calls, progress=progress)]
        assert [type(each) is InvalidJobError for each in answers] == [False, False, True, False, False]
        assert len(await rows(app, task.queue)) == 4
    assert told[-1] == 5


@pytest.mark.parametrize("blocking", [False, True])
async def test_around_enqueue_error_of_others_ends_many(
    app: App, task: Task[[int], None], sync_client: sync.Client, blocking: bool
) -> None:
    """Anything else comes after the answers of those before it, as if the source had raised it; the rest is not sent."""
    app.around_enqueue(odd_is_refused(RefusedError, 2))
    calls = [task.call(n) for n in range(5)]
    answers: list[Any] = []

    async def draw() -> None:
        if blocking:
            answers.extend(sync_client.enqueue_stream(calls))
        else:
            async for answer in app.enqueue_stream(calls):
                answers.append(answer)  # noqa: PERF401 - those before the error

    async with app:
        with pytest.raises(RefusedError, match="not 2"):
            await draw()
        assert len(await rows(app, task.queue)) == 2
    assert [type(answer).__name__ for answer in answers] == ["JobHandle"] * 2


async def test_around_enqueue_is_left_alone_after_an_outage(queue_name: str) -> None:
    """What is not sent, since a job before it met an outage, is not taken through it."""
    app = App("valkey://127.0.0.1:1", unavailable_after=0.1)
    seen = []

    @app.task(queue=queue_name)
    async def handle(n: int) -> None: ...

    @app.around_enqueue
    def counted(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        seen.append(call)
        yield call

    with sync.Client("valkey://127.0.0.1:1", unavailable_after=0.1) as client:
        stream = client.enqueue_stream(handle.call(n) for n in range(8192 + 3))
        assert len([*stream]) == 8192 + 3
    assert len(seen) == 8192


def test_around_enqueue_refuses_asynchronous_functions(app: App) -> None:
    """A synchronous client must be able to run it."""

    async def coroutine(call: Any) -> Any: ...
    async def generator(call: Any) -> AsyncIterator[Any]:
        yield call

    for function in (coroutine, generator, 3):
        with pytest.raises(TypeError, match="plain generator function"):
            app.around_enqueue(function)  # type: ignore[type-var]
    assert not app.around_enqueue


async def test_around_enqueue_is_to_yield_a_call(app: App, task: Task[[int], None]) -> None:
    """One that forgets what it is to yield is named, and nothing is sent."""

    @app.around_enqueue
    def forgets(call: JobCall[Any]) -> Iterator[Any]:
        yield

    async with app:
        with pytest.raises(TypeError, match=r"forgets.* is to yield the call .* not None"):
            await task.enqueue(1)
        assert await rows(app, task.queue) == []


async def test_around_enqueue_may_replace_the_payload(app: App, task: Task[[int], None]) -> None:
    """The innermost may encrypt what the others have seen; a call that is enqueued twice is taken through twice."""
    seen = []

    @app.around_enqueue
    def looks(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        seen.append(call.payload)
        yield call

    @app.around_enqueue
    def sealed(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        yield call.with_payload(bytes(byte ^ 1 for byte in call.payload))

    call = task.call(1)
    async with app:
        await app.enqueue(call)
        await app.enqueue(call)
        found = await rows(app, task.queue)
    assert seen == [b'{"args":[1]}'] * 2
    assert [record.payload for record in found] == [bytes(byte ^ 1 for byte in seen[0])] * 2


async def test_around_enqueue_payload_that_is_none_is_refused(app: App, task: Task[[int], None]) -> None:
    """The job is checked as any other when the middleware has had its way."""

    @app.around_enqueue
    def spoils(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        yield call.with_payload("text")  # type: ignore[arg-type]

    async with app:
        with pytest.raises((TypeError, InvalidJobError)):
            await task.enqueue(1)


def test_outgoing_is_what_others_use(app: App, task: Task[[int], None]) -> None:
    """Whoever keeps calls for later takes them through it; a call without middleware comes back itself."""
    call = task.call(1)
    assert passed(call) is call
    app.around_enqueue(traced)
    TRACE.set("ghi")
    assert passed(call).headers == {"trace": "ghi"}
    with outgoing(call) as made:
        assert made.headers == {"trace": "ghi"}
    assert call.headers == {}


def test_call_with_headers_replaces_those_of_one_name(task: Task[[int], None]) -> None:
    """The later word counts; the call itself stays as it is; what is no header is refused."""
    call = task.options(headers={"a": "1", "b": "2"}).call(1)
    other = call.with_headers({"b": "3", "c": "4"})
    assert (call.headers, other.headers) == ({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})
    with pytest.raises((TypeError, ValueError), match="headers"):
        call.with_headers({"a": 1})  # type: ignore[dict-item]


async def test_around_enqueue_is_around_what_schedules_enqueue(
    app: App, task: Task[[int], None], sync_client: sync.Client
) -> None:
    """A call is taken through it when its schedule is put: declared by the app, by hand, or by a client that blocks."""
    seen = []

    @app.around_enqueue
    def counted(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        seen.append(call.payload)
        yield call.with_headers({"scheduled": "1", "trace": str(len(seen))})

    app.schedule("declared", task.call(1), every=3600)
    assert seen == []
    async with app:
        await app.schedules.sync()
        await app.queue(task.queue).schedules.put("by-hand", task.call(2), every=3600)
        await app.queue(task.queue).schedules.put("bytes", b"x", task=task.name, every=3600)
        sync_client.queue(task.queue).schedules.put("blocking", task.call(3), every=3600)
        assert seen == [b'{"args":[%d]}' % n for n in (1, 2, 3)]
        handles = [await app.queue(task.queue).schedules.run_now(name) for name in ("declared", "by-hand", "blocking")]
        found = [await handle.info() for handle in handles]
        assert [job.record.headers["scheduled"] for job in found if job] == ["1"] * 3
        # What it adds is another each time, and changes no schedule that stands: it is not even asked.
        assert (await app.schedules.sync()).same == ("declared",)
        assert len(seen) == 3
