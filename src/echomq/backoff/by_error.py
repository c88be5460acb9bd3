"""A policy for each kind of error."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.backoff.delays import Exponential
from echomq.backoff.policy import Backoff, check_policy
from echomq.protocol._convert import shown
from echomq.protocol.failures import leaves_of, unfold

if TYPE_CHECKING:
    from random import Random


def _to_policies(given: Mapping[Any, Backoff]) -> Mapping[Any, Backoff]:
    value: Any = given
    if not isinstance(value, Mapping) or not value:
        raise TypeError(f"policies is a mapping of exception classes to policies, not {shown(value)}")
    for kind, policy in value.items():
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise TypeError(f"policies: its keys are exception classes, and {shown(kind)} is not")
        if not callable(policy) or isinstance(policy, type):
            raise TypeError(f"policies[{kind.__name__}] is a policy, such as Fixed(5) or NEVER, not {shown(policy)}")
    return MappingProxyType(dict(value))


@final
@attrs.frozen(hash=False)
class ByError:
    """A policy for each kind of error: `ByError({ConnectionError: Exponential(), ValueError: NEVER}, default=Fixed(60))`.

    Of the classes that an error is an instance of, the nearest one that is named decides: `OSError` is asked for a
    `ConnectionError` only if that has no policy of its own.

    A group is looked at for what it holds, at any depth, unless its own class is named (`ExceptionGroup`, say). Of
    several errors each has its say: if one of them is never to be tried again, the job is not; else the longest delay
    counts.
    """

    policies: Mapping[Any, Backoff] = attrs.field(converter=_to_policies)
    """The policies, by exception class."""
    default: Backoff = attrs.field(factory=Exponential, validator=check_policy, kw_only=True)
    """For what no class fits."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float | None:
        """Answer the delay, in seconds, or None."""
        longest = 0.0
        for leaf in self._told_apart(error):
            delay: Any = self.policy_of(leaf)(failures, leaf, rng)
            if delay is None:
                return None
            longest = max(longest, delay.total_seconds() if isinstance(delay, dt.timedelta) else delay)
        return longest

    def policy_of(self, error: BaseException) -> Backoff:
        """Answer which policy an error has, itself and not what it may hold."""
        for kind in type(error).__mro__:
            policy = self.policies.get(kind)
            if policy is not None:
                return policy
        return self.default

    def _told_apart(self, error: BaseException) -> list[BaseException]:
        error = unfold(error)
        kinds = [kind for kind in type(error).__mro__ if issubclass(kind, BaseExceptionGroup)]
        return [error] if any(kind in self.policies for kind in kinds) else leaves_of(error)
