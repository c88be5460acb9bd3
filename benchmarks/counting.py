"""What one job costs in things that can be counted, whatever else the machine does: scenarios on private servers.

A scenario begins after a warm-up, so that connections are open and scripts are loaded, and ends when nothing is under
way: what is counted in between depends on the code and not on the clock. Work waits in a paused queue until all of it
is there and its worker is ready; then it is let go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, final

import attrs
import redis
import trio

from benchmarks.measure import Counters
from benchmarks.workload import KEYS, QUEUE, argument
from echomq.app import App
from echomq.backoff import Fixed
from echomq.embedded import open_server_async
from echomq.tasks import Task
from echomq.transitions.scripts import ALL_VERBS, load
from echomq.worker.entry import run_worker
from echomq.worker.run import Worker

SINGLE = 1_000
BULK = 5_000
STORED = 20_000
"""Jobs whose memory is looked at: enough for the server's buffers not to count."""
DRAIN = 5_000
RETRY = 1_000
IDLE_FROM, IDLE_UNTIL = 0.1, 2.2
"""Seconds after an idle worker's first claim: it waits 0.8 to 1 s before each next one, so that there are two."""
CONCURRENCY = 100

WARM_UP = "warm-up"

Found = dict[str, float]


@final
class Meter:
    """The server's counters between two moments, without what reading them costs."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._before = Counters.read(client)  # the handshake is over
        self._own: Found = {}
        self.by_name: dict[str, int] = {}
        """How often each command was called in the last measurement."""

    def start(self) -> None:
        """Begin. Two readings at which nothing else was asked in between tell what one costs."""
        while True:
            first, self._before = Counters.read(self._client), Counters.read(self._client)
            if not self._before.asked(first):
                break
        self._own = {name: self._before.since(first, 1)[name] for name in ("reads", "received", "sent")}

    def take(self, jobs: int) -> Found:
        now = Counters.read(self._client)
        self.by_name = now.asked(self._before)
        found = now.since(self._before, jobs)
        return {name: found[name] - self._own.get(name, 0.0) / jobs for name in found if name != "server_cpu_us"}


@final
@attrs.define
class Stage:
    """A private server, a meter of it, and an app whose client is open."""

    url: str
    client: redis.Redis
    meter: Meter
    app: App
    task: Task[[str], None]

    async def fill(self, jobs: int) -> None:
        """Enqueue so many in bulk, into a queue that is paused."""
        await self.app.queue(QUEUE).pause()
        await self.app.enqueue_many([self.task.call(argument(number)) for number in range(jobs)])


def _make_app(url: str, handler: Callable[[str], Awaitable[None]], queue: str = QUEUE) -> tuple[App, Task[[str], None]]:
    app = App(url)

    async def noop(text: str) -> None:
        await handler(text)

    return app, app.task(queue=queue, max_attempts=2, backoff=Fixed(0))(noop)


async def _nothing(_text: str) -> None:
    pass


@asynccontextmanager
async def _stage() -> AsyncIterator[Stage]:
    async with open_server_async() as server:
        with redis.Redis.from_url(server.url) as client:
            for verb in ALL_VERBS:
                client.script_load(load(verb).source)
            meter = Meter(client)
            app, task = _make_app(server.url, _nothing)
            async with app:
                yield Stage(server.url, client, meter, app, task)


@asynccontextmanager
async def _working(url: str, handler: Callable[[str], Awaitable[None]], queue: str = QUEUE) -> AsyncIterator[Worker]:
    """Run a worker with a client of its own for the length of the block."""
    app, _ = _make_app(url, handler, queue)
    async with trio.open_nursery() as nursery:
        worker: Worker = await nursery.start(partial(run_worker, app, concurrency=CONCURRENCY))
        try:
            yield worker
        finally:
            worker.stop()


async def _until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await trio.sleep(0.01)


async def enqueue_single() -> Found:
    """Enqueue one after the other."""
    async with _stage() as stage:
        await stage.task.enqueue(argument(0))
        stage.meter.start()
        for number in range(SINGLE):
            await stage.task.enqueue(argument(number))
        return stage.meter.take(SINGLE)


async def enqueue_bulk() -> Found:
    """Enqueue many by one call of the client; then more, for the memory of a job."""
    async with _stage() as stage:
        await stage.task.enqueue(argument(0))
        calls = [stage.task.call(argument(number)) for number in range(BULK)]
        stage.meter.start()
        await stage.app.enqueue_many(calls)
        found = stage.meter.take(BULK)
        await stage.app.enqueue_many(stage.task.call(argument(number)) for number in range(STORED - BULK))
        queued = stage.client.zcard(KEYS.pending)
        assert queued == STORED + 1, queued
        return found | {"bytes": stage.meter.take(STORED)["bytes"]}


async def _drain(jobs: int, attempts: int) -> Found:
    started = error_bytes = 0
    seen: set[str] = set()

    async def handle(text: str) -> None:
        nonlocal started, error_bytes
        started += 1
        if attempts > 1 and text not in seen:
            seen.add(text)
            raise RuntimeError("the first attempt")
        if attempts > 1 and text == WARM_UP:
            [row] = stage.client.keys("*:job:*")
            error_bytes = stage.client.hstrlen(row, "error")

    def over(worker: Worker, total: int) -> bool:
        now = worker.statistics()
        return started == total and not now.running and not now.unsettled

    async with _stage() as stage, _working(stage.url, handle) as worker:
        await stage.task.enqueue(WARM_UP)
        await _until(lambda: over(worker, attempts))
        await stage.app.queue(QUEUE).pause()
        await stage.app.queue(QUEUE).resume()
        await stage.fill(jobs)
        stage.meter.start()
        await stage.app.queue(QUEUE).resume()
        await _until(lambda: over(worker, attempts * (jobs + 1)))
        found = stage.meter.take(jobs)
        # Without the text of the error: a traceback holds the paths of this machine.
        found |= {name: found[name] - error_bytes for name in ("received", "sent")}
        return found | _left(stage.client)


def _left(client: redis.Redis) -> Found:
    every: Any = client.keys("*")
    keys = [key for key in every if b":worker" not in key]  # who is alive, for half a minute
    sizes = [client.memory_usage(key, samples=0) for key in keys]
    return {"keys": len(keys), "left": float(sum(int(size or 0) for size in sizes))}


async def drain() -> Found:
    """Drain by one worker whose handlers do nothing."""
    return await _drain(DRAIN, 1)


async def retry() -> Found:
    """Drain jobs that each fail once, and are tried again at once."""
    return await _drain(RETRY, 2)


async def idle() -> Found:
    """Let a worker wait for work that does not come."""
    async with _stage() as stage, _working(stage.url, _nothing):
        await trio.sleep(IDLE_FROM)
        stage.meter.start()
        await trio.sleep(IDLE_UNTIL - IDLE_FROM)
        return stage.meter.take(1)


SCENARIOS: dict[str, Callable[[], Awaitable[Found]]] = {
    each.__name__: each for each in (enqueue_single, enqueue_bulk, drain, retry, idle)
}
