"""`promote`: move jobs whose time has come to pending (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def promote(keys: QueueKeys, call: Call, *, bound: int = MAX_ROUND) -> Transition[int]:
    """Move up to `bound` jobs whose time has come to pending. Answers how many; as many as the bound means there may be more."""
    return Transition("promote", keys, (call.client, 0, bound), int)
