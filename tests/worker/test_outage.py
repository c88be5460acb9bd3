"""The server goes away and comes back: handlers go on, verdicts wait, and work goes on within seconds."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import anyio.to_thread
import pytest
import redis
from structlog.testing import capture_logs

from echomq.app import App
from echomq.embedded import Server, open_server
from echomq.job import Job
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio

TRIES = 20
"""As many tries to connect as an outage of some seconds sees, of all connections."""


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that keeps its data over a restart."""
    with open_server(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        yield server


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_server_restart_costs_nothing(own_server: Server, queue_name: str, how: str) -> None:
    """Handlers with standing leases are unharmed, their verdicts delivered, and consuming goes on; ready tells the truth."""
    gate, ran = anyio.Event(), []
    app = App(own_server.url)

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(job: Job, wait: bool) -> int:
        ran.append(job.attempt)
        if wait:
            await gate.wait()
        return job.attempt

    async with app, running(app, lease=30.0) as worker:
        job = await handle.enqueue(True)
        await until(lambda: ran)
        await until(lambda: worker.statistics().ready)
        await anyio.to_thread.run_sync(own_server.stop if how == "restart" else own_server.kill)
        await until(lambda: not worker.statistics().ready, 3)  # at once, not when calls are given up
        gate.set()
        await until(lambda: worker.statistics().unsettled == 1)
        assert not worker.statistics().ready
        await anyio.to_thread.run_sync(own_server.start)
        with anyio.fail_after(10):  # consuming again, and the verdict delivered
            assert await job.result() == 1
            assert await (await handle.enqueue(False)).result() == 1
        await until(lambda: worker.statistics().ready)
        counters = worker.statistics().counters
    assert ran == [1, 1]
    assert (counters.completed, counters.lost, counters.refused, counters.failed) == (2, 0, 0, 0)


async def test_ready_only_after_a_claim_has_succeeded_again(server_url: str, queue_name: str) -> None:
    """Being connected again is not enough: a worker that has not claimed since is not ready."""
    gate = anyio.Event()
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle() -> None:
            await gate.wait()

        async with app, running(app, concurrency=1, lease=30.0) as worker:
            await handle.enqueue()
            await until(lambda: worker.statistics().running)
            proxy.cut()
            await until(lambda: not worker.statistics().ready)
            await until(lambda: app.client.wire.connected)
            assert not worker.statistics().ready
            gate.set()
            await until(lambda: worker.statistics().ready)


async def test_outage_beyond_the_lease_costs_a_stall_and_no_retry(server_url: str, queue_name: str, peek: Peek) -> None:
    """The handler is stopped while the lease still stands; back again, the job runs anew with its retries unspent."""
    seen: list[object] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name, max_attempts=1, result_ttl=60)
        async def handle(job: Job) -> int:
            if job.attempt > 1:
                return job.attempt
            proxy.frozen = True
            try:
                await anyio.sleep_forever()
            finally:
                seen.append(job.cancel_reason)
            return 0

        async with app, running(app, lease=0.8):
            job = await handle.enqueue()
            await until(lambda: seen)
            assert peek.state(job.id) == "active"
            peek.expire(job.id)
            peek.reap()
            proxy.frozen = False
            assert await job.result(timeout=10) == 2
    record = peek.record(job.id)
    assert seen == ["lease_lost"]
    assert (record.failures, record.stalls) == (0, 1)


@TRIO
async def test_script_flush_in_mid_run_is_not_noticed(app: App, queue_name: str, redis_client: redis.Redis) -> None:
    """Scripts are loaded again, also for renewals and verdicts; nothing is lost or run twice."""
    ran: list[tuple[str, int]] = []

    @app.task(queue=queue_name)
    async def handle(job: Job, seconds: float) -> None:
        ran.append((job.id, job.attempt))
        await anyio.sleep(seconds)

    async with app, running(app, lease=3.0, concurrency=20) as worker:
        for n in range(60):
            await handle.enqueue(0.02 * (n % 10) if n else 1.2)
            if n % 3 == 0:
                redis_client.script_flush()
        await until(lambda: worker.statistics().counters.completed == 60)
    assert len(ran) == len(set(ran)) == 60
    assert {attempt for _, attempt in ran} == {1}


@TRIO
async def test_lost_replies_lose_no_work(server_url: str, queue_name: str, peek: Peek) -> None:
    """Calls whose replies were lost are repeated and answered from memory: each job runs once, on the books and off."""
    ran: list[str] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name, max_attempts=1)
        async def handle(job: Job) -> None:
            ran.append(job.id)
            await anyio.sleep(0.01)

        async with App(server_url) as direct:
            jobs = await direct.queue(queue_name).enqueue_many([b"{}"] * 200, task="handle")
        async with app, running(app, lease=30.0, concurrency=5) as worker:
            for _ in range(6):
                proxy.dropping_replies = True
                await anyio.sleep(0.03)
                proxy.dropping_replies = False
                proxy.cut()
                await anyio.sleep(0.1)
            await until(lambda: peek.count("completed") == len(jobs))
            await until(lambda: not worker.statistics().unsettled)
    assert len(ran) == len(set(ran)) == len(jobs)
    assert peek.count("stalled") == 0


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_half_open_connections_are_found(server_url: str, queue_name: str) -> None:
    """Nothing moves and nothing is closed, for longer than the ping's deadline: consuming again when the net is back."""
    ran: list[int] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle(job: Job) -> None:
            ran.append(job.attempt)

        async with app, running(app, lease=30.0) as worker:
            await handle.enqueue()
            await until(lambda: ran)
            proxy.frozen = True
            await until(lambda: not worker.statistics().ready)
            async with App(server_url) as direct:
                await direct.queue(queue_name).enqueue(b"{}", task="handle")
            proxy.frozen = False
            await until(lambda: len(ran) == 2)
            await until(lambda: worker.statistics().ready)


@TRIO
async def test_outage_is_logged_without_flooding(server_url: str, queue_name: str) -> None:
    """A server that is away for a while costs the log a line or two for each reason, not one for each try."""
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle() -> None: ...

        async with app, running(app) as worker:
            with capture_logs() as logs:
                proxy.refusing, before = True, proxy.accepted
                proxy.cut()
                await until(lambda: proxy.accepted >= before + TRIES)
                assert not worker.statistics().ready
                proxy.refusing = False
                await until(lambda: worker.statistics().ready)
    reasons = {(each["event"], each.get("connection"), each.get("reason")) for each in logs}
    assert {event for event, *_ in reasons} >= {"connection_lost", "cannot_connect", "connected_again"}
    assert len(logs) < TRIES, logs
