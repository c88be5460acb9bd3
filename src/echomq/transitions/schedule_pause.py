"""`schedule_pause`: let a recurring schedule rest, or go on (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.protocol.refusals import Verdict
from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def schedule_pause(
    keys: QueueKeys, call: Call, *, name: str, paused: bool, digest: str = "", slot_ms: int = 0
) -> Transition[Verdict]:
    """Pause a schedule, or let it go on at `slot_ms`. Verdicts: `ok`, `same`, `EMQGONE`, `EMQSTALE NOW`.

    Args:
        keys: The queue.
        call: Who calls.
        name: The schedule.
        paused: Whether it is to rest.
        digest: To go on: the definition by which the slot was found; another one by now is stale.
        slot_ms: To go on: the next slot, Unix ms, ahead of the server's clock, or `ENDED`. What came meanwhile is not
            missed: it was paused.
    """
    argv = (call.client, 0, name, 1 if paused else 0, digest, slot_ms)
    return Transition("schedule_pause", keys, argv, Verdict.parse)
