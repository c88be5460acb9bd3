"""`drain`: remove a lane's pending jobs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def drain(keys: QueueKeys, call: Call, *, lane: str = "", bound: int = MAX_ROUND) -> Transition[int]:
    """Remove up to `bound` (1 to 10,000) of a lane's pending jobs, as `remove` does. As many as the bound: maybe more."""
    return Transition("drain", keys, (call.client, call.number, lane, bound), int, call.number > 0)
