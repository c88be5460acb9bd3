"""`cancel`: end jobs that do not run, ask those that do (Protocol, section 5)."""

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
class CancelRequest:
    """One item of `cancel`."""

    id: str
    """The job's id; "" when it is named by its dedup key."""
    reason: str
    """Why, for people."""
    dedup: str = ""
    """The dedup key that the job holds; "" when it is named by its id."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.dedup, self.reason)


def cancel(keys: QueueKeys, call: Call, items: Sequence[CancelRequest], /) -> Transition[list[Verdict]]:
    """Cancel jobs. Verdicts: `cancelled REASON` (it was waiting its turn), `asked TOKEN` (it runs; its worker is told), `EMQGONE`, `EMQSTATE done`."""
    return multi("cancel", keys, call, items)
