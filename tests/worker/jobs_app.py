"""An app that worker processes of the tests run; what it does is told through lists on the server."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator

import anyio
import redis

from echomq.app import App
from echomq.batches import Batch, BatchItem, JobBatch
from echomq.job import Job, SyncJob
from echomq.resources import INJECTED
from echomq.verdicts import Snooze

QUEUE = os.environ.get("TEST_QUEUE", "default")
app = App()
empty = App()
batches = App()
asking = App()
providing = App()
something = 1
_client = redis.Redis.from_url(os.environ.get("ECHOMQ_URL", "redis://127.0.0.1:1"))


def tell(text: str) -> None:
    """Say what happens, to the test."""
    _client.rpush(f"told:{QUEUE}", f"{os.getpid()} {text}")


@app.task(queue=QUEUE)
async def quick(job: Job) -> None:
    """End at once."""
    tell(f"ran {job.id} {job.attempt}")


@app.task(queue=QUEUE, result_ttl=60)
async def sleeper(job: Job, seconds: float) -> int:
    """Wait, and say how it ended."""
    tell(f"began {job.id} {job.attempt}")
    try:
        await anyio.sleep(seconds)
    except BaseException:
        tell(f"stopped {job.id} {job.cancel_reason}")
        raise
    tell(f"ended {job.id} {job.attempt}")
    return job.attempt


@app.task(queue=QUEUE, result_ttl=60)
async def gated(job: Job) -> int:
    """The same, until the test's word (`let_go`)."""
    tell(f"began {job.id} {job.attempt}")
    try:
        while not _client.exists(f"go:{QUEUE}"):  # noqa: ASYNC110 - the test is in another process
            await anyio.sleep(0.01)
    except BaseException:
        tell(f"stopped {job.id} {job.cancel_reason}")
        raise
    tell(f"ended {job.id} {job.attempt}")
    return job.attempt


@app.task(queue=QUEUE)
async def second_time(job: Job) -> None:
    """End by itself at the second attempt only."""
    tell(f"began {job.id} {job.attempt}")
    await anyio.sleep(600 if job.attempt == 1 else 0)
    tell(f"ended {job.id} {job.attempt}")


@app.task(queue=QUEUE)
async def stubborn(job: Job, seconds: float) -> None:
    """Shield itself."""
    tell(f"began {job.id} {job.attempt}")
    with anyio.CancelScope(shield=True):
        await anyio.sleep(seconds)
    tell(f"ended {job.id} {job.attempt}")


@app.task(queue=QUEUE)
def in_thread(job: SyncJob, seconds: float) -> None:
    """Block a thread."""
    tell(f"began {job.id} {job.attempt}")
    time.sleep(seconds)
    tell(f"ended {job.id} {job.attempt}")


@app.task(queue=QUEUE, run_in="process", max_attempts=1)
def in_process(job: SyncJob, seconds: float) -> None:
    """Block a process, which tells its own number."""
    tell(f"began {job.id} {job.attempt}")
    time.sleep(seconds)
    tell(f"ended {job.id} {job.attempt}")


@app.task(queue=QUEUE, run_in="process")
def forker(job: SyncJob, seconds: float) -> None:
    """Start what holds all that this process has open, and dies of SIGTERM as others do; then end hard."""
    if (child := os.fork()) == 0:
        time.sleep(seconds)
        os._exit(0)
    tell(f"forked {child}")
    os._exit(3)


@app.task(queue=QUEUE)
async def snoozer(job: Job) -> None:
    """Come back for ever."""
    raise Snooze(0, at_least=0)


@app.task(queue=QUEUE)
async def failing(job: Job) -> None:
    """Fail."""
    raise RuntimeError("on purpose")


@app.task(queue=QUEUE)
async def blocker(job: Job, seconds: float) -> None:
    """Block the event loop."""
    time.sleep(seconds)


@app.task(queue=QUEUE)
async def killer(job: Job, how: str) -> None:
    """End its process."""
    tell(f"began {job.id} {job.attempt}")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    sys.stdout.flush()
    os._exit(3)


@app.task(queue=QUEUE)
async def interrupted(job: Job) -> None:
    """Raise what Ctrl-C raises."""
    tell(f"began {job.id} {job.attempt}")
    raise KeyboardInterrupt


@app.task(queue=QUEUE)
async def leaver(job: Job, seconds: float) -> None:
    """Leave a thread behind that the interpreter waits for."""
    threading.Thread(target=time.sleep, args=(seconds,)).start()
    tell(f"left {job.id}")


@batches.task(queue=QUEUE, result_ttl=60, batch=Batch(max_size=10))
async def half(batch: JobBatch[float]) -> None:
    """Settle every other item; then wait as long as the others say."""
    tell(f"began {len(batch)}")
    left: list[BatchItem[float]] = []
    for n, item in enumerate(batch):
        if n % 2:
            left.append(item)
        else:
            batch.done(item, item.attempt)
    await anyio.sleep(max(item.value for item in left))
    for item in left:
        batch.done(item, item.attempt)


class Pool:
    """What handlers share."""


async def asks(job: Job, pool: Pool = INJECTED) -> None:
    """Ask for it."""
    tell(f"ran with a {type(pool).__name__}")


for each in (asking, providing):
    each.task(queue=QUEUE)(asks)


@providing.provide
async def open_pool() -> AsyncIterator[Pool]:
    """Open it, unless the test wants it otherwise."""
    if os.environ.get("TEST_POOL") == "breaks":
        raise LookupError("no database")
    tell("opened")
    yield Pool()
    tell("closed")
