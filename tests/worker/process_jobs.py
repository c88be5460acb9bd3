"""Plain functions for processes: a child finds them by this module's name. What they do is told through files."""

from __future__ import annotations

import os
import time
from pathlib import Path

from echomq.job import SyncJob


def tell(told: str, text: object) -> None:
    """Say what happens, to the test."""
    with Path(told).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def add(left: int, right: int) -> int:
    """Add."""
    return left + right


def pid() -> int:
    """Say which process it is."""
    return os.getpid()


def look(job: SyncJob, told: str) -> str:
    """Wait until it is told to stop, and say why it was."""
    tell(told, "began")
    while not job.cancelled:
        time.sleep(0.005)
    tell(told, job.cancel_reason)
    return f"stopped by {job.cancel_reason}"


def heed(job: SyncJob, told: str) -> None:
    """Wait until it is told to stop, keep what there is, and raise."""
    tell(told, "began")
    while not job.cancelled:
        time.sleep(0.005)
    job.checkpoint({"at": 7}, step=7)
    job.progress(7, 7, "stopping")
    job.log("bye")
    tell(told, job.cancel_reason)
    raise RuntimeError("the noise of a cleanup")


def ignore(job: SyncJob, told: str) -> None:
    """Heed nothing: only a kill ends it."""
    tell(told, f"began {os.getpid()}")
    while True:
        if job.cancelled:
            tell(told, "saw it")
            break
        time.sleep(0.005)
    while True:
        time.sleep(0.01)
        tell(told, "on")


def sleep(seconds: float) -> None:
    """Take a while."""
    time.sleep(seconds)
