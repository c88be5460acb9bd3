"""`enqueue`: admit jobs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition, multi

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.records import NewJob
    from echomq.protocol.refusals import Verdict


def enqueue(keys: QueueKeys, call: Call, items: Sequence[NewJob], /) -> Transition[list[Verdict]]:
    """Admit jobs: check, reserve the dedup key, write the row, place it in `pending` or `schedule`.

    Verdicts: `admitted` (now, or by an earlier sending of this call), `duplicate ID` (that job holds the dedup key),
    `collision` (another client minted the same id: mint again), or a refusal.
    """
    arguments: list[bytes | str | int] = []
    for job in items:
        fields = job.fields()
        arguments += (
            job.id,
            job.priority,
            job.delay_ms or 0,
            job.at_ms or 0,
            job.dedup or "",
            job.dedup_window_ms or 0,
            len(fields) // 2,
        )
        arguments += fields
    return multi("enqueue", keys, call, arguments)
