"""`schedule_put`: define a recurring schedule (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, final

import attrs

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.newjob import NewJob
    from echomq.transitions.schedules import Overlap

PutOutcome = Literal["created", "changed", "same", "stale"]
"""What a definition did. `same`: nothing, it stood there already. `stale`: nothing, its first slot is not ahead."""


@final
@attrs.frozen(kw_only=True)
class PutReply:
    """What `schedule_put` answered."""

    outcome: PutOutcome
    """What it did."""
    now_ms: int
    """The server's clock, Unix ms: where a `stale` slot is looked for anew."""


def schedule_put(
    keys: QueueKeys, call: Call, *, name: str, digest: str, spec: bytes, origin: str, overlap: Overlap, slot_ms: int,
    job: NewJob,
) -> Transition[PutReply]:  # fmt: skip
    """Define a schedule, or change it. The same digest again changes nothing but the origin: whoever defines it last owns it.

    A changed definition keeps count and pause, and a slot that is due and not fired yet; any other slot becomes `slot_ms`.

    Args:
        keys: The queue.
        call: Who calls.
        name: Its name: 1 to 128 of `A-Z a-z 0-9 . _ : -`.
        digest: Of spec, overlap and template.
        spec: What its slots are; the scripts do not read it.
        origin: Who defines it: the name of an app; "" for a person, who takes it from no app.
        overlap: See `Overlap`.
        slot_ms: Its first slot, Unix ms, ahead of the server's clock; `ENDED` when there is none.
        job: What its jobs are; id, times and dedup key do not count.
    """
    _id, priority, _due, ends, _dedup, _rule, lane, count, *fields = job.arguments()
    argv = (call.client, 0, name, digest, spec, origin, overlap, slot_ms, priority, ends, lane, count, *fields)

    def read(reply: Any) -> PutReply:
        return PutReply(outcome=cast("PutOutcome", reply[0].decode()), now_ms=int(reply[1]))

    return Transition("schedule_put", keys, argv, read)
