"""`reprioritise`: another priority for jobs that wait (Protocol, section 5)."""

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
class NewPriority:
    """One item of `reprioritise`."""

    id: str
    """The job's id."""
    priority: int
    """-2047 to 2047, higher is served first."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.priority)


def reprioritise(keys: QueueKeys, call: Call, items: Sequence[NewPriority], /) -> Transition[list[Verdict]]:
    """Give jobs that wait or are dead another priority. Verdicts: `ok`, `EMQSTATE active`, `EMQGONE`."""
    return multi("reprioritise", keys, call, items)
