"""`schedule_fire`: the jobs of due slots, by compare-and-set on the slot (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs

from echomq.transitions.base import Call, Transition, read_verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict


@final
@attrs.frozen(kw_only=True)
class Firing:
    """A job to be made for a slot."""

    id: str
    """The job's id, minted for it."""
    slot_ms: int
    """The slot it is for, Unix ms."""
    due_ms: int
    """When it may run, Unix ms: the slot, and its jitter. What is not ahead is at once."""


def schedule_fire(
    keys: QueueKeys, call: Call, *, name: str, digest: str, slot_ms: int, next_ms: int, firings: Sequence[Firing]
) -> Transition[list[Verdict]]:
    """Make the jobs of due slots and go on to the next one, if the schedule still stands at `slot_ms`.

    Verdicts, one a firing: `admitted`, `skipped` (overlap). The call is refused whole, and nothing changes, with `EMQGONE` (there is no such schedule), `EMQSTALE` (somebody else has
    fired that slot, or the definition has changed, or it is paused, or `next_ms` is not ahead of the server's clock),
    `EMQFULL` (no room for all of them), `EMQSTATE collision ID` (mint again), `EMQSTATE closing`. A repeated numbered call
    is answered as the first was; of one without a number, that a slot was fired by it is not told from its being stale.

    Args:
        keys: The queue.
        call: Who calls.
        name: The schedule.
        digest: Its definition.
        slot_ms: The slot at which it stands, Unix ms; 0: run it now, whatever the slot, and move no slot.
        next_ms: The next slot, ahead of the server's clock; `ENDED`: it fires no more. Not looked at when run now.
        firings: The jobs to make, oldest slot first, up to 100; none when all due slots are missed.
    """
    items = [word for each in firings for word in (each.id, each.slot_ms, each.due_ms)]
    argv = (call.client, call.number, name, digest, slot_ms, next_ms, *items)
    return Transition("schedule_fire", keys, argv, read_verdicts, call.number > 0)
