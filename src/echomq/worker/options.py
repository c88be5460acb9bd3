"""How a worker works: every number with its unit, its default and its reason (Runtime, section 5)."""

from __future__ import annotations

import os
import platform
from typing import Any, Final, final

import attrs

from echomq.protocol._convert import shown
from echomq.worker.calls import MAX_DEPTH

MAX_CONCURRENCY: Final = 10_000
"""The most jobs that one claim may take."""
MAX_PORT: Final = 65_535


def _name() -> str:
    return f"{platform.node()}.{os.getpid()}"


def _within(low: float, high: float, unit: str) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[float], value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            msg = f"{attribute.name} is {shown(value)}; it must be {low:g} to {high:g} {unit}"
            raise ValueError(msg)

    return check


def _at_most(most: int, unit: str) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if value is not None and (type(value) is not int or not 1 <= value <= most):
            msg = f"{attribute.name} is {shown(value)}; it must be 1 to {most} {unit}, or None"
            raise ValueError(msg)

    return check


def _is_port(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (type(value) is not int or not 0 <= value <= MAX_PORT):
        msg = f"{attribute.name} is {value!r}; it must be a port, 0 to {MAX_PORT}, or None"
        raise ValueError(msg)


@final
@attrs.frozen(kw_only=True)
class WorkerOptions:
    """How a worker works. Durations are seconds."""

    concurrency: int = attrs.field(default=100, validator=_within(1, MAX_CONCURRENCY, "jobs"))
    """How many handlers run at once; each item of a batch counts as one. 100: handlers mostly wait for others."""
    threads: int = attrs.field(validator=_within(1, MAX_CONCURRENCY, "threads"))
    """How many plain functions run at once in threads. As many as `concurrency`, unless told otherwise: fewer protect
    what they use, a database with few connections say, and let coroutine functions have the other slots."""
    pool: int = attrs.field(validator=_within(1, MAX_CONCURRENCY, "processes"))
    """How many plain functions run at once in processes of their own (`run_in="process"`). As many as the machine has
    processors, unless told otherwise. A process is started when it is first needed, and kept."""
    lease: float = attrs.field(default=30.0, validator=_within(0.1, 604_800, "seconds"))
    """How long a claim holds without being renewed. 30: survives a garbage collection, a short network fault, a slow
    disk; a killed worker's jobs wait as long."""
    margin: float = attrs.field(validator=_within(0, 604_800, "seconds"))
    """How long before the lease's end a handler is stopped, so that it has stopped when the server may lease the job
    to another. A tenth of the lease: clocks of two machines drift by far less."""
    grace: float = attrs.field(default=20.0, validator=_within(0, 86_400, "seconds"))
    """How long a shutdown waits for handlers. 20, and 5 of cleanup: within the 30 seconds that Kubernetes gives."""
    cleanup: float = attrs.field(default=5.0, validator=_within(0, 86_400, "seconds"))
    """How long cancelled handlers and last verdicts may take."""
    settle_within: float = attrs.field(default=600.0, validator=_within(1, 86_400, "seconds"))
    """How long a verdict is kept and tried while the server is away. Ten minutes: longer than a failover or restart."""
    deploy_window: float = attrs.field(default=600.0, validator=_within(0, 86_400, "seconds"))
    """How long a job whose task this worker does not know, or whose arguments do not fit, is put off before it is
    buried: what a rolling deploy looks like."""
    result_limit: int = attrs.field(default=1 << 20, validator=_within(1, 512 << 20, "bytes"))
    """How many bytes an encoded result may have, if the job keeps its result; a larger one fails the attempt. 1 MiB, as
    for payloads: a script's time grows with the bytes it moves, and leases wait for it."""
    max_depth: int = attrs.field(default=MAX_DEPTH, validator=_within(1, 1_000_000, "jobs"))
    """How many jobs may be above one that a handler spawns (`job.nursery()`): so handlers that spawn themselves end."""
    max_jobs: int | None = attrs.field(default=None, validator=_at_most(1_000_000_000, "jobs"))
    """After how many claimed jobs the worker claims no more, lets its handlers end, and ends; None: never. Each worker
    draws a number between nine tenths of it and all of it, so that those that began together do not leave together."""
    max_rss: int | None = attrs.field(default=None, validator=_at_most(1 << 30, "MiB"))
    """From how much resident memory on it does the same, MiB; drawn in the same way, looked at every few seconds. It is
    this process's alone: handlers in processes of their own have theirs. None: it is not looked at."""
    burst: bool = False
    """Stop when the queues are empty: nothing pending, active or scheduled, and nothing to be told to other queues."""
    allow_eviction: bool = False
    """Work on a server whose eviction policy may drop jobs."""
    health_port: int | None = attrs.field(default=None, validator=_is_port)
    """At which port to answer health probes over HTTP; 0: a free one, which the log names; None: nowhere."""
    health_host: str = "127.0.0.1"
    """Where to listen for them. This machine only: whoever may ask is told how much there is to do."""
    sample_every: float | None = attrs.field(
        default=None, validator=attrs.validators.optional(_within(0.1, 86_400, "seconds"))
    )
    """How often its queues are sampled for the app's instruments: jobs in each state, the oldest's age, counters. None: never;
    one worker of each queue is enough, and 15 seconds are often enough for Prometheus."""
    sample_lanes: int = attrs.field(default=0, validator=_within(0, 10_000, "lanes"))
    """How many lanes of each queue are sampled with it, at most. None unless told otherwise: each has a time series."""
    name: str = attrs.field(factory=_name)
    """What this worker is called in logs: host and process id unless told otherwise."""

    @margin.default
    def _tenth(self) -> float:
        lease: Any = self.lease  # not checked yet
        return lease / 10 if isinstance(lease, (int, float)) else 0.0

    @threads.default
    def _as_many_as_slots(self) -> int:
        return self.concurrency

    @pool.default
    def _as_many_as_processors(self) -> int:
        return os.cpu_count() or 1

    def __attrs_post_init__(self) -> None:
        """Check what hangs together."""
        if not 0 < self.margin < self.lease / 2:
            msg = f"margin is {self.margin!r}; it must be positive and less than half the lease ({self.lease!r})"
            raise ValueError(msg)
        for name in ("concurrency", "threads", "pool", "max_depth", "sample_lanes"):
            number = getattr(self, name)
            if number != int(number):
                msg = f"{name} is {number!r}; it must be a whole number"
                raise ValueError(msg)
            object.__setattr__(self, name, int(number))  # a claim sends how many: 5, not 5.0
