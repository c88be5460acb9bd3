"""`pause`: claims answer nothing until the queue is resumed (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def pause(keys: QueueKeys, call: Call) -> Transition[bool]:
    """Pause the queue; what runs goes on. Answers whether this call did it."""
    return Transition("pause", keys, (call.client, call.number), bool, call.number > 0)
