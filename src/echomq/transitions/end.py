"""`end`: a fenced ending that is neither success nor death (Protocol, section 5)."""

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
class Ending:
    """One item of `end`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    kind: str
    """`cancelled` or `discarded`."""
    reason: str
    """Why, for people."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.kind, self.reason)


def end(keys: QueueKeys, call: Call, items: Sequence[Ending], /) -> Transition[list[Verdict]]:
    """End jobs as cancelled or discarded. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`."""
    return multi("end", keys, call, items)
