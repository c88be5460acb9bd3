"""Leases without a server: what is submitted is kept, and answered by the test."""

from __future__ import annotations

from typing import Any

import anyio

from echomq.protocol.records import Claimed, JobRecord
from echomq.worker.lease import Lease
from echomq.worker.options import WorkerOptions
from echomq.worker.settle import Settler
from echomq.worker.statistics import Counters
from echomq.worker.timers import Timers


class FakeGroup:
    """Takes items and sends nothing."""

    def __init__(self, verb: str) -> None:
        self.verb = verb
        self.submitted: list[tuple[Any, Any]] = []

    def submit(self, item: Any, done: Any, give_up_after: float | None = None) -> None:
        """Keep the item, and what wants its verdict."""
        self.submitted.append((item, done))


class FakeCalls:
    """A queue's calls."""

    queue = "q"

    def __init__(self) -> None:
        for verb in ("extend", "complete", "fail", "release", "snooze", "end", "rate_limited", "suspend"):
            setattr(self, verb, FakeGroup(verb))

    def __getattr__(self, verb: str) -> FakeGroup:
        raise AttributeError(verb)


def make_lease(calls: Any = None, *, id: str = "a", token: int = 1, holder: str = "", left: float = 60.0) -> Lease:
    """Make a lease that is over in so many seconds; `holder` is whose claim the row named before it."""
    record = JobRecord(id, {b"attempts": str(token).encode(), b"holder": holder.encode()})
    claimed = Claimed(id, token, f"nonce-{token}", record)
    fake: Any = FakeCalls() if calls is None else calls
    now = anyio.current_time()
    return Lease(fake, claimed, now_ms=0, sent_at=now, deadline=now + left)


def make_settler(timers: Timers, **options: Any) -> Settler:
    """Make a settler that nobody listens to."""
    return Settler(WorkerOptions(**options), timers, Counters(), on_settled=lambda: None)
