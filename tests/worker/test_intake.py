"""What the worker does about time and trouble between its jobs: errors, verdicts that pile up, timers, the watchdog."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.errors import ServerError
from echomq.wire.park import Park
from echomq.worker import intake
from echomq.worker.calls import QueueCalls
from echomq.worker.entry import run_worker
from echomq.worker.intake import Intake
from echomq.worker.reasons import Reason
from echomq.worker.run import Worker
from echomq.worker.timers import Timers
from echomq.worker.watchdog import Watchdog
from tests.worker.fakes import make_lease
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio

FEW = 30
"""More than a growing pause allows within half a second, far fewer than none would."""


@pytest.fixture
def ran() -> list[int]:
    """What the handlers did."""
    return []


@pytest.fixture
def handle(app: App, queue_name: str, ran: list[int]) -> Any:
    """A task that notes that it ran."""

    @app.task(queue=queue_name)
    async def handle() -> None:
        ran.append(1)

    return handle


@TRIO
async def test_claims_that_fail_are_spaced(
    app: App, handle: Any, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that refuses claims is not asked at full speed; when it takes them again, work goes on."""
    failed: list[int] = []

    class Refused:
        async def value(self) -> Any:
            await anyio.lowlevel.checkpoint()
            failed.append(1)
            raise ServerError("ERR", "on purpose")

    async with app, running(app):
        with monkeypatch.context() as patch:
            patch.setattr(QueueCalls, "start_claim", lambda *_: Refused())
            await handle.enqueue()
            await until(lambda: failed)
            await anyio.sleep(0.5)
        assert len(failed) < FEW
        await until(lambda: ran == [1])


async def test_worker_that_the_server_refuses_is_not_ready(app: App, handle: Any, ran: list[int], peek: Peek) -> None:
    """The connection stands and every claim fails: an orchestrator must hear of it. Told once, over at once."""
    with capture_logs() as logs:
        async with app, running(app) as worker:
            await until(lambda: worker.statistics().ready)
            peek.client.set(peek.keys.pending, "no set")
            peek.client.lpush(peek.keys.wake, "1")
            await until(lambda: not worker.statistics().ready)
            await anyio.sleep(0.5)
            assert not worker.statistics().ready
            peek.client.delete(peek.keys.pending)
            await until(lambda: worker.statistics().ready)
            await handle.enqueue()
            await until(lambda: ran)
    assert len([line for line in logs if line["event"] == "claim_failed"]) == 1


@TRIO
async def test_parks_that_fail_are_spaced_and_cost_latency_only(
    app: App, handle: Any, ran: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A doorbell that is broken is tried now and then, and the work is found all the same."""
    failed: list[int] = []

    async def refused(*_: Any, **__: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        failed.append(1)
        raise ServerError("NOPERM", "on purpose")

    monkeypatch.setattr(Park, "wait", refused)
    with capture_logs() as logs:
        async with app, running(app):
            await until(lambda: len(failed) > 1)
            await anyio.sleep(0.3)
            assert len(failed) < FEW
            await handle.enqueue()
            await until(lambda: ran == [1])
    assert len([line for line in logs if line["event"] == "park_failed"]) == 1


@TRIO
async def test_verdicts_that_pile_up_hold_claims_back(app: App, handle: Any, ran: list[int]) -> None:
    """A server that takes no verdicts gets no more work from us: four times the slots may be unsettled."""
    async with app, running(app, concurrency=2) as worker:
        worker._settler._open.update({make_lease(): math.inf for _ in range(8)})
        await handle.enqueue()
        await anyio.sleep(0.2)
        assert ran == []
        worker._settler._open.clear()
        worker._slot_freed()
        await until(lambda: ran == [1])


@TRIO
async def test_stop_waits_for_a_claim_on_its_way(
    server_url: str, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However slow its reply is, within cleanup: what it took is given back."""
    monkeypatch.setattr(intake, "RING_WITHIN", 0.01)  # the ring's reply comes behind the claim's
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle() -> None:
            await anyio.sleep_forever()  # if the claim's reply comes first: then it is given back, too

        async with app, running(app, cleanup=10.0) as worker:
            proxy.delay = 0.3
            async with App(server_url) as direct:
                job = await direct.queue(queue_name).enqueue(b"{}", task="handle")
            await until(lambda: peek.state(job.id) == "active")
            worker.stop()
        assert peek.state(job.id) == "pending"


async def test_claim_that_a_ring_sent_off_is_not_forgotten_by_a_stop(
    app: App, handle: Any, ran: list[int], peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped between the ring and the moment its task wakes: what the claim takes is given back, not left to its lease."""
    workers: list[Worker] = []

    def rang(self: Intake, bell: str) -> None:
        original(self, bell)
        workers[0].stop()

    original = Intake._rang
    monkeypatch.setattr(Intake, "_rang", rang)
    async with app, running(app) as worker:
        workers.append(worker)
        job = await handle.enqueue()
        await until(lambda: peek.record(job.id).attempts == 1)
        await until(lambda: peek.state(job.id) == "pending")
    assert ran == []
    assert (peek.record(job.id).stalls, peek.record(job.id).failures) == (0, 0)


async def test_ring_claims_nothing_for_a_late_loop(
    app: App, handle: Any, ran: list[int], peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that may take nothing at the moment of the ring sends no claim off; it asks when it may."""
    async with app, running(app) as worker:
        await anyio.sleep(0.2)  # parked
        with monkeypatch.context() as patch:
            patch.setattr(worker._intake, "_free", lambda: 0)
            job = await handle.enqueue()
            await anyio.sleep(0.3)
            assert (peek.state(job.id), peek.record(job.id).attempts, ran) == ("pending", 0, [])
        worker._slot_freed()
        await until(lambda: ran == [1])


async def test_stop_does_not_wait_for_a_server_that_was_never_up(queue_name: str) -> None:
    """A worker that is still looking for its server has nothing to clean up, however long it might."""
    app = App("redis://127.0.0.1:1", unavailable_after=0.1)

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    with anyio.fail_after(15):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_worker, app, cleanup=600.0))
            await anyio.sleep(0.3)
            tasks.cancel_scope.cancel()


async def test_lease_that_ends_by_the_clock_says_why() -> None:
    """The log of a lost lease is read at night."""
    lease = make_lease(left=0.0)
    assert (lease.why(), lease.reason_detail) == (Reason.LEASE_LOST, "not renewed in time")


@pytest.mark.parametrize("what", ["lease", "timeout"])
async def test_watchdog_ends_what_is_over(what: str) -> None:
    """A thread knows no scope, and a loop that was late may not have looked: the tick says it."""
    lease = make_lease(left=-1.0 if what == "lease" else 60.0)
    if what == "timeout":
        lease.limit(0.0)
    Watchdog(lambda: [lease], margin=1.0, cleanup=100.0).tick(slept=0.0, lag=0.0)
    assert lease.reason is (Reason.LEASE_LOST if what == "lease" else Reason.TIMEOUT)
    assert lease.scope.cancel_called


async def test_sooner_timer_is_not_late() -> None:
    """What is due before everything else wakes the clock."""
    timers, rang = Timers(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        timers.at(anyio.current_time() + 600, lambda: None)
        tasks.start_soon(timers.run)
        await anyio.sleep(0.02)
        timers.at(anyio.current_time() + 0.02, rang.set)
        with anyio.fail_after(10):
            await rang.wait()
        tasks.cancel_scope.cancel()
