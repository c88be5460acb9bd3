"""`progress`: note how far the work is (Protocol, section 5)."""

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
class Progress:
    """One item of `progress`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    data: bytes
    """The note, JSON; it replaces the one before."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.data)


def progress(keys: QueueKeys, call: Call, items: Sequence[Progress], /) -> Transition[list[Verdict]]:
    """Note progress. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`."""
    return multi("progress", keys, call, items)
