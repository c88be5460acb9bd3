"""A task that runs in a process: it is found there by its module."""

from __future__ import annotations

import os

from echomq import INJECTED, App, SyncJob

app = App()


@app.task(queue="apart", run_in="process", result_ttl=60)
def square(job: SyncJob, n: int) -> tuple[int, int]:
    """Answer where it ran, too."""
    job.log(f"squaring {n}")
    return os.getpid(), n * n


@app.task(queue="apart", run_in="process")
def ask(text: str = INJECTED) -> None:
    """Ask for what no process can be given."""
