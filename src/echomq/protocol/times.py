"""The only place that converts times: seconds and aware datetimes in Python, integer milliseconds on the wire.

Protocol, section 4, rule 3: the clock is the server's; a client sends durations, or moments that a user chose.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from typing import Any, Final

from echomq.protocol._convert import shown

MAX_DURATION_MS: Final = 100 * 366 * 86_400_000
"""A century, ms: whatever is longer is a mistake, and its sum with the clock stays below 10^14."""
MAX_AT_MS: Final = 99_999_999_999_999
"""The last Unix ms that a script writes in full (rule 3: integers above 10^14 lose digits); the year 5138."""

Moment = float | dt.timedelta | dt.datetime
"""A moment as people say it: so long from now, in seconds or as a timedelta, or an aware datetime."""

_MOMENT: Final = re.compile(r"\+?[0-9]{1,14}")
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


def to_ms(seconds: float | dt.timedelta) -> int:
    """Convert a duration to milliseconds, to the nearest one; a positive one is at least 1 ms.

    A wait that was asked for must not become no wait, and a timeout must not become no timeout.

    Args:
        seconds: 0 to a century.

    Raises:
        ValueError: Negative, not finite, or longer than a century.
        TypeError: Neither a number nor a timedelta.
    """
    if isinstance(seconds, dt.timedelta):
        # Exact, where total_seconds() rounds; and timedelta's own division, for a subclass may have another.
        microseconds = dt.timedelta.__floordiv__(seconds, dt.timedelta(microseconds=1))
        ms, positive = (microseconds + 500) // 1000, microseconds > 0
        negative = microseconds < 0
    elif _is_number(seconds):
        # The number itself: what a subclass makes of it might not be one that can be sent.
        number = _plain(seconds)
        if not _is_finite(number):
            raise ValueError(f"a duration is a finite number of seconds, not {number!r}")
        negative, positive = number < 0, number > 0
        ms = round(min(number, 2 * MAX_DURATION_MS) * 1000) if positive else 0
    else:
        raise TypeError(f"a duration is a number of seconds or a timedelta, not {shown(seconds)}")
    if negative or ms > MAX_DURATION_MS:
        raise ValueError(f"a duration lies between 0 and a century, not {shown(seconds)}")
    return max(ms, 1) if positive else 0


def to_wait(seconds: float, name: str = "a timeout", *, positive: bool = False) -> float:
    """Check how long somebody is willing to wait, by a clock of this process; more than a century is a century.

    Args:
        seconds: Any number; negative is no waiting at all, infinite is without a limit.
        name: What it is, for the message.
        positive: Whether it must be more than 0.

    Raises:
        ValueError: Not a number (NaN), or 0 or less where it must be more.
        TypeError: Not of a number's type.
    """
    if not _is_number(seconds):
        raise TypeError(f"{name} is a number of seconds, not {seconds!r}")
    if seconds != seconds or (positive and seconds <= 0):  # noqa: PLR0124 - NaN
        raise ValueError(f"{name} is a number of seconds{' above 0' if positive else ''}, not {seconds!r}")
    return float(max(0, min(seconds, MAX_DURATION_MS / 1000)))  # an int may be too large for a float


def to_seconds(ms: int) -> float:
    """Convert milliseconds to seconds."""
    return ms / 1000


def from_unix_ms(ms: int) -> dt.datetime:
    """Make Unix milliseconds an aware datetime in UTC, exactly.

    Raises:
        OverflowError: Outside the years 1 to 9999.
    """
    return _EPOCH + dt.timedelta(milliseconds=ms)


def unix_ms(moment: dt.datetime) -> int:
    """Make an aware datetime Unix milliseconds, dropping what is finer.

    Args:
        moment: From 1970 to 5138.

    Raises:
        ValueError: Naive, so that nobody knows which moment is meant, or out of range.
        TypeError: Not a datetime.
    """
    if not isinstance(moment, dt.datetime):
        raise TypeError(f"a moment is an aware datetime, not {moment!r}")
    if moment.utcoffset() is None:
        raise ValueError(f"a moment needs a time zone, such as datetime.now(UTC): {moment!r} has none")
    ms = dt.datetime.__sub__(moment, _EPOCH) // _MILLISECOND  # datetime's own: a subclass may have another
    if not 0 <= ms <= MAX_AT_MS:
        raise ValueError(f"a moment lies between 1970 and 5138, not {moment!r}")
    return ms


def spell_moment(moment: Moment) -> str:
    """Spell a moment for a call: `+5000`, ms from when the server gets it, or Unix ms.

    Raises:
        TypeError: Neither a duration nor a datetime.
        ValueError: Out of range, or naive.
    """
    return str(unix_ms(moment)) if isinstance(moment, dt.datetime) else f"+{to_ms(moment)}"


def check_moment(text: str) -> str:
    """Answer a spelled moment if it is one.

    Raises:
        TypeError: Not text.
        ValueError: Neither Unix ms nor `+` and ms up to a century.
    """
    if type(text) is not str:
        raise TypeError(f"a spelled moment is text, not {shown(text)}")
    if _MOMENT.fullmatch(text) is None or (text[0] == "+" and int(text) > MAX_DURATION_MS):
        raise ValueError(f"a spelled moment is Unix ms, or + and ms up to a century, not {shown(text)}")
    return text


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    return float.__add__(value, 0.0) if isinstance(value, float) else int.__add__(value, 0)


def _is_finite(value: object) -> bool:
    return not isinstance(value, float) or math.isfinite(value)  # an int may be too large for a float
