"""What a handler answers and notes, and what becomes of what cannot be sent."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import redis

from echomq.app import App
from echomq.errors import JobFailedError
from echomq.job import Job
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


async def test_result_that_cannot_be_kept_fails_the_job_readably(app: App, queue_name: str, peek: Peek) -> None:
    """A result that is no JSON, or too large, fails its job and no neighbour's; without `result_ttl` it is not looked at."""
    gate = anyio.Event()

    @app.task(queue=queue_name, max_attempts=1, result_ttl=60)
    async def handle(kind: str) -> Any:
        await gate.wait()
        return {"set": {object()}, "huge": "x" * 50_000_000, "large": "x" * 1_000_000, "fine": 1}[kind]

    @app.task(queue=queue_name, max_attempts=1)
    async def unkept() -> Any:
        return object()

    async with app, running(app) as worker:
        jobs = {kind: await handle.enqueue(kind) for kind in ("set", "huge", "large", "fine")}
        await unkept.enqueue()
        gate.set()
        assert await jobs["fine"].result(timeout=10) == 1
        assert len(await jobs["large"].result(timeout=10)) == 1_000_000
        with pytest.raises(JobFailedError, match="EncodeError"):
            await jobs["set"].result(timeout=10)
        with pytest.raises(JobFailedError, match="the result has 50000002 bytes, result_limit is 1048576"):
            await jobs["huge"].result(timeout=10)
        await until(lambda: worker.statistics().counters.completed == 3)
    assert peek.count("stalled") == 0


async def test_notes_that_do_not_fit_fail_their_caller_only(app: App, queue_name: str, peek: Peek) -> None:
    """A step that is no number, or a note too large, raises where it was called and sends nothing."""
    seen: list[str] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        steps: list[Any] = [object(), -1, 1.5, "x"]
        for step in steps:
            with pytest.raises((TypeError, ValueError), match="step"):
                await job.checkpoint(1, step=step)
        with pytest.raises(ValueError, match="the limit is 1048576"):
            await job.checkpoint("x" * 2_000_000)
        with pytest.raises(ValueError):
            await job.checkpoint(object())
        seen.append("ok")

    async with app, running(app):
        await handle.enqueue()
        await until(lambda: seen and peek.empty())
    assert peek.count("completed") == 1


async def test_row_that_is_torn_hurts_its_own_job_only(
    app: App, queue_name: str, peek: Peek, redis_client: redis.Redis
) -> None:
    """A number that is none in a row fails or buries that job; the worker goes on."""
    done: list[int] = []

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(n: int) -> None:
        done.append(n)
        if n > 1:
            raise ValueError

    async with app:
        jobs = [await handle.enqueue(n) for n in range(6)]
        for job, field in zip(jobs, ["timeout_ms", "result_ttl_ms", "max_attempts", "headers", "step"], strict=False):
            redis_client.hset(peek.keys.job(job.id), field, "torn")
        async with running(app):
            await until(lambda: 5 in done and peek.empty())
