"""A recurrence: an interval or a cron expression, with start, end, a limit, and what becomes of missed slots.

It is what a schedule's `spec` on the server says. The scripts do not read that; whoever fires the schedule does, in
whatever language, so it has one spelling (`Recurrence.spell`) and a version.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final, Literal, Self, final, get_args

import attrs
import orjson

from echomq.protocol._convert import shown
from echomq.protocol.times import MAX_AT_MS, from_unix_ms, to_ms, to_seconds, unix_ms
from echomq.recurrence.cron import Cron
from echomq.recurrence.every import Every

Missed = Literal["skip", "last", "all"]
"""What becomes of slots that nobody fired in time: they make no job; the last one does, if none after it is in time; every
one does, of the latest 100."""
MISSED_POLICIES: Final = get_args(Missed)
ON_TIME_MS: Final = 60_000
"""How old a due slot may be and still count as in time, ms."""
MAX_FIRINGS: Final = 100
"""Jobs of slots that are made at once, the latest ones."""
MAX_JITTER_MS: Final = 86_400_000
"""The longest jitter, ms: a day."""
MAX_LIMIT: Final = 10**12
"""The largest limit."""
VERSION: Final = 1
_FIELDS: Final = frozenset({"v", "every", "cron", "tz", "start", "end", "limit", "missed", "jitter"})


class UnreadableSpecError(ValueError):
    """A schedule's definition on the server that this version cannot read: a newer one's, or torn."""


@final
@attrs.frozen
class Due:
    """What is to be done about a schedule whose slot has come."""

    slots: tuple[int, ...]
    """The slots that make a job, Unix ms, oldest first; none when all that are due count as missed."""
    next_ms: int | None
    """The slot after them, ahead of now; None when there is none."""
    passed: bool
    """Whether slots were due, before these, that make none."""


@final
@attrs.frozen(kw_only=True)
class Recurrence:
    """When a schedule has its slots. Made by `Recurrence.of`, or read from the server by `Recurrence.parse`."""

    rule: Every | Cron
    """The slots without bounds."""
    start_ms: int | None = None
    """No slot before it, Unix ms; an interval counts from it."""
    end_ms: int | None = None
    """No slot after it, Unix ms."""
    limit: int | None = None
    """How many slots may make a job."""
    missed: Missed = "last"
    """What becomes of slots that nobody fired in time."""
    jitter_ms: int = 0
    """By how much each job may be late on purpose, ms."""

    def __attrs_post_init__(self) -> None:
        """Check what the rule does not."""
        for what, value, low, high in (
            ("start", self.start_ms, 0, MAX_AT_MS),
            ("end", self.end_ms, 0, MAX_AT_MS),
            ("limit", self.limit, 1, MAX_LIMIT),
            ("jitter", self.jitter_ms, 0, MAX_JITTER_MS),
        ):
            if value is not None and (type(value) is not int or not low <= value <= high):
                raise ValueError(f"{what} is an int in {low}..{high}, not {shown(value)}")
        if self.missed not in MISSED_POLICIES:
            raise ValueError(f"missed is one of {', '.join(MISSED_POLICIES)}, not {shown(self.missed)}")
        if self.start_ms is not None and self.end_ms is not None and self.end_ms < self.start_ms:
            raise ValueError(
                f"end is not before start, as {from_unix_ms(self.end_ms)} is before {from_unix_ms(self.start_ms)}"
            )

    @classmethod
    def of(
        cls,
        *,
        every: float | dt.timedelta | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        start: dt.datetime | None = None,
        end: dt.datetime | None = None,
        limit: int | None = None,
        missed: Missed = "last",
        jitter: float | dt.timedelta | None = None,
    ) -> Self:
        """Make a recurrence as people say it.

        Args:
            every: Seconds or a timedelta between two slots, 0.1 s to ten years: slots at multiples of it from 1970, or
                from `start`, in UTC.
            cron: Instead: minute, hour, day of the month, month, day of the week.
            tz: The zone of the expression's times.
            start: An aware datetime: no slot before it.
            end: An aware datetime: no slot after it.
            limit: How many slots may make a job.
            missed: What becomes of slots that nobody fired in time.
            jitter: Seconds or a timedelta, up to a day: each job may run later than its slot by up to so much.

        Raises:
            TypeError: A value is of another type.
            ValueError: Neither or both of `every` and `cron`, or a value out of range; the message names it.
        """
        start_ms = None if start is None else _named("start", unix_ms, start)
        if (every is None) == (cron is None):
            raise ValueError(f"say either every= or cron= ({'neither is' if every is None else 'both are'} given)")
        rule: Every | Cron
        if every is not None:
            if tz != "UTC":
                raise ValueError(f"a time zone is for cron=; intervals are in UTC, whatever tz={tz!r} says")
            rule = Every(_named("every", to_ms, every), start_ms or 0)
        else:
            rule = Cron(cron, tz)  # type: ignore[arg-type] # not None, as every is
        return cls(
            rule=rule,
            start_ms=start_ms,
            end_ms=None if end is None else _named("end", unix_ms, end),
            limit=limit,
            missed=missed,
            jitter_ms=0 if jitter is None else _named("jitter", to_ms, jitter),
        )

    # --- the spelling on the server -----------------------------------------------------------------

    def spell(self) -> bytes:
        """Spell it for the server: JSON, always the same bytes for the same recurrence."""
        rule = self.rule
        fields: dict[str, Any] = {"v": VERSION}
        if isinstance(rule, Every):
            fields["every"] = rule.interval_ms
        else:
            fields |= {"cron": rule.expression, "tz": rule.tz}
        for name, value, usual in (
            ("start", self.start_ms, None),
            ("end", self.end_ms, None),
            ("limit", self.limit, None),
            ("missed", self.missed, "last"),
            ("jitter", self.jitter_ms, 0),
        ):
            if value != usual:
                fields[name] = value
        return orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)

    @classmethod
    def parse(cls, spec: bytes) -> Self:
        """Read what `spell` wrote.

        Raises:
            UnreadableSpecError: It is no JSON, of a newer version, or has something in it that this version cannot honour.
        """
        try:
            fields = orjson.loads(spec)
        except orjson.JSONDecodeError:
            raise UnreadableSpecError(f"not JSON: {bytes(spec[:80])!r}") from None
        if not isinstance(fields, dict) or fields.get("v") != VERSION:
            raise UnreadableSpecError(f"not of version {VERSION}: {bytes(spec[:80])!r}")
        unknown = sorted(fields.keys() - _FIELDS)
        if unknown:
            raise UnreadableSpecError(f"it has {', '.join(unknown)}, which this version does not know")
        start, every = fields.get("start"), fields.get("every")
        try:
            if (every is None) == ("cron" not in fields):
                raise ValueError("neither an interval nor an expression, or both")  # noqa: TRY301
            rule = Cron(fields["cron"], fields.get("tz", "UTC")) if every is None else Every(every, start or 0)
            return cls(
                rule=rule,
                start_ms=start,
                end_ms=fields.get("end"),
                limit=fields.get("limit"),
                missed=fields.get("missed", "last"),
                jitter_ms=fields.get("jitter", 0),
            )
        except (TypeError, ValueError) as error:
            raise UnreadableSpecError(str(error)) from None

    # --- slots ------------------------------------------------------------------------------------

    def next(self, after_ms: int) -> int | None:
        """Answer the first slot after a moment, both in Unix ms; None when there is none."""
        if self.start_ms is not None:
            after_ms = max(after_ms, self.start_ms - 1)
        found = self.rule.next(after_ms)
        return None if found is None or (self.end_ms is not None and found > self.end_ms) else found

    def previous(self, at_ms: int) -> int | None:
        """Answer the last slot that is not after a moment, both in Unix ms; None when there is none."""
        if self.end_ms is not None:
            at_ms = min(at_ms, self.end_ms)
        found = self.rule.previous(at_ms)
        return None if found is None or (self.start_ms is not None and found < self.start_ms) else found

    def upcoming(self, after_ms: int, count: int, *, made: int = 0) -> list[int]:
        """Answer up to so many slots after a moment, Unix ms, of a schedule that has made so many jobs."""
        found: list[int] = []
        for _ in range(self._left(count, made)):
            slot = self.next(found[-1] if found else after_ms)
            if slot is None:
                break
            found.append(slot)
        return found

    def is_over(self, made: int) -> bool:
        """Tell whether a schedule that has made so many jobs may make no more."""
        return self._left(1, made) == 0

    def due(self, slot_ms: int, now_ms: int, *, made: int = 0, ahead_ms: int = 0) -> Due:
        """Answer which slots make a job, when that of `slot_ms` has come, and where it goes on.

        Slots that came within the last minute are in time and make a job each; of older ones `missed` decides. Its cost
        does not depend on how long ago the first was.

        Args:
            slot_ms: The slot at which the schedule stands, not after now. A definition that was changed may have it from
                the one before; it makes its job all the same, unless it lies outside of this one's start and end.
            now_ms: The server's clock.
            made: How many jobs it has made.
            ahead_ms: By how much the slot at which it goes on must be ahead, ms: what it takes to tell the server.
        """
        left = self._left(MAX_FIRINGS, made)
        if left == 0:
            return Due((), None, passed=False)
        slots: list[int] = []  # the latest first
        passed = False
        for slot in self._come(slot_ms, now_ms):
            in_time = now_ms - slot <= ON_TIME_MS
            passed = len(slots) == MAX_FIRINGS or not (
                in_time or self.missed == "all" or (self.missed == "last" and not slots)
            )
            if passed:
                break
            slots.append(slot)
        return Due(tuple(reversed(slots))[:left], self.next(now_ms + ahead_ms), passed=passed)

    def _come(self, slot_ms: int, now_ms: int) -> Iterator[int]:
        """Go through the slots that have come, from the latest back to that at which the schedule stands."""
        slot = self.previous(now_ms)
        while slot is not None and slot > slot_ms:
            yield slot
            slot = self.previous(slot - 1)
        if (self.start_ms or 0) <= slot_ms and (self.end_ms is None or slot_ms <= self.end_ms):
            yield slot_ms

    def _left(self, count: int, made: int) -> int:
        return count if self.limit is None else max(0, min(count, self.limit - made))

    def __str__(self) -> str:
        parts = [str(self.rule)]
        if self.start_ms is not None:
            parts.append(f"from {from_unix_ms(self.start_ms).isoformat()}")
        if self.end_ms is not None:
            parts.append(f"until {from_unix_ms(self.end_ms).isoformat()}")
        if self.limit is not None:
            parts.append(f"{self.limit} times")
        if self.jitter_ms:
            parts.append(f"up to {to_seconds(self.jitter_ms):g} s late")
        return ", ".join(parts)


def _named(what: str, convert: Any, value: Any) -> int:
    try:
        return int(convert(value))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{what}: {error}") from None
