"""echomq beside other job queues: an adapter for the peer-bench harness.

Run the harness with PEERS_EXTRA naming this directory and ECHOMQ the checkout to measure:

    PEERS_EXTRA=$PWD/benchmarks/peers ECHOMQ=$PWD .../peer-bench/run.py bench echomq arq --rounds 3
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from bench.peerlib import INSIDE, Peer  # type: ignore[import-not-found]  # of the harness
from bench.recorder import job_started  # type: ignore[import-not-found]

if INSIDE:
    import trio

    import echomq.app
    import echomq.worker.entry
    from echomq.worker.logs import configure_logs

    configure_logs("console", "warning")
    app = echomq.app.App(os.environ["BENCH_URL"])

    @app.task(queue="bench")
    async def noop(payload: str) -> None:
        job_started(payload)


class Echomq(Peer):
    name = "echomq"
    pip: ClassVar = [os.environ.get("ECHOMQ", "echomq")]
    versions: ClassVar = ["echomq", "trio", "anyio", "hiredis"]
    bulk_how = "enqueue_many(100)"
    drain_jobs = 50_000
    results = "row deleted (kept with result_ttl)"
    notes = "trio; concurrency=100 as by default, no prefetch; leases, fencing tokens"

    @asynccontextmanager
    async def producer(
        self, url: str
    ) -> AsyncIterator[tuple[Callable[[str], Awaitable[None]], Callable[[list[str]], Awaitable[None]]]]:
        async def add(payload: str) -> None:
            await noop.enqueue(payload)

        async def add_many(payloads: list[str]) -> None:
            await app.enqueue_many(noop.call(payload) for payload in payloads)

        async with app:
            yield add, add_many

    def work(self, url: str) -> None:
        trio.run(echomq.worker.entry.run_worker, app)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        trio.run(main)

    async def sleep(self, seconds: float) -> None:
        await trio.sleep(seconds)


PEERS = [Echomq()]
