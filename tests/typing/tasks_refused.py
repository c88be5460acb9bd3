"""Read by mypy, not run: what a type checker must refuse. Each refusal is expected where it stands."""

from __future__ import annotations

from pathlib import Path

from echomq import App, Batch, BatchItem, ByError, Exponential, Fixed, HandlerCall, Job, JobBatch, Sequence, open_client

app = App()


@app.task(queue="thumbnails")
async def thumbnail(job: Job, path: Path, size: int = 128) -> int:
    """A coroutine function with the job first."""
    return size


@app.task(queue="rows", batch=Batch(max_size=100))
async def insert(batch: JobBatch[int]) -> None:
    """A handler of batches."""
    for item in batch:
        batch.fail(item, "text")  # type: ignore[arg-type]
        batch.done(item.value)  # type: ignore[arg-type]
        batch.start_soon(work, item, 1)  # type: ignore[arg-type]
        batch.start_soon(work, item)  # type: ignore[arg-type]


async def work(item: BatchItem[int], text: str) -> None:
    """Work for one item."""


@app.task(queue="numbers", batch=Batch(max_size=100))  # type: ignore[arg-type]
async def numbers(number: int) -> None:
    """Not a handler of batches."""


async def produce() -> None:
    """What a producer may get wrong."""
    await thumbnail.enqueue("a.png")  # type: ignore[arg-type]
    await thumbnail.enqueue(Path("a.png"), size="big")  # type: ignore[arg-type]
    await thumbnail.enqueue(Path("a.png"), colour=1)  # type: ignore[call-arg]
    await thumbnail.enqueue()  # type: ignore[call-arg]
    thumbnail.options(prio=1)  # type: ignore[call-arg]
    thumbnail.options(delay="5")  # type: ignore[arg-type]
    thumbnail.options(delay=5).call(1)  # type: ignore[arg-type]
    handle = await thumbnail.enqueue(Path("a.png"))
    text: str = await handle.result()  # type: ignore[assignment]
    print(text)
    async with open_client() as client:
        await client.queue("q").enqueue("text")  # type: ignore[arg-type]
        await client.queue("q").enqueue(b"", "t")  # type: ignore[call-arg]
    await insert.enqueue("text")  # type: ignore[arg-type]
    await insert.enqueue(1, 2)  # type: ignore[call-arg]
    await insert.enqueue(batch=1)  # type: ignore[call-arg]
    app.task(max_attempts="3")  # type: ignore[call-overload]


async def call_wrongly(call: HandlerCall) -> None:
    """What a middleware may get wrong."""
    await call(b"payload")  # type: ignore[call-arg]
    await call(payload="text")  # type: ignore[arg-type]


def policies() -> None:
    """What a policy is not given."""
    Fixed("5")  # type: ignore[arg-type]
    Sequence([1, "5"])  # type: ignore[list-item]
    Exponential(jitter="some")  # type: ignore[arg-type]
    ByError({ValueError: 5})  # type: ignore[dict-item]
    app.task(backoff=5)  # type: ignore[call-overload]


app.provide(1)  # type: ignore[call-overload]
app.around_enqueue(1)  # type: ignore[type-var]
app.around_handling(1)  # type: ignore[type-var]
