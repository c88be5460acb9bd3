"""What a worker has done and how it is."""

from __future__ import annotations

from typing import final

import attrs


@final
@attrs.define
class Counters:
    """What happened since the worker began."""

    claimed: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    snoozed: int = 0
    rate_limited: int = 0
    """Jobs given back by a handler's `RateLimited`."""
    released: int = 0
    suspended: int = 0
    """Jobs that gave their lease up to wait for their children."""
    cancelled: int = 0
    discarded: int = 0
    lost: int = 0
    """Leases that ended under a handler."""
    refused: int = 0
    """Verdicts that the fence refused."""

    def count(self, verb: str, code: str, kind: str) -> None:
        """Count an accepted verdict: the verb, what the server said, and the kind of a fenced ending."""
        if code == "cancelled" or kind == "cancelled":
            self.cancelled += 1
        elif kind == "discarded":
            self.discarded += 1
        elif code == "dead":
            self.dead += 1
            self.failed += verb == "fail"
        elif verb == "complete":
            self.completed += 1
        elif verb == "fail":
            self.failed += 1
        elif verb == "suspend":
            self.suspended += 1
        elif verb == "snooze":
            self.snoozed += 1
        elif verb == "rate_limited":
            self.rate_limited += 1
        elif verb == "release":
            self.released += 1


@final
@attrs.frozen(kw_only=True)
class WorkerStatistics:
    """A worker at one moment."""

    ready: bool
    """Whether it is connected, has claimed or renewed with success since it last connected, some queue takes its claims, it
    keeps time, and is not stopping."""
    running: int
    """Jobs whose handlers run now, each item of a batch by itself."""
    unsettled: int
    """Verdicts that the server has not answered."""
    renewals: int
    """Renewals that the server confirmed."""
    counters: Counters
    """What happened since it began."""
