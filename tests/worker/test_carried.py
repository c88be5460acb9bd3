"""An error on its way between a worker and its child: as itself, whatever its class makes of pickling."""

from __future__ import annotations

import sys
import threading
import types
from random import Random
from typing import Any, Never, Self

import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.backoff import NEVER, ByError, Fixed, RetryAfter
from echomq.errors import JobStateError
from echomq.protocol.failures import ErrorRecord
from echomq.worker.carried import dump_error, is_by_name, load_error
from tests.worker import process_jobs
from tests.worker.process_jobs import GoneError, HttpError, OddError, UnpicklableError
from tests.worker.support import TRIO, Peek, running, until

POLICY = ByError({GoneError: NEVER, HttpError: RetryAfter(Fixed(5))}, default=Fixed(600))


def carried(error: BaseException) -> BaseException:
    """Take it there and back."""
    return load_error(*dump_error(error))


def delay_of(error: BaseException) -> float | None:
    """What the policy says."""
    return POLICY(1, error, Random(1))


class SlottedError(HttpError):
    """Keeps something outside its `__dict__`."""

    __slots__ = ("kept", "unset")

    def __init__(self, kept: str) -> None:
        self.kept = kept
        super().__init__(1, {})


class DiskError(OSError):
    """What it takes is not what an OSError takes."""

    def __init__(self, disk: str) -> None:
        super().__init__(28, "no space", disk)


class GrowingError(Exception):
    """Can be restored, and then says something else."""

    def __init__(self, text: str) -> None:
        super().__init__(f"it is {text}")


class BreaksError(Exception):
    """Is left in pieces by its restoring."""

    def __setstate__(self, state: Any) -> Never:
        raise SystemExit(3)


class LyingError(HttpError):
    """Says that it is another one."""

    def __reduce__(self) -> Any:
        return LookupError, ("not me",)


class ForgettingError(HttpError):
    """Forgets what it has."""

    def __reduce__(self) -> Any:
        return Exception.__new__, (ForgettingError, 1)


class FormError(Exception):
    """Refuses to be made without more."""

    def __new__(cls, field: str, *, why: str) -> Self:
        return super().__new__(cls, field, why)

    def __init__(self, field: str, *, why: str) -> None:
        self.why = why


class ManyError(ExceptionGroup[Exception]):
    """A group that takes something else."""

    def __new__(cls, errors: list[Exception]) -> Self:
        made = super().__new__(cls, "many", errors)
        made.count = len(errors)
        return made

    count: int


def test_error_crosses_as_itself() -> None:
    """Whatever can be pickled and restored, and what cannot: its class, arguments and attributes."""
    errors: list[Exception] = [
        LookupError("x"), JobStateError("active", "done", "a"), ExceptionGroup("two", [ValueError("a")]), OddError(1, 2),
        UnpicklableError("x"), GoneError(410, {}), GrowingError("x"), BreaksError("b"), LyingError(1, {}),
        ForgettingError(1, {}), FormError("f", why="w"), UnicodeDecodeError("utf-8", b"ab", 0, 1, "bad"),
    ]  # fmt: skip
    for error in errors:
        again = carried(error)
        assert (type(again), str(again), repr(again.args)) == (type(error), str(error), repr(error.args))
        assert vars(again) == vars(error)


def test_error_keeps_what_is_outside_its_attributes() -> None:
    """Slots of its own and of built-in classes."""
    again: Any = carried(SlottedError("k"))
    assert (type(again), again.kept, again.status) == (SlottedError, "k", 1)
    assert not hasattr(again, "unset")
    again = carried(DiskError("sda"))
    assert (type(again), again.errno, again.filename, str(again)) == (DiskError, 28, "sda", str(DiskError("sda")))


def test_error_loses_only_what_cannot_be_pickled() -> None:
    """An attribute is left out; an argument keeps its place, as text."""
    error = GoneError(410, {"a": "b"})
    error.lock = threading.Lock()  # type: ignore[attr-defined]
    error.args = (error.lock, 2)  # type: ignore[attr-defined]
    again: Any = carried(error)
    assert (type(again), again.status, again.headers) == (GoneError, 410, {"a": "b"})
    assert again.args == (str(error.args[0]), 2)
    assert not hasattr(again, "lock")


def test_policy_knows_an_error_that_has_crossed() -> None:
    """Never is never, and a server is believed; within groups too."""
    assert delay_of(carried(GoneError(410, {}))) is None
    assert delay_of(carried(HttpError(429, {"Retry-After": "7"}))) == 7
    busy = HttpError(429, {"Retry-After": "7"})
    assert delay_of(carried(ExceptionGroup("g", [busy, ExceptionGroup("h", [OSError(), GoneError(1, {})])]))) is None
    assert delay_of(carried(ExceptionGroup("g", [busy, HttpError(500, {})]))) == 7
    assert delay_of(carried(BaseExceptionGroup("g", [SystemExit(), GoneError(1, {})]))) is None


def test_group_crosses_whole() -> None:
    """Its class, its attributes, and its members by identity; nested deeper than Python's stack, too."""
    shared = GoneError(410, {})
    group = ManyError([shared, ExceptionGroup("in", [shared, BreaksError("b")])])
    group.add_note("noted")
    again: Any = carried(group)
    assert (type(again), again.message, again.count, again.__notes__) == (ManyError, "many", 2, ["noted"])
    assert again.exceptions[0] is again.exceptions[1].exceptions[0]
    deep: Exception = ExceptionGroup("g", [shared, OSError()])
    for _ in range(3000):
        deep = ExceptionGroup("g", [deep, OSError()])
    assert delay_of(carried(deep)) is None
    wide: Exception = shared
    for _ in range(100):
        wide = ExceptionGroup("g", [wide, wide])
    assert delay_of(carried(wide)) is None


def test_error_crosses_by_name_where_its_class_is_not_found() -> None:
    """It is a RuntimeError that names it, and is known as such; so is what would stop a worker."""

    class LocalError(GoneError): ...

    for error in (LocalError(1, {}), KeyboardInterrupt("k"), SystemExit(3), GeneratorExit()):
        data, record = dump_error(error)
        again = load_error(data, record)
        assert type(again) is RuntimeError
        assert str(again) == f"{record.type}: {record.message}"
        assert is_by_name(again)
    group = carried(ExceptionGroup("g", [LocalError(1, {}), GoneError(2, {})]))
    assert is_by_name(group)
    assert isinstance(group, ExceptionGroup)
    assert [type(each) for each in group.exceptions] == [RuntimeError, GoneError]
    for known in (RuntimeError("x"), GoneError(1, {}), ExceptionGroup("g", [RuntimeError("x")])):
        assert not is_by_name(carried(known))
    odd = RuntimeError("x")
    odd.__notes__ = 5  # type: ignore[assignment]
    assert not is_by_name(carried(odd))


def test_nonsense_is_an_error_by_name() -> None:
    """As if nothing had been sent."""
    record = ErrorRecord("a.B", "text")
    for data in (None, b"", b"nonsense", b"N."):
        assert str(load_error(data, record)) == "a.B: text"


def test_error_whose_module_has_something_else_there_crosses_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name alone does not make it that class."""
    data, record = dump_error(LyingError(1, {}))
    for other in (None, 3, int, lambda: None):
        monkeypatch.setattr(sys.modules[__name__], "LyingError", other)
        again = load_error(data, record)
        assert type(again) is RuntimeError
        assert is_by_name(again)


def test_error_of_the_main_module_is_named_as_its_author_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child the main module has another name, which nobody has given it."""
    module = types.ModuleType("__mp_main__")
    exec("class MainError(Exception): pass", vars(module))
    monkeypatch.setitem(sys.modules, "__mp_main__", module)
    data, record = dump_error(module.MainError("x"))
    assert record.type == "__main__.MainError"
    assert "__mp_main__" not in record.traceback
    assert data is not None
    # The worker's main module has no such class here.
    assert str(load_error(data, record)) == "__main__.MainError: x"


def test_record_of_an_error_is_bounded() -> None:
    """However long its text."""
    _, record = dump_error(ValueError("x" * 100_000))
    assert len(record.to_bytes()) <= 4096
    assert ErrorRecord.from_bytes(record.to_bytes()) == record


@TRIO
@pytest.mark.anyio
@pytest.mark.parametrize("how", ["gone", "busy", "group"])
async def test_policy_by_error_knows_the_errors_of_a_process(app: App, queue_name: str, peek: Peek, how: str) -> None:
    """Classes whose `__init__` takes something else than `args`, with what they say, within groups too."""
    policy = ByError({GoneError: NEVER, HttpError: RetryAfter(Fixed(0), cap=3600)}, default=Fixed(0))
    fail = app.task(queue=queue_name, run_in="process", backoff=policy, max_attempts=2)(process_jobs.fail)
    with capture_logs() as logs:
        async with app, running(app, pool=1, lease=30.0):
            job = await fail.enqueue(how)
            await until(lambda: peek.state(job.id) in {"dead", "schedule"})
    record = peek.record(job.id)
    assert (record.state, record.attempts) == ("schedule" if how == "busy" else "dead", 1)
    (line,) = (line for line in logs if line["event"] == "job_failed")
    assert line.get("retry_in") == (600 if how == "busy" else None)
    assert "hint" not in line
