"""`counts`: how many jobs are where (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class Counts:
    """How many jobs a queue has in each state, and what it has counted."""

    pending: int
    """Ready to be claimed, in lanes or not."""
    active: int
    """Claimed."""
    schedule: int
    """Delayed, or waiting for their next attempt."""
    dead: int
    """In the morgue."""
    waiting: int
    """Flow parents held until their children settle."""
    done: int
    """Ended, their results kept."""
    paused_ms: int
    """When the queue was paused, Unix ms; 0 when it is not."""
    totals: dict[str, int]
    """What was counted since the queue began: completed, dead, cancelled, failed, stalled, ..."""

    @property
    def paused(self) -> bool:
        """Whether claims answer nothing."""
        return self.paused_ms > 0


def counts(keys: QueueKeys, call: Call) -> Transition[Counts]:
    """Count a queue's jobs by state."""

    def read(reply: Any) -> Counts:
        pending, active, schedule, dead, waiting, done, paused, flat = reply
        totals = {name.decode(): int(n) for name, n in zip(flat[::2], flat[1::2], strict=True)}
        return Counts(
            pending=pending, active=active, schedule=schedule, dead=dead, waiting=waiting, done=done,
            paused_ms=int(paused), totals=totals,
        )  # fmt: skip

    return Transition("counts", keys, (call.client, 0), read)
