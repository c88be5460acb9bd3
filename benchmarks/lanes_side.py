"""Workers of queues with lanes and limits, in processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import trio

from benchmarks.workload import KEYS, QUEUE, TASK, Clock, Span, argument, payload, rss, say
from echomq import transitions
from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call
from echomq.worker.entry import run_worker
from echomq.worker.logs import configure_logs
from echomq.worker.run import Worker

WORKERS = 3
SETTLE = 0.2
"""Seconds between two rounds of `pickup`: all workers wait again by then."""


async def worker(url: str, concurrency: int) -> None:
    """Work until killed; jobs do nothing."""
    app = App(url)

    async def nothing(_text: str) -> None:
        pass

    app.task(queue=QUEUE, name=TASK)(nothing)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run_worker, app, concurrency=concurrency))
        say("ready")


@asynccontextmanager
async def _working(app: App) -> Any:
    async with trio.open_nursery() as nursery:
        worker: Worker = await nursery.start(partial(run_worker, app, concurrency=1))
        yield worker
        worker.stop()


async def pickup(url: str, rounds: int) -> None:
    """Tell for each round how long it takes until three idle workers run three jobs that came by one call, ms."""
    started: list[int] = []
    full, over = trio.Event(), trio.Event()

    async def meet(_text: str) -> None:
        started.append(time.monotonic_ns())
        if len(started) == WORKERS:
            full.set()
        await full.wait()
        over.set()

    found = []
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(App(url))
        for _ in range(WORKERS):
            app = App(url)
            app.task(queue=QUEUE, name=TASK)(meet)
            await stack.enter_async_context(_working(app))
        for number in range(rounds + 1):
            await trio.sleep(SETTLE)
            started.clear()
            full, over = trio.Event(), trio.Event()
            jobs = [NewJob(task=TASK, payload=payload(number), lane="tenant") for _ in range(WORKERS)]
            began = time.monotonic_ns()
            await client.queue(QUEUE).wire.run(transitions.enqueue(KEYS, Call("bench"), jobs))
            await full.wait()
            found.append((max(started) - began) / 1e6)
            await over.wait()
    say(found[1:])


async def tenants(url: str, jobs: int, concurrency: int, job_ms: int) -> None:
    """Run so many jobs; tell for each, in the order of their starts, whose it is and how long it has waited, seconds."""
    waited: list[tuple[str, float]] = []
    over = trio.Event()
    app = App(url)

    async def work(tenant: str, sent_at: float) -> None:
        waited.append((tenant, max(0.0, time.time() - sent_at)))
        await trio.sleep(job_ms / 1000)
        if len(waited) == jobs:
            over.set()

    app.task(queue=QUEUE, name=TASK)(work)
    async with trio.open_nursery() as nursery:
        worker: Worker = await nursery.start(partial(run_worker, app, concurrency=concurrency))
        say("ready")
        await over.wait()
        worker.stop()
    say(waited)


async def batches(url: str, jobs: int, concurrency: int, size: int) -> None:
    """Drain so many jobs by batches; a handler does as little with each as one of a single job."""
    clock, over = Clock(jobs), trio.Event()
    app = App(url)

    async def take(batch: JobBatch[str]) -> None:
        for _ in batch:
            if clock.tick():
                over.set()

    app.task(queue=QUEUE, name=TASK, batch=Batch(max_size=size))(take)
    async with trio.open_nursery() as nursery:
        worker: Worker = await nursery.start(partial(run_worker, app, concurrency=concurrency))
        await over.wait()
        worker.stop()
    say(clock.report())


async def stream(url: str, jobs: int) -> None:
    """Enqueue so many calls by a stream; tell the rate, and by how much this process grew after the first tenth, MiB."""
    app = App(url)

    async def nothing(_text: str) -> None:
        pass

    task = app.task(queue=QUEUE, name=TASK)(nothing)
    async with app:
        await task.enqueue(argument(0))
        span, early, count = Span(jobs), 0.0, 0
        async for _ in app.enqueue_stream(task.call(argument(number)) for number in range(jobs)):
            count += 1
            if count == jobs // 10:
                early = rss()
        say(span.report() | {"growth_mib": rss() - early, "rss_mib": rss()})


ROLES: dict[str, Callable[..., Any]] = {each.__name__: each for each in (worker, pickup, tenants, batches, stream)}


def run(role: str, url: str, *sizes: int) -> None:
    configure_logs("console", "warning")
    trio.run(ROLES[role], url, *sizes)
