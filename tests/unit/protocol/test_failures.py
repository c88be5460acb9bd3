"""Failures as bounded text, whatever the exception does."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.errors import DecodeError
from echomq.protocol.failures import MAX_ERROR, ErrorRecord


def raised(error: BaseException) -> BaseException:
    """Raise it, so that it has a traceback, and catch it again."""
    try:
        raise error  # noqa: TRY301 - its traceback is what is wanted
    except BaseException as caught:
        return caught


class StrangeInit(Exception):  # noqa: N818
    def __init__(self, *, needed: int) -> None:
        self.needed = needed


class StrangeStr(Exception):  # noqa: N818
    def __str__(self) -> str:
        raise LookupError


class NotText(Exception):  # noqa: N818
    def __str__(self) -> Any:
        return 5  # noqa: PLE0307 - that is the point


class StrangeNotes(Exception):  # noqa: N818
    __notes__: Any = 7


def test_error_says_type_message_and_traceback() -> None:
    """A builtin's type stands by itself, another's with its module; the traceback shows the raising line."""
    record = ErrorRecord.from_exception(raised(KeyError("x")))
    assert (record.type, record.message) == ("KeyError", "'x'")
    assert "raise error" in record.traceback
    assert record.traceback.rstrip().endswith("KeyError: 'x'")
    assert ErrorRecord.from_exception(orjson.JSONDecodeError("bad", "", 0)).type == "orjson.JSONDecodeError"


def test_error_shows_its_cause() -> None:
    """The exception that led to it is in the traceback."""
    error = ValueError("outer")
    error.__cause__ = raised(KeyError("inner"))
    assert "KeyError: 'inner'" in ErrorRecord.from_exception(raised(error)).traceback


@pytest.mark.parametrize(
    "error", [StrangeInit(needed=1), StrangeStr(), NotText(), StrangeNotes("x"), KeyboardInterrupt()]
)
def test_error_survives_strange_exceptions(error: BaseException) -> None:
    """Whatever an exception's methods do, there is a record that names its type."""
    record = ErrorRecord.from_exception(raised(error))
    assert type(error).__name__ in record.type
    assert record.traceback
    assert ErrorRecord.from_bytes(record.to_bytes()) == record


def test_error_says_that_the_text_is_lost() -> None:
    """An exception whose text cannot be had says so."""
    assert ErrorRecord.from_exception(StrangeStr()).message == "<its text is lost: __str__ raised LookupError>"


def test_error_unfolds_a_group_of_one() -> None:
    """A group that holds one exception, however deep, is that exception; the traceback shows the group."""
    caught = raised(KeyError("x"))
    assert isinstance(caught, KeyError)
    group = ExceptionGroup("outer", [ExceptionGroup("inner", [caught])])
    record = ErrorRecord.from_exception(raised(group))
    assert (record.type, record.message) == ("KeyError", "'x'")
    assert "outer" in record.traceback


def test_error_lists_a_group_of_several() -> None:
    """A group of several names each; of a crowd, the first ones and how many more."""
    group = ExceptionGroup("both", [KeyError("x"), ExceptionGroup("deep", [ValueError("y"), OSError("z")])])
    record = ErrorRecord.from_exception(raised(group))
    assert record.type == "ExceptionGroup"
    assert record.message == "both (2 sub-exceptions); KeyError: 'x'; ValueError: y; OSError: z"
    crowd = ErrorRecord.from_exception(ExceptionGroup("all", [ValueError(str(n)) for n in range(50)]))
    assert crowd.message.endswith("ValueError: 19; and 30 more")


def test_error_cuts_a_huge_message_and_keeps_its_frames() -> None:
    """A message of megabytes is cut in its middle, and the traceback still shows where it was raised."""
    record = ErrorRecord.from_exception(raised(ValueError("a" * 3_000_000 + "end")))
    assert len(record.to_bytes()) <= MAX_ERROR
    assert record.message.startswith("aaa")
    assert record.message.endswith("aend")
    assert "characters cut" in record.message
    assert "raise error" in record.traceback


def test_error_cuts_a_huge_traceback_in_its_middle() -> None:
    """A long traceback keeps where it began and where it was raised; the message stays whole."""

    def dive(depth: int) -> None:
        if depth:
            return dive_again(depth - 1)
        raise ValueError("bottom")

    def dive_again(depth: int) -> None:
        return dive(depth)

    with pytest.raises(ValueError, match="bottom") as caught:
        dive(60)
    record = ErrorRecord.from_exception(caught.value)
    assert MAX_ERROR - 100 < len(record.to_bytes()) <= MAX_ERROR
    assert record.message == "bottom"
    assert record.traceback.startswith("Traceback")
    assert "characters cut" in record.traceback
    assert record.traceback.rstrip().endswith("ValueError: bottom")


@given(
    st.text(st.characters(codec=None), max_size=300),
    st.text(st.characters(codec=None), max_size=3000),
    st.text(st.characters(codec=None), max_size=3000),
)
def test_error_stays_within_its_limit(type: str, message: str, traceback: str) -> None:
    """Whatever the text, surrogates and control characters included, the JSON fits and reads back."""
    data = ErrorRecord(type, message, traceback).to_bytes()
    assert len(data) <= MAX_ERROR
    assert ErrorRecord.from_bytes(data).to_bytes() == data


@pytest.mark.parametrize("unit", ["\x00", "\ud800", "\U0001f600", '"', "\n"])
def test_error_counts_bytes_as_written(unit: str) -> None:
    """Text that grows sixfold in JSON still fits."""
    record = ErrorRecord(unit * 5000, unit * 5000, unit * 5000)
    assert MAX_ERROR - 100 < len(record.to_bytes()) <= MAX_ERROR


def test_error_from_bytes_is_lenient_about_fields_and_strict_about_types() -> None:
    """Fields that are not known are left out, missing ones are empty, anything but text is torn."""
    assert ErrorRecord.from_bytes(b'{"type":"T","new":1}') == ErrorRecord("T")
    for data in (b"", b"[]", b'{"type":1}', b"\xff"):
        with pytest.raises(DecodeError, match="error"):
            ErrorRecord.from_bytes(data)
