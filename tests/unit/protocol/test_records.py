"""Rows: lenient about what is not known, strict and clear about what is torn."""

from __future__ import annotations

import pytest

from echomq.errors import DecodeError, JobNotFoundError
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.records import JobRecord, parse_row
from echomq.protocol.states import State

FULL = {
    b"state": b"active",
    b"since": b"1712345678901",
    b"by": b"Tag",
    b"task": b"thumb",
    b"payload": b"{}",
    b"priority": b"-3",
    b"attempts": b"4",
    b"failures": b"1",
    b"stalls": b"2",
    b"holder": b"Client.7",
    b"dedup": b"a.png",
    b"max_attempts": b"5",
    b"max_stalls": b"0",
    b"timeout_ms": b"30000",
    b"result_ttl_ms": b"60000",
    b"error": b'{"type":"KeyError","message":"x","traceback":"tb"}',
    b"progress": b'{"done":3}',
    b"checkpoint": b"\x00raw",
    b"step": b"3",
    b"cancel": b"why",
    b"kind": b"completed",
    b"reason": b"because",
    b"result": b"42",
    b"headers": b'{"traceparent":"00-1"}',
}


def flat(row: dict[bytes, bytes]) -> list[bytes]:
    """Answer as HGETALL does."""
    return [each for pair in row.items() for each in pair]


def test_record_reads_every_field() -> None:
    """Each property is its row field, decoded."""
    record = parse_row("JOB0", flat(FULL))
    record.check()
    names = [name.decode() for name in FULL]
    assert {name: getattr(record, name) for name in names} == {
        "state": State.ACTIVE,
        "since": 1712345678901,
        "by": "Tag",
        "task": "thumb",
        "payload": b"{}",
        "priority": -3,
        "attempts": 4,
        "failures": 1,
        "stalls": 2,
        "holder": "Client.7",
        "dedup": "a.png",
        "max_attempts": 5,
        "max_stalls": 0,
        "timeout_ms": 30000,
        "result_ttl_ms": 60000,
        "error": ErrorRecord("KeyError", "x", "tb"),
        "progress": {"done": 3},
        "checkpoint": b"\x00raw",
        "step": 3,
        "cancel": "why",
        "kind": "completed",
        "reason": "because",
        "result": b"42",
        "headers": {"traceparent": "00-1"},
    }
    assert record.extra == {}


def test_record_defaults_what_is_absent() -> None:
    """A row with nothing but its state reads as a fresh job."""
    record = parse_row("JOB0", {b"state": b"pending"})
    record.check()
    assert (record.priority, record.attempts, record.failures, record.stalls) == (0, 0, 0, 0)
    assert (record.task, record.payload, record.holder, record.kind, record.lane) == ("", b"", "", "", "")
    absent = ("error", "progress", "checkpoint", "result", "cancel", "dedup", "step")
    limits = ("max_attempts", "max_stalls", "timeout_ms", "result_ttl_ms")
    assert {getattr(record, name) for name in absent + limits} == {None}
    assert record.headers == {}


def test_record_keeps_fields_it_does_not_know() -> None:
    """A newer minor version's fields are kept aside, not refused."""
    record = parse_row("JOB0", flat({**FULL, b"lane": b"acme", b"colour": b"red", b"\xff": b"?"}))
    record.check()
    assert record.extra == {"colour": b"red", "\ufffd": b"?"}
    assert record.lane == "acme"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"attempts", b""),
        (b"attempts", b"nan"),
        (b"attempts", b"1.5"),
        (b"attempts", b"1e3"),
        (b"failures", b" 1"),
        (b"stalls", b"1_0"),
        (b"since", b"\xd9\xa1"),
        (b"max_attempts", b"-"),
        (b"step", b"9" * 17),
        (b"state", b"asleep"),
        (b"progress", b"{"),
        (b"error", b"[]"),
        (b"error", b"{"),
        (b"error", b'{"type":5}'),
        (b"headers", b"[]"),
        (b"headers", b'{"a":1}'),
    ],
)
def test_record_torn_names_the_field(field: bytes, value: bytes) -> None:
    """A torn field raises when it is read, naming itself and the job; the others still read."""
    record = parse_row("JOB0", flat({**FULL, field: value}))
    with pytest.raises(DecodeError) as caught:
        getattr(record, field.decode())
    assert caught.value.path.split(".")[0] == field.decode()
    with pytest.raises(DecodeError):
        record.check()
    assert record.task == "thumb"


def test_record_of_no_row_is_not_found() -> None:
    """An empty answer means there is no row."""
    with pytest.raises(JobNotFoundError, match="JOB0"):
        parse_row("JOB0", [])


def test_record_equality_is_by_content() -> None:
    """Two readings of one row are equal; the row stays out of the repr, for it may hold secrets."""
    assert parse_row("JOB0", flat(FULL)) == parse_row("JOB0", FULL) == JobRecord("JOB0", dict(FULL))
    assert "a.png" not in repr(parse_row("JOB0", FULL))
