"""`enqueue`: admit jobs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.records import NewJob
    from echomq.protocol.refusals import Verdict
    from echomq.protocol.stamps import StampedJob


def enqueue(keys: QueueKeys, call: Call, items: Sequence[NewJob | StampedJob], /) -> Transition[list[Verdict]]:
    """Admit jobs: check, reserve the dedup key, write the row, place it in `pending` or `schedule`.

    Verdicts: `admitted` (now, or by an earlier sending of this call), `duplicate ID` (that job holds the dedup key),
    `replaced ID` (that job holds it, waits, and has the new content now), `EMQFULL`,
    `collision` (another client minted the same id: mint again), or a refusal.
    """
    return multi("enqueue", keys, call, items)
