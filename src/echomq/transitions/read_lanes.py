"""`read_lanes`: lanes and why they are not served (Protocol, sections 5 and 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import Call, Transition
from echomq.transitions.settings import Closed, Limits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class LaneState:
    """A lane as it is now."""

    name: str
    """Its name; "" is the lane of the jobs without one."""
    limits: Limits
    """Its settings."""
    pending: int
    """How many of its jobs are ready."""
    active: int
    """How many of its jobs run; of the jobs without a lane this is not known, and 0."""
    oldest_ms: int
    """How long the job at its head has been ready, ms; 0 when none is."""
    closed: tuple[Closed, ...]
    """Why it is not served now, each reason; empty when it can be served."""
    again_ms: int | None
    """In how long it will be looked at again, ms; None: when somebody changes something, or it can be served."""


@final
@attrs.frozen(kw_only=True)
class LanePage:
    """Some of a queue's lanes."""

    cursor: int
    """Where the next page begins; 0: this was the last."""
    lanes: tuple[LaneState, ...]
    """The lanes, in no order."""


def read_lanes(
    keys: QueueKeys, call: Call, *, cursor: int = 0, count: int = 100, names: Sequence[str] = ()
) -> Transition[LanePage]:
    """Read the lanes named (up to 256), or a page of all that have jobs or settings.

    Args:
        keys: The queue.
        call: Who calls.
        cursor: 0, or the last page's `cursor`.
        count: About how many, 1 to 256. A queue with some hundred lanes may answer all of them at once.
        names: The lanes to read instead.
    """

    def read(reply: Any) -> LanePage:
        lanes = []
        for name, limits, pending, active, oldest, closed, again in reply[1:]:
            state = LaneState(
                name=name.decode("utf-8", "replace"),
                limits=Limits.parse(limits.decode()),
                pending=pending,
                active=active,
                oldest_ms=int(oldest),
                closed=tuple(reason.decode() for reason in closed),
                again_ms=None if again < 0 else int(again),
            )
            lanes.append(state)
        return LanePage(cursor=int(reply[0]), lanes=tuple(lanes))

    return Transition("read_lanes", keys, (call.client, 0, cursor, count, *names), read)
