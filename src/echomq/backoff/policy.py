"""What a policy is, and what its fields are checked by."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import attrs

from echomq.protocol._convert import shown
from echomq.protocol.times import to_ms, to_seconds

if TYPE_CHECKING:
    from random import Random


class Backoff(Protocol):
    """What a task's `backoff` is: any callable like this one, called in the event loop; it must not block."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float | None:
        """Answer the delay before the next attempt.

        Args:
            failures: How often the job has failed in this life, the failure at hand included; from 1.
            error: What the handler raised.
            rng: Where jitter comes from.

        Returns:
            Seconds from now, 0 to a century; or None: never, the job is buried at once, with this error.
        """


@final
@attrs.frozen
class Never:
    """No further attempt, whatever `max_attempts` says. There is one: `NEVER`."""

    def __repr__(self) -> str:
        return "NEVER"

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> None:
        """Answer that the job is to be buried."""


NEVER: Final = Never()
"""Bury the job at its first failure: what fails for good is not tried again."""


MAX_FACTOR: Final = 1_000_000
"""From a second to a century in two steps and a half: whoever means more means a mistake."""
Duration = float | dt.timedelta
"""What a delay is given as: seconds or a timedelta, 0 to a century."""


def seconds_of(name: str, value: Duration) -> float:
    """Convert a field's value to seconds.

    Raises:
        TypeError, ValueError: It is no duration; the message names the field.
    """
    try:
        return to_seconds(to_ms(value))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from None


def to_seconds_field(value: Duration) -> float:
    """Convert the field `seconds`."""
    return seconds_of("seconds", value)


def to_first(value: Duration) -> float:
    """Convert the field `first`."""
    return seconds_of("first", value)


def to_step(value: Duration) -> float:
    """Convert the field `step`."""
    return seconds_of("step", value)


def to_cap(value: Duration) -> float:
    """Convert the field `cap`."""
    return seconds_of("cap", value)


def check_factor(_: object, field: attrs.Attribute[float], value: object) -> None:
    """Refuse what no delay can be multiplied by.

    Raises:
        ValueError: Not a number from 1 to a million.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 1 <= value <= MAX_FACTOR:
        raise ValueError(f"{field.name} is a number from 1 to a million, not {shown(value)}")


def check_policy(_: object, field: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is no policy.

    Raises:
        TypeError: It cannot be called.
    """
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"{field.name} is a policy, such as Fixed(5) or NEVER, not {shown(value)}")
