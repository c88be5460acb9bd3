"""What a worker costs that has nothing to do: default options, a process and a server for each number of queues."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import redis
import trio

from benchmarks.measure import TOP_LEVEL, Counters, read_line, start_side
from benchmarks.workload import say
from echomq.app import App
from echomq.embedded import open_server
from echomq.worker.entry import run_worker
from echomq.worker.logs import configure_logs

QUEUES = (0, 1, 3)
"""None: what the server costs by itself."""
SETTLE = 1.5
"""Seconds after the start, before it counts."""

Cost = dict[str, Any]


def measure(seconds: float) -> dict[int, Cost]:
    """Answer what a second costs, by number of queues; all at the same time."""
    with ExitStack() as stack:
        clients = {}
        for queues in QUEUES:
            server = stack.enter_context(open_server())
            clients[queues] = stack.enter_context(redis.Redis.from_url(server.url))
            if queues:
                read_line(stack.enter_context(start_side("idle", "worker", server.url, queues)))
        time.sleep(min(SETTLE, seconds))
        for client in clients.values():
            Counters.read(client)  # the handshake
        before = {queues: (time.monotonic(), Counters.read(client)) for queues, client in clients.items()}
        time.sleep(seconds)
        return {queues: _cost(*before[queues], Counters.read(client)) for queues, client in clients.items()}


def _cost(began: float, before: Counters, after: Counters) -> Cost:
    seconds = time.monotonic() - began
    asked = after.asked(before)
    return {
        "reads": (after.reads - before.reads - 1) / seconds,  # 1: our own
        "cpu_ms": (after.cpu - before.cpu) / seconds * 1000,
        "sent": {name: n / seconds for name, n in sorted(asked.items()) if name in TOP_LEVEL},
        "inside": {name: n / seconds for name, n in sorted(asked.items()) if name not in TOP_LEVEL},
    }


# --- the worker's process ------------------------------------------------------------------------


async def _nothing() -> None:
    pass


async def _worker(url: str, queues: int) -> None:
    app = App(url)
    for number in range(queues):
        app.task(queue=f"idle-{number}", name=f"nothing-{number}")(_nothing)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(run_worker, app))
        say("ready")


def run(role: str, url: str, *sizes: int) -> None:
    assert role == "worker"
    configure_logs("console", "warning")
    trio.run(_worker, url, sizes[0])
