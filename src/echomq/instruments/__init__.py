"""Instruments: what takes measurements of enqueues, jobs, leases, workers and queues.

An app is given some, `App(instruments=[...])`, and hands them to its workers. Without any, nothing is measured and nothing
is paid. `StructlogInstrument` is here; `PrometheusInstrument` is in `echomq.instruments.prometheus` and
`OpenTelemetryInstrument` in `echomq.instruments.opentelemetry`, since they need packages of their own.
"""

from __future__ import annotations

from echomq.instruments._many import NO_INSTRUMENTS, Instruments
from echomq.instruments.logs import StructlogInstrument
from echomq.instruments.measurements import (
    Instrument,
    JobClaimed,
    JobEnqueued,
    JobOutcome,
    JobSettled,
    LeaseRenewed,
    LoopTicked,
    Measurement,
    Parked,
    QueueSampled,
    Reconnected,
)
from echomq.instruments.sampling import run_sampler

__all__ = [
    "NO_INSTRUMENTS",
    "Instrument",
    "Instruments",
    "JobClaimed",
    "JobEnqueued",
    "JobOutcome",
    "JobSettled",
    "LeaseRenewed",
    "LoopTicked",
    "Measurement",
    "Parked",
    "QueueSampled",
    "Reconnected",
    "StructlogInstrument",
    "run_sampler",
]
