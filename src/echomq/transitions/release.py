"""`release`: give jobs back (Protocol, section 5)."""

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
class Release:
    """One item of `release`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce)


def release(keys: QueueKeys, call: Call, items: Sequence[Release], /) -> Transition[list[Verdict]]:
    """Give jobs back to pending, spending nothing. Verdicts: `ok`, `cancelled REASON`, `EMQSTALE`, `EMQGONE`."""
    return multi("release", keys, call, items)
