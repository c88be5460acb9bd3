"""`find`: ids of a set's jobs by task, lane, error text or age, in bounded steps (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class Found:
    """What one step found."""

    now_ms: int
    """The server's clock when it was read, Unix ms."""
    total: int
    """How many jobs the set had."""
    examined: int
    """How many it looked at; fewer than the bound: that was the end of the set."""
    ids: tuple[str, ...]
    """The jobs that fit, in the set's order or against it."""


def find(
    keys: QueueKeys,
    call: Call,
    *,
    state: str,
    lane: str = "",
    of_lane: bool = False,
    offset: int = 0,
    bound: int = MAX_ROUND,
    reverse: bool = False,
    task: str = "",
    error: str = "",
    before_ms: int = 0,
) -> Transition[Found]:
    """Look at `bound` jobs of a set (1 to 1,000) from `offset` on.

    Args:
        keys: The queue.
        call: Who calls.
        state: `pending`, `active`, `schedule`, `dead` or `done`.
        lane: A lane, whose `pending` or `active` set is walked; "": those of the jobs without one, or the whole
            queue's set.
        of_lane: Whether a set of the whole queue is searched for the jobs of `lane`.
        offset: How many to skip.
        bound: How many to look at, 1 to 1,000.
        reverse: From the far end.
        task: Jobs of this task only; "": of any.
        error: Jobs only whose last failure (type and message), or the reason of whose end, has this text in it; "": any.
        before_ms: Jobs only that have been in the state since before this, Unix ms; 0: any.
    """

    def read(reply: Any) -> Found:
        now, total, examined, *ids = reply
        return Found(now_ms=int(now), total=int(total), examined=int(examined), ids=tuple(id.decode() for id in ids))

    argv = (
        call.client, 0, state, lane, 1 if of_lane else 0, offset, bound, 1 if reverse else 0, task, error, before_ms,
    )  # fmt: skip
    return Transition("find", keys, argv, read)
