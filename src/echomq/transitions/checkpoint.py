"""`checkpoint`: keep state for the next attempt (Protocol, section 5)."""

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
class Checkpoint:
    """One item of `checkpoint`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    step: int
    """Counts up; it may repeat, never go back."""
    state: bytes
    """The state, encoded."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.step, self.state)


def checkpoint(keys: QueueKeys, call: Call, items: Sequence[Checkpoint], /) -> Transition[list[Verdict]]:
    """Keep state for the next attempt. Verdicts: `ok`, `EMQSTATE step N` (a later step is kept already), `EMQSTALE`, `EMQGONE`."""
    return multi("checkpoint", keys, call, items)
