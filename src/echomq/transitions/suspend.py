"""`suspend`: a running job waits for its children (Protocol, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from echomq.transitions.base import Argument, Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict


@final
@attrs.frozen
class Suspension:
    """One item of `suspend`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce)


def suspend(keys: QueueKeys, call: Call, items: Sequence[Suspension], /) -> Transition[list[Verdict]]:
    """Give up leases until the jobs' children have ended, spending nothing.

    Verdicts: `waiting`; `pending` (none is open, or one has failed that runs its parent: it is ready again at once);
    `dead` (a child had failed that buries its parent); `cancelled REASON`; `EMQSTALE`; `EMQGONE`.
    """
    return multi("suspend", keys, call, items)
