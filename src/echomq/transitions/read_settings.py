"""`read_settings`: what the queue was told (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import Call, Transition
from echomq.transitions.settings import Closed, Limits

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class Settings:
    """A queue's settings."""

    now_ms: int
    """The server's clock when they were read, Unix ms."""
    events: str
    """Which events it keeps: none, failures (the default) or all."""
    max_size: int | None
    """How many jobs may wait; None: any number."""
    paused_ms: int
    """When the queue was paused, Unix ms; 0 when it is not."""
    limits: Limits
    """How many may run, how many may start in a time, and until when a handler has closed it."""
    closed: tuple[Closed, ...]
    """Why none of its jobs may start now, but for a pause; empty when they may."""
    again_ms: int | None
    """In how long that is looked at again, ms; None: they may start."""
    dead_max: int | None = None
    """How many dead jobs are kept; None: as many as without a setting."""
    dead_age_ms: int | None = None
    """For how long dead jobs are kept, ms; None: as long as without a setting."""
    done_max: int | None = None
    """How many results are kept; None: as many as without a setting."""
    on_dead: str | None = None
    """The task that is told of deaths; None: none is."""
    events_max: int | None = None
    """About how many events are kept; None: as many as without a setting."""


def read_settings(keys: QueueKeys, call: Call) -> Transition[Settings]:
    """Read the queue's settings."""

    def read(reply: Any) -> Settings:
        now, events, max_size, paused, limits = (
            value.decode() if isinstance(value, bytes) else value for value in reply[:5]
        )
        return Settings(
            now_ms=int(now),
            events=events,
            max_size=int(max_size) or None,
            paused_ms=int(paused),
            limits=Limits.parse(limits),
            closed=tuple(reason.decode() for reason in reply[5]),
            again_ms=None if reply[6] < 0 else int(reply[6]),
            dead_max=int(reply[7]) if reply[7] else None,
            dead_age_ms=int(reply[8]) if reply[8] else None,
            done_max=int(reply[9]) if reply[9] else None,
            on_dead=reply[10].decode() or None,
            events_max=int(reply[11]) if reply[11] else None,
        )

    return Transition("read_settings", keys, (call.client, 0), read)
