"""`age`: how many jobs each state has, and for how long the first has waited (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen
class Head:
    """A state's jobs: how many, and the first."""

    jobs: int
    """How many."""
    id: str | None
    """The first; None when there is none, or it was not asked for."""
    ms: int
    """For how long it has been ready, has run, is due, has waited or is dead, ms; below 0 of what is ahead."""


@final
@attrs.frozen
class Heads:
    """The first job of each state."""

    pending: Head
    """The next in turn, since it is ready; none while no lane can be served."""
    active: Head
    """The longest running of those that were looked at."""
    schedule: Head
    """The soonest due; below 0: due in so long."""
    waiting: Head
    """The parent that has waited for longest."""
    dead: Head
    """The longest dead."""
    done: Head
    """The result that goes first; below 0: kept for so long yet."""


def age(keys: QueueKeys, call: Call, *, sample: int = 0) -> Transition[Heads]:
    """Read how many jobs each state has, and the first of each.

    Args:
        keys: The queue.
        call: Who calls.
        sample: How many running jobs are looked at for the one that has run longest, 0 to 256: those whose leases end
            first, for no set is ordered by when they began.
    """

    def read(reply: Any) -> Heads:
        return Heads(*(Head(int(jobs), id.decode() or None, int(ms)) for jobs, id, ms in reply))

    return Transition("age", keys, (call.client, 0, sample), read)
