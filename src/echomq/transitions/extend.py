"""`extend`: renew leases (Protocol, section 5)."""

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

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.lease_ms)


def extend(keys: QueueKeys, call: Call, items: Sequence[Renewal], /) -> Transition[list[Verdict]]:
    """Renew leases. Verdicts: `ok`, `cancel REASON` (renewed, and a cancel request waits), `EMQSTALE`, `EMQGONE`.

    Not remembered: running it again renews again, and the lease then counts from before the later sending.
    """
    return multi("extend", keys, call, items, remembered=False)
