"""Leases are renewed while their handlers run, and no longer."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.job import Job
from echomq.protocol.refusals import Verdict
from echomq.worker.heartbeat import Heartbeat
from echomq.worker.lease import Lease
from echomq.worker.options import WorkerOptions
from echomq.worker.timers import Timers
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@TRIO
async def test_flood_of_enqueues_delays_no_heartbeat(app: App, queue_name: str, peek: Peek) -> None:
    """Renewals have a connection of their own: a worker that enqueues much keeps its leases (pitfall 24)."""
    attempts: list[int] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        attempts.append(job.attempt)
        payloads = (b'"' + b"x" * 50_000 + b'"' for _ in range(600))
        for each in await app.queue(f"{queue_name}-bulk").enqueue_many(payloads):
            assert not isinstance(each, Exception)
        await anyio.sleep(0.5)

    async with app, running(app, lease=0.9, concurrency=1) as worker:
        await handle.enqueue()
        await until(lambda: worker.statistics().counters.completed == 1)
    assert attempts == [1]
    bulk = Peek(peek.client, f"{queue_name}-bulk").keys
    for key in peek.client.scan_iter(f"{bulk.base}*", count=10_000):
        peek.client.unlink(key)


@TRIO
async def test_silence_and_errors_end_nothing_before_the_deadline(server_url: str, queue_name: str, peek: Peek) -> None:
    """A renewal that is not answered, or refused by a server in trouble, is tried again; the handler goes on."""
    attempts: list[int] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle(job: Job) -> None:
            attempts.append(job.attempt)
            proxy.frozen = True
            await anyio.sleep(0.6)
            proxy.frozen = False
            await anyio.sleep(0.2)
            peek.client.hset(peek.keys.meta, "protocol", "9.0")  # every call is refused from here on
            await until(lambda: [line for line in logs if line["event"] == "lease_not_renewed"])
            await anyio.sleep(0.3)
            peek.client.hset(peek.keys.meta, "protocol", "1.0")
            await anyio.sleep(1.0)

        with capture_logs() as logs:
            async with app, running(app, lease=1.2, concurrency=1) as worker:
                await handle.enqueue()
                await until(lambda: worker.statistics().counters.completed == 1)
    assert attempts == [1]
    assert len([line for line in logs if line["event"] == "lease_not_renewed"]) == 1  # and not one for each try
    assert peek.count("stalled") == 0


@TRIO
async def test_heartbeat_ends_with_its_handler(app: App, queue_name: str) -> None:
    """Nothing is renewed once the handler has ended, and its answers mean nothing from then on."""
    renewed = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        await renewed.wait()

    async with app, running(app, lease=0.6) as worker:
        await handle.enqueue()
        await until(lambda: worker.statistics().renewals)
        renewed.set()
        await until(lambda: worker.statistics().counters.completed == 1)
        renewals = worker.statistics().renewals
        await anyio.sleep(0.5)
        assert worker.statistics().renewals == renewals


class _Calls:
    """Takes renewals and sends nothing."""

    queue = "q"

    def __init__(self) -> None:
        self.extend = self
        self.submitted: list[Any] = []

    def submit(self, item: Any, done: Any, give_up_after: float) -> None:
        self.submitted.append((item, done))


async def test_heartbeat_answers_after_the_end_change_nothing(peek: Peek, app: App, queue_name: str) -> None:
    """A renewal in flight together with the completion is answered "gone": neither a lost lease nor a log line."""
    async with app:
        await app.queue(queue_name).enqueue(b"{}")
    calls: Any = _Calls()
    timers = Timers()
    heartbeat = Heartbeat(WorkerOptions(lease=3.0), timers)
    lease = Lease(calls, peek.claim()[0], now_ms=0, sent_at=0.0, deadline=anyio.current_time() + 3)
    heartbeat.watch(lease, anyio.current_time() - 2)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        await until(lambda: calls.submitted)
        tasks.cancel_scope.cancel()
    (_, answered), lease.running = calls.submitted[0], False
    with capture_logs() as logs:
        answered(Verdict("EMQGONE", ""))
    assert lease.reason is None
    assert not lease.scope.cancel_called
    assert logs == []
