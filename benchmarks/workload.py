"""The workload, the same for both sides: no-op jobs with one argument of 64 characters."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import orjson

from echomq.protocol.keys import QueueKeys

QUEUE = "bench"
KEYS = QueueKeys(queue=QUEUE)
TASK = "noop"
PAD = "x" * 56
AT_ONCE = 64
"""Tasks that enqueue at the same time in `enqueue_tasks`."""
PACE = 0.02
"""Seconds between two jobs of the latency run."""


def argument(number: int) -> str:
    return f"{number:08d}{PAD}"


def payload(number: int) -> bytes:
    return b'{"args":["%08d%s"]}' % (number, PAD.encode())


class Clock:
    """Counts handler starts; tells when all have come, and what passed between the first and the last."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.count = 0
        self.first = self.last = 0.0
        self.first_cpu = self.last_cpu = 0.0

    def tick(self) -> bool:
        """Count one; answer whether it was the last."""
        self.count += 1
        if self.count == 1:
            self.first, self.first_cpu = time.perf_counter(), time.process_time()
        if self.count < self.jobs:
            return False
        self.last, self.last_cpu = time.perf_counter(), time.process_time()
        return True

    def report(self) -> dict[str, Any]:
        counted = self.jobs - 1
        return {
            "rate": counted / (self.last - self.first),
            "cpu_us": (self.last_cpu - self.first_cpu) / counted * 1e6,
            "rss_mib": peak_rss(),
        }


class Span:
    """Times a block: `rate` and `cpu_us` of so many jobs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def report(self) -> dict[str, Any]:
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"rate": self.jobs / wall, "cpu_us": cpu / self.jobs * 1e6}


def peak_rss() -> float:
    """Answer this process's largest resident set so far, MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def rss() -> float:
    """Answer this process's resident set now, MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


def say(value: Any) -> None:
    """Tell the measuring process something: one line of JSON."""
    print(orjson.dumps(value).decode(), flush=True)
