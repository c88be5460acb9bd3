"""`cancel`: end jobs that do not run, ask those that do (Protocol, section 5)."""

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
class CancelRequest:
    """One item of `cancel`."""

    id: str
    """The job's id."""
    reason: str
    """Why, for people."""

    @property
    def size(self) -> int:
        """Bytes in a call, about."""
        return ITEM_OVERHEAD + len(self.reason)


def cancel(keys: QueueKeys, call: Call, items: Sequence[CancelRequest], /) -> Transition[list[Verdict]]:
    """Cancel jobs. Verdicts: `cancelled REASON` (it was waiting its turn), `asked TOKEN` (it runs; its worker is told), `EMQGONE`, `EMQSTATE done`."""
    arguments: list[bytes | str | int] = []
    for item in items:
        arguments += (item.id, item.reason)
    return multi("cancel", keys, call, arguments)
