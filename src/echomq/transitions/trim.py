"""`trim`: drop what has been kept long enough (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def trim(
    keys: QueueKeys,
    call: Call,
    *,
    bound: int = MAX_ROUND,
    done_max: int | None = None,
    dead_max: int | None = None,
    dead_age_ms: int | None = None,
) -> Transition[int]:
    """Drop up to `bound` results past their time, and dead and kept jobs beyond the queue's limits. Answers how many.

    The limits are the queue's settings `dead_max`, `dead_age` and `done_max` (`configure`), unless others are given: a
    `dead_max` that is given holds for those that died today, too. Whatever buries or keeps a job trims two as well, so
    that the shelves are bounded even where no worker runs its pump.
    """
    wanted = ("" if limit is None else limit for limit in (done_max, dead_max, dead_age_ms))
    return Transition("trim", keys, (call.client, 0, bound, *wanted), int)
