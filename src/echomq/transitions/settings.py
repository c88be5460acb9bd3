"""What a queue and its lanes can be told, as it stands on the server (Protocol, sections 2 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.transitions.base import Argument

Closed = Literal["paused", "told to wait", "rate", "limit"]
"""Why nothing starts: paused by an operator, closed by a handler's `RateLimited`, the rate, the limit."""
Named = dict[str, str]
"""Settings by name, spelled for a call; "" clears one."""
_NONE: Final = ("0",) * 8


@final
@attrs.frozen(kw_only=True)
class RateLimit:
    """So many starts in so long: a rate as the server keeps it."""

    count: int
    """How many starts, 1 to a million."""
    per_ms: int
    """In how long, ms; 1 to a day."""
    burst: int = 1
    """How many of them at once, after a pause."""

    def spell(self) -> str:
        """Spell it in a call."""
        return f"{self.count} {self.per_ms} {self.burst}"


@final
@attrs.frozen(kw_only=True)
class Limits:
    """A lane's settings, or a queue's own limits."""

    weight: int = 1
    """How many jobs it may start in one turn of the rota."""
    limit: int | None = None
    """How many of its jobs may run at once; None: any number."""
    rate: RateLimit | None = None
    """How many may start in a time; None: any number."""
    paused_ms: int = 0
    """When it was paused, Unix ms; 0 when it is not."""
    until_ms: int = 0
    """Until when a handler has closed it, Unix ms; in the past when nobody has."""

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Read `weight limit count per_ms burst tat paused till`; "" is no settings at all."""
        weight, limit, count, per, burst, _tat, paused, till = text.split(" ") if text else _NONE
        rate = RateLimit(count=int(count), per_ms=int(per), burst=int(burst)) if count != "0" else None
        return cls(
            weight=int(weight) or 1, limit=int(limit) or None, rate=rate, paused_ms=int(paused), until_ms=int(till)
        )


def pairs(settings: Mapping[str, str]) -> tuple[Argument, ...]:
    """Spell settings as names and values."""
    return tuple(word for pair in settings.items() for word in pair)
