"""`schedule_remove`: a recurring schedule goes (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.protocol.refusals import Verdict
from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def schedule_remove(keys: QueueKeys, call: Call, *, name: str) -> Transition[Verdict]:
    """Remove a schedule; the jobs it has made stay. Verdicts: `ok`, `EMQGONE`."""
    return Transition("schedule_remove", keys, (call.client, 0, name), Verdict.parse)
