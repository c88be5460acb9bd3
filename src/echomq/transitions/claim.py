"""`claim`: lease jobs (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.protocol.records import Claimed, JobRecord
from echomq.transitions.base import MAX_ROUND, Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen
class ClaimReply:
    """What a claim answered."""

    now_ms: int
    """The server's clock, ms since the epoch."""
    next_ms: int
    """How long until anything else can become ready, ms; 0 means: ask again at once."""
    due: bool
    """Whether a recurring schedule waits to be fired."""
    owed: bool
    """Whether an entry of the outbox waits to be delivered."""
    jobs: list[Claimed]
    """The jobs now leased, in the order of their turn. Their rows are as the claim found them, but for state and attempts;
    `holder` is the last claim's, if that was reaped."""


def claim(
    keys: QueueKeys,
    call: Call,
    *,
    count: int,
    lease_ms: int,
    cap_ms: int = 1000,
    max_bytes: int = 1 << 20,
    bound: int = MAX_ROUND,
    min_size: int = 1,
    linger_ms: int = 0,
    by_lane: bool = False,
) -> Transition[ClaimReply]:
    """Lease up to `count` jobs, after reaping and promoting.

    Args:
        keys: The queue.
        call: Who calls; its tag and number make the nonce of the leases, so the number is above 0.
        count: How many jobs at most, 1 to 10,000.
        lease_ms: How long the leases last, ms.
        cap_ms: The longest `next_ms` worth answering, ms.
        max_bytes: Stops before the rows exceed this many bytes, but takes one job at least.
        bound: How many entries each of reap and promote handles at most.
        min_size: Take nothing while fewer jobs are ready, 1 to 10,000, ...
        linger_ms: ... and the one at the head has been ready for less than this, ms. `next_ms` is then the rest.
        by_lane: Whether all jobs must be of one lane; a lane's turn then is one claim, whatever its number of jobs.
    """
    nonce = f"{call.client}.{call.number}"

    def read(reply: Any) -> ClaimReply:
        jobs = []
        for id_bytes, token, flat in reply[3:]:
            id = id_bytes.decode()
            fields = iter(flat)
            row = dict(zip(fields, fields, strict=True))
            row[b"attempts"], row[b"state"] = token, b"active"
            jobs.append(Claimed(id, int(token), nonce, JobRecord(id, row)))
        return ClaimReply(int(reply[0]), int(reply[1]), reply[2] % 2 == 1, reply[2] >= 2, jobs)  # noqa: PLR2004

    argv = (
        call.client,
        call.number,
        count,
        lease_ms,
        cap_ms,
        max_bytes,
        bound,
        min_size,
        linger_ms,
        1 if by_lane else 0,
    )
    return Transition("claim", keys, argv, read, call.number > 0)
