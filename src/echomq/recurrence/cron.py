"""Slots by a cron expression in a time zone.

Theory of operation
    cronsim parses the expression and finds wall times that match it, in a calendar without a zone. Which moments these
    are is decided here, by the published rule (docs/how-to/schedules.md):

    - *Fixed times* (neither the hour begins with `*`, nor is the minute a wildcard or a step): each matching wall time
      is one moment, `first_reaching`. Skipped by a gap: the gap's end, once for all that it skips. Repeated: the first.
    - *Elapsed time* (all others): every real minute whose local time matches, so those of a repeated hour twice and those
      of a skipped hour never.

    cronsim itself, given a zone, follows another rule: two times that one gap skips would run twice at its end.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from typing import Final, final

import attrs
from cronsim import CronSim, CronSimError

from echomq.recurrence.zones import (
    NEAR,
    change_between,
    find_zone,
    first_reaching,
    moment_of,
    naive,
    offset_at,
    wall_of,
)

FIELDS: Final = ("minute", "hour", "day-of-month", "month", "day-of-week")
ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""Words that stand for an expression."""
MAX_LENGTH: Final = 256
"""Characters of an expression."""
_ONE_VALUE: Final = re.compile(r"(?<![^,])(\w+)-\1/[1-9]\d*(?![^,])")
"""A range of one value with a step, which is that value; the library would begin there and step on."""
_ROUNDS: Final = 64
"""Changes of the clock that may hide the next match, one after another; then there is none to speak of."""
_TRIAL: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - any wall time will do


def check_expression(text: str) -> str:
    """Answer an expression in one spelling: an alias spelled out, names in capitals, single spaces.

    Raises:
        TypeError: Not text.
        ValueError: Not five fields, one of them out of range, or no day ever fits; the message names it.
    """
    if not isinstance(text, str):
        raise TypeError(f"a cron expression is text, such as '30 2 * * *', not {text!r}")
    shown = repr(text if len(text) <= MAX_LENGTH else f"{text[:40]}...")
    fields = [_ONE_VALUE.sub(r"\1", field) for field in ALIASES.get(text.strip().lower(), text).upper().split()]
    if len(fields) == len(FIELDS) + 1:
        raise ValueError(
            f"cron expression {shown} has six fields, which elsewhere means seconds (first or last): here it has five, "
            f"{', '.join(FIELDS)}; for less than a minute there are intervals"
        )
    if len(fields) != len(FIELDS) or len(text) > MAX_LENGTH:
        raise ValueError(f"a cron expression has five fields ({', '.join(FIELDS)}), not {shown}")
    for at, field in enumerate(fields):
        alone = ["*"] * len(FIELDS)
        alone[at] = field
        try:
            CronSim(" ".join(alone), _TRIAL)
        except CronSimError:
            raise ValueError(f"cron expression {shown}: its {FIELDS[at]} cannot be {field!r}") from None
    expression = " ".join(fields)
    try:
        next(CronSim(expression, _TRIAL))
    except (CronSimError, StopIteration):
        raise ValueError(f"cron expression {shown} fits no day of the calendar") from None
    return expression


@final
@attrs.frozen
class Cron:
    """Slots by a cron expression: `Cron("30 2 * * MON-FRI", "Europe/Berlin")`.

    Raises:
        TypeError: Not text.
        ValueError: The expression or the zone cannot be read; the message names it.
    """

    expression: str = attrs.field(converter=check_expression)
    """Minute, hour, day of the month, month, day of the week."""
    tz: str = "UTC"
    """The zone of its times, by its name."""
    zone: zoneinfo.ZoneInfo = attrs.field(init=False, repr=False, eq=False)
    """The zone."""
    elapsed: bool = attrs.field(init=False, repr=False, eq=False)
    """Whether it follows elapsed time: every real minute whose local time matches."""

    @zone.default
    def _find_zone(self) -> zoneinfo.ZoneInfo:
        return find_zone(self.tz)

    @elapsed.default
    def _is_elapsed(self) -> bool:
        minute, hour, *_ = self.expression.split()
        return hour.startswith("*") or "*" in minute or "/" in minute

    def __str__(self) -> str:
        return f"{self.expression} ({self.tz})"

    def next(self, after_ms: int) -> int | None:
        """Answer the first slot after a moment, both in Unix ms; None when there is none in fifty years."""
        after = after_ms // 1000
        found = self._elapsed_next(after) if self.elapsed else self._fixed_next(after)
        return None if found is None else found * 1000

    def previous(self, at_ms: int) -> int | None:
        """Answer the last slot that is not after a moment, both in Unix ms; None when there is none in fifty years."""
        at = at_ms // 1000
        found = self._elapsed_previous(at) if self.elapsed else self._fixed_previous(at)
        return None if found is None or found < 0 else found * 1000

    # --- in the calendar ------------------------------------------------------------------------

    def _wall_after(self, wall: int) -> int | None:
        found = next(CronSim(self.expression, naive(wall)), None)
        return None if found is None else wall_of(found)

    def _wall_until(self, wall: int) -> int | None:
        found = next(CronSim(self.expression, naive(wall + 1), reverse=True), None)
        return None if found is None else wall_of(found)

    # --- fixed times ----------------------------------------------------------------------------

    def _fixed_next(self, after: int) -> int | None:
        # Within a repeated hour the clock has shown later times already: those are passed over.
        wall = self._wall_after(after + offset_at(self.zone, after))
        while wall is not None and (found := first_reaching(self.zone, wall)) <= after:
            wall = self._wall_after(wall)
        return None if wall is None else found

    def _fixed_previous(self, at: int) -> int | None:
        shown = dt.datetime.fromtimestamp(at, self.zone)
        wall = at + offset_at(self.zone, at)
        if shown.fold:
            # Shown for the second time: by now the clock has shown as much more as it was set back by.
            first = moment_of(self.zone, wall)
            wall += 0 if first is None else at - first
        found = self._wall_until(wall)
        while found is not None and (moment := first_reaching(self.zone, found)) > at:
            found = self._wall_until(found - 1)
        return None if found is None else moment

    # --- elapsed time ---------------------------------------------------------------------------

    def _elapsed_next(self, after: int) -> int | None:
        zone = self.zone
        offset = offset_at(zone, after)
        for _ in range(_ROUNDS):
            # What matches while this offset lasts, and after it unless the clock is set back.
            wall = self._wall_after(after + offset)
            if wall is None:
                return None
            found = wall - offset
            near = min(found, after + NEAR)
            changed = offset_at(zone, near)
            if changed == offset and found == near:
                return found
            if changed != offset and (found == near or changed < offset):
                after = change_between(zone, after, near) - 1
                offset = changed
                continue
            # Far away, and the clock is not set back on the way to where it would match again.
            first = moment_of(zone, wall)
            if first is not None:
                return first
            after = first_reaching(zone, wall) - 1
            offset = offset_at(zone, after + 1)
        return None

    def _elapsed_previous(self, at: int) -> int | None:
        zone = self.zone
        for _ in range(_ROUNDS):
            offset = offset_at(zone, at)
            wall = self._wall_until(at + offset)
            if wall is None:
                return None
            found = wall - offset
            near = max(found, at - NEAR)
            changed = offset_at(zone, near)
            if changed == offset and found == near:
                return found
            if changed != offset and (found == near or changed > offset):
                at = change_between(zone, near, at) - 1
                continue
            last = moment_of(zone, wall, fold=1)
            if last is not None:
                return last
            at = first_reaching(zone, wall) - 1
        return None
