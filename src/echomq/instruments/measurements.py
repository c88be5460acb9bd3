"""What is measured: a small closed set of values, and who may take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, Protocol, final

import attrs

if TYPE_CHECKING:
    from echomq.lanes import LaneInfo

JobOutcome = Literal[
    "completed",
    "failed",
    "dead",
    "cancelled",
    "discarded",
    "snoozed",
    "rate_limited",
    "released",
    "suspended",
    "lost",
    "refused",
    "undelivered",
]
"""What became of a claimed job. `failed`: it is tried again; `dead`: it is buried; `released`: given back, the worker stops;
`suspended`: it waits for its children; `lost`: its lease ended under the handler; `refused`: the fence refused the verdict;
`undelivered`: the server was away for longer than `settle_within`."""


@final
@attrs.frozen
class JobEnqueued:
    """What became of an app's call that was enqueued, by itself or as one of many: of a flow, a nursery, `enqueue_many`.

    A nursery's child that an earlier attempt has spawned is not told again. A follow-up is told when its handler makes it, at
    each attempt. Calls that were not tried, since one before them met an `UnavailableError`, are not told.
    """

    queue: str
    """Where it goes."""
    task: str
    """The task's name."""
    seconds: float | None
    """From before the middleware to the server's answer; None for one of many, which share round trips."""
    error: str
    """The type of what the caller got instead of a handle; "" when it got one, of a duplicate too."""


@final
@attrs.frozen
class JobClaimed:
    """A worker has claimed a job."""

    queue: str
    """Where it was."""
    task: str
    """The task's name, as its row says: of a job that nobody here knows, too."""
    lane: str
    """Its lane; "" without one."""
    id: str
    """The job's id."""
    attempt: int
    """Which claim of it this is, from 1."""
    waited: float
    """Seconds from when it became ready to this claim, by the server's clock alone."""


@final
@attrs.frozen
class JobSettled:
    """The server has answered what a claim led to: one for each `JobClaimed`."""

    queue: str
    """Where it was."""
    task: str
    """The task's name."""
    lane: str
    """Its lane; "" without one."""
    id: str
    """The job's id."""
    attempt: int
    """Which claim of it this was, from 1."""
    outcome: JobOutcome
    """What became of it."""
    ran: float | None
    """Seconds that the handler ran, middleware included for a coroutine function; None if it did not begin."""
    settled: float | None
    """Seconds from the handler's end to the server's answer; None if nothing was sent, or nothing answered."""
    lasted: float | None
    """Seconds from when the producer made the job to its end, by two clocks; None while it has not ended."""
    refusal: str
    """With which code the fence refused the verdict, `EMQSTALE` say; "" otherwise."""


@final
@attrs.frozen
class LeaseRenewed:
    """The server has confirmed a renewal."""

    queue: str
    """Where the job is."""
    task: str
    """The task's name."""
    left: float
    """Seconds that were left when the answer came, before the handler would have been stopped."""


@final
@attrs.frozen
class Parked:
    """A worker has waited at the doorbell, since nothing was ready."""

    seconds: float
    """For how long."""


@final
@attrs.frozen
class LoopTicked:
    """A worker's event loop has come to look at the clock, four times a second."""

    lag: float
    """How many seconds late: what blocked the loop, or the time that the machine was busy or suspended."""


@final
@attrs.frozen
class Reconnected:
    """A worker's connection stands again after it was lost."""


@final
@attrs.frozen(kw_only=True)
class QueueSampled:
    """A queue as the server tells it."""

    queue: str
    """Its name."""
    at: float
    """When, Unix seconds."""
    jobs: Mapping[str, int]
    """How many jobs are in each state: pending, active, schedule, waiting, dead, done."""
    paused: bool
    """Whether it is paused."""
    oldest: float
    """Seconds for which the job next in turn has been ready; 0 when none is."""
    totals: Mapping[str, int]
    """What the queue has counted since it began: completed, dead, stalled, ..."""
    lanes: tuple[LaneInfo, ...]
    """Some of its lanes, if they were asked for."""


Measurement = JobEnqueued | JobClaimed | JobSettled | LeaseRenewed | Parked | LoopTicked | Reconnected | QueueSampled
"""All that is measured. A later version may add a kind: pass over what you do not know."""


class Instrument(Protocol):
    """What takes measurements: `App(instruments=[...])`.

    It may have more: `around_enqueue(call)` and `around_handling(job, call)` are put around all that its app enqueues and
    handles, outside of the app's own middleware; what `expose()` answers, Prometheus text as bytes, is shown at `/metrics`
    of a worker's health port.
    """

    def record(self, measurement: Measurement, /) -> None:
        """Take a measurement.

        It is called in the middle of everything: in a worker's event loop, and for `JobEnqueued` in the thread of whoever
        enqueues. So it must not block. What it raises hurts nobody: it is logged, the first time.
        """
