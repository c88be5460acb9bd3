"""Functions around enqueues that are none: refused where that is certain, else named at the enqueue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from echomq import App, JobCall, Task
from echomq.middleware import outgoing

pytestmark = pytest.mark.anyio


@pytest.fixture
def task(app: App, queue_name: str) -> Task[[int], None]:
    """A task of one argument."""

    @app.task(queue=queue_name)
    async def handle(n: int) -> None: ...

    return handle


def _returns(call: JobCall[Any]) -> JobCall[Any]:
    return call


def _never(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
    if call.task == "":
        yield call


def _twice(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
    yield call
    yield call


def _fails_its_own_way(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
    yield call
    raise RuntimeError("generator didn't stop")


@pytest.mark.parametrize(
    ("function", "kind", "words"),
    [
        (_returns, TypeError, "_returns at .* is to be a generator function .* not JobCall"),
        (contextmanager(_returns), TypeError, "_returns at .* is to be a generator function .* not JobCall"),  # type: ignore[arg-type]
        (_never, RuntimeError, "_never at .* is to yield the call once, and it never yields"),
        (contextmanager(_never), RuntimeError, "_never at .* once, and it never yields"),
        (_twice, RuntimeError, "_twice at .* once, and it goes on to yield again"),
        (_fails_its_own_way, RuntimeError, "^generator didn't stop$"),
    ],
)
async def test_around_enqueue_that_is_misused_is_named(
    app: App, task: Task[[int], None], function: Callable[..., Any], kind: type[Exception], words: str
) -> None:
    """Answers no context manager, or yields never or twice: what can be seen only when it is called."""
    app.around_enqueue(function)
    async with app:
        with pytest.raises(kind, match=words):
            await task.enqueue(1)


async def test_around_enqueue_that_yields_again_when_it_fails_is_named(app: App, task: Task[[int], None]) -> None:
    """The error that it met stands behind that."""

    @app.around_enqueue
    def again(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        with suppress(LookupError):
            yield call
        yield call

    with pytest.raises(RuntimeError, match="goes on to yield again") as caught, outgoing(task.call(1)):
        raise LookupError("x")
    assert isinstance(caught.value.__cause__, LookupError)


def test_around_enqueue_takes_one_argument(app: App) -> None:
    """One that cannot be called with it is refused where it is registered, and so is what is no context manager."""

    def two(call: JobCall[Any], more: Any) -> Iterator[JobCall[Any]]:
        yield call

    def right(call: JobCall[Any], more: int = 1) -> Iterator[JobCall[Any]]:
        yield call

    for wrong in (two, contextmanager(two)):
        with pytest.raises(TypeError, match=r"two at .* takes \(call: "):
            app.around_enqueue(wrong)
    with pytest.raises(TypeError, match="a plain generator function"):
        app.around_enqueue(dict)
    assert not app.around_enqueue
    for each in (right, contextmanager(right)):
        app.around_enqueue(each)
