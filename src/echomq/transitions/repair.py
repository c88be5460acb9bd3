"""`repair`: bring rows and sets together again after writes were lost or made by hand (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, final

import attrs

from echomq.transitions.base import Argument, Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict

Suspect = Literal["job", "dedup", "lane", "schedule", "key"]
"""What may be torn: a job's row and places, a dedup key, a lane's place in the rota, a schedule and its slot, the type of
a key that every queue may have."""


@final
@attrs.frozen
class Look:
    """One item of `repair`."""

    what: Suspect
    """What is looked at."""
    name: str
    """A job's id, a dedup key, or the name of a lane or a schedule, or of a key without the queue's prefix."""
    lane: str = ""
    """For a job: a lane in whose sets it was found, whatever its row says; "" when in none."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.what, self.name, self.lane)


def repair(keys: QueueKeys, call: Call, items: Sequence[Look], /) -> Transition[list[Verdict]]:
    """Look at jobs, dedup keys, lanes and schedules, and mend what is torn.

    Verdicts: `ok` (it was sound), `mended WHAT`, `buried WHAT` (the row did not say where it belongs), `dropped WHAT` (it
    belonged to a row that is gone; a key of a wrong type), or `EMQKIND`.
    """
    return multi("repair", keys, call, items, remembered=False)
