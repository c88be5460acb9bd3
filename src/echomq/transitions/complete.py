"""`complete`: retire jobs that succeeded (Protocol, sections 1 and 5)."""

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

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD + len(self.result)


def complete(keys: QueueKeys, call: Call, items: Sequence[Completion], /) -> Transition[list[Verdict]]:
    """Retire jobs. Verdicts: `ok`, `EMQSTALE`, `EMQGONE`. A late holder's completion is accepted while nobody else has claimed the job."""
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.token, item.nonce, item.result)
    return multi("complete", keys, call, arguments)
