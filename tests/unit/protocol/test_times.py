"""The one place that converts times."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.protocol.times import MAX_DURATION_MS, from_unix_ms, to_ms, to_seconds, unix_ms


@given(st.integers(0, MAX_DURATION_MS))
def test_to_ms_reverses_to_seconds(ms: int) -> None:
    """Every whole millisecond survives the way through float seconds and through a timedelta."""
    assert to_ms(to_seconds(ms)) == ms
    assert to_ms(dt.timedelta(milliseconds=ms)) == ms


@given(st.floats(0, 3e9))
def test_to_ms_is_nearest_and_never_zero_for_a_wait(seconds: Any) -> None:
    """A duration is off by half a millisecond at most, and a wait that was asked for stays a wait."""
    ms = to_ms(seconds)
    assert (ms == 0) == (seconds == 0)
    assert ms == 1 or abs(ms - seconds * 1000) <= 0.5 + seconds * 1e-12


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [
        (0, 0),
        (-0.0, 0),
        (1e-300, 1),
        (0.0004, 1),
        (0.0014, 1),
        (1.5, 1500),
        (2, 2000),
        (dt.timedelta(microseconds=1), 1),
        (dt.timedelta(microseconds=1500), 2),
        (dt.timedelta(0), 0),
        (dt.timedelta(days=1), 86_400_000),
    ],
)
def test_to_ms_converts(seconds: Any, ms: int) -> None:
    """Numbers and timedeltas convert alike; sub-millisecond waits round up to one."""
    assert to_ms(seconds) == ms


@pytest.mark.parametrize(
    "seconds",
    [
        -1,
        -1e-9,
        float("nan"),
        float("inf"),
        float("-inf"),
        1e300,
        10**400,
        4e9,
        dt.timedelta(days=-1),
        dt.timedelta.max,
    ],
)
def test_to_ms_refuses_what_is_no_duration(seconds: Any) -> None:
    """Negative, endless and absurd durations are refused."""
    with pytest.raises(ValueError, match="duration"):
        to_ms(seconds)


@pytest.mark.parametrize("seconds", ["5", None, True, b"1"])
def test_to_ms_refuses_other_types(seconds: Any) -> None:
    """Only numbers and timedeltas are durations."""
    with pytest.raises(TypeError, match="duration"):
        to_ms(seconds)


EARLIEST, LATEST = dt.datetime(1970, 1, 2), dt.datetime(5138, 1, 1)  # noqa: DTZ001 - Hypothesis adds the zone


@given(st.datetimes(EARLIEST, LATEST, timezones=st.timezones()))
def test_unix_ms_round_trips_to_the_millisecond(moment: dt.datetime) -> None:
    """A moment in any zone comes back in UTC, less what is finer than a millisecond."""
    back = from_unix_ms(unix_ms(moment))
    assert back.tzinfo is dt.UTC
    assert dt.timedelta(0) <= moment - back < dt.timedelta(milliseconds=1)


def test_unix_ms_refuses_naive_and_distant_moments() -> None:
    """A naive datetime is refused, for nobody knows which moment it means; so is one out of range."""
    with pytest.raises(ValueError, match="time zone"):
        unix_ms(dt.datetime(2026, 1, 1))  # noqa: DTZ001
    for year in (1969, 5139):
        with pytest.raises(ValueError, match="between"):
            unix_ms(dt.datetime(year, 12, 31, tzinfo=dt.UTC))
    with pytest.raises(TypeError, match="aware"):
        unix_ms(dt.date(2026, 1, 1))  # type: ignore[arg-type]
