"""`read_job`: one job in full (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.protocol.records import JobRecord, parse_row
from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class JobInFull:
    """A job's row, its place, and its log."""

    now_ms: int
    """The server's clock when it was read, Unix ms."""
    record: JobRecord
    """The row."""
    score: float | None
    """Its score in the set of its state: lease deadline, due time, time of death or expiry in Unix ms, or minus the
    priority; None when it is not there (a torn row)."""
    log: tuple[str, ...]
    """The log's lines, oldest first; empty unless asked for."""


def read_job(keys: QueueKeys, call: Call, id: str, *, with_log: bool = False) -> Transition[JobInFull | None]:
    """Read one job; None when there is none."""

    def read(reply: Any) -> JobInFull | None:
        if not reply[1]:
            return None
        now, flat, score, log = reply
        return JobInFull(
            now_ms=int(now),
            record=parse_row(id, flat),
            score=float(score) if score else None,
            log=tuple(line.decode("utf-8", "replace") for line in log),
        )

    return Transition("read_job", keys, (call.client, 0, id, 1 if with_log else 0), read)
