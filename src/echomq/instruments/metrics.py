"""The metrics that measurements come to: one table, for Prometheus, OpenTelemetry and the reference alike.

If you change this
    A name, a label or a unit is a promise to dashboards and alerts. `docs/reference/metrics.md` is held against the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, final

import attrs

from echomq.instruments.measurements import (
    JobClaimed,
    JobEnqueued,
    JobSettled,
    LeaseRenewed,
    LoopTicked,
    Measurement,
    Parked,
    QueueSampled,
    Reconnected,
)

LONG: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Buckets of what may take hours, seconds."""
SHORT: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets of what should take a round trip, seconds."""
MOST: Final = 500
"""Tasks of queues that are told apart: a row may name any task, and each name costs the monitoring memory for ever."""
OTHER: Final = "(other)"
"""What the tasks beyond that are called."""

Kind = Literal["counter", "histogram", "gauge", "total"]
"""`total` is a counter that the server keeps and a sample reads."""


@final
@attrs.frozen
class Metric:
    """A metric."""

    name: str
    """Its name for Prometheus, where a counter's gets `_total`."""
    otel: str
    """Its name for OpenTelemetry; one of the semantic conventions for messaging where there is one."""
    kind: Kind
    """What it is."""
    labels: tuple[str, ...]
    """What its values are told apart by."""
    unit: str
    """In which unit, by UCUM."""
    help: str
    """What it says."""
    buckets: tuple[float, ...] = ()
    """Of a histogram: the upper bounds."""
    operation: str = ""
    """What `messaging.operation.name` says for it; "" for a metric of our own."""


Reading = tuple[Metric, float, tuple[str, ...]]
"""A metric, by how much it moves or what it is, and the values of its labels."""

_BY_TASK: Final = ("queue", "task")

ENQUEUES: Final = Metric(
    "echomq_enqueues", "messaging.client.sent.messages", "counter", (*_BY_TASK, "error"), "{message}",
    "Calls that the app has enqueued, by the type of the error that its caller got instead of a handle; '' otherwise",
    operation="send",
)  # fmt: skip
ENQUEUE_SECONDS: Final = Metric(
    "echomq_enqueue_seconds", "messaging.client.operation.duration", "histogram", _BY_TASK, "s",
    "From an enqueue to the server's answer; not of many at once, which share round trips", SHORT, "send",
)  # fmt: skip
CLAIMS: Final = Metric(
    "echomq_claims", "messaging.client.consumed.messages", "counter", _BY_TASK, "{message}", "Jobs claimed",
    operation="claim",
)  # fmt: skip
WAIT: Final = Metric(
    "echomq_queue_wait_seconds", "echomq.queue.wait", "histogram", _BY_TASK, "s",
    "From when a job was ready to its claim, by the server's clock", LONG,
)  # fmt: skip
SETTLED: Final = Metric(
    "echomq_jobs", "echomq.jobs", "counter", (*_BY_TASK, "outcome"), "{message}",
    "What became of claimed jobs: completed, failed, dead, cancelled, discarded, snoozed, rate_limited, released, suspended, "
    "lost (the lease, under the handler), refused (by the fence), undelivered",
)  # fmt: skip
RUN: Final = Metric(
    "echomq_run_seconds", "messaging.process.duration", "histogram", _BY_TASK, "s", "How long handlers ran, an attempt", LONG,
    "process",
)  # fmt: skip
SETTLE: Final = Metric(
    "echomq_settle_seconds", "echomq.settle", "histogram", ("queue",), "s",
    "From a handler's end to the server's answer to its verdict", SHORT,
)  # fmt: skip
LASTED: Final = Metric(
    "echomq_end_to_end_seconds", "echomq.end_to_end", "histogram", _BY_TASK, "s",
    "From when the producer made a job to its end, its delay and all attempts included", LONG,
)  # fmt: skip
ATTEMPTS: Final = Metric(
    "echomq_attempts", "echomq.attempts", "histogram", _BY_TASK, "{attempt}", "How many claims a job needed to its end",
    (1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 50.0),
)  # fmt: skip
REFUSALS: Final = Metric(
    "echomq_fence_refusals", "echomq.fence.refusals", "counter", ("queue", "refusal"), "{verdict}",
    "Verdicts that the fence refused, by the refusal's code",
)  # fmt: skip
LEFT: Final = Metric(
    "echomq_lease_left_seconds", "echomq.lease.left", "histogram", ("queue",), "s",
    "What was left of a lease when its renewal was confirmed, before the handler would have been stopped",
    (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 300.0),
)  # fmt: skip
PARKED: Final = Metric(
    "echomq_parked_seconds", "echomq.worker.parked", "counter", (), "s", "How long the worker waited at the doorbell, idle",
)  # fmt: skip
LAG: Final = Metric(
    "echomq_loop_lag_seconds", "echomq.worker.loop.lag", "histogram", (), "s",
    "How late the worker's event loop was, looked at four times a second", SHORT,
)  # fmt: skip
RECONNECTS: Final = Metric(
    "echomq_reconnects", "echomq.worker.reconnects", "counter", (), "{connection}",
    "Connections that stand again after they were lost",
)  # fmt: skip
SAMPLED: Final = Metric(
    "echomq_queue_sampled_timestamp_seconds", "echomq.queue.sampled", "gauge", ("queue",), "s",
    "When the queue was last sampled, Unix time: how old the other gauges are",
)  # fmt: skip
JOBS: Final = Metric(
    "echomq_queue_jobs", "echomq.queue.jobs", "gauge", ("queue", "state"), "{message}",
    "Jobs in each state: pending, active, schedule, waiting, dead, done",
)  # fmt: skip
OLDEST: Final = Metric(
    "echomq_queue_oldest_seconds", "echomq.queue.oldest", "gauge", ("queue",), "s",
    "For how long the job next in turn has been ready; 0: none is",
)  # fmt: skip
PAUSED: Final = Metric("echomq_queue_paused", "echomq.queue.paused", "gauge", ("queue",), "1", "1 while it is paused")
TOTALS: Final = Metric(
    "echomq_queue_events", "echomq.queue.events", "total", ("queue", "event"), "{event}",
    "What the queue has counted, over all workers: completed, failed, stalled (a lease expired and the job was put back), "
    "dead (buried), and so on",
)  # fmt: skip
LANE_JOBS: Final = Metric(
    "echomq_lane_jobs", "echomq.lane.jobs", "gauge", ("queue", "lane", "state"), "{message}",
    "Jobs of the lanes that are sampled: pending, active",
)  # fmt: skip
LANE_OLDEST: Final = Metric(
    "echomq_lane_oldest_seconds", "echomq.lane.oldest", "gauge", ("queue", "lane"), "s",
    "For how long the lane's next job has been ready; 0: none is",
)  # fmt: skip

METRICS: Final = (
    ENQUEUES, ENQUEUE_SECONDS, CLAIMS, WAIT, SETTLED, RUN, SETTLE, LASTED, ATTEMPTS, REFUSALS, LEFT, PARKED, LAG, RECONNECTS,
    SAMPLED, JOBS, OLDEST, PAUSED, TOTALS, LANE_JOBS, LANE_OLDEST,
)  # fmt: skip
"""All of them."""
EVENTS: Final = tuple(metric for metric in METRICS if metric.kind in {"counter", "histogram"})
"""Those that move when something happens."""
SAMPLES: Final = tuple(metric for metric in METRICS if metric.kind in {"gauge", "total"})
"""Those that the latest sample says."""


@final
class Reader:
    """Reads measurements as metrics: what happens at once, what was sampled when it is asked for."""

    __slots__ = ("_samples", "_tasks")

    def __init__(self) -> None:
        self._tasks: set[tuple[str, str]] = set()
        self._samples: dict[str, QueueSampled] = {}

    def read(self, measurement: Measurement) -> list[Reading]:
        """Answer what moves; a sample is kept in the place of the last one."""
        match measurement:
            case JobSettled():
                return self._settled(measurement)
            case JobClaimed(queue=queue):
                names = self._names(queue, measurement.task)
                return [(CLAIMS, 1, names), (WAIT, measurement.waited, names)]
            case JobEnqueued(queue=queue):
                names = self._names(queue, measurement.task)
                moved: list[Reading] = [(ENQUEUES, 1, (*names, measurement.error))]
                if measurement.seconds is not None:
                    moved.append((ENQUEUE_SECONDS, measurement.seconds, names))
                return moved
            case LeaseRenewed():
                return [(LEFT, measurement.left, (measurement.queue,))]
            case Parked():
                return [(PARKED, measurement.seconds, ())]
            case LoopTicked():
                return [(LAG, measurement.lag, ())]
            case Reconnected():
                return [(RECONNECTS, 1, ())]
            case QueueSampled():
                self._samples[measurement.queue] = measurement
        return []

    def _settled(self, job: JobSettled) -> list[Reading]:
        names = self._names(job.queue, job.task)
        moved: list[Reading] = [(SETTLED, 1, (*names, job.outcome))]
        if job.ran is not None:
            moved.append((RUN, job.ran, names))
        if job.settled is not None:
            moved.append((SETTLE, job.settled, (job.queue,)))
        if job.lasted is not None:
            moved += [(LASTED, job.lasted, names), (ATTEMPTS, job.attempt, names)]
        if job.refusal:
            moved.append((REFUSALS, 1, (job.queue, job.refusal)))
        return moved

    def _names(self, queue: str, task: str) -> tuple[str, str]:
        names = (queue, task)
        if names not in self._tasks:
            if len(self._tasks) >= MOST:
                return (queue, OTHER)
            self._tasks.add(names)
        return names

    def samples(self) -> Iterator[Reading]:
        """Go over what the latest samples say."""
        for queue, sample in tuple(self._samples.items()):
            yield SAMPLED, sample.at, (queue,)
            yield OLDEST, sample.oldest, (queue,)
            yield PAUSED, float(sample.paused), (queue,)
            for state, count in sample.jobs.items():
                yield JOBS, count, (queue, state)
            for event, count in sample.totals.items():
                yield TOTALS, count, (queue, event)
            for lane in sample.lanes:
                yield LANE_JOBS, lane.pending, (queue, lane.name, "pending")
                if lane.active is not None:
                    yield LANE_JOBS, lane.active, (queue, lane.name, "active")
                yield LANE_OLDEST, lane.oldest or 0.0, (queue, lane.name)
