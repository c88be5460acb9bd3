"""The cancellation matrix: a worker cancelled at each step in turn leaves nothing behind and loses nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import redis
import trio

from echomq.app import App
from echomq.backoff import Fixed
from echomq.batches import Batch, BatchItem, JobBatch
from echomq.job import Job
from echomq.resources import INJECTED
from echomq.worker.entry import run_worker
from tests.worker.support import Peek, until
from tests.worker.test_command import put

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("anyio_backend", ["trio"]),
]


OPEN: list[str] = []
"""The workers whose handlers share something."""


class Pool:
    """What they share."""


class CancelAtStep(trio.abc.Instrument):
    """Cancels a scope after the n-th step that any task takes."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self.scope = scope
        self.left = step

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.left -= 1
        if self.left == 0:
            self.scope.cancel()


def make_batch_app(url: str, queue: str, name: str) -> App:
    """An app with one handler of batches, which deals with its items in each way there is."""
    app = App(url, name=name)

    @app.task(queue=queue, backoff=Fixed(600), batch=Batch(max_size=3))
    async def handle(batch: JobBatch[str]) -> None:
        for item in batch:
            if item.value == "done":
                batch.done(item)
            elif item.value == "failed":
                batch.fail(item, ValueError())
            elif item.value != "rest":
                batch.start_soon(work, item)
        await anyio.sleep(0.001)

    async def work(item: BatchItem[str]) -> None:
        await item.progress(1)
        if item.value == "waits":
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await item.checkpoint("cleanup")

    return app


def make_app(url: str, queue: str, name: str) -> App:
    """An app with one handler of each kind."""
    app = App(url, name=name)

    @app.provide
    async def open_pool() -> AsyncIterator[Pool]:
        await anyio.lowlevel.checkpoint()
        OPEN.append(name)
        try:
            await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group():
                yield Pool()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
            OPEN.remove(name)

    @app.task(queue=queue)
    async def quick(pool: Pool = INJECTED) -> None:
        assert name in OPEN

    @app.task(queue=queue)
    async def waits(job: Job) -> None:
        await job.progress(1)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await job.checkpoint("cleanup")

    @app.task(queue=queue, backoff=Fixed(600))
    async def failing() -> None:
        raise RuntimeError

    @app.task(queue=queue)
    def in_thread() -> None:
        time.sleep(0.001)

    return app


async def play(client: redis.Redis, url: str, queue: str, step: int, *, batches: bool) -> bool:
    """Run a worker, cancel it at a step, look around. Answers whether it had claimed anything that is still there."""
    peek = Peek(client, queue)
    if batches:
        jobs = [put(peek, "handle", what) for what in ("done", "waits", "rest", "failed", "works", "rest")]
        jobs.append(put(peek, "nobody-knows"))
        app = make_batch_app(url, queue, name=f"m{step}")
    else:
        jobs = [put(peek, task) for task in ("quick", "waits", "failing", "in_thread", "quick", "nobody-knows")]
        app = make_app(url, queue, name=f"m{step}")
    living = trio.lowlevel.current_statistics().tasks_living
    with trio.CancelScope() as scope:
        instrument = CancelAtStep(scope, step)
        trio.lowlevel.add_instrument(instrument)
        try:
            # Room for both batches: else the second waits a second for it, step by step.
            await run_worker(app, concurrency=6 if batches else 3, grace=5.0, cleanup=5.0, lease=30.0)
        finally:
            trio.lowlevel.remove_instrument(instrument)
    assert scope.cancelled_caught
    assert not app.is_open
    assert OPEN == []
    assert trio.lowlevel.current_statistics().tasks_living == living
    assert not [each for each in threading.enumerate() if each.name == "echomq-watchdog"]
    assert peek.active() == {}
    ended = peek.count("completed")
    claimed = 0
    for job in jobs:
        record = peek.record(job)
        state = peek.state(job)
        assert record.stalls == 0
        assert state in {"", "pending", "schedule"}
        ended -= state == ""
        claimed += record.attempts
    assert ended == 0
    await until(lambda: not _connections(client, f"echomq-m{step}-"))
    return bool(claimed)


def _connections(client: redis.Redis, start: str) -> list[Any]:
    found: Any = client.client_list()
    return [each for each in found if each["name"].startswith(start)]


@pytest.mark.parametrize("batches", [False, True])
async def test_worker_cancelled_at_any_step_leaves_nothing(
    redis_client: redis.Redis, server_url: str, queue_name: str, batches: bool
) -> None:
    """No task, no thread, no connection, no lease, and no job lost: each step from the first to past the last verdict."""
    worked = 0
    for step in range(1, 100):
        with trio.fail_after(20):
            worked += await play(redis_client, server_url, f"{queue_name}-{step}", step, batches=batches)
    assert worked  # else it was always cancelled before the first claim
