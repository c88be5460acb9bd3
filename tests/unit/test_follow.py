"""What a follower makes of the rows it reads: every line once, gaps told, the end noticed."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from echomq import DecodeError, MissedLines, Progress
from echomq._follow import REREAD_AFTER, REREAD_UNTOLD, LogReader, Look, ProgressReader
from echomq.protocol.ids import mint
from echomq.protocol.records import JobRecord
from echomq.transitions import JobInFull

ID = mint()


def job(log: tuple[str, ...] = (), **fields: str) -> JobInFull:
    """Make a row as it is read."""
    row = {name.encode(): value.encode() for name, value in {"state": "active", **fields}.items()}
    return JobInFull(now_ms=0, record=JobRecord(ID, row), score=None, log=log)


def test_log_lines_come_once_and_in_order() -> None:
    """Whatever has been read already is known by its number."""
    reader = LogReader()
    assert reader.new(job()) == []
    assert reader.new(job(("a", "b"), log_lines="2")) == ["a", "b"]
    assert reader.new(job(("a", "b"), log_lines="2")) == []
    assert reader.new(job(("a", "b", "b"), log_lines="3")) == ["b"]
    assert reader.new(job(("b", "c"), log_lines="4")) == ["c"]  # the list keeps two


def test_log_lines_that_are_gone_are_told() -> None:
    """A marker stands where they would, with their number; it is text for those who print."""
    reader = LogReader()
    (gap, *lines) = reader.new(job(("y", "z"), log_lines="26"))
    assert isinstance(gap, MissedLines)
    assert (gap.missed, lines) == (24, ["y", "z"])
    assert gap == "[24 lines of the log gone before they were read]"
    (gap,) = reader.new(job(log_lines="27"))
    assert gap == "[1 line of the log gone before they were read]"
    assert reader.new(job(("y", "z"), log_lines="29")) == ["y", "z"]
    copied = pickle.loads(pickle.dumps(gap))
    assert (copied, copied.missed) == (gap, 1)


def test_log_of_a_row_without_the_number_is_followed_by_its_length() -> None:
    """A row of an earlier version; and one that went back makes nothing come twice."""
    reader = LogReader()
    assert reader.new(job(("a", "b"))) == ["a", "b"]
    assert reader.new(job(("a", "b", "c"))) == ["c"]
    assert reader.new(job(("a",), log_lines="1")) == []
    assert reader.new(job(("a", "d"), log_lines="2")) == ["d"]


def test_progress_comes_when_it_is_another() -> None:
    """As a value; no note is none."""
    reader = ProgressReader()
    assert reader.new(job()) == []
    note = '{"done": 1, "total": 4, "message": "unpacking"}'
    assert reader.new(job(progress=note)) == [Progress(done=1, total=4, message="unpacking")]
    assert reader.new(job(progress=note)) == []
    assert reader.new(job(progress='{"done":2.5}')) == [Progress(done=2.5)]
    assert reader.new(job(progress='{"done":0,"total":null,"message":null}')) == [Progress(done=0)]


@pytest.mark.parametrize("note", ["7", "[]", "{}", '{"done":true}', '{"done":1,"total":"2"}', '{"done":1,"message":2}'])
def test_progress_that_is_none_is_refused(note: str) -> None:
    """It is named, and shown."""
    with pytest.raises(DecodeError, match="progress"):
        ProgressReader().new(job(progress=note))


@pytest.mark.parametrize(
    ("row", "over", "again"),
    [
        ({"state": "pending"}, False, REREAD_UNTOLD),
        ({"state": "active", "result_ttl_ms": "1000"}, False, REREAD_AFTER),
        ({"state": "schedule"}, False, REREAD_UNTOLD),
        ({"state": "dead"}, True, REREAD_UNTOLD),
        ({"state": "done", "result_ttl_ms": "1000"}, True, REREAD_AFTER),
    ],
)
def test_look_tells_whether_it_is_over_and_when_to_look_again(row: dict[str, Any], over: bool, again: float) -> None:
    """A job that keeps no result is looked at more often, for its end is not told."""
    look = Look(LogReader(), job(("x",), log_lines="1", **row))
    assert (look.new, look.over, look.again) == (["x"], over, again)
    assert Look(LogReader(), None).over
