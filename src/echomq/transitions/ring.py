"""`ring`: the bell by itself (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def ring(keys: QueueKeys, call: Call) -> Transition[bool]:
    """Push a wake token if there is ready work, for a worker that left a park in which it may have been served. Answers whether there was."""
    return Transition("ring", keys, (call.client, 0), bool)
