"""`checkpoint`: keep state for the next attempt (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from echomq.transitions.base import ITEM_OVERHEAD, Call, Transition, multi

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

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD + len(self.state)


def checkpoint(keys: QueueKeys, call: Call, items: Sequence[Checkpoint], /) -> Transition[list[Verdict]]:
    """Keep state for the next attempt. Verdicts: `ok`, `EMQSTATE step N` (a later step is kept already), `EMQSTALE`, `EMQGONE`."""
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.token, item.nonce, item.step, item.state)
    return multi("checkpoint", keys, call, arguments)
