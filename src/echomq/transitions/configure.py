"""`configure`: the queue's settings (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys

EventLevel = Literal["none", "failures", "all"]


def configure(keys: QueueKeys, call: Call, *, events: EventLevel) -> Transition[bool]:
    """Choose which events the queue keeps in its stream: none, failures (the default) or all."""
    return Transition("configure", keys, (call.client, call.number, events), bool, call.number > 0)
