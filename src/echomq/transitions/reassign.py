"""`reassign`: move jobs to another lane (Protocol, section 5)."""

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
class Reassignment:
    """One item of `reassign`."""

    id: str
    """The job's id."""
    lane: str
    """Where it goes; "" is the lane of the jobs without one."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.lane)


def reassign(keys: QueueKeys, call: Call, items: Sequence[Reassignment], /) -> Transition[list[Verdict]]:
    """Move jobs that wait, or are dead, to another lane. Verdicts: `ok`, `EMQSTATE STATE`, `EMQGONE`."""
    return multi("reassign", keys, call, items)
