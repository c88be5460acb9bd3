"""`age`: how long the job next in turn has been ready (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def age(keys: QueueKeys, call: Call) -> Transition[tuple[str, int] | None]:
    """Read the id of the job next in turn and its age in ms; None when nothing is ready."""

    def read(reply: Any) -> tuple[str, int] | None:
        return (reply[0].decode(), int(reply[1])) if reply else None

    return Transition("age", keys, (call.client, 0), read)
