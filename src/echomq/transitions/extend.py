"""`extend`: renew leases (Protocol, section 5)."""

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
class Renewal:
    """One item of `extend`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    lease_ms: int
    """How long the lease lasts from now, ms."""

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD


def extend(keys: QueueKeys, call: Call, items: Sequence[Renewal], /) -> Transition[list[Verdict]]:
    """Renew leases. Verdicts: `ok`, `cancel REASON` (renewed, and a cancel request waits), `EMQSTALE`, `EMQGONE`.

    Not remembered: running it again renews again, and the lease then counts from before the later sending.
    """
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.token, item.nonce, item.lease_ms)
    return multi("extend", keys, call, arguments, remembered=False)
