"""A job to be enqueued checks itself, and spells its row."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.errors import InvalidJobError
from echomq.protocol.ids import parse
from echomq.protocol.records import JobRecord, NewJob, parse_row


def row_of(job: NewJob) -> JobRecord:
    """Read what the job writes, as the server would answer it."""
    flat = [each if isinstance(each, bytes) else str(each).encode() for each in job.fields()]
    return parse_row(job.id, flat)


def test_new_job_mints_its_id() -> None:
    """Each job has an id of its own unless one is given."""
    one, other = NewJob(), NewJob()
    assert one.id != other.id
    assert parse(one.id).kind == "JOB"
    assert attrs.evolve(one, id=other.id).id == other.id


def test_new_job_spells_only_what_is_set() -> None:
    """Absent means default: a plain job writes nothing but its payload."""
    assert NewJob(payload=b"x").fields() == ("payload", b"x")
    assert NewJob(payload=b"x", task="t", priority=0, delay_ms=5).fields() == ("payload", b"x", "task", "t")


@given(
    st.builds(
        NewJob,
        task=st.sampled_from(["", "thumb", "shop:x"]),
        payload=st.binary(max_size=300),
        priority=st.integers(-2047, 2047),
        dedup=st.none() | st.just("a b"),
        max_attempts=st.none() | st.integers(1, 1_000_000),
        max_stalls=st.none() | st.integers(0, 1_000_000),
        timeout_ms=st.none() | st.integers(1, 10**9),
        result_ttl_ms=st.none() | st.integers(1, 10**9),
        headers=st.none() | st.dictionaries(st.text("ab\u00e4", max_size=3), st.text("xy\n", max_size=3)),
    )
)
def test_new_job_round_trips_through_its_row(job: NewJob) -> None:
    """What a producer sets is what a worker reads, and the size covers what is written."""
    record = row_of(job)
    names = ("task", "payload", "priority", "dedup", "max_attempts", "max_stalls", "timeout_ms", "result_ttl_ms")
    assert {name: getattr(record, name) for name in names} == {name: getattr(job, name) for name in names}
    assert record.headers == (job.headers or {})
    assert job.size >= sum(map(len, record.row.values()))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"id": "mine"}, "'mine'"),
        ({"id": "JOBzzzzzzzzzzz"}, "JOBzzzzzzzzzzz"),
        ({"task": "a b"}, "'a b'"),
        ({"priority": 2048}, r"priority: 2048 is not in -2047\.\.2047"),
        ({"priority": -2048}, "priority: -2048"),
        ({"delay_ms": -1}, "delay_ms: -1"),
        ({"delay_ms": 10**14}, "delay_ms: 100000000000000"),
        ({"at_ms": -1}, "at_ms: -1"),
        ({"at_ms": 10**14}, "at_ms"),
        ({"at_ms": 5, "delay_ms": 0}, "exclude each other"),
        ({"dedup": ""}, "dedup key"),
        ({"dedup": "a\n"}, r"'a\\n'"),
        ({"dedup_window_ms": 5}, "5"),
        ({"dedup": "a", "dedup_window_ms": 0}, "dedup_window_ms: 0"),
        ({"max_attempts": 0}, "max_attempts: 0"),
        ({"max_stalls": -1}, "max_stalls: -1"),
        ({"timeout_ms": 0}, "timeout_ms: 0"),
        ({"result_ttl_ms": 0}, "result_ttl_ms: 0"),
        ({"headers": {"a": "\ud800"}}, "headers"),
        ({"headers": {"a": "x" * 20_000}}, "20008 bytes are more than the limit of 16384"),
    ],
)
def test_new_job_refuses_values_out_of_range(values: dict[str, Any], message: str) -> None:
    """A value out of range is refused where the job is built, and the message shows it."""
    with pytest.raises(InvalidJobError, match=message):
        NewJob(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"id": 5},
        {"payload": "text"},
        {"payload": bytearray(b"x")},
        {"priority": 1.0},
        {"priority": True},
        {"priority": False},
        {"priority": float("nan")},
        {"delay_ms": 1.5},
        {"max_attempts": "3"},
        {"headers": {"a": 1}},
        {"headers": {1: "a"}},
    ],
)
def test_new_job_refuses_other_types(values: dict[str, Any]) -> None:
    """A value of another type is a TypeError, also a bool where a number belongs."""
    with pytest.raises(TypeError):
        NewJob(**values)


def test_new_job_refuses_a_payload_beyond_its_limit() -> None:
    """A payload that is too large is refused with its size and the limit, which is the client's to set."""
    assert NewJob(payload=bytes(1 << 20)).size > 1 << 20
    with pytest.raises(InvalidJobError, match="1048577 bytes are more than the limit of 1048576"):
        NewJob(payload=bytes((1 << 20) + 1))
    assert len(NewJob(payload=bytes((1 << 20) + 1), payload_limit=1 << 21).payload) == (1 << 20) + 1
    with pytest.raises(InvalidJobError, match="11 bytes are more than the limit of 10"):
        NewJob(payload=bytes(11), payload_limit=10)
