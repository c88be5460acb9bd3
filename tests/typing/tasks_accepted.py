"""Read by mypy, not run: what a type checker must accept, with the types it must find."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, Literal, assert_type

from echomq import (
    INJECTED,
    NEVER,
    App,
    Backoff,
    Batch,
    BatchItem,
    ByError,
    Decorrelated,
    EchoMQError,
    Exponential,
    Fixed,
    HandlerCall,
    Job,
    JobBatch,
    JobCall,
    JobHandle,
    Linear,
    RetryAfter,
    ScheduleInfo,
    Sequence,
    SyncJob,
    Task,
    sync,
)

app = App()


@app.task
async def bare(n: int) -> str:
    """A coroutine function without options."""
    return str(n)


@app.task(queue="thumbnails", max_attempts=5, timeout=30, result_ttl=60)
async def thumbnail(job: Job, path: Path, size: int = 128) -> int:
    """A coroutine function with the job first: callers do not give it."""
    await job.progress(0)
    return size


@app.task(queue="reports")
def report(job: SyncJob, year: int, *, title: str) -> bytes:
    """A plain function, run in a thread."""
    return title.encode() * year


@app.task(queue="reports", run_in="process")
def crunch(job: SyncJob, year: int) -> float:
    """A plain function, run in a process."""
    job.progress(1, total=2.5, message="half")
    return float(year)


assert_type(crunch.call(2024), JobCall[float])


@app.task
def nothing() -> None:
    """No arguments, no result."""


@app.task(queue="rows", batch=Batch(max_size=100, linger=0.5), result_ttl=60)
async def insert(batch: JobBatch[Path]) -> None:
    """A handler of batches: callers give one item."""
    for item in batch:
        assert_type(item, BatchItem[Path])
        assert_type(item.value, Path)
        await item.progress(1)
        assert_type(batch.done(item, 1), bool)
        batch.fail(item, ValueError())
        batch.start_soon(work, item, 1, "text")


async def work(item: BatchItem[Path], number: int, text: str) -> int:
    """Work for one item."""
    return number


async def produce() -> None:
    """What a producer writes."""
    assert_type(await bare.enqueue(1), JobHandle[str])
    handle = await thumbnail.enqueue(Path("a.png"), size=64)
    assert_type(handle, JobHandle[int])
    assert_type(await handle.result(timeout=10), int)
    assert_type(await thumbnail.options(delay=5, priority=2, dedup="a.png").enqueue(Path("a.png")), JobHandle[int])
    assert_type(await insert.enqueue(Path("a.png")), JobHandle[Any])
    await app.enqueue_many(insert.call(Path(name)) for name in "ab")
    assert_type(report.call(2024, title="t"), JobCall[bytes])
    assert_type(await app.enqueue_many(bare.call(n) for n in range(3)), list[JobHandle[str] | EchoMQError])
    assert_type(await nothing.enqueue(), JobHandle[None])
    async for done, value in app.results([handle]):
        assert_type(done, JobHandle[int])
        assert_type(value, int | EchoMQError)
    stub = app.task_stub("thumbnail", queue="thumbnails")
    await stub.enqueue("anything", at_all=True)
    app.schedule("nightly", report.call(2024, title="t"), cron="30 2 * * *", tz="Europe/Berlin", overlap="skip")
    schedules = app.queue("thumbnails").schedules
    assert_type(await schedules.put("s", report.call(1, title="t"), every=60), Literal["created", "changed", "same"])
    assert_type(await schedules.get("s"), ScheduleInfo | None)


def produce_and_block() -> None:
    """What a synchronous producer writes."""
    with sync.Client() as client:
        assert_type(client.enqueue(report.call(1, title="t")).result(timeout=1), bytes)


def takes_any_task(task: Task[..., object]) -> str:
    """Tasks are values."""
    return task.name


takes_any_task(thumbnail)


# --- retry policies, middleware, resources ----------------------------------------------------


def own_policy(failures: int, error: BaseException, rng: Random) -> float | None:
    """Any callable like this one."""
    return None if failures > 3 else rng.uniform(0, failures)


POLICIES: list[Backoff] = [
    Fixed(5),
    Linear(1, step=2, cap=60),
    Exponential(jitter="equal"),
    Decorrelated(),
    Sequence([1, 5, 30]),
    ByError({OSError: RetryAfter(Fixed(1), cap=60), ValueError: NEVER}, default=own_policy),
    NEVER,
    own_policy,
]


@app.around_enqueue
def with_trace(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
    """A plain generator function."""
    assert_type(call.headers.get("trace"), str | None)
    yield call.with_headers({"trace": "1"}).with_payload(b"")


@app.around_handling
async def in_trace(job: Job, call: HandlerCall) -> Any:
    """Around single jobs."""
    return await call(payload=job.payload)


@app.around_handling
async def around_both(job: Job | JobBatch[Any], call: HandlerCall) -> Any:
    """Around batches as well."""
    if isinstance(job, JobBatch):
        return await call(payload={item: item.payload for item in job})
    return await call()


class Pool:
    """What handlers share."""


@app.provide
async def open_pool() -> AsyncIterator[Pool]:
    """Bare."""
    yield Pool()


@app.provide
@asynccontextmanager
async def open_path() -> AsyncIterator[Path]:
    """Decorated."""
    yield Path()


app.provide(bytes, open_path)


@app.task
async def asks(job: Job, n: int, pool: Pool = INJECTED, *, path: Path = INJECTED) -> int:
    """What is injected may be left out."""
    return n


@app.task(queue="asking", batch=Batch(max_size=2))
async def asks_in_batches(batch: JobBatch[int], pool: Pool = INJECTED) -> None:
    """Beside a batch."""


async def use_them() -> None:
    """The decorators leave functions as they are."""
    assert_type(await asks.enqueue(1), JobHandle[int])
    assert_type(asks.call(1), JobCall[int])
    await asks_in_batches.enqueue(1)
    opened: AbstractAsyncContextManager[Path] = open_path()
    async with opened as path:
        assert_type(path, Path)
    print(POLICIES, list(with_trace(asks.call(1))))
