"""What the tests of the worker share: workers that end with their block, and looks at the server behind their back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
import pytest
import redis

from echomq.app import App
from echomq.conformance.proxy import FaultProxy, open_proxy
from echomq.protocol.ids import new_tag
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed, JobRecord
from echomq.queue import Queue
from echomq.transitions import Call, Transition, claim, reap
from echomq.worker.entry import run_worker
from echomq.worker.run import Worker

T = TypeVar("T")

TRIO = pytest.mark.parametrize("anyio_backend", ["trio", pytest.param("asyncio", marks=pytest.mark.prove)])
"""For tests that wait for real time: on trio always, on asyncio in `make prove`."""
QUICK: dict[str, Any] = {"lease": 5.0, "grace": 0.2, "cleanup": 1.0, "concurrency": 10}
"""Options of a worker that ends soon and whose leases do not."""
PATIENCE = 15.0
"""Seconds after which what should happen has not: far beyond what anything here needs."""


@asynccontextmanager
async def running(source: App | Queue, *args: Any, **options: Any) -> AsyncIterator[Worker]:
    """Run a worker for the length of the block; it is told to end at once, and must."""
    async with anyio.create_task_group() as tasks:
        worker = await tasks.start(partial(run_worker, source, *args, **{**QUICK, **options}))
        yield worker
        worker.stop()
        worker.stop()


async def until(condition: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Wait for something that will become true, and answer it."""
    with anyio.fail_after(patience):
        while not (found := condition()):  # noqa: ASYNC110 - what happens in other processes sets no event
            await anyio.sleep(0.01)
    return found


@asynccontextmanager
async def proxied(url: str) -> AsyncIterator[FaultProxy]:
    """Put a proxy that fails on command before a server."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with open_proxy(parts.hostname, parts.port) as proxy:
        yield proxy


class Peek:
    """A queue as it is on the server."""

    def __init__(self, client: redis.Redis, queue: str) -> None:
        self.client = client
        self.keys = QueueKeys(queue=queue)

    def run(self, transition: Transition[T]) -> T:
        """Run a transition as somebody else."""
        script = transition.script
        self.client.script_load(script.source)
        return transition.read(self.client.execute_command(*transition.command()))

    def claim(self, count: int = 1, lease: float = 60.0) -> list[Claimed]:
        """Claim as another worker, which keeps what it gets."""
        call = Call(new_tag(), 1)
        return self.run(claim(self.keys, call, count=count, lease_ms=int(lease * 1000))).jobs

    def reap(self) -> None:
        """Take leases that are over back, as any worker's next claim would."""
        self.run(reap(self.keys, Call(new_tag()), bound=256))

    def now(self) -> float:
        """Read the server's clock, ms."""
        seconds, micros = self.client.time()
        return float(seconds) * 1000 + float(micros) / 1000

    def record(self, id: str) -> JobRecord:
        """Read a job's row; empty when there is none."""
        return JobRecord(id, self.client.hgetall(self.keys.job(id)))  # type: ignore[arg-type]

    def state(self, id: str) -> str:
        """Answer where a job is; "" when it has no row."""
        return self.record(id).row.get(b"state", b"").decode()

    def active(self) -> dict[str, float]:
        """Answer the lease deadlines, server ms, by id."""
        found: Any = self.client.zrange(self.keys.active, 0, -1, withscores=True)
        return {id.decode(): score for id, score in found}

    def expire(self, id: str) -> None:
        """Move a lease into the past."""
        self.client.zadd(self.keys.active, {id: 1}, xx=True)

    def count(self, name: str) -> int:
        """Read a counter of the queue."""
        found: Any = self.client.hget(self.keys.counts, name)
        return int(found or 0)

    def events(self, kind: str = "") -> list[tuple[float, dict[bytes, bytes]]]:
        """Answer the events kept, of one kind or all: server ms and fields."""
        found: Any = self.client.xrange(self.keys.events)
        return [
            (float(at.split(b"-")[0]), fields) for at, fields in found if not kind or fields[b"event"] == kind.encode()
        ]

    def empty(self) -> bool:
        """Tell whether no job is pending, active or scheduled."""
        keys = self.keys
        return not self.client.exists(keys.pending, keys.active, keys.schedule)
