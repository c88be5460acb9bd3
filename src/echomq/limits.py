"""What a queue and its lanes are told: how much may run, start and wait (Protocol, sections 2 and 6).

What a caller gives is checked here, before any I/O, and spelled for the server, alike for the asynchronous client and
the synchronous one.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, final

import attrs

from echomq.protocol._convert import shown
from echomq.protocol.keys import check_lane_name, check_task_name
from echomq.protocol.newjob import MAX_COUNT
from echomq.protocol.times import to_ms, to_seconds
from echomq.transitions import RateLimit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echomq.transitions import Settings
    from echomq.transitions.configure import EventLevel
    from echomq.transitions.settings import Closed, Named

MAX_WEIGHT: Final = 1000
"""Jobs that a lane may start in one turn: more would let the others wait for long."""
MAX_SIZE: Final = 10**12
"""The largest `max_size`."""
MAX_PER_MS: Final = 86_400_000
"""The longest time that a rate is counted in, ms: a day."""
MAX_KEPT: Final = 10**9
"""The largest `dead_max`, `done_max` and `events_max`."""
EVENTS_MAX: Final = 10_000
"""Events that are kept without a setting."""
DEAD_MAX: Final = 10_000
"""Dead jobs that are kept without a setting."""
DEAD_AGE: Final = 90 * 86_400.0
"""Seconds that dead jobs are kept without a setting: 90 days."""
DONE_MAX: Final = 100_000
"""Results that are kept without a setting."""
EVENT_LEVELS: Final = ("none", "failures", "all")


def _per_seconds(per: float | dt.timedelta) -> float:
    try:
        ms = to_ms(per)
    except (TypeError, ValueError) as error:
        raise type(error)(f"per: {error}") from None
    if not 1 <= ms <= MAX_PER_MS:
        raise ValueError(f"per is 1 ms to a day, in seconds or as a timedelta, not {shown(per)}")
    return to_seconds(ms)


@final
@attrs.frozen
class Rate:
    """How many jobs may start in how long: `Rate(5)` is five a second, `Rate(100, per=60, burst=10)` a hundred a minute.

    It is kept by the generic cell rate algorithm on the server's clock: exact over any stretch of time, whatever the
    number of workers and the agreement of their clocks. Starts are spread evenly, `per / count` apart; after a pause,
    `burst` jobs may start at once. With a small burst at rates above 20 a second, as many as fit in 50 ms may start
    together: so a worker need not wake for each job.

    Raises:
        TypeError: A value is of another type.
        ValueError: One is out of range; the message shows it.
    """

    count: int = attrs.field()
    """How many jobs may start, 1 to a million."""
    per: float = attrs.field(default=1.0, kw_only=True, converter=_per_seconds)
    """In how long: seconds or a timedelta, 1 ms to a day."""
    burst: int = attrs.field(default=1, kw_only=True)
    """How many may start at once after a pause, 1 to a million."""

    @count.validator
    @burst.validator
    def _check(self, attribute: attrs.Attribute[int], value: int) -> None:
        _int(f"a rate's {attribute.name}", value, 1, MAX_COUNT)

    def __str__(self) -> str:
        every = "" if self.per == 1 else f"{self.per:g} "
        return f"{self.count} per {every}s" + (f", {self.burst} at once" if self.burst > 1 else "")


def rate_limit(rate: Rate) -> RateLimit:
    """Answer a rate as the server keeps it."""
    return RateLimit(count=rate.count, per_ms=to_ms(rate.per), burst=rate.burst)


def rate_of(limit: RateLimit | None) -> Rate | None:
    """Answer a rate as people say it."""
    return None if limit is None else Rate(limit.count, per=to_seconds(limit.per_ms), burst=limit.burst)


class QueueOptions(TypedDict, total=False):
    """What `queue.configure` takes by keyword. What is not named stays as it is; None clears it.

    | name | meaning |
    | --- | --- |
    | `events` | which events the queue keeps in its stream: `none`, `failures` (without a setting) or `all` |
    | `events_max` | about how many of the latest events are kept: 1 to 10^9, 10,000 without a setting; a hundred more may be there |
    | `limit` | how many of its jobs may run at once, over all workers: 1 to a million |
    | `rate` | a `Rate`: how many of its jobs may start in a time, over all workers |
    | `max_size` | how many jobs may wait (ready, in lanes or not, or scheduled) before enqueues are refused with `QueueFullError`; retries and redrives are not: 1 to 10^12 |
    | `dead_max` | how many dead jobs are kept: 1 to 10^9, 10,000 without a setting. The oldest go first, but none within a day of its death |
    | `dead_age` | for how long dead jobs are kept: seconds or a timedelta, 1 ms to a century; 90 days without a setting |
    | `done_max` | how many ended jobs with results are kept, however long their `result_ttl`: 1 to 10^9, 100,000 without a setting. Those whose time is over soonest go first |
    | `on_dead` | the task that is told of each death in the queue, as a job of it; workers of an app with `@app.on_dead` set it |
    """

    events: EventLevel | None
    events_max: int | None
    limit: int | None
    rate: Rate | None
    max_size: int | None
    dead_max: int | None
    dead_age: float | dt.timedelta | None
    done_max: int | None
    on_dead: str | None


class LaneOptions(TypedDict, total=False):
    """What `lane.configure` takes by keyword. What is not named stays as it is; None clears it.

    | name | meaning |
    | --- | --- |
    | `weight` | how many of its jobs may start in one turn: 1 (without a setting) to 1,000. Of a backlog, a lane of weight 3 gets three times what one of weight 1 gets |
    | `limit` | how many of its jobs may run at once: 1 to a million. Not for the jobs without a lane: there the queue's own limit serves |
    | `rate` | a `Rate`: how many of its jobs may start in a time |
    """

    weight: int | None
    limit: int | None
    rate: Rate | None


@final
@attrs.frozen(kw_only=True)
class QueueSettings:
    """What a queue was told. Answered by `queue.settings()`."""

    events: str
    """Which events it keeps: `none`, `failures` (without a setting) or `all`."""
    events_max: int
    """About how many of the latest events are kept (10,000 without a setting)."""
    limit: int | None
    """How many of its jobs may run at once; None: any number."""
    rate: Rate | None
    """How many may start in a time; None: any number."""
    max_size: int | None
    """How many may wait before enqueues are refused; None: any number."""
    dead_max: int
    """How many dead jobs are kept (10,000 without a setting)."""
    dead_age: float
    """For how many seconds dead jobs are kept (90 days without a setting)."""
    done_max: int
    """How many results are kept (100,000 without a setting)."""
    on_dead: str | None
    """The task that is told of deaths; None: none is."""
    paused: bool
    """Whether it is paused."""
    closed_for: float
    """Seconds for which a handler's `RateLimited` keeps it closed yet; 0 when none does."""
    closed: tuple[Closed, ...]
    """Why none of its jobs starts now, for programs, each reason: `paused`, `told to wait` (by a handler's `RateLimited`),
    `rate`, `limit`; empty when they may start."""
    again_in: float | None
    """Seconds until that is looked at again; None when they may start, or somebody has to resume it."""

    @classmethod
    def of(cls, found: Settings) -> QueueSettings:
        """Read what the server answered."""
        limits = found.limits
        return cls(
            events=found.events,
            events_max=EVENTS_MAX if found.events_max is None else found.events_max,
            limit=limits.limit,
            rate=rate_of(limits.rate),
            max_size=found.max_size,
            dead_max=DEAD_MAX if found.dead_max is None else found.dead_max,
            dead_age=DEAD_AGE if found.dead_age_ms is None else to_seconds(found.dead_age_ms),
            done_max=DONE_MAX if found.done_max is None else found.done_max,
            on_dead=found.on_dead,
            paused=found.paused_ms > 0,
            closed_for=to_seconds(max(0, limits.until_ms - found.now_ms)),
            closed=("paused", *found.closed) if found.paused_ms else found.closed,
            again_in=None if found.again_ms is None or found.paused_ms else to_seconds(found.again_ms),
        )


def spell_queue(given: Mapping[str, Any]) -> Named:
    """Check settings of a queue and spell them; "" clears one.

    Raises:
        TypeError: None is given, a name is unknown, or a value is of another type.
        ValueError: A value is out of range; the message shows it.
    """
    return _spell(given, _QUEUE)


def spell_lane(lane: str, given: Mapping[str, Any]) -> Named:
    """Check settings of a lane and spell them; "" clears one.

    Raises:
        TypeError, ValueError: As `spell_queue`; or a limit for the jobs without a lane.
    """
    if not lane and given.get("limit") is not None:
        raise ValueError(
            f"the jobs without a lane have no limit of their own (got {shown(given['limit'])}): "
            "give them a lane, or limit the queue by queue.configure(limit=...)"
        )
    return _spell(given, _LANE)


def lane_name(name: str) -> str:
    """Answer a lane's name, checked; "" is the lane of the jobs without one.

    Raises:
        ValueError: Not 1 to 128 bytes of UTF-8 without control characters and braces.
    """
    # Exactly text, also of an enum: what would be sent.
    return str.__str__(check_lane_name(name)) if type(name) is not str or name else ""


def _spell(given: Mapping[str, Any], spellings: Mapping[str, Callable[[Any], str]]) -> Named:
    if not given:
        raise TypeError(f"nothing to configure: there are {', '.join(spellings)}")
    spelled: Named = {}
    for name, value in given.items():
        if name not in spellings:
            raise TypeError(f"unknown setting {name!r}; there are {', '.join(spellings)}")
        spelled[name] = "" if value is None else spellings[name](value)
    return spelled


def _int(what: str, value: Any, low: int, high: int) -> str:
    if type(value) is not int:
        raise TypeError(f"{what} is an int, not {shown(value)}")
    if not low <= value <= high:
        raise ValueError(f"{what} is {low} to {high}, not {shown(value)}")
    return str(value)


def _events(value: Any) -> str:
    if value not in EVENT_LEVELS:
        raise ValueError(f"events is none, failures or all, not {shown(value)}")
    return str(value)


def _dead_age(value: Any) -> str:
    try:
        ms = to_ms(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"dead_age: {error}") from None
    if not ms:
        raise ValueError(f"dead_age is 1 ms to a century, in seconds or as a timedelta, not {shown(value)}")
    return str(ms)


def _rate(value: Any) -> str:
    if not isinstance(value, Rate):
        raise TypeError(f"rate is an echomq.Rate, such as Rate(5) for five a second, not {shown(value)}")
    return rate_limit(value).spell()


_LIMIT: Final = partial(_int, "limit", low=1, high=MAX_COUNT)
_QUEUE: Final[Mapping[str, Callable[[Any], str]]] = {
    "events": _events,
    "events_max": partial(_int, "events_max", low=1, high=MAX_KEPT),
    "limit": _LIMIT,
    "rate": _rate,
    "max_size": partial(_int, "max_size", low=1, high=MAX_SIZE),
    "dead_max": partial(_int, "dead_max", low=1, high=MAX_KEPT),
    "dead_age": _dead_age,
    "done_max": partial(_int, "done_max", low=1, high=MAX_KEPT),
    "on_dead": check_task_name,
}
_LANE: Final[Mapping[str, Callable[[Any], str]]] = {
    "weight": partial(_int, "weight", low=1, high=MAX_WEIGHT),
    "limit": _LIMIT,
    "rate": _rate,
}
