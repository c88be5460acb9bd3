"""`read_job`: one job in full (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.protocol.records import JobRecord, parse_row
from echomq.transitions.base import Call, Transition
from echomq.transitions.read_flow import Child

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
    worker: str | None = None
    """The name of the worker that runs it; None: it does not run, or the worker has not been heard of for half a minute."""
    children: tuple[Child, ...] = ()
    """Its children, in the order of their names; empty unless asked for. Each has its `name`, its `ref` (`id`, `queue`,
    "" for the parent's own, and `policy`) and its `outcome`: `kind`, `ended_ms`, `token`, `reason`; None while it is open."""

    @property
    def lease_left(self) -> float | None:
        """Seconds until its lease ends unless it is renewed, below 0 when it is over; None: it does not run."""
        if self.score is None or self.record.row.get(b"state") != b"active":
            return None
        return (self.score - self.now_ms) / 1000


def read_job(keys: QueueKeys, call: Call, id: str, *, with_log: bool = False) -> Transition[JobInFull | None]:
    """Read one job; None when there is none."""

    def read(reply: Any) -> JobInFull | None:
        if not reply[1]:
            return None
        now, flat, score, log, worker = reply
        return JobInFull(
            now_ms=int(now),
            record=parse_row(id, flat),
            score=float(score) if score else None,
            log=tuple(line.decode("utf-8", "replace") for line in log),
            worker=worker.decode("utf-8", "replace") or None,
        )

    return Transition("read_job", keys, (call.client, 0, id, 1 if with_log else 0), read)
