"""What a handler raises to say how its attempt ended (Runtime, section 4).

A handler that returns has succeeded, and one that raises any other `Exception` has failed by its task's policy. These
four say something else. They are exceptions so that they work from any depth of the handler's own code; they are no
errors, and nobody but a handler raises them.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, final

from echomq.protocol._convert import shown
from echomq.protocol.times import to_ms, to_seconds

if TYPE_CHECKING:
    from echomq.transitions.rate_limited import LimitScope

LIMIT_SCOPES: Final = ("lane", "queue")
"""What `RateLimited` may close."""
MAX_CLOSING_MS: Final = 86_400_000
"""A day: whoever wants a lane closed for longer pauses it."""
SNOOZE_FLOOR = 1.0
"""Seconds: a handler that snoozes itself without delay would spin, and other jobs of the queue would wait."""


def _rebuild(cls: type[HandlerVerdict], args: tuple[Any, ...], state: dict[str, Any]) -> HandlerVerdict:
    verdict = cls.__new__(cls, *args)
    verdict.__dict__.update(state)
    return verdict


class HandlerVerdict(Exception):  # noqa: N818 - not an error
    """The root of what a handler may raise as its verdict. Do not raise it itself."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by attributes, as `EchoMQError` does: a verdict crosses from a handler's process to the worker."""
        return _rebuild, (type(self), self.args, self.__dict__.copy())


@final
class Retry(HandlerVerdict):
    """The attempt failed: spend one of the job's attempts and try again, after a delay of the handler's choice.

    A job that is out of attempts is buried as after any other failure.

    Attributes:
        after: Seconds until the next attempt; None means what the task's backoff says.
        reason: Why, for people; kept as the failure's message.
    """

    def __init__(self, after: float | dt.timedelta | None = None, reason: str = "") -> None:
        """Make the verdict.

        Args:
            after: Seconds or a timedelta, 0 to a century; None means what the task's backoff says.
            reason: Why, for people.

        Raises:
            ValueError: `after` is negative, not finite or too long.
        """
        self.after = None if after is None else to_seconds(to_ms(after))
        self.reason = reason
        super().__init__(reason or ("try again" if self.after is None else f"try again in {self.after:g} s"))


@final
class Snooze(HandlerVerdict):
    """Not now: put the job back for a while. It spends nothing of the job's budget.

    Attributes:
        after: Seconds until the job is ready again, the floor applied.
    """

    def __init__(self, after: float | dt.timedelta, *, at_least: float | dt.timedelta = SNOOZE_FLOOR) -> None:
        """Make the verdict.

        Args:
            after: Seconds or a timedelta, 0 to a century.
            at_least: The floor, in seconds. A handler that may snooze for less says so, down to 0.

        Raises:
            ValueError: A duration is negative, not finite or too long.
        """
        self.after = to_seconds(max(to_ms(after), to_ms(at_least)))
        super().__init__(f"again in {self.after:g} s")


@final
class RateLimited(HandlerVerdict):
    """Too many: somebody else's limit is met (a 429). Close the lane or the queue for a while, and give the job back.

    The job is pending again, at its turn, and has spent nothing of its budget; nothing of the lane (or of the queue) is
    claimed before the time is over, but what runs goes on. A later word counts if it reaches further.

    Attributes:
        after: Seconds until jobs start again.
        scope: What is closed: `lane` or `queue`.
    """

    def __init__(self, after: float | dt.timedelta, *, scope: LimitScope = "lane") -> None:
        """Make the verdict.

        Args:
            after: Seconds or a timedelta, 1 ms to a day.
            scope: `lane`: the job's lane; the jobs without one are a lane, too. `queue`: the whole queue.

        Raises:
            TypeError: `after` is neither a number nor a timedelta.
            ValueError: `after` is out of range, or `scope` another word.
        """
        ms = to_ms(after)
        if not 1 <= ms <= MAX_CLOSING_MS:
            raise ValueError(f"after is 1 ms to a day, in seconds or as a timedelta, not {shown(after)}")
        if scope not in LIMIT_SCOPES:
            raise ValueError(f"scope is lane or queue, not {shown(scope)}")
        self.after = to_seconds(ms)
        self.scope: LimitScope = scope
        super().__init__(f"nothing of the {scope} for {self.after:g} s")


@final
class Discard(HandlerVerdict):
    """The job is of no use any more: end it, without a result, a retry or a place in the morgue.

    Attributes:
        reason: Why, for people; whoever waits for the result gets it in a `JobFailedError` of type `Discard`.
    """

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "discarded")
