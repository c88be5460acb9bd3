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
    """What the handler returned, encoded; kept only if the row has a `result_ttl_ms`, or for its parent."""
    follow: bytes = b""
    """Follow-up jobs, as `pack_nodes` makes them: roots, of this queue or of others; they are admitted if and only if the
    completion is accepted."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.result, self.follow)


def complete(keys: QueueKeys, call: Call, items: Sequence[Completion], /) -> Transition[list[Verdict]]:
    """Retire jobs, and admit their follow-ups.

    Verdicts: `ok`; `dead` (a child had failed that buries its parent); `cancelled REASON` (the same,
    and its cancellation had been asked for); `EMQSTATE children N` (N of them are open: it runs
    on); `EMQSTALE`, `EMQGONE`. A late holder's completion is accepted while nobody else has claimed the job.
    """
    return multi("complete", keys, call, items)
