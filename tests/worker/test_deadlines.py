"""When a lease is over here, what moves that moment, and when it is renewed."""

from __future__ import annotations

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.errors import ServerError
from echomq.job import Job
from echomq.protocol.refusals import Verdict
from echomq.worker.heartbeat import Heartbeat
from echomq.worker.options import WorkerOptions
from echomq.worker.reasons import Reason
from echomq.worker.timers import Timers
from tests.worker.fakes import make_lease
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio


@TRIO
@pytest.mark.parametrize("renewed", [False, True])
async def test_deadline_here_is_a_margin_before_the_servers(
    server_url: str, queue_name: str, peek: Peek, renewed: bool
) -> None:
    """However long the reply took, the first time and after a renewal; a long timeout does not put it off."""
    left: list[tuple[float, float, float]] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name, timeout=600)
        async def handle(job: Job) -> None:
            (lease,) = worker._leases
            if renewed:
                await until(lambda: worker.statistics().renewals)
            # The server's first: the time in between can only make ours smaller.
            there = peek.active()[job.id] - peek.now()
            left.append((there / 1000, lease.deadline - anyio.current_time(), lease.scope.deadline - lease.deadline))

        async with app, running(app, lease=3.0, margin=1.0) as worker:
            proxy.delay = 0.2
            async with App(server_url) as direct:
                await direct.queue(queue_name).enqueue(b"{}", task="handle")
            await until(lambda: worker.statistics().counters.completed == 1)
            proxy.delay = 0.0
    ((there, here, later),) = left
    assert later == 0.0
    assert here <= there - 1.0 + 0.002  # the server counts whole milliseconds


@pytest.mark.parametrize("how", ["over", "lost", "ended"])
async def test_renewal_after_the_end_moves_nothing(how: str) -> None:
    """A handler that has been told to stop is not told otherwise."""
    lease = make_lease(left=-1.0 if how == "over" else 60.0)
    if how == "lost":
        lease.stop(Reason.LEASE_LOST)
    lease.running = how != "ended"
    before = lease.deadline, lease.scope.deadline
    lease.renewed(lease.deadline + 100)
    assert (lease.deadline, lease.scope.deadline) == before


async def test_renewals_answered_out_of_order_move_the_deadline_forward_only() -> None:
    """A renewal that was sent earlier says less."""
    lease = make_lease()
    later = lease.deadline + 10
    lease.renewed(later)
    lease.renewed(later - 5)
    assert lease.deadline == lease.scope.deadline == later


async def test_renewal_keeps_the_timeout() -> None:
    """A handler's own clock is not wound up by its lease's."""
    lease = make_lease(left=1.0)
    lease.limit(30.0)
    assert lease.scope.deadline == lease.deadline
    lease.renewed(lease.deadline + 100)
    assert lease.scope.deadline == lease.timeout_at < lease.deadline


async def test_first_reason_holds_unless_the_lease_is_lost() -> None:
    """Each reason has its verdict: a later one changes nothing, but a lost lease writes nothing whatever was before."""
    lease = make_lease()
    lease.stop(Reason.CANCELLED, "by hand")
    lease.stop(Reason.SHUTDOWN)
    assert (lease.reason, lease.reason_detail) == (Reason.CANCELLED, "by hand")
    lease.stop(Reason.LEASE_LOST, "EMQSTALE")
    lease.stop(Reason.TIMEOUT)
    assert (lease.reason, lease.reason_detail) == (Reason.LEASE_LOST, "EMQSTALE")
    ended = make_lease()
    ended.running = False
    ended.stop(Reason.CANCELLED)
    assert ended.reason is None
    assert not ended.scope.cancel_called


@TRIO
async def test_heartbeat_renews_again_and_again() -> None:
    """From a third of the lease on, long before it is over, and each renewal moves the deadline and makes the next due."""
    timers, lease = Timers(), make_lease(left=1.75)
    heartbeat = Heartbeat(WorkerOptions(lease=3.0), timers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        heartbeat.watch(lease, anyio.current_time() - 0.95)
        for count in (1, 2):
            await until(lambda: len(lease.calls.extend.submitted) == count)  # noqa: B023 - awaited at once
            assert not lease.over(anyio.current_time())
            before = lease.deadline
            lease.calls.extend.submitted[-1][1](Verdict("ok"))
            assert lease.deadline > before
        tasks.cancel_scope.cancel()
    assert heartbeat.renewals == 2


async def test_heartbeat_of_a_short_job_sends_nothing() -> None:
    """The first renewal is due at a third of the lease."""
    timers, lease = Timers(), make_lease()
    heartbeat = Heartbeat(WorkerOptions(lease=30.0), timers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        heartbeat.watch(lease, anyio.current_time())
        await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert lease.calls.extend.submitted == []


async def test_heartbeat_remembers_no_ended_handler() -> None:
    """Thousands of short jobs a second must not be kept for a third of a lease each."""
    heartbeat, lease = Heartbeat(WorkerOptions(lease=3.0), Timers()), make_lease()
    heartbeat.watch(lease, anyio.current_time())
    heartbeat.forget(lease)
    assert not heartbeat._due


async def test_heartbeat_of_an_ended_handler_sends_nothing() -> None:
    """Heartbeat and handler end together."""
    timers, lease = Timers(), make_lease()
    heartbeat = Heartbeat(WorkerOptions(lease=0.6), timers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        heartbeat.watch(lease, anyio.current_time() - 0.15)
        heartbeat.forget(lease)
        lease.running = False
        await anyio.sleep(0.15)
        tasks.cancel_scope.cancel()
    assert lease.calls.extend.submitted == []


@pytest.mark.parametrize("answer", ["ok", "cancel", "EMQGONE", "error"])
async def test_heartbeat_heeds_no_answer_after_the_end(answer: str) -> None:
    """A renewal was on its way when the handler ended: its answer keeps nothing, counts nothing and says nothing."""
    timers, lease = Timers(), make_lease()
    heartbeat = Heartbeat(WorkerOptions(lease=3.0), timers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        heartbeat.watch(lease, anyio.current_time() - 2)
        await until(lambda: lease.calls.extend.submitted)
        tasks.cancel_scope.cancel()
    lease.running = False
    with capture_logs() as logs:
        lease.calls.extend.submitted[0][1](ServerError("ERR", "no") if answer == "error" else Verdict(answer))
    assert (heartbeat.renewals, lease.reason, heartbeat._due, timers._heap, logs) == (0, None, {}, [], [])


async def test_heartbeat_of_a_claim_that_was_long_on_its_way_is_not_late() -> None:
    """Its lease is shorter than that of what was claimed after it: it is renewed at its own moment, and not theirs."""
    timers, late, early = Timers(), make_lease(id="late"), make_lease(id="early")
    heartbeat = Heartbeat(WorkerOptions(lease=30.0), timers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        now = anyio.current_time()
        heartbeat.watch(late, now)
        heartbeat.watch(early, now - 10.0)
        await until(lambda: early.calls.extend.submitted)
        tasks.cancel_scope.cancel()
    assert late.calls.extend.submitted == []


@pytest.mark.parametrize("how", ["ended", "lost"])
async def test_heartbeat_tries_again_only_while_the_handler_runs(how: str) -> None:
    """An error is followed by another try, unless the handler has ended or the lease is lost meanwhile."""
    timers, lease, other = Timers(), make_lease(), make_lease()
    heartbeat = Heartbeat(WorkerOptions(lease=0.6), timers)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        for each in (lease, other):
            heartbeat.watch(each, anyio.current_time() - 0.3)
            await until(lambda: each.calls.extend.submitted)  # noqa: B023 - awaited at once
            each.calls.extend.submitted[0][1](ServerError("ERR", "no"))
        if how == "ended":
            lease.running = False
        else:
            lease.stop(Reason.LEASE_LOST)
        await until(lambda: len(other.calls.extend.submitted) == 2)
        tasks.cancel_scope.cancel()
    assert len(lease.calls.extend.submitted) == 1
