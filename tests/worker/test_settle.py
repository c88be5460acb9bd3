"""Verdicts are kept until the server has answered them, and a completion follows its job to a later claim of ours."""

from __future__ import annotations

import math

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.errors import ServerError
from echomq.job import Job
from echomq.protocol.refusals import Verdict
from echomq.transitions import Closing
from echomq.transitions.rate_limited import LimitScope
from echomq.verdicts import RateLimited
from echomq.worker import settle
from echomq.worker.reasons import Raised, Returned
from echomq.worker.timers import Timers
from tests.worker.fakes import FakeCalls, FakeGroup, make_lease, make_settler
from tests.worker.support import proxied, running, until

pytestmark = pytest.mark.anyio


async def test_completion_after_the_local_deadline_is_sent(server_url: str, queue_name: str) -> None:
    """The local clock stops the handler; whether its verdict still counts, the server decides."""
    ran: list[int] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle(job: Job) -> None:
            ran.append(job.attempt)
            if job.attempt > 1:
                return
            (lease,) = worker._leases
            proxy.frozen = True
            with anyio.CancelScope(shield=True):
                await until(lambda: lease.over(anyio.current_time()))
            proxy.frozen = False

        async with app, running(app, lease=0.6, concurrency=1) as worker:
            await handle.enqueue()
            await until(lambda: worker.statistics().counters.completed == 1)
            assert worker.statistics().counters.lost == 0
    assert ran == [1]


async def test_stop_waits_for_the_last_verdicts(app: App, queue_name: str) -> None:
    """A verdict that has to be tried again keeps the worker, within cleanup."""
    order: list[str] = []

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    async def answer_late() -> None:
        await stopping.wait()
        await anyio.sleep(0.3)
        order.append("answered")
        worker._settler._open.clear()
        worker._settler._changed.send()

    async with app, anyio.create_task_group() as tasks:
        stopping = anyio.Event()
        async with running(app, cleanup=10.0) as worker:
            worker._settler._open[make_lease()] = math.inf
            tasks.start_soon(answer_late)
            stopping.set()
        order.append("ended")
    assert order == ["answered", "ended"]


async def test_verdict_that_the_server_could_not_take_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is no answer: the same verdict again, until there is one."""
    monkeypatch.setattr(settle, "AGAIN", 0.02)
    timers, lease = Timers(), make_lease()
    settler = make_settler(timers)
    complete = lease.calls.complete
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        settler.settle(lease, Returned(None), None)
        for count in (1, 2):
            complete.submitted[-1][1](ServerError("MISCONF", "the disk is full"))
            assert settler.unsettled == 1
            await until(lambda: len(complete.submitted) == count + 1)  # noqa: B023 - awaited at once
        complete.submitted[-1][1](Verdict("ok"))
        assert settler.unsettled == 0
        tasks.cancel_scope.cancel()
    assert len({item for item, _ in complete.submitted}) == 1


async def test_refusal_of_a_verdict_that_was_sent_before_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first sending may have counted although its answer was an error: nobody should look for lost work."""
    monkeypatch.setattr(settle, "AGAIN", 0.02)
    timers, lease = Timers(), make_lease()
    settler = make_settler(timers)
    complete = lease.calls.complete
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timers.run)
            settler.settle(lease, Returned(None), None)
            complete.submitted[0][1](ServerError("MISCONF", "the disk is full"))
            await until(lambda: len(complete.submitted) == 2)
            complete.submitted[1][1](Verdict("EMQSTALE", "done"))
            tasks.cancel_scope.cancel()
    (line,) = [line for line in logs if line["event"] == "verdict_refused"]
    assert "may have counted" in line["hint"]


async def test_verdict_is_given_up_after_its_time() -> None:
    """`settle_within` is over before the next try would be: it is told, and kept no longer."""
    timers, lease = Timers(), make_lease()
    settler = make_settler(timers, settle_within=1.0)
    settler.settle(lease, Returned(None), None)
    with capture_logs() as logs:
        lease.calls.complete.submitted[0][1](ServerError("MISCONF", "the disk is full"))
    assert settler.unsettled == 0
    assert [(line["event"], line["verb"], line["job"]) for line in logs] == [("verdict_not_delivered", "complete", "a")]


async def test_refused_completion_is_taken_over() -> None:
    """The claim that overtook it may be this worker's own: then the work is delivered under that claim's fence."""
    timers, calls = Timers(), FakeCalls()
    settler = make_settler(timers)
    settler.settle(make_lease(calls), Returned(None), None)
    calls.complete.submitted[0][1](Verdict("EMQSTALE", "token"))
    assert settler.unsettled == 0
    assert settler.take_over(make_lease(calls, token=2, holder="nonce-1"))
    item = calls.complete.submitted[1][0]
    assert (item.id, item.token, item.nonce) == ("a", 2, "nonce-2")


@pytest.mark.parametrize("differs", ["nothing", "holder", "queue", "job", "failure"])
async def test_completion_is_taken_over_only_for_the_same_work(differs: str) -> None:
    """Somebody else had the job or changed it in between, or it did not end well: it is run."""
    timers, calls = Timers(), FakeCalls()
    settler = make_settler(timers)
    settler.settle(make_lease(calls), Raised(ValueError()) if differs == "failure" else Returned(None), None)
    claimed = make_lease(
        FakeCalls() if differs == "queue" else calls,
        id="b" if differs == "job" else "a",
        token=2,
        holder="" if differs == "holder" else "nonce-1",
    )
    assert settler.take_over(claimed) == (differs == "nothing")


@pytest.mark.parametrize("scope", ["lane", "queue"])
async def test_rate_limited_closes_what_it_says(scope: LimitScope) -> None:
    """Its verdict gives the job back under its fence, and names what is closed for how long; it is counted."""
    settler = make_settler(Timers())
    calls = FakeCalls()
    lease = make_lease(calls, token=7)
    settler.settle(lease, Raised(RateLimited(1.5, scope=scope)), None)
    group: FakeGroup = calls.rate_limited
    ((item, done),) = group.submitted
    assert item == Closing("a", 7, "nonce-7", 1500, scope)
    done(Verdict("ok"))
    assert settler._counters.rate_limited == 1
    assert settler.unsettled == 0
