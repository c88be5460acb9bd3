"""Shutdown in order: whoever asks for it, at whatever moment, and whether the server is there or not."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any

import anyio
import anyio.from_thread
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.job import Job
from echomq.worker.entry import run_worker
from tests.worker.support import QUICK, TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio


def connections(peek: Peek, app: App) -> list[str]:
    """Name the connections of an open app's client that stand."""
    tag = app.client.wire.tag
    return [each["name"] for each in peek.client.client_list() if each["name"].endswith(tag)]


async def test_stop_lets_handlers_end_within_grace(app: App, queue_name: str, peek: Peek) -> None:
    """Stopping claims no more, waits for what runs, and delivers its verdict."""
    gate, ended = anyio.Event(), []

    @app.task(queue=queue_name)
    async def handle(n: int) -> None:
        await gate.wait()
        ended.append(n)

    async with app, anyio.create_task_group() as tasks:
        worker = await tasks.start(partial(run_worker, app, **{**QUICK, "grace": 30.0, "concurrency": 1}))
        await handle.enqueue(1)
        late = await handle.enqueue(2)
        await until(lambda: worker.statistics().running)
        worker.stop()
        await anyio.sleep(0.05)
        gate.set()
    assert ended == [1]
    assert peek.state(late.id) == "pending"
    assert peek.active() == {}
    assert peek.count("completed") == 1


async def test_stop_cancels_what_outlives_grace_and_gives_it_back(app: App, queue_name: str, peek: Peek) -> None:
    """Beyond grace: reason `shutdown`, time for cleanup, the job back in pending with its budgets untouched."""
    seen: list[Any] = []

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(job: Job) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.2)
                # Not given back before the handler has ended. (What it raises now would be heard by nobody.)
                seen.append((job.cancel_reason, peek.state(job.id)))

    async with app:
        async with running(app, grace=0.05) as worker:
            job = await handle.enqueue()
            await until(lambda: worker.statistics().running)
        record = peek.record(job.id)
        assert (peek.state(job.id), record.failures, record.stalls) == ("pending", 0, 0)
        assert peek.client.llen(peek.keys.wake) >= 1
        assert [each.id for each in peek.claim()] == [job.id]
    assert seen == [("shutdown", "active")]


@TRIO
async def test_handler_that_shields_itself_is_renewed_and_named(app: App, queue_name: str, peek: Peek) -> None:
    """It cannot be ended: its lease is renewed until it ends by itself, and the log shows where it is."""
    leases: list[float] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        with anyio.CancelScope(shield=True):
            for _ in range(25):
                await anyio.sleep(0.1)
                leases.append(peek.active()[job.id] - peek.now())

    with capture_logs() as logs:
        async with app, running(app, lease=2.2, grace=0.0, cleanup=0.1) as worker:
            await handle.enqueue()
            await until(lambda: worker.statistics().running)
    assert min(leases) > 0
    (line,) = [line for line in logs if line["event"] == "handler_will_not_end"]
    assert "in handle" in line["stack"]
    assert peek.count("completed") == 1
    assert peek.count("stalled") == 0


@TRIO
async def test_handler_in_a_thread_is_renewed_and_named(app: App, queue_name: str, peek: Peek) -> None:
    """The same for a thread: nothing interrupts it, its slot and lease are its own until it returns."""
    leases: list[float] = []
    began = threading.Event()
    before = threading.active_count()

    @app.task(queue=queue_name)
    def handle() -> None:
        began.set()
        for _ in range(25):
            time.sleep(0.1)
            leases.extend(score - peek.now() for score in peek.active().values())

    with capture_logs() as logs:
        async with app, running(app, lease=2.2, grace=0.0, cleanup=0.1):
            await handle.enqueue()
            await until(began.is_set)
    assert len(leases) == 25
    assert min(leases) > 0
    (line,) = [line for line in logs if line["event"] == "handler_will_not_end"]
    assert "time.sleep(0.1)" in line["stack"]
    assert peek.count("completed") == 1
    assert threading.active_count() <= before + 1  # the idle thread that the backend keeps for the next call


async def test_outside_cancellation_ends_a_worker_in_order(app: App, queue_name: str, peek: Peek) -> None:
    """Cancelling the scope around a worker skips grace, ends its handlers, gives the work back, leaves no connection."""
    seen: list[Any] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append(job.cancel_reason)

    async with app:
        job = await handle.enqueue()
        async with anyio.create_task_group() as tasks:
            worker = await tasks.start(partial(run_worker, app, **{**QUICK, "grace": 600.0}))
            await until(lambda: worker.statistics().running)
            tasks.cancel_scope.cancel()
        assert seen == ["shutdown"]
        record = peek.record(job.id)
        assert (peek.state(job.id), record.failures, record.stalls) == ("pending", 0, 0)
        await until(lambda: not [name for name in connections(peek, app) if "park" in name or "subscription" in name])


async def test_native_cancellation_of_asyncio_ends_a_worker_in_order(
    app: App, queue_name: str, peek: Peek, anyio_backend: str
) -> None:
    """`task.cancel()`, which knows no shields, is heard like any other cancellation."""
    if anyio_backend != "asyncio":
        pytest.skip("asyncio's own")
    seen: list[Any] = []
    began = anyio.Event()

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await job.progress(1, message="stopping")
            seen.append(job.cancel_reason)

    async with app:
        job = await handle.enqueue()
        task = asyncio.ensure_future(run_worker(app, **{**QUICK, "grace": 600.0}))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        record = peek.record(job.id)
        assert (peek.state(job.id), record.progress["message"], record.stalls) == ("pending", "stopping", 0)
    assert seen == ["shutdown"]


@pytest.mark.parametrize("when", ["refused", "frozen"])
async def test_stop_while_the_server_is_away(server_url: str, queue_name: str, peek: Peek, when: str) -> None:
    """Leases are left to expire; `run` returns within cleanup, and says what it could not deliver."""
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle() -> None:
            await anyio.sleep_forever()

        with capture_logs() as logs, anyio.fail_after(20):
            async with app:
                job = await handle.enqueue()
                async with running(app, grace=0.1, cleanup=0.3) as worker:
                    await until(lambda: worker.statistics().running)
                    if when == "frozen":
                        proxy.frozen = True
                    else:
                        proxy.refusing = True
                        proxy.cut()
    events = [line["event"] for line in logs]
    assert "verdicts_undelivered" in events
    assert "worker_stopped" in events
    assert peek.state(job.id) == "active"


async def test_stop_of_a_worker_whose_server_was_never_up(queue_name: str) -> None:
    """It waits for a server, and ends when it is told to."""
    app = App("redis://127.0.0.1:1")

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_worker, app, **{**QUICK, "cleanup": 0.2}))
            await anyio.sleep(0.3)
            tasks.cancel_scope.cancel()
    assert not app.is_open


async def test_claim_that_returns_while_stopping_is_given_back(server_url: str, queue_name: str, peek: Peek) -> None:
    """Jobs of a claim that was on its way when the worker was stopped are not begun, and not held."""
    ran: list[int] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle() -> None:
            ran.append(1)

        async with app, running(app, lease=60.0, cleanup=5.0) as worker, App(server_url) as direct:
            proxy.delay = 0.8
            job = await direct.queue(queue_name).enqueue(b"{}", task="handle")
            await until(lambda: peek.state(job.id) == "active")
            worker.stop()
            proxy.delay = 0.0
    assert ran == []
    record = peek.record(job.id)
    assert (peek.state(job.id), record.stalls, record.failures) == ("pending", 0, 0)


@TRIO
async def test_failure_of_a_part_stops_the_worker_in_order(app: App, queue_name: str, peek: Peek) -> None:
    """A queue that turns to another protocol: what runs may end, and the error is raised as itself."""
    from echomq.errors import ProtocolMismatchError  # noqa: PLC0415 - here only

    @app.task(queue=queue_name)
    async def handle() -> None:
        await anyio.sleep_forever()

    async with app:
        job = await handle.enqueue()

        async def meddle() -> None:
            await until(peek.active)
            peek.client.hset(peek.keys.meta, "protocol", "9.0")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(meddle)
            with pytest.raises(ProtocolMismatchError):
                await run_worker(app, **{**QUICK, "cleanup": 0.1})
    assert peek.state(job.id) == "active"
