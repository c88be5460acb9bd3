"""`reap`: take expired leases back (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def reap(keys: QueueKeys, call: Call, *, bound: int = MAX_ROUND) -> Transition[int]:
    """Take up to `bound` expired leases back. Answers how many; as many as the bound means there may be more."""
    return Transition("reap", keys, (call.client, 0, bound), int)
