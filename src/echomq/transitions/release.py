"""`release`: give jobs back (Protocol, section 5)."""

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
class Release:
    """One item of `release`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD


def release(keys: QueueKeys, call: Call, items: Sequence[Release], /) -> Transition[list[Verdict]]:
    """Give jobs back to pending, spending nothing. Verdicts: `ok`, `cancelled REASON`, `EMQSTALE`, `EMQGONE`."""
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.token, item.nonce)
    return multi("release", keys, call, arguments)
