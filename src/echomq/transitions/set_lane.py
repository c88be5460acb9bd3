"""`set_lane`: a lane's settings (Protocol, sections 5 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition
from echomq.transitions.settings import pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.protocol.keys import QueueKeys


def set_lane(keys: QueueKeys, call: Call, *, lane: str, settings: Mapping[str, str]) -> Transition[bool]:
    """Change a lane's settings; those not named stay. Answers whether anything changed.

    Args:
        keys: The queue.
        call: Who calls.
        lane: The lane; "" is that of the jobs without one, which has no `limit`.
        settings: `weight` (1 to 1,000), `limit` (1 to a million), `rate` (`RateLimit.spell`), `paused` ("1"); "" clears.
    """
    argv = (call.client, call.number, lane, *pairs(settings))
    return Transition("set_lane", keys, argv, bool, call.number > 0)
