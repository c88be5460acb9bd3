"""One measurement of echomq as its users have it, in a process of its own: typed tasks, an app, a worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import trio

from benchmarks.workload import AT_ONCE, PACE, QUEUE, Clock, Span, argument, say
from echomq.app import App
from echomq.worker.entry import run_worker
from echomq.worker.logs import configure_logs
from echomq.worker.run import Worker

app = App()
on_start: Callable[[str], None] = print


@app.task(queue=QUEUE)
async def noop(text: str) -> None:
    on_start(text)


async def enqueue_single(jobs: int) -> None:
    async with app:
        await noop.enqueue(argument(0))
        span = Span(jobs)
        for number in range(jobs):
            await noop.enqueue(argument(number))
        say(span.report())


async def enqueue_tasks(jobs: int) -> None:
    numbers = iter(range(jobs))

    async def some() -> None:
        for number in numbers:
            await noop.enqueue(argument(number))

    async with app:
        await noop.enqueue(argument(0))
        span = Span(jobs)
        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(some)
        say(span.report())


async def enqueue_bulk(jobs: int) -> None:
    async with app:
        await noop.enqueue(argument(0))
        span = Span(jobs)
        await app.enqueue_many(noop.call(argument(number)) for number in range(jobs))
        say(span.report())


async def drain(jobs: int, concurrency: int) -> None:
    global on_start  # noqa: PLW0603 - the handler is a module's function
    clock = Clock(jobs)
    over = trio.Event()

    def tick(_text: str) -> None:
        if clock.tick():
            over.set()

    on_start = tick
    async with trio.open_nursery() as nursery:
        worker: Worker = await nursery.start(partial(run_worker, app, concurrency=concurrency))
        await over.wait()
        worker.stop()
    say(clock.report())


async def latency_worker(jobs: int) -> None:
    global on_start  # noqa: PLW0603
    starts: dict[str, int] = {}
    over = trio.Event()

    def stamp(text: str) -> None:
        starts[text[:8]] = time.monotonic_ns()
        if len(starts) == jobs:
            over.set()

    on_start = stamp
    async with trio.open_nursery() as nursery:
        worker: Worker = await nursery.start(partial(run_worker, app))
        say("ready")
        await over.wait()
        worker.stop()
    say([starts[f"{number:08d}"] for number in range(jobs)])


async def latency_producer(jobs: int) -> None:
    starts: list[int] = []
    async with app:
        due = trio.current_time()
        for number in range(jobs):
            due += PACE
            await trio.sleep_until(due)
            starts.append(time.monotonic_ns())
            await noop.enqueue(argument(number))
    say(starts)


ROLES: dict[str, Callable[..., Any]] = {
    each.__name__: each
    for each in (enqueue_single, enqueue_tasks, enqueue_bulk, drain, latency_worker, latency_producer)
}


def run(role: str, url: str, *sizes: int) -> None:
    configure_logs("console", "warning")
    app.url = url
    trio.run(ROLES[role], *sizes)
