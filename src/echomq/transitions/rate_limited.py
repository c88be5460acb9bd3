"""`rate_limited`: close a lane or the queue for a while, on a handler's word (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import attrs

from echomq.transitions.base import Argument, Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict

LimitScope = Literal["lane", "queue"]
"""What is closed: the job's lane (the jobs without one are a lane too), or the whole queue."""


@final
@attrs.frozen
class Closing:
    """One item of `rate_limited`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    after_ms: int
    """How long nothing is to start, ms; 1 to a day."""
    scope: LimitScope = "lane"
    """What is closed."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.after_ms, self.scope)


def rate_limited(keys: QueueKeys, call: Call, items: Sequence[Closing], /) -> Transition[list[Verdict]]:
    """Give jobs back to pending, spending nothing, and close their lane or the queue until the moment has come.

    Verdicts: `ok`, `cancelled REASON`, `EMQSTALE`, `EMQGONE`, `EMQKIND`.
    """
    return multi("rate_limited", keys, call, items)
