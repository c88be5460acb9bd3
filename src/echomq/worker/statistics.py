"""What a worker has done and how it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

if TYPE_CHECKING:
    from echomq.instruments import JobOutcome

_OUTCOMES: Final[dict[str, JobOutcome]] = {
    "complete": "completed",
    "fail": "failed",
    "suspend": "suspended",
    "snooze": "snoozed",
    "rate_limited": "rate_limited",
    "release": "released",
}


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
    reconnects: int = 0
    """Connections that stand again after they were lost."""
    parked: float = 0.0
    """Seconds at the doorbell, since nothing was ready."""

    def count(self, verb: str, code: str, kind: str) -> JobOutcome:
        """Count an accepted verdict, and answer what became of the job.

        Args:
            verb: The verb.
            code: What the server said.
            kind: Of a fenced ending, its kind.
        """
        outcome: JobOutcome
        if code == "cancelled" or kind == "cancelled":
            outcome = "cancelled"
        elif kind == "discarded":
            outcome = "discarded"
        elif code == "dead":
            outcome = "dead"
            self.failed += verb == "fail"
        else:
            outcome = _OUTCOMES[verb]
        setattr(self, outcome, getattr(self, outcome) + 1)
        return outcome


@final
@attrs.frozen(kw_only=True)
class WorkerStatistics:
    """A worker at one moment."""

    ready: bool
    """Whether it is connected, has lately claimed (if only to hear that nothing is ready) or renewed with success, some queue
    takes its claims, it keeps time, and is not stopping."""
    running: int
    """Jobs whose handlers run now, each item of a batch by itself."""
    unsettled: int
    """Verdicts that the server has not answered."""
    renewals: int
    """Renewals that the server confirmed."""
    lag: float
    """Seconds by which the event loop was late when it last looked at the clock."""
    counters: Counters
    """What happened since it began."""
