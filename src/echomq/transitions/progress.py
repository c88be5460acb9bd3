"""`progress`: note how far the work is (Protocol, section 5)."""

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

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD + len(self.data)


def progress(keys: QueueKeys, call: Call, items: Sequence[Progress], /) -> Transition[list[Verdict]]:
    """Note progress. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`."""
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.token, item.nonce, item.data)
    return multi("progress", keys, call, arguments)
