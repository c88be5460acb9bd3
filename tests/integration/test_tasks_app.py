"""Apps and tasks: declaring, opening, enqueueing by typed arguments, and decoding them again."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import anyio
import attrs
import pytest

import echomq
from echomq import (
    App,
    ArgumentsError,
    DecodeError,
    EncodeError,
    Exponential,
    Fixed,
    Job,
    JobHandle,
    RateLimited,
    Snooze,
    State,
    SyncJob,
    Task,
    UnavailableError,
)
from echomq.protocol.records import JobRecord

if TYPE_CHECKING:
    from typing import Any as Unknown  # some name that is not there at run time

    from echomq import Job as CheckedJob


@attrs.frozen
class Point:
    x: int
    y: int = 0


class Extras(TypedDict, total=False):
    at: Point


def job_of(kind: type[Any]) -> Any:
    """A job as a handler gets it."""
    return kind("q", "JOB00000000000", 1, JobRecord("JOB00000000000", {}), None)


def run(task: Task[..., Any], payload: bytes) -> Any:
    """Do a worker's part: decode, inject, call."""
    args, kwargs = task.load_arguments(payload)
    if task.job_parameter is not None:
        args, kwargs = task.inject(job_of(Job if task.is_async else SyncJob), args, kwargs)
    return task.function(*args, **kwargs)


# --- declaring --------------------------------------------------------------------------------


def test_task_decorator_works_with_and_without_parentheses(app: App) -> None:
    """Both make a task of the function's name; the function stays callable through it."""

    @app.task
    async def plain(n: int) -> int:
        return n + 1

    @app.task(name="other.name", queue="q", max_attempts=5, timeout=30, result_ttl=60, backoff=Fixed(1))
    def threaded(n: int) -> int:
        return n + 2

    assert (plain.name, plain.queue, plain.is_async, plain.max_attempts) == ("plain", "default", True, 3)
    assert (threaded.name, threaded.queue, threaded.is_async, threaded.timeout) == ("other.name", "q", False, 30)
    assert threaded(1) == 3
    coroutine = plain(1)
    assert inspect.iscoroutine(coroutine)
    coroutine.close()
    assert app.queues == ("default", "q")
    assert app.get_task("plain") is plain
    assert app.get_task("absent") is None
    assert str(inspect.signature(threaded)) == "(n: 'int') -> 'int'"


def test_task_names_are_taken_once(app: App) -> None:
    """Two handlers of one name would each get the other's jobs."""
    app.task(name="same")(lambda: 1)
    with pytest.raises(ValueError, match="same"):
        app.task(name="same")(lambda: 2)
    with pytest.raises(ValueError, match="<lambda>"):
        app.task(lambda: 1)
    with pytest.raises(TypeError, match="name"):
        app.task(functools.partial(print))


@pytest.mark.parametrize(
    "options",
    [
        {"max_attempts": 0},
        {"timeout": 0},
        {"timeout": -1},
        {"result_ttl": 0},
        {"max_stalls": -1},
        {"queue": "no spaces"},
        {"name": ""},
        {"backoff": 3},
    ],
)
def test_task_options_are_checked_at_decoration(app: App, options: dict[str, Any]) -> None:
    """A wrong option is found when the module is imported, not when a job fails."""
    with pytest.raises((TypeError, ValueError)):
        app.task(**{"name": "t", **options})(lambda: 1)


def test_task_refuses_what_cannot_be_a_handler(app: App) -> None:
    """Generators, two jobs, and the wrong kind of job for the kind of function."""

    def generator() -> Any:
        yield 1

    async def wrong_kind(job: SyncJob) -> None: ...

    def wrong_kind_too(job: Job) -> None: ...

    async def two(job: Job, other: Job) -> None: ...

    async def variadic(*jobs: Job) -> None: ...

    for function in (generator, wrong_kind, wrong_kind_too, two, variadic, 3):
        with pytest.raises(TypeError):
            app.task(name="t")(function)  # type: ignore[arg-type]


HANDLERS: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []


def handler(*args: Any, **kwargs: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Note a handler that answers its arguments, and the arguments it is called with."""

    def note(function: Callable[..., Any]) -> Callable[..., Any]:
        HANDLERS.append((function, args, kwargs))
        return function

    return note


@handler(1, "a")
@handler(1, name="a")
@handler(number=1, name="a")
def _job_first(job: SyncJob, number: int, name: str) -> Any:
    return job.id, number, name


@handler(1, "a")
@handler(1, name="a")
def _job_in_the_middle(number: int, job: SyncJob, name: str = "b") -> Any:
    return job.id, number, name


@handler(1, name="a")
def _job_last(number: int, name: str, *, job: SyncJob) -> Any:
    return job.id, number, name


@handler(1, name="a")
def _positional_only(number: int, job: SyncJob, /, name: str) -> Any:
    return job.id, number, name


@handler(name="a")
def _positional_only_default(number: int = 1, job: SyncJob = None, /, name: str = "") -> Any:  # type: ignore[assignment]
    return job.id, number, name


@handler(1, "a")
def _variadic(job: SyncJob, *rest: Any) -> Any:
    return (job.id, *rest)


@handler(number=1, name="a")
def _keywords(job: SyncJob, **rest: Any) -> Any:
    return (job.id, *rest.values())


@handler(1, "a")
def _checkers_only(job: echomq.SyncJob, number: int, name: str) -> Any:
    return job.id, number, name


@pytest.mark.parametrize(("function", "args", "kwargs"), HANDLERS)
def test_task_puts_the_job_where_the_handler_wants_it(
    app: App, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Whatever the kind of the job's parameter, and however the others were given."""
    task = app.task(name="t")(function)
    assert run(task, task.call(*args, **kwargs).payload) == ("JOB00000000000", 1, "a")


def test_task_knows_a_job_imported_for_type_checkers(app: App) -> None:
    """Linters move such imports under TYPE_CHECKING; the name is enough."""

    @app.task
    async def handler(job: CheckedJob, n: int) -> None: ...

    assert handler.job_parameter is None  # another name says nothing

    async def coroutine(job: Any, n: int) -> None: ...

    coroutine.__annotations__ = {"job": "checked.Job", "n": "int"}
    assert app.task(name="t")(coroutine).job_parameter == "job"


@pytest.mark.anyio
async def test_app_refuses_to_open_with_an_unknown_annotation(app: App) -> None:
    """Arguments are decoded by annotations: one that cannot be resolved is an error before the first job."""

    @app.task
    async def handler(value: Unknown) -> None: ...

    assert handler.call(1).payload == b'{"args":[1]}'  # a producer needs no annotation
    with pytest.raises(TypeError, match="Unknown"):
        async with app:
            pass
    with pytest.raises(TypeError, match="Unknown"):
        handler.load_arguments(b'{"args":[1]}')


def test_task_resolves_a_class_defined_further_down(app: App) -> None:
    """Decoration comes before the class; the first job comes after."""

    @app.task
    def handler(value: Later) -> Any:
        return value

    assert run(handler, b'{"args":[{"n":1}]}') == Later(1)


def test_task_may_name_itself(app: App) -> None:
    """A handler's closure is not complete while it is being decorated, and its local classes are found in it."""

    class Local(TypedDict):
        n: int

    @app.task
    def again(value: Local) -> Any:
        return again.name, Local, value

    assert run(again, b'{"args":[{"n":1}]}') == ("again", Local, {"n": 1})


@attrs.frozen
class Later:
    n: int


# --- arguments --------------------------------------------------------------------------------


def test_task_arguments_come_back_as_declared(app: App) -> None:
    """Paths, classes, tuples, variadic ones and typed keywords."""

    @app.task
    def handler(
        path: Path, point: Point, *rest: Point, pair: tuple[int, str] = (1, "a"), **extra: Unpack[Extras]
    ) -> Any:
        return path, point, rest, pair, extra

    call = handler.call(Path("a"), Point(1), Point(2), pair=(2, "b"), at=Point(3))
    assert run(handler, call.payload) == (Path("a"), Point(1), (Point(2),), (2, "b"), {"at": Point(3)})
    assert run(handler, handler.call(path=Path("a"), point=Point(1)).payload)[0] == Path("a")


def test_task_arguments_are_encoded_when_the_call_is_made(app: App) -> None:
    """Changing them afterwards changes nothing."""

    @app.task
    def handler(items: list[int]) -> Any: ...

    items = [1]
    call = handler.call(items)
    items.append(2)
    assert call.payload == b'{"args":[[1]]}'
    assert app.task(name="none")(lambda: 1).call().payload == b"{}"


def test_task_refuses_arguments_that_do_not_fit(app: App) -> None:
    """The error names the task, before anything is sent."""

    @app.task
    def resize(path: str, size: int = 1, *, deep: bool) -> Any: ...

    for args, kwargs in (((), {}), (("a",), {}), (("a", 1, 2), {"deep": True}), (("a",), {"deep": True, "x": 1})):
        with pytest.raises(TypeError, match="resize"):
            resize.call(*args, **kwargs)
    with pytest.raises(EncodeError) as caught:
        resize.call(object(), deep=True)  # type: ignore[arg-type]
    assert "object" in str(caught.value)


@pytest.mark.parametrize("payload", [b"", b"nonsense", b"[1]", b'{"args":1}', b'{"args":[],"more":1}', b"\xff\x00"])
def test_task_tells_bytes_that_are_no_call(app: App, payload: bytes) -> None:
    """Nothing but burying helps: a `DecodeError`."""
    task = app.task(name="t")(lambda: 1)
    with pytest.raises(DecodeError):
        task.load_arguments(payload)


@pytest.mark.parametrize(
    ("payload", "path"),
    [
        (b"{}", ""),
        (b'{"args":[1,2,3]}', ""),
        (b'{"args":["a"],"kwargs":{"other":1}}', ""),
        (b'{"args":[{"x":"one"}]}', "args[0].x"),
        (b'{"kwargs":{"point":{"x":"one"}}}', "kwargs.point.x"),
        (b'{"args":[{"x":1},"big"]}', "args[1]"),
    ],
)
def test_task_tells_a_call_of_another_signature(app: App, payload: bytes, path: str) -> None:
    """What a rolling deploy looks like: an `ArgumentsError` that says where."""

    @app.task
    def handler(point: Point, size: int = 1) -> Any: ...

    with pytest.raises(ArgumentsError) as caught:
        handler.load_arguments(payload)
    assert (caught.value.task, caught.value.path) == ("handler", path)


# --- open and closed --------------------------------------------------------------------------


@pytest.mark.anyio
async def test_app_is_opened_once_and_may_be_opened_again(app: App) -> None:
    """Nesting is a clear error; so is using it while closed."""
    task = app.task(name="t")(lambda: 1)
    with pytest.raises(RuntimeError, match="not open"):
        await task.enqueue()
    async with app:
        with pytest.raises(RuntimeError, match="open already"):
            async with app:
                pass
        assert app.is_open
    assert not app.is_open
    async with app:
        assert app.is_open
    with pytest.raises(KeyError):
        async with app:
            raise KeyError
    assert not app.is_open


@pytest.mark.anyio
async def test_app_takes_its_url_from_the_environment_when_opened(
    server_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing a module of tasks reads no environment and opens nothing."""
    monkeypatch.delenv("ECHOMQ_URL", raising=False)
    app = App()
    with pytest.raises(ValueError, match="ECHOMQ_URL"):
        async with app:
            pass
    monkeypatch.setenv("ECHOMQ_URL", server_url)
    async with app:
        await app.client.wire.command("PING")


@pytest.mark.anyio
async def test_app_is_closed_in_a_forked_child(app: App) -> None:
    """The child must open its own; the parent's goes on."""
    async with app:
        pid = os.fork()
        if pid == 0:
            os._exit(0 if not app.is_open else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        await app.client.wire.command("PING")


# --- enqueueing -------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_task_row_holds_what_the_producer_decided(app: App, queue_name: str) -> None:
    """The result's time and max_stalls always; attempts and timeout only if said of this job: the worker has the rest."""

    @app.task(queue=queue_name, max_attempts=7, timeout=5, result_ttl=60, max_stalls=1)
    async def handler(n: int) -> int:
        return n

    async with app:
        job = await (await handler.enqueue(1)).info()
        assert job is not None
        assert (job.record.task, job.record.payload) == ("handler", b'{"args":[1]}')
        assert (job.record.result_ttl_ms, job.record.max_stalls) == (60_000, 1)
        assert (job.record.max_attempts, job.record.timeout_ms) == (None, None)
        special = handler.options(max_attempts=2, timeout=1, result_ttl=0, delay=9).options(priority=4, delay=None)
        job = await (await special.enqueue(1)).info()
        assert job is not None
        assert (job.record.result_ttl_ms, job.record.max_attempts, job.record.timeout_ms) == (None, 2, 1000)
        assert (job.record.state, job.record.priority) == (State.SCHEDULE, 4)


@pytest.mark.anyio
async def test_app_enqueues_calls_of_several_queues_in_order(app: App, queue_name: str) -> None:
    """Each goes where its task says; the answers come in the order of the calls."""
    a = app.task(name="a", queue=f"{queue_name}.a")(lambda n: n)
    b = app.task(name="b", queue=f"{queue_name}.b")(lambda n: n)
    async with app:
        answers = await app.enqueue_many((a, b)[n % 2].call(n) for n in range(20))
        handles = [answer for answer in answers if isinstance(answer, JobHandle)]
        assert [handle.queue for handle in handles] == [a.queue, b.queue] * 10
        infos = [await handle.info() for handle in handles]
        assert [info.record.payload for info in infos if info] == [b'{"args":[%d]}' % n for n in range(20)]


@pytest.mark.anyio
async def test_task_stub_enqueues_without_the_handler(app: App, queue_name: str) -> None:
    """A producer needs a name and a queue, not the handler's code."""
    stub = app.task_stub("thumbnail", queue=queue_name, result_ttl=60)
    async with app:
        handle = await stub.options(priority=1).enqueue("a.png", size=64)
        job = await handle.info()
        assert job is not None
        assert job.record.payload == b'{"args":["a.png"],"kwargs":{"size":64}}'
        assert (job.record.task, job.record.result_ttl_ms, job.record.priority) == ("thumbnail", 60_000, 1)
    with pytest.raises(ValueError, match="no spaces"):
        app.task_stub("no spaces", queue=queue_name)


# --- verdicts and backoff ---------------------------------------------------------------------


def test_rate_limited_says_what_and_for_how_long() -> None:
    """A number of seconds or a timedelta, from a millisecond to a day."""
    assert (RateLimited(0.25).after, RateLimited(0.25).scope) == (0.25, "lane")
    assert RateLimited(dt.timedelta(days=1), scope="queue").after == 86_400
    for bad in (0, -1, 86_401, float("inf"), dt.timedelta(days=2)):
        with pytest.raises(ValueError, match=r"duration|after"):
            RateLimited(bad)
    with pytest.raises(TypeError):
        RateLimited("30")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'all'"):
        RateLimited(1, scope="all")  # type: ignore[arg-type]


def test_snooze_has_a_floor_unless_told_otherwise() -> None:
    """A handler that snoozes itself for nothing would spin."""
    assert Snooze(0).after == 1
    assert Snooze(5).after == 5
    assert Snooze(0, at_least=0).after == 0
    with pytest.raises(ValueError, match="-1"):
        Snooze(-1)


def test_backoff_grows_to_its_cap_and_spreads() -> None:
    """Full jitter lies between nothing and the delay; a great number of failures overflows nothing."""
    rng, error = Random(1), KeyError()
    exact = Exponential(first=1, factor=3, cap=20, jitter="none")
    assert [exact(n, error, rng) for n in (1, 2, 3, 4, 10**9)] == [1, 3, 9, 20, 20]
    full = [Exponential()(4, error, rng) for _ in range(200)]
    assert 0 <= min(full) < 1
    assert 7 < max(full) <= 8
    assert all(4 <= Exponential(jitter="equal")(4, error, rng) <= 8 for _ in range(50))
    assert Fixed(3)(9, error, rng) == 3
    for make in (lambda: Exponential(first=-1), lambda: Exponential(factor=0.5), lambda: Fixed(float("inf"))):
        with pytest.raises(ValueError, match=r"first|factor|seconds"):
            make()


@pytest.mark.anyio
async def test_app_enqueues_nothing_more_after_an_outage(queue_name: str) -> None:
    """One wait for all, whatever the number of jobs and queues; each says that it was not sent."""
    app = App("valkey://127.0.0.1:1", unavailable_after=0.2)
    a = app.task(name="a", queue=f"{queue_name}.a")(lambda n: n)
    b = app.task(name="b", queue=f"{queue_name}.b")(lambda n: n)
    async with app:
        with anyio.fail_after(10):  # a wait for each call would be longer
            answers = await app.enqueue_many((a, b)[n % 2].call(n) for n in range(20_000))
    assert len(answers) == 20_000
    assert all(isinstance(answer, UnavailableError) and not answer.sent for answer in answers)
