"""`update`: another payload for jobs that wait (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from echomq.protocol.payloads import PIECES, payload_fields
from echomq.transitions.base import Argument, Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict


@final
@attrs.frozen
class NewPayload:
    """One item of `update`."""

    id: str
    """The job's id."""
    payload: bytes
    """What its handler gets, encoded."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call: the payload as it stands in a row, in pieces, of which the last may be empty."""
        pieces = payload_fields(self.payload)[1::2]
        return (self.id, *pieces, *[b""] * (PIECES - len(pieces)))


def update(keys: QueueKeys, call: Call, items: Sequence[NewPayload], /) -> Transition[list[Verdict]]:
    """Give jobs that wait or are dead another payload. Verdicts: `ok`, `EMQSTATE active`, `EMQGONE`."""
    return multi("update", keys, call, items)
