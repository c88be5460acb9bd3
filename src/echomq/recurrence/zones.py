"""What a time zone's clock shows and when: the little that zoneinfo does not say by itself.

All moments are Unix seconds. A *wall time* is what the local clock shows, as the seconds at which a clock in UTC shows
the same.

Theory of operation
    `first_reaching` is the whole daylight-saving rule for fixed times: the first moment at which the local clock shows
    the wall time **or a later one**. A time that exists is that moment; of one that is repeated it is the first; for one
    that a gap skips it is the gap's end. As it never falls while the wall time rises, two skipped times of a gap are one
    moment, and order is kept.

    Where an offset changes is found by bisection between two moments with different offsets. Two changes within
    `NEAR` of each other would be taken for one; no zone of today has such.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Callable
from functools import lru_cache
from typing import Final

NEAR: Final = 26 * 3600
"""Seconds within which one change of the offset is looked for: more than any clock was ever set back by."""
_OF_THE_MACHINE: Final = frozenset({"localtime", "posixrules"})
_NAIVE_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - wall times are naive
_SECOND: Final = dt.timedelta(seconds=1)


@lru_cache(maxsize=256)
def find_zone(name: str) -> zoneinfo.ZoneInfo:
    """Answer a zone by its name.

    Raises:
        TypeError: Not text.
        ValueError: There is no such zone.
    """
    if not isinstance(name, str):
        raise TypeError(f"a time zone is named by text, such as 'Europe/Berlin', not {name!r}")
    if name in _OF_THE_MACHINE:
        raise ValueError(
            f"the time zone {name!r} is another on each machine: name one of IANA's, such as 'Europe/Berlin'"
        )
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # unknown, a path, a directory of zones
        raise ValueError(f"there is no time zone {name!r}: names are those of IANA, such as 'Europe/Berlin'") from None


def offset_at(zone: zoneinfo.ZoneInfo, at: int) -> int:
    """Answer by how many seconds the local clock is ahead of UTC at a moment."""
    return _seconds(dt.datetime.fromtimestamp(at, zone).utcoffset())


def naive(wall: int) -> dt.datetime:
    """Answer a wall time as a datetime without a zone."""
    return _NAIVE_EPOCH + dt.timedelta(seconds=wall)


def wall_of(moment: dt.datetime) -> int:
    """Answer the wall time of a datetime without a zone."""
    return (moment - _NAIVE_EPOCH) // _SECOND


def moment_of(zone: zoneinfo.ZoneInfo, wall: int, *, fold: int = 0) -> int | None:
    """Answer when the local clock shows a wall time, for the first time or (`fold` 1) the last; None if it never does."""
    offset = _seconds(naive(wall).replace(tzinfo=zone, fold=fold).utcoffset())
    return wall - offset if offset_at(zone, wall - offset) == offset else None


def first_reaching(zone: zoneinfo.ZoneInfo, wall: int) -> int:
    """Answer the first moment at which the local clock shows a wall time or a later one."""
    at = moment_of(zone, wall)
    if at is not None:
        return at
    # In a gap: before it the clock shows less, after it more.
    moment = naive(wall).replace(tzinfo=zone)
    before, after = _seconds(moment.utcoffset()), _seconds(moment.replace(fold=1).utcoffset())
    return bisect(wall - after, wall - before, lambda at: at + offset_at(zone, at) >= wall)


def change_between(zone: zoneinfo.ZoneInfo, before: int, after: int) -> int:
    """Answer the first moment with the offset of `after`, which is not that of `before`."""
    offset = offset_at(zone, after)
    return bisect(before, after, lambda at: offset_at(zone, at) == offset)


def bisect(low: int, high: int, is_over: Callable[[int], bool]) -> int:
    """Answer the first number for which it is so: not yet for `low`, but for `high`, and it changes once in between."""
    while high - low > 1:
        middle = (low + high) // 2
        if is_over(middle):
            high = middle
        else:
            low = middle
    return high


def _seconds(offset: dt.timedelta | None) -> int:
    return 0 if offset is None else offset // _SECOND
