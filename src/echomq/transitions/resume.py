"""`resume`: serve the queue again (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def resume(keys: QueueKeys, call: Call) -> Transition[bool]:
    """Serve the queue again. Answers whether it had been paused or closing."""
    return Transition("resume", keys, (call.client, call.number), bool, call.number > 0)
