"""A recurrence: bounds, limits, what becomes of missed slots, and its spelling on the server."""

from __future__ import annotations

import datetime as dt
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.protocol.times import from_unix_ms
from echomq.recurrence import Cron, Due, Every, Missed, Recurrence, UnreadableSpecError

MINUTE = 60_000
T = 1_800_000_000_000
"""Some moment, a multiple of a minute."""


def every(seconds: float | dt.timedelta, **given: Any) -> Recurrence:
    """Make a recurrence by an interval."""
    return Recurrence.of(every=seconds, **given)


def test_interval_is_aligned_to_the_epoch_or_to_its_start() -> None:
    """All processes find the same slots, whenever they begin to count."""
    assert every(60).next(T - 1) == T
    assert every(60).next(T) == T + MINUTE
    assert every(60).previous(T) == T
    assert every(60).previous(T - 1) == T - MINUTE
    begun = every(60, start=from_unix_ms(T + 17_000))
    assert begun.next(0) == T + 17_000
    assert begun.next(T + 17_000) == T + 17_000 + MINUTE
    assert begun.previous(T + 17_000) == T + 17_000
    assert begun.previous(T + 16_999) is None


def test_start_and_end_bound_a_recurrence() -> None:
    """Both belong to it."""
    rule = Recurrence.of(cron="* * * * *", start=from_unix_ms(T), end=from_unix_ms(T + 2 * MINUTE))
    assert rule.upcoming(0, 10) == [T, T + MINUTE, T + 2 * MINUTE]
    assert rule.next(T + 2 * MINUTE) is None
    assert rule.previous(T + 9 * MINUTE) == T + 2 * MINUTE
    assert rule.previous(T - 1) is None


def test_limit_ends_a_recurrence() -> None:
    """So many jobs, and no more."""
    rule = every(60, limit=3)
    assert rule.upcoming(T, 10, made=1) == [T + MINUTE, T + 2 * MINUTE]
    assert not rule.is_over(2)
    assert rule.is_over(3)
    assert rule.due(T, T + 1, made=3) == Due((), None, passed=False)
    assert rule.due(T, T + 50 * MINUTE, made=3) == Due((), None, passed=False)


@pytest.mark.parametrize(
    ("missed", "now_ms", "slots"),
    [
        # In time: the slot, a minute at most after it came.
        ("skip", T, (T,)),
        ("last", T, (T,)),
        ("all", T, (T,)),
        ("skip", T + 59_999, (T,)),
        # Several have come: the latest is in time, or the latest two.
        ("skip", T + 3 * MINUTE + 5, (T + 3 * MINUTE,)),
        ("last", T + 3 * MINUTE + 5, (T + 3 * MINUTE,)),
        ("last", T + 3 * MINUTE, (T + 2 * MINUTE, T + 3 * MINUTE)),
        ("all", T + 3 * MINUTE + 5, (T, T + MINUTE, T + 2 * MINUTE, T + 3 * MINUTE)),
    ],
)
def test_due_slots_by_policy(missed: Missed, now_ms: int, slots: tuple[int, ...]) -> None:
    """Skip: what is in time; last: the latest, too; all: every one."""
    passed = slots[0] > T
    assert every(60, missed=missed).due(T, now_ms) == Due(slots, now_ms // MINUTE * MINUTE + MINUTE, passed=passed)


@pytest.mark.parametrize("missed", ["skip", "last", "all"])
def test_due_slots_of_the_last_minute_make_a_job_each(missed: Missed) -> None:
    """A worker that was busy for a while has missed none of them."""
    assert every(1, missed=missed).due(T, T + 4_500).slots == tuple(T + n * 1000 for n in range(5))


@pytest.mark.parametrize(
    ("missed", "late", "made"),
    [("skip", 60_000, 1), ("skip", 60_001, 0), ("last", 60_001, 1), ("last", 3_599_999, 1), ("all", 3_599_999, 1)],
)
def test_due_slot_of_an_hourly_series_is_in_time_for_a_minute(missed: Missed, late: int, made: int) -> None:
    """The latest slot counts as missed when it is older than that."""
    hour = T // 3_600_000 * 3_600_000
    due = every(3600, missed=missed).due(hour, hour + late)
    assert due == Due((hour,) * made, hour + 3_600_000, passed=not made)


def test_due_of_all_is_bounded_to_the_latest() -> None:
    """After a year away, a hundred jobs are made, of the latest slots, oldest first, in a moment."""
    now = T + 366 * 24 * 60 * MINUTE
    due = every(0.1, missed="all").due(T, now)
    assert due.slots == tuple(range(now - 99 * 100, now + 1, 100))
    assert due.next_ms == now + 100


def test_due_with_a_limit_takes_the_oldest() -> None:
    """Of more due slots than the limit allows, the first ones make the jobs."""
    due = every(60, missed="all", limit=5).due(T, T + 9 * MINUTE, made=3)
    assert due.slots == (T, T + MINUTE)


def test_due_slot_of_another_definition_is_fired() -> None:
    """A slot that had come before the definition changed is no slot of the new one, and makes its job all the same."""
    assert every(3600).due(T + 17, T + 20).slots == (T + 17,)
    assert every(60, missed="all").due(T - 17, T + 5).slots == (T - 17, T)


def test_due_slot_of_another_definition_outside_of_the_bounds_is_not() -> None:
    """A definition that begins later makes no job before."""
    assert every(60, start=from_unix_ms(T + MINUTE)).due(T, T + 5) == Due((), T + MINUTE, passed=False)


def test_due_slot_after_the_end_is_none() -> None:
    """A definition that ends before the slot at which the schedule stands makes no job of it."""
    assert every(60, end=from_unix_ms(T - 1)).due(T, T + 5) == Due((), None, passed=False)


def test_due_of_the_last_slot_has_none_after_it() -> None:
    """The series ends with the last slot before its end."""
    assert every(60, end=from_unix_ms(T)).due(T, T + 5) == Due((T,), None, passed=False)


def test_due_next_slot_is_ahead_by_what_is_asked() -> None:
    """Whoever is slow to tell asks for a slot that will still be ahead."""
    assert every(0.1).due(T, T + 5, ahead_ms=250).next_ms == T + 300


@given(
    interval=st.integers(100, 10**7), begin=st.integers(0, 10**13), late=st.integers(0, 10**9),
    missed=st.sampled_from(["skip", "last", "all"]), limit=st.none() | st.integers(1, 200), made=st.integers(0, 200),
)  # fmt: skip
def test_due_slots_are_slots_that_have_come(
    interval: int, begin: int, late: int, missed: Missed, limit: int | None, made: int
) -> None:
    """Rising, none before that at which it stands nor after now, none twice; and the next one is ahead."""
    rule = Recurrence(rule=Every(interval), missed=missed, limit=limit)
    slot = rule.next(begin)
    assert slot is not None
    due = rule.due(slot, slot + late, made=made)
    assert list(due.slots) == sorted(set(due.slots))
    assert all(slot <= each <= slot + late and each % interval == 0 for each in due.slots)
    assert len(due.slots) <= 100
    if limit is not None:
        assert len(due.slots) <= max(0, limit - made)
    assert due.next_ms is None or due.next_ms > slot + late


# --- the spelling -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "spec"),
    [
        (every(60), b'{"every":60000,"v":1}'),
        (every(dt.timedelta(hours=1)), b'{"every":3600000,"v":1}'),
        (every(60, start=from_unix_ms(5)), b'{"every":60000,"start":5,"v":1}'),
        (
            Recurrence.of(
                cron="30 2 * * mon", tz="Europe/Berlin", end=from_unix_ms(T), limit=3, missed="all", jitter=1.5
            ),
            b'{"cron":"30 2 * * MON","end":1800000000000,"jitter":1500,"limit":3,"missed":"all","tz":"Europe/Berlin","v":1}',
        ),
    ],
)
def test_spec_is_one_spelling(rule: Recurrence, spec: bytes) -> None:
    """The same recurrence is the same bytes, and they are read back."""
    assert rule.spell() == spec
    assert Recurrence.parse(spec) == rule
    assert Recurrence.parse(spec).upcoming(T - 10**9, 3) == rule.upcoming(T - 10**9, 3)


@pytest.mark.parametrize(
    "spec",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"every":60000}',
        b'{"every":60000,"v":2}',
        b'{"every":60000,"v":1,"holidays":"DE"}',
        b'{"v":1}',
        b'{"every":60000,"cron":"* * * * *","v":1}',
        b'{"every":60000,"start":"soon","v":1}',
        b'{"every":0,"v":1}',
        b'{"every":true,"v":1}',
        b'{"cron":"* * * * * *","v":1}',
        b'{"cron":"* * * * *","tz":"Mars/Olympus","v":1}',
        b'{"cron":null,"v":1}',
        b'{"every":60000,"missed":"some","v":1}',
        b'{"every":60000,"limit":0,"v":1}',
        b'{"every":60000,"start":9,"end":5,"v":1}',
        b"\xff\xfe",
    ],
)
def test_spec_that_cannot_be_honoured_is_unreadable(spec: bytes) -> None:
    """A newer version's, or torn: whatever is in it, it is one kind of error."""
    with pytest.raises(UnreadableSpecError):
        Recurrence.parse(spec)


_NAMES = ["v", "every", "cron", "tz", "start", "end", "limit", "missed", "jitter"]
_VALUES = st.none() | st.booleans() | st.just(1) | st.integers(-(2**53), 2**53) | st.text(max_size=9)


@given(st.binary(max_size=60) | st.dictionaries(st.sampled_from(_NAMES), _VALUES).map(orjson.dumps))
def test_spec_is_read_or_unreadable(spec: bytes) -> None:
    """No bytes make another error."""
    try:
        rule = Recurrence.parse(spec)
    except UnreadableSpecError:
        return
    assert Recurrence.parse(rule.spell()) == rule


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({}, ValueError, "neither is given"),
        ({"every": 5, "cron": "* * * * *"}, ValueError, "both are given"),
        ({"every": 0.05}, ValueError, "0.1 seconds to ten years, not 50 ms"),
        ({"every": -1}, ValueError, "every: a duration"),
        ({"every": "5"}, TypeError, "every: a duration"),
        ({"every": 5, "tz": "Europe/Berlin"}, ValueError, "a time zone is for cron="),
        ({"every": 5, "start": dt.datetime(2026, 1, 1)}, ValueError, "start: a moment needs a time zone"),  # noqa: DTZ001
        ({"every": 5, "end": 7}, TypeError, "end: a moment"),
        ({"every": 5, "start": from_unix_ms(9), "end": from_unix_ms(5)}, ValueError, "end is not before start"),
        ({"every": 5, "limit": 0}, ValueError, "limit is an int in 1"),
        ({"every": 5, "limit": True}, ValueError, "limit is an int in 1"),
        ({"every": 5, "missed": "none"}, ValueError, "missed is one of skip, last, all, not 'none'"),
        ({"every": 5, "jitter": 86401}, ValueError, "jitter is an int in 0"),
    ],
)
def test_recurrence_refuses_by_name(given: dict[str, Any], error: type[Exception], words: str) -> None:
    """One clear error names what cannot be."""
    with pytest.raises(error, match=words):
        Recurrence.of(**given)


def test_recurrence_reads_as_a_sentence() -> None:
    """For lists that people read."""
    assert str(every(0.5, limit=3)) == "every 0.5 s, 3 times"
    assert str(Recurrence(rule=Cron("0 9 * * *", "Europe/Berlin"), jitter_ms=2000)) == (
        "0 9 * * * (Europe/Berlin), up to 2 s late"
    )
