"""`trim`: drop what has been kept long enough (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


def trim(
    keys: QueueKeys,
    call: Call,
    *,
    bound: int = 256,
    dead_max: int = 10_000,
    dead_age_ms: int = 7_776_000_000,
    dead_keep_ms: int = 86_400_000,
) -> Transition[int]:
    """Drop up to `bound` results past their time, and dead jobs beyond the limits. Answers how many.

    Args:
        keys: The queue.
        call: Who calls.
        bound: How many jobs at most.
        dead_max: How many dead jobs are kept.
        dead_age_ms: How long a dead job is kept, ms.
        dead_keep_ms: A dead job younger than this is not dropped for number alone, ms.
    """
    return Transition("trim", keys, (call.client, 0, bound, dead_max, dead_age_ms, dead_keep_ms), int)
