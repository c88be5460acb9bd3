"""`snooze`: put jobs off (Protocol, section 5)."""

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
class Snoozed:
    """One item of `snooze`."""

    id: str
    """The job's id."""
    token: int
    """The claim's fencing token."""
    nonce: str
    """The claim's nonce."""
    delay_ms: int
    """How long until the next attempt, ms."""
    unfit: bool = False
    """Whether the worker could not run it (unknown task, arguments that do not fit): the row notes since when."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.token, self.nonce, self.delay_ms, int(self.unfit))


def snooze(keys: QueueKeys, call: Call, items: Sequence[Snoozed], /) -> Transition[list[Verdict]]:
    """Put jobs off by a delay, spending nothing. Verdicts: `ok`, `cancelled REASON`, `EMQSTALE`, `EMQGONE`."""
    return multi("snooze", keys, call, items)
