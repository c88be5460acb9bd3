"""How long a failed job waits for its next attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, Protocol, final

import attrs

from echomq.protocol.times import to_ms

if TYPE_CHECKING:
    from random import Random

_MAX_DOUBLINGS: Final = 64
"""Beyond so many steps every schedule has reached its cap, and a float would overflow."""


class Backoff(Protocol):
    """What a task's `backoff` is: any callable like this one, called in the event loop; it must not block."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay before the next attempt.

        Args:
            failures: How often the job has failed in this life, the failure at hand included; from 1.
            error: What the handler raised.
            rng: Where jitter comes from.

        Returns:
            Seconds from now, 0 to a century.
        """


def _seconds(instance: object, attribute: attrs.Attribute[float], value: float) -> None:  # noqa: ARG001
    try:
        to_ms(value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{attribute.name}: {error}") from None


def _at_least_one(instance: object, attribute: attrs.Attribute[float], value: float) -> None:  # noqa: ARG001
    if type(value) not in {int, float} or not value >= 1:
        raise ValueError(f"{attribute.name} is a number of at least 1, not {value!r}")


@final
@attrs.frozen
class Exponential:
    """Each failure multiplies the delay, up to a cap; jitter spreads jobs that failed together.

    The n-th failure waits `first * factor ** (n - 1)` seconds, at most `cap`, before jitter.
    """

    first: float = attrs.field(default=1.0, validator=_seconds)
    """Seconds after the first failure."""
    factor: float = attrs.field(default=2.0, validator=_at_least_one)
    """What each further failure multiplies it by."""
    cap: float = attrs.field(default=300.0, validator=_seconds)
    """Seconds at most: a job is tried again while whoever mends its cause still looks."""
    jitter: Literal["full", "equal", "none"] = attrs.field(
        default="full", validator=attrs.validators.in_(("full", "equal", "none"))
    )
    """`full`: anywhere between 0 and the delay; `equal`: in its upper half; `none`: exactly it."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        steps = min(max(failures, 1) - 1, _MAX_DOUBLINGS)
        delay = min(self.first * self.factor**steps, self.cap)
        if self.jitter == "full":
            return rng.uniform(0.0, delay)
        if self.jitter == "equal":
            return rng.uniform(delay / 2, delay)
        return delay


@final
@attrs.frozen
class Fixed:
    """The same delay after each failure."""

    seconds: float = attrs.field(validator=_seconds)
    """Seconds; 0 tries again at once."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        return self.seconds


DEFAULT_BACKOFF: Final = Exponential()
"""What tasks use that name none: 1 s to 5 minutes, full jitter."""
