"""One measurement with an instrument, in a process of its own: the role is `off-drain`, `prometheus-enqueue_bulk`, and so on."""

from __future__ import annotations

import importlib
import os
from functools import partial
from typing import Any

import trio

from benchmarks.workload import QUEUE, Clock, Span, argument, say
from echomq.app import App
from echomq.worker.entry import run_worker
from echomq.worker.logs import configure_logs
from echomq.worker.run import Worker


def run(role: str, url: str, *sizes: int) -> None:
    name, _, what = role.partition("-")
    logged = name == "structlog"
    if logged:  # written, and read by nobody
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    configure_logs("json", "info" if logged else "warning")
    # What came before this option does not know it.
    app = (
        App(url)
        if name in {"off", "before"}
        else App(url, instruments=[importlib.import_module("benchmarks.telemetry_kinds").make(name)])
    )
    on_start: Any = print

    @app.task(queue=QUEUE)
    async def noop(_text: str) -> None:
        on_start()

    async def enqueue_single(jobs: int) -> None:
        async with app:
            await noop.enqueue(argument(0))
            span = Span(jobs)
            for number in range(jobs):
                await noop.enqueue(argument(number))
            say(span.report())

    async def enqueue_bulk(jobs: int) -> None:
        async with app:
            span = Span(jobs)
            await app.enqueue_many(noop.call(argument(number)) for number in range(jobs))
            say(span.report())

    async def drain(jobs: int) -> None:
        nonlocal on_start
        clock, over = Clock(jobs), trio.Event()

        def tick() -> None:
            if clock.tick():
                over.set()

        on_start = tick
        async with trio.open_nursery() as nursery:
            worker: Worker = await nursery.start(partial(run_worker, app, concurrency=100))
            await over.wait()
            worker.stop()
        say(clock.report())

    roles: dict[str, Any] = {"enqueue_single": enqueue_single, "enqueue_bulk": enqueue_bulk, "drain": drain}
    trio.run(roles[what], *sizes)
