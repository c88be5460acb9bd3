"""`obliterate`: a queue and all that is in it go, in bounded rounds (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class Obliteration:
    """What one round did."""

    jobs: int
    """How many jobs went."""
    keys: int
    """How many of the keys named went."""
    left: int
    """How many jobs and schedules are left in sets; 0: what is left are keys without an owner, and the queue's own."""


def obliterate(
    keys: QueueKeys,
    call: Call,
    *,
    bound: int = MAX_ROUND,
    force: bool = False,
    names: Sequence[str] = (),
    last: bool = False,
) -> Transition[Obliteration]:
    """Close the queue, and erase up to `bound` of its jobs; called again until nothing is left.

    The first round marks the queue `closing`: whatever would make a row, a key or a setting is refused from then on
    (`resume` lifts that). Refused with `EMQSTATE running` when it is not paused, and with `EMQSTATE active N` while jobs
    run, unless forced.

    Args:
        keys: The queue.
        call: Who calls.
        bound: How many jobs at most, 1 to 1,000.
        force: Although it is not paused, and jobs run: their handlers find their leases lost.
        names: Suffixes of keys that a scan has found left over, up to 256; they go when no set has a job any more.
        last: Nothing else is left: the queue's own keys go, `meta` last.
    """

    def read(reply: Any) -> Obliteration:
        jobs, gone, left = reply
        return Obliteration(jobs=int(jobs), keys=int(gone), left=int(left))

    argv = (call.client, 0, bound, 1 if force else 0, 1 if last else 0, *names)
    return Transition("obliterate", keys, argv, read)
