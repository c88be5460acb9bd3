"""`complete`: retire jobs that succeeded (Protocol, sections 1 and 5)."""

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
class Completion:
    """One item of `complete`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    result: bytes
    """What the handler returned, encoded; kept only if the row has a `result_ttl_ms`."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.result)


def complete(keys: QueueKeys, call: Call, items: Sequence[Completion], /) -> Transition[list[Verdict]]:
    """Retire jobs. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`. A late holder's completion is accepted while nobody else has claimed the job."""
    return multi("complete", keys, call, items)
