"""What may be said of one job when it is enqueued: seconds and datetimes here, milliseconds in the row."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final, TypedDict, Unpack, final

import attrs

from echomq.limits import lane_name
from echomq.protocol.newjob import DedupMode, NewJob
from echomq.protocol.stamps import JobStamp, StampedJob
from echomq.protocol.times import Moment, spell_moment, to_ms, unix_ms


class EnqueueOptions(TypedDict, total=False):
    """The keyword arguments of every enqueueing method. None means: as if it had not been given.

    | name | meaning |
    | --- | --- |
    | `delay` | seconds or a timedelta: not before this long after admission, by the server's clock |
    | `at` | an aware datetime: not before this moment. Not together with `delay` |
    | `expires` | a job that no worker has claimed by then ends as expired: seconds or a timedelta from admission, or an aware datetime |
    | `deadline` | by when all its attempts must be over, else it is buried: seconds or a timedelta from admission, or an aware datetime |
    | `priority` | -2047 to 2047, higher is served first; 0 by default |
    | `lane` | the lane it waits in, such as a tenant's name: lanes take turns. "": with the jobs that have none |
    | `dedup` | while a job with this key lives, another one is refused as its duplicate |
    | `dedup_mode` | what a job does whose key a waiting job holds. `reject` (by default): it is refused. `replace`: the waiting job gets its content, and keeps its id and its turn. `debounce`: the same, and the waiting job's `delay` starts again |
    | `dedup_window` | throttle: seconds or a timedelta from admission: the key lasts so long, whatever becomes of the job, and the first one wins. Not together with a mode |
    | `max_attempts` | how many failures bury the job; by default what the worker's task says |
    | `max_stalls` | how many expired leases it survives; 3 by default. 0 with one attempt: no crash or failure repeats it |
    | `timeout` | seconds or a timedelta that one attempt may run; by default what the worker's task says |
    | `result_ttl` | seconds or a timedelta that the ended job and its result are kept; 0: not at all |
    | `headers` | text for middleware, such as a trace context |
    """

    delay: float | dt.timedelta | None
    at: dt.datetime | None
    expires: Moment | None
    deadline: Moment | None
    priority: int | None
    lane: str | None
    dedup: str | None
    dedup_mode: DedupMode | None
    dedup_window: float | dt.timedelta | None
    max_attempts: int | None
    max_stalls: int | None
    timeout: float | dt.timedelta | None
    result_ttl: float | dt.timedelta | None
    headers: Mapping[str, str] | None


_MAX_STAMPS: Final = 1024
"""Task names remembered for one set of options: whoever makes names up must not fill memory."""
_ROW_NAMES: Final = {
    "delay": ("delay_ms", to_ms),
    "at": ("at_ms", unix_ms),
    "expires": ("expires", spell_moment),
    "deadline": ("deadline", spell_moment),
    "priority": ("priority", None),
    "lane": ("lane", lane_name),
    "dedup": ("dedup", None),
    "dedup_mode": ("dedup_mode", None),
    "dedup_window": ("dedup_window_ms", to_ms),
    "max_attempts": ("max_attempts", None),
    "max_stalls": ("max_stalls", None),
    "timeout": ("timeout_ms", to_ms),
    "result_ttl": ("result_ttl_ms", to_ms),
    "headers": ("headers", dict),
}
_EXCLUSIVE: Final = (("delay", "at"), ("at", "delay"), ("dedup_mode", "dedup_window"), ("dedup_window", "dedup_mode"))
_NAUGHT: Final = frozenset({"result_ttl_ms", "lane"})


@final
@attrs.frozen
class JobOptions:
    """Options, converted and checked once; any number of jobs is made from them."""

    fields: Mapping[str, Any] = attrs.field(factory=dict)
    """The `NewJob` fields that are set."""
    _stamps: dict[str, JobStamp] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @classmethod
    def of(cls, given: EnqueueOptions) -> JobOptions:
        """Convert and check what a caller gave.

        Raises:
            TypeError: A name is unknown, or a value of another type.
            ValueError: A value is out of range; the message names it.
        """
        return _NOTHING.with_(given) if given else _NOTHING

    def with_(self, given: EnqueueOptions) -> JobOptions:
        """Answer these options with others in place of some; None leaves one as it is."""
        fields = dict(self.fields)
        for name, value in given.items():
            row_name, convert = _ROW_NAMES.get(name, ("", None))
            if not row_name:
                raise TypeError(f"unknown option {name!r}; there are {', '.join(_ROW_NAMES)}")
            if value is not None:
                fields[row_name] = value if convert is None else _converted(name, value, convert)
        # Of two words that exclude each other, the later one wins; both at once are refused by the check below.
        for one, other in _EXCLUSIVE:
            word = given.get(one)
            if word is not None and word != "reject" and given.get(other) is None:
                fields.pop(_ROW_NAMES[other][0], None)
        options = JobOptions(fields)
        options.stamp("")
        return options

    def stamp(self, task: str) -> JobStamp:
        """Answer what makes jobs of a task with these options.

        Raises:
            InvalidJobError: A value is out of range.
            TypeError: A value is of another type.
        """
        stamp = self._stamps.get(task)
        if stamp is None:
            if len(self._stamps) >= _MAX_STAMPS:
                self._stamps.clear()
            stamp = self._stamps[task] = JobStamp(self.model(task))
        return stamp

    def model(self, task: str, payload: bytes = b"") -> NewJob:
        """Make one job of a task, in full.

        Raises:
            InvalidJobError: A value is out of range, or the payload too large.
            TypeError: A value is of another type.
        """
        # What says no, said by a later word: no result, no lane.
        fields = {name: value for name, value in self.fields.items() if name not in _NAUGHT or value}
        return NewJob(task=task, payload=payload, **fields)

    def new_job(self, task: str, payload: bytes) -> StampedJob:
        """Make a job with a fresh id.

        Raises:
            InvalidJobError: A value is out of range, or the payload too large.
            TypeError: A value is of another type.
        """
        return self.stamp(task).make(payload)


def options_of(**given: Unpack[EnqueueOptions]) -> JobOptions:
    """Convert keyword arguments."""
    return JobOptions.of(given)


def _converted(name: str, value: Any, convert: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


_NOTHING: Final = JobOptions()
