"""`reschedule`: another time for jobs that wait (Protocol, section 5)."""

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
class NewTime:
    """One item of `reschedule`."""

    id: str
    """The job's id."""
    due: str
    """When it is to run: `+` and ms from now, or Unix ms (`spell_moment`). What is not ahead is now: promoted."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.id, self.due)


def reschedule(keys: QueueKeys, call: Call, items: Sequence[NewTime], /) -> Transition[list[Verdict]]:
    """Give jobs that are pending or scheduled another time. Verdicts: `ok`, `EMQSTATE active`, `EMQGONE`."""
    return multi("reschedule", keys, call, items)
