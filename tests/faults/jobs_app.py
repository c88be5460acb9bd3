"""An app that worker processes of these tests run: handlers that stop at the worst moment, and keep books elsewhere."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

import anyio

from echomq.app import App
from echomq.backoff import Fixed
from echomq.job import Job, SyncJob
from echomq.verdicts import Discard, Snooze
from tests.faults.ledger import Ledger
from tests.worker.jobs_app import QUEUE, _client, tell

app = App()
ledger = Ledger(os.environ["TEST_LEDGER"]) if "TEST_LEDGER" in os.environ else None
_began: list[str] = []
_together = anyio.Event()


@app.task(queue=QUEUE)
async def late(job: Job, verb: str, together: int) -> None:
    """Begin with all the others; then, in the middle of one step, wait for the test's word, and write by `verb`."""
    tell(f"began {job.id} {job.attempt}")
    _began.append(job.id)
    if len(_began) == together:
        _together.set()
    await _together.wait()
    # All handlers are in this one step of the event loop: no deadline, heartbeat or message can come between.
    tell(f"stepping {job.id}")
    while not _client.exists(f"go:{QUEUE}"):
        time.sleep(0.01)
    match verb:
        case "complete":
            return
        case "fail":
            raise RuntimeError("late")
        case "snooze":
            raise Snooze(1)
        case "end":
            raise Discard("late")
    with anyio.CancelScope(shield=verb != "nothing"):
        try:
            match verb:
                case "progress":
                    await job.progress(1, 1, "late")
                case "checkpoint":
                    await job.checkpoint("late", step=7)
                case "log":
                    await job.log("late")
        except Exception as error:
            tell(f"refused {job.id} {type(error).__name__}")
    try:
        await anyio.sleep_forever()
    finally:
        tell(f"stopped {job.id} {job.cancel_reason}")


@app.task(queue=QUEUE)
def late_in_thread(job: SyncJob) -> None:
    """Wait for the test's word in a thread, which nothing can interrupt, and then write in every way."""
    tell(f"began {job.id} {job.attempt}")
    while not _client.exists(f"go:{QUEUE}"):
        time.sleep(0.01)
    for note in (
        partial(job.progress, 1, 1, "late"),
        partial(job.checkpoint, "late", step=7),
        partial(job.log, "late"),
    ):
        try:
            note()
        except Exception as error:
            tell(f"refused {job.id} {type(error).__name__}")
    tell(f"saw {job.id} {job.cancel_reason}")


@app.task(queue=QUEUE, max_attempts=2, backoff=Fixed(0))
async def booked(job: Job, seconds: float) -> None:
    """Work, and keep the books of it in a store outside, guarded by the token."""
    assert ledger is not None
    ledger.begin(job.id, job.token)
    await anyio.sleep(seconds)
    ledger.end(job.id, job.token)


@app.task(queue=QUEUE, max_attempts=2, backoff=Fixed(0.2), timeout=0.1)
async def disorderly(job: Job, n: int) -> None:
    """One in ten fails, one in a hundred is too slow, and of those that fail one in ten does it again."""
    if n % 100 == 1 and job.failures == 0:
        await anyio.sleep_forever()
    if n % 10 == 0 and (job.failures == 0 or n % 100 == 0):
        raise RuntimeError(f"{n}, on purpose")


@app.task(queue=QUEUE)
async def plain(job: Job, n: int) -> None:
    """Do nothing; one in ten fails at first."""
    if n % 10 == 0 and job.failures == 0:
        raise RuntimeError(f"{n}, on purpose")


class NeedsThree(Exception):  # noqa: N818
    """An exception that cannot be made again from its arguments, and cannot be shown."""

    def __init__(self, one: int, two: int, three: int) -> None:
        super().__init__(one)

    def __str__(self) -> str:
        raise RuntimeError("no words")


@app.task(queue=QUEUE, max_attempts=1, result_ttl=60)
async def bad(job: Job, kind: str) -> object:
    """Do what a handler should not."""
    match kind:
        case "unencodable":
            return {object()}
        case "huge":
            return "x" * 50_000_000
        case "strange":
            raise NeedsThree(1, 2, 3)
        case "killer":
            tell(f"killing {job.id} {job.attempt}")
            os.kill(os.getpid(), signal.SIGKILL)
        case "blocker":
            time.sleep(1.2)
    return kind
