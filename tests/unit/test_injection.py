"""Parameters that a worker fills: what a producer passes, where values go, and who provides what."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Annotated, Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq import INJECTED, App, Batch, Job, JobBatch, SyncJob
from echomq.protocol.records import JobRecord
from echomq.worker.raw import RawHandler


class Pool:
    """A connection pool, say."""


class Other:
    """Something else."""


Replica = Annotated[Pool, "replica"]
POOL, OTHER, REPLICA = Pool(), Other(), Pool()
RESOURCES: dict[Any, Any] = {Pool: POOL, Other: OTHER, Replica: REPLICA}
NOTES: Any = None


@asynccontextmanager
async def open_pool() -> AsyncIterator[Pool]:
    """Open it."""
    yield POOL


async def open_other() -> AsyncGenerator[Other, None]:
    """Open it, bare."""
    yield OTHER


def job_of(kind: type[Any]) -> Any:
    """A job as a handler gets it."""
    return kind("q", "JOB00000000000", 1, JobRecord("JOB00000000000", {}), NOTES)


# --- what a producer passes ---------------------------------------------------------------------


def test_injected_parameter_is_none_of_the_producers() -> None:
    """It may be left out, and may not be given."""
    app = App()

    @app.task
    async def handle(n: int, pool: Pool = INJECTED, text: str = "") -> None: ...

    assert handle.call(1).payload == b'{"args":[1]}'
    assert handle.call(1, text="t").payload == b'{"args":[1],"kwargs":{"text":"t"}}'
    assert handle.injected == {"pool": Pool}
    with pytest.raises(TypeError, match=r"task 'handle': got an unexpected keyword argument 'pool'"):
        handle.call(1, pool=POOL)


def test_injected_parameter_takes_no_place_of_the_arguments() -> None:
    """What comes after it in the signature is the producer's next argument."""
    app = App()

    @app.task
    async def handle(n: int, pool: Pool = INJECTED, text: str = "") -> Any:
        return n, pool, text

    args, kwargs = handle.load_arguments(b'{"args":[1,"t"]}')
    args, kwargs = handle.inject(job_of(Job), args, kwargs, RESOURCES)
    assert (args, kwargs) == ([1, POOL, "t"], {})


def asks_first(pool: Pool = INJECTED, a: int = 1, b: int = 2) -> Any:
    """In front."""
    return pool, a, b


def asks_between(job: SyncJob, a: int = 1, pool: Pool = INJECTED, b: int = 2, *, other: Other = INJECTED) -> Any:
    """In the middle, and by name."""
    assert isinstance(job, SyncJob)
    return pool, a, b, other


def asks_around_the_job(
    pool: Pool = INJECTED, job: SyncJob = NOTES, a: int = 1, other: Other = INJECTED, b: int = 2
) -> Any:
    """On both sides of the job."""
    assert isinstance(job, SyncJob)
    return pool, a, b, other


def asks_after_the_job(a: int = 1, pool: Pool = INJECTED, *rest: int, job: SyncJob, replica: Replica = INJECTED) -> Any:
    """Before further arguments, and with the job by name."""
    assert isinstance(job, SyncJob)
    return pool, a, (*rest, 2)[0], replica


def asks_beside_positional_only(a: int = 1, job: SyncJob = NOTES, /, pool: Pool = INJECTED, b: int = 2) -> Any:
    """After parameters that have no names."""
    assert isinstance(job, SyncJob)
    return pool, a, b


ASKING = (asks_first, asks_between, asks_around_the_job, asks_after_the_job, asks_beside_positional_only)


@given(function=st.sampled_from(ASKING), given_=st.sampled_from([(), (5,), (5, 6)]))
def test_injected_values_reach_their_parameters(function: Callable[..., Any], given_: tuple[int, ...]) -> None:
    """Wherever they stand, whatever the producer leaves out, beside the job."""
    task = App().task(function)
    args, kwargs = task.load_arguments(task.call(*given_).payload)
    args, kwargs = task.inject(job_of(SyncJob), args, kwargs, RESOURCES)
    pool, *numbers = function(*args, **kwargs)
    expected = {OTHER: OTHER, REPLICA: REPLICA}
    assert pool is POOL
    assert numbers[:2] == [*given_, *(1, 2)[len(given_) :]]
    assert all(expected[each] is each for each in numbers[2:])


@pytest.mark.parametrize("by_name", [False, True])
def test_injected_parameter_is_passed_by_who_calls_directly(by_name: bool) -> None:
    """A test of the plain function brings its own; one that forgets is told."""
    task = App().task(asks_first)
    own = Pool()
    assert (task(pool=own) if by_name else task(own)) == (own, 1, 2)
    with pytest.raises(TypeError, match=r"task 'asks_first', called directly, .* fill pool: pass it, as in pool="):
        task(a=1)


def test_injected_says_what_it_is() -> None:
    """In signatures."""
    assert repr(INJECTED) == "echomq.INJECTED"


def test_injected_of_a_batch_stands_after_the_batch() -> None:
    """The items' type is that of the batch; what is injected is no second argument."""
    app = App()

    @app.task(queue="b", batch=Batch(max_size=2))
    async def handle(batch: JobBatch[int], pool: Pool = INJECTED, *, other: Other = INJECTED) -> None: ...

    assert handle.call(1).payload == b'{"args":[1]}'
    assert handle.injected == {"pool": Pool, "other": Other}
    shapes: list[Any] = [
        lambda batch, pool=INJECTED: None,
        lambda pool=INJECTED, batch=None: None,
    ]
    for shape in shapes:
        shape.__annotations__.update(batch=JobBatch[int])
        with pytest.raises(TypeError):
            app.task(name="x", queue="c", batch=Batch(max_size=2))(shape)


def positional_only(pool: Pool = INJECTED, /) -> None:
    """No name to inject it by."""


def without_annotation(pool=INJECTED) -> None:
    """No type to inject it by."""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (positional_only, r"task 'positional_only': 'pool' is injected by its name, .* positional-only"),
        (without_annotation, r"task 'without_annotation': 'pool' is injected by its type, .* annotation"),
    ],
)
def test_injected_parameter_that_cannot_be_is_refused_at_once(function: Any, message: str) -> None:
    """Where the task is declared."""
    with pytest.raises(TypeError, match=message):
        App().task(function)


def test_injected_parameter_of_an_unknown_type_is_told_at_check() -> None:
    """As any annotation that cannot be resolved."""

    async def handle(pool: Unknown = INJECTED) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    task = App().task(handle)
    with pytest.raises(TypeError, match="annotation of 'pool', 'Unknown', cannot be resolved"):
        task.check()


def test_handler_of_a_bare_queue_cannot_ask() -> None:
    """It is of no app, so nobody provides anything."""

    def handle(payload: Any, pool: Pool = INJECTED) -> None: ...

    with pytest.raises(TypeError, match="the handler of queue 'q' is of no app, so nothing provides pool"):
        RawHandler("q", handle, App().codec)


# --- who provides what ------------------------------------------------------------------------


def make_app(*, pool: bool = False, other: bool = False) -> App:
    """An app that provides things, and whose tasks ask for them: other before pool."""
    app = App()
    if pool:
        assert app.provide(open_pool) is open_pool
    if other:
        app.provide(open_other)

    @app.task
    async def first(other: Other = INJECTED) -> None: ...
    @app.task
    async def second(pool: Pool = INJECTED, other: Other = INJECTED) -> None: ...
    @app.task
    async def third() -> None: ...

    return app


def test_plan_is_in_the_order_of_need() -> None:
    """Not of declaration, each once; what nobody asks for is not opened."""
    app = make_app(pool=True, other=True)
    app.provide(int, open_pool)
    assert [each.type for each in app.provide.plan(app.tasks.values())] == [Other, Pool]
    assert app.provide.plan([app.tasks["third"]]) == ()


def test_plan_misses_a_provider() -> None:
    """The message says who asks for what, and how to give it."""
    with pytest.raises(TypeError, match=r"task 'second' asks for .*Pool by its parameter 'pool'.*app\.provide\(.*Pool"):
        make_app(other=True).provide.plan(make_app().tasks.values())


def test_plan_refuses_two_providers_of_a_type() -> None:
    """Both are named; two of a kind are told apart by `Annotated`."""
    app = make_app(pool=True, other=True)
    app.provide(Replica, open_pool)
    assert len(app.provide.plan(app.tasks.values())) == 2
    app.provide(Pool, open_other)
    with pytest.raises(TypeError, match=r"Pool is provided twice, by .*open_pool.* and by .*open_other"):
        app.provide.plan(app.tasks.values())


def test_plan_refuses_a_task_of_processes() -> None:
    """Another process shares nothing with the worker."""
    task = App().task(run_in="process")(asks_first)
    with pytest.raises(TypeError, match=r"task 'asks_first' runs in a process .* parameter 'pool' cannot be injected"):
        make_app(pool=True).provide.plan([task])


def test_provider_may_be_written_in_each_way() -> None:
    """Decorated or bare, by its annotation or with its type, also a class that is a context manager itself."""

    class Own:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

    def answers() -> AbstractAsyncContextManager[Annotated[Pool, 1]]:
        return open_pool()

    app = App()
    for function in (open_pool, open_other, answers):
        app.provide(function)
    app.provide(Own, Own)
    app.provide(Replica, open_other)

    @app.task
    async def handle(
        pool: Pool = INJECTED,
        other: Other = INJECTED,
        one: Annotated[Pool, 1] = INJECTED,
        replica: Replica = INJECTED,
    ) -> None: ...

    plan = app.provide.plan([handle])
    assert [each.type for each in plan] == [Pool, Other, Annotated[Pool, 1], Replica]
    assert all(hasattr(each.factory(), "__aenter__") for each in plan)


async def coroutine() -> Pool:
    """No context manager."""
    return POOL


def generator() -> Any:
    """Not an asynchronous one."""
    yield POOL


async def with_argument(dsn: str) -> AsyncIterator[Pool]:
    """Nobody knows its argument."""
    yield POOL


@pytest.mark.parametrize("function", [coroutine, generator, 3, None])
def test_provider_that_opens_nothing_is_refused(function: Any) -> None:
    """Where it is declared."""
    with pytest.raises(TypeError, match="a provider is an asynchronous context manager function"):
        App().provide(function)
    with pytest.raises(TypeError, match="a provider is"):
        App().provide(Pool, 3 if function is None else function)  # type: ignore[arg-type]


def test_provider_that_takes_arguments_is_refused() -> None:
    """The message says which one is missing."""
    with pytest.raises(TypeError, match=r"called without arguments \(missing a required argument: 'dsn'\)"):
        App().provide(with_argument)  # type: ignore[type-var]


def without_return():
    """Says nothing."""
    return open_pool()


def wrong_return() -> Pool:
    """Says what is not opened but answered."""
    return POOL


async def unknown_return() -> AsyncIterator[Unknown]:  # type: ignore[name-defined]  # noqa: F821
    """Says what is not there."""
    yield POOL


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_return, r"says what it opens by its return annotation, as in AsyncIterator\[Pool\], not None"),
        (wrong_return, r"not 'Pool'; or give the type"),
        (unknown_return, r"cannot be resolved: name 'Unknown' is not defined"),
    ],
)
def test_provider_that_does_not_say_its_type_is_told_at_check(function: Any, message: str) -> None:
    """When a worker starts: an annotation may name what is defined further down."""
    app = App()
    app.provide(function)
    with pytest.raises(TypeError, match=message):
        app.provide.plan([])
