"""Batches as values: what a task of batches is, and what may be enqueued for it. No server is needed."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated, Any

import attrs
import pytest

import echomq
from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.errors import ArgumentsError

if TYPE_CHECKING:
    from echomq import batches as known


@attrs.frozen
class Row:
    """A value that JSON does not know."""

    n: int


async def _typed(batch: JobBatch[Row]) -> None: ...
async def _bare(batch: JobBatch) -> None: ...
async def _by_module(batch: echomq.JobBatch[Row]) -> None: ...
async def _annotated(batch: Annotated[JobBatch[Row], "note"]) -> None: ...
async def _positional(batch: JobBatch[Row], /) -> None: ...
async def _later(batch: JobBatch[Later]) -> int: ...  # type: ignore[empty-body]
async def _unimported(batch: known.JobBatch[Row]) -> None: ...
async def _bare_unimported(batch: known.JobBatch) -> None: ...


@attrs.frozen
class Later:
    """A class that is defined below its handler."""

    n: int


def declare(function: Any, **options: Any) -> Any:
    """Make a task of batches."""
    return App().task(batch=Batch(max_size=3), **options)(function)


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (_typed, Row(1)),
        (_bare, {"n": 1}),
        (_by_module, Row(1)),
        (_annotated, Row(1)),
        (_positional, Row(1)),
        (_later, Later(1)),
        (_unimported, Row(1)),
        (_bare_unimported, {"n": 1}),
    ],
)
def test_item_is_one_argument_of_the_batchs_type(function: Any, value: Any) -> None:
    """What a producer gives is the payload's one argument, and it is of the type that the annotation says again."""
    task = declare(function)
    payload = task.call(Row(1)).payload
    assert payload == b'{"args":[{"n":1}]}'
    assert task.load_arguments(payload) == ([value], {})
    assert task.job_parameter is None
    task.check()


def test_item_whose_class_is_not_known_yet_is_known_later() -> None:
    """Declared above the class, as annotations often are."""

    async def handle(batch: JobBatch[Unknown]) -> None: ...  # type: ignore[name-defined] # noqa: F821

    task = declare(handle)
    with pytest.raises(TypeError, match="'batch', 'Unknown', cannot be resolved"):
        task.check()
    globals()["Unknown"] = Row
    try:
        task.check()
        assert task.load_arguments(b'{"args":[{"n":2}]}') == ([Row(2)], {})
    finally:
        del globals()["Unknown"]


@pytest.mark.parametrize("kwargs", [{"batch": 1}, {"n": 1}])
def test_producer_gives_one_argument_without_a_name(kwargs: dict[str, Any]) -> None:
    """Anything else does not fit, and says what would."""
    task = declare(_typed)
    for args in ((), (1, 2)):
        with pytest.raises(TypeError, match=r"it takes \(batch: .*Row, /\)"):
            task.call(*args)
    with pytest.raises(TypeError, match=r"it takes \(batch: .*Row, /\)"):
        task.call(**kwargs)
    with pytest.raises(ArgumentsError, match=r"args\[0\]\.n: expected int"):
        task.load_arguments(b'{"args":[{"n":"x"}]}')


async def _nothing() -> None: ...
async def _other(batch: list[int]) -> None: ...
async def _two(batch: JobBatch[int], n: int) -> None: ...
async def _twice(batch: JobBatch[int], again: JobBatch[int]) -> None: ...
async def _with_job(job: echomq.Job, batch: JobBatch[int]) -> None: ...
async def _keyword(*, batch: JobBatch[int]) -> None: ...
async def _variable(*batch: JobBatch[int]) -> None: ...
def _plain(batch: JobBatch[int]) -> None: ...
async def _unannotated(batch) -> None: ...


@pytest.mark.parametrize(
    "function",
    [_nothing, _other, _two, _twice, _with_job, _keyword, _variable, _plain, _unannotated, lambda batch: None],
)
def test_handler_of_batches_has_one_shape(function: Any) -> None:
    """Refused where it is declared, with one message."""
    with pytest.raises(TypeError, match="a coroutine function with one parameter, annotated JobBatch or JobBatch"):
        declare(function, name="x")


@pytest.mark.parametrize("function", [_typed, _bare, _two, _plain, _unimported])
def test_handler_of_batches_must_say_so(function: Any) -> None:
    """Without `batch=` it would get single jobs."""
    with pytest.raises(TypeError, match=r"app\.task\(batch=Batch\(max_size=100\)\)"):
        App().task(function)


@pytest.mark.parametrize("batch", [3, True, {"max_size": 3}])
def test_batch_is_a_batch(batch: Any) -> None:
    """And neither a number nor a dict."""
    with pytest.raises(TypeError, match=r"batch is a Batch, such as Batch\(max_size=100\)"):
        App().task(batch=batch)(_typed)


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_task_of_batches_owns_its_queue(first: bool, second: bool) -> None:
    """A claim does not look at task names: its batches would hold the other's jobs. In either order."""
    app = App()

    def add(name: str, batches: bool, queue: str) -> None:
        if batches:
            app.task(name=name, queue=queue, batch=Batch(max_size=3))(_typed)
        else:
            app.task(name=name, queue=queue)(_nothing)

    add("a", first, "q")
    add("b", second, "other")
    owner = "a" if first else "c"
    with pytest.raises(ValueError, match=rf"task '{owner}' takes the jobs of queue 'q' in batches"):
        add("c", second, "q")
    assert list(app.tasks) == ["a", "b"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_size": 0}, "max_size is 1 to 10000 jobs, not 0"),
        ({"max_size": 10_001}, "max_size is 1 to 10000 jobs, not 10001"),
        ({"max_size": True}, "max_size is 1 to 10000 jobs, not True"),
        ({"max_size": 3.0}, r"max_size is 1 to 10000 jobs, not 3\.0"),
        ({"max_size": 3, "linger": 3601}, "linger is 0 to 3600 seconds, not 3601"),
        ({"max_size": 3, "linger": -1}, "not -1"),
        ({"max_size": 3, "linger": 1, "min_size": 0}, r"min_size is 1 to max_size \(3\), or None, not 0"),
        ({"max_size": 3, "linger": 1, "min_size": 4}, r"min_size is 1 to max_size \(3\), or None, not 4"),
        ({"max_size": 3, "linger": 1, "min_size": 2.0}, r"not 2\.0"),
        ({"max_size": 3, "min_size": 2}, "min_size is 2, and linger is 0: nothing waits"),
        ({"max_size": 3, "by_lane": 1}, "by_lane is True or False, not 1"),
    ],
)
def test_batch_refuses_what_cannot_be(given: dict[str, Any], message: str) -> None:
    """Each value when it is made, with what was given."""
    with pytest.raises(ValueError, match=message):
        Batch(**given)


def test_batch_takes_what_can_be() -> None:
    """The limits themselves, and a timedelta as seconds."""
    assert Batch(max_size=10_000, linger=3600, min_size=10_000).linger == 3600
    linger: Any = dt.timedelta(milliseconds=250)
    assert Batch(max_size=1, linger=linger, min_size=1, by_lane=True).linger == 0.25
