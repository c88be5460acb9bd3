"""`fail`: spend retry budget (Protocol, section 5)."""

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
class Failure:
    """One item of `fail`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    delay_ms: int
    """How long until the next attempt, ms."""
    max_attempts: int
    """How many failures bury the job; 0 buries it now."""
    error: bytes
    """The failure as an `ErrorRecord`'s bytes."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.delay_ms, self.max_attempts, self.error)


def fail(keys: QueueKeys, call: Call, items: Sequence[Failure], /) -> Transition[list[Verdict]]:
    """Spend retry budget. Verdicts: `retry DUE_MS`, `dead`, `cancelled REASON` (somebody had asked for it), `EMQSTALE`, `EMQGONE`."""
    return multi("fail", keys, call, items)
