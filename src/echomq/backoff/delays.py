"""Policies that count failures: fixed, linear, exponential, decorrelated, a list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal, final

import attrs

from echomq.backoff.policy import Duration, check_factor, seconds_of, to_cap, to_first, to_seconds_field, to_step
from echomq.protocol._convert import shown

if TYPE_CHECKING:
    from random import Random

_MOST_STEPS: Final = 64
"""Draws for one delay: by then a chain has long forgotten where it began, and a call stays bounded."""


@final
@attrs.frozen
class Fixed:
    """The same delay after each failure."""

    seconds: float = attrs.field(converter=to_seconds_field)
    """Seconds, or a timedelta; 0 tries again at once."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        return self.seconds


@final
@attrs.frozen
class Linear:
    """Each failure adds the same to the delay: the n-th failure waits `first + (n - 1) * step` seconds, at most `cap`."""

    first: float = attrs.field(converter=to_first)
    """Seconds, or a timedelta, after the first failure."""
    step: float = attrs.field(converter=to_step)
    """What each further failure adds; as much as `first`, unless given."""
    cap: float = attrs.field(default=300.0, converter=to_cap)
    """Seconds at most."""

    @step.default
    def _step(self) -> float:
        return self.first

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        return min(self.first + (max(failures, 1) - 1) * self.step, self.cap)


@final
@attrs.frozen
class Exponential:
    """Each failure multiplies the delay, up to a cap; jitter spreads jobs that failed together.

    The n-th failure waits `first * factor ** (n - 1)` seconds, at most `cap`, before jitter.
    """

    first: float = attrs.field(default=1.0, converter=to_first)
    """Seconds, or a timedelta, after the first failure."""
    factor: float = attrs.field(default=2.0, validator=check_factor)
    """What each further failure multiplies it by."""
    cap: float = attrs.field(default=300.0, converter=to_cap)
    """Seconds at most: a job is tried again while whoever mends its cause still looks."""
    jitter: Literal["full", "equal", "none"] = attrs.field(default="full")
    """`full`: anywhere between 0 and the delay; `equal`: in its upper half; `none`: exactly it."""

    @jitter.validator
    def _check_jitter(self, _: object, value: object) -> None:
        if value not in {"full", "equal", "none"}:
            raise ValueError(f"jitter is full, equal or none, not {shown(value)}")

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        delay = self._exact(failures)
        if self.jitter == "full":
            return rng.uniform(0.0, delay)
        if self.jitter == "equal":
            return rng.uniform(delay / 2, delay)
        return delay

    def _exact(self, failures: int) -> float:
        try:
            # In floats: an int would be computed to its last digit.
            return min(self.first * float(self.factor) ** (max(failures, 1) - 1), self.cap)
        except OverflowError:  # far beyond any cap, unless it multiplies nought
            return self.cap if self.first else 0.0


@final
@attrs.frozen
class Decorrelated:
    """Each delay is drawn between `first` and `factor` times the delay before it, up to a cap: decorrelated jitter.

    Jobs that failed together drift apart further with each failure. Nothing is kept between two failures: for the n-th,
    the chain is drawn anew from its beginning.
    """

    first: float = attrs.field(default=1.0, converter=to_first)
    """Seconds, or a timedelta: the least delay."""
    cap: float = attrs.field(default=300.0, converter=to_cap)
    """Seconds at most."""
    factor: float = attrs.field(default=3.0, validator=check_factor)
    """How far a delay may exceed the one before it."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        delay = least = min(self.first, self.cap)
        for _ in range(min(max(failures, 1), _MOST_STEPS)):
            delay = min(rng.uniform(least, delay * self.factor), self.cap)
        return delay


def _to_delays(delays: Iterable[Duration]) -> tuple[float, ...]:
    if isinstance(delays, (str, bytes)) or not isinstance(delays, Iterable):
        raise TypeError(f"delays is a list of durations, such as [1, 5, 30], not {shown(delays)}")
    return tuple(seconds_of(f"delays[{at}]", each) for at, each in enumerate(delays))


@final
@attrs.frozen
class Sequence:
    """The delays of a list, one after another; the last one repeats: `Sequence([1, 5, 30])`."""

    delays: tuple[float, ...] = attrs.field(converter=_to_delays)
    """Seconds or timedeltas, one at least."""

    def __attrs_post_init__(self) -> None:
        """Refuse an empty list."""
        if not self.delays:
            raise ValueError(f"delays is a list of one or more durations, not {self.delays!r}")

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float:
        """Answer the delay, in seconds."""
        return self.delays[min(max(failures, 1), len(self.delays)) - 1]
