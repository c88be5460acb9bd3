"""A job's deadline over all of its attempts: it stops a running handler as a timeout does, and says so."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.backoff import Fixed, Sequence
from echomq.batches import Batch, JobBatch
from echomq.errors import JobFailedError
from echomq.job import Job, SyncJob
from echomq.protocol.records import Claimed, JobRecord
from echomq.worker.lease import Lease
from echomq.worker.reasons import Reason
from tests.worker.fakes import FakeCalls
from tests.worker.support import TRIO, Peek, running, until

pytestmark = pytest.mark.anyio
WORDS = r"the job's deadline has come; the handler had run for [0-9]\.[0-9] s"


def lease_of(deadline_ms: int, *, now_ms: int, sent: float = 0.0, left: float = 60.0) -> tuple[Lease, bool]:
    """Make a lease whose claim was sent so long ago; answer whether its job's deadline has come."""
    now = anyio.current_time()
    calls: Any = FakeCalls()
    claimed = Claimed("a", 1, "n", JobRecord("a", {}))
    lease = Lease(calls, claimed, now_ms=now_ms, sent_at=now - sent, deadline=now + left)
    return lease, lease.end_by(deadline_ms)


async def test_deadline_counts_from_before_the_claim_was_sent() -> None:
    """By the server's clock at the claim, which was read later: here it is over first. No clocks are compared."""
    lease, over = lease_of(5_000_000_002_000, now_ms=5_000_000_000_000, sent=0.5)
    assert not over
    assert lease.timeout_at - lease.sent_at == pytest.approx(2.0)
    assert lease.scope.deadline == lease.timeout_at
    lease, over = lease_of(1000, now_ms=0, sent=2.0)
    assert over
    assert lease.why() is Reason.TIMEOUT


async def test_deadline_and_timeout_are_whichever_comes_first() -> None:
    """And the lease's end before both, until it is renewed."""
    for timeout, at_deadline in ((None, True), (1.0, False), (9.0, True)):
        lease, _ = lease_of(3000, now_ms=0)
        before = anyio.current_time()
        lease.limit(timeout)
        after = anyio.current_time()
        assert lease.at_deadline is at_deadline
        if at_deadline:
            assert lease.timeout_at - lease.sent_at == pytest.approx(3.0)
        else:
            assert timeout is not None
            assert before + timeout <= lease.timeout_at <= after + timeout
    lease, _ = lease_of(3000, now_ms=0, left=1.0)
    lease.limit(2.0)
    assert lease.scope.deadline == lease.deadline
    lease.renewed(anyio.current_time() + 60)
    assert lease.scope.deadline == lease.timeout_at


async def test_deadline_stops_a_running_handler(app: App, queue_name: str, peek: Peek) -> None:
    """Well before its own timeout: it is told why, may clean up, and the job is dead: no attempt could be in time."""
    seen: list[Any] = []

    @app.task(queue=queue_name, result_ttl=60, timeout=600, max_attempts=5, backoff=Fixed(0.5))
    async def handle(job: Job) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append((job.attempt, job.cancelled, job.cancel_reason))

    with capture_logs() as logs:
        async with app, running(app, lease=30.0):
            job = await handle.options(deadline=1.0).enqueue()
            with pytest.raises(JobFailedError, match=WORDS) as caught:
                await job.result(timeout=10)
    assert caught.value.type == "TimeoutError"
    assert seen == [(1, True, "timeout")]
    assert peek.record(job.id).reason.startswith("deadline")
    (line,) = (line for line in logs if line["event"] == "job_failed")
    assert "retry_in" not in line


async def test_failure_that_the_deadline_buries_tells_of_no_retry(app: App, queue_name: str, peek: Peek) -> None:
    """The next attempt would come after it; one that comes before it is told."""

    @app.task(queue=queue_name, result_ttl=60, max_attempts=5, backoff=Sequence([0.05, 60]))
    async def handle() -> None:
        raise RuntimeError("again")

    with capture_logs() as logs:
        async with app, running(app, lease=30.0):
            job = await handle.options(deadline=30).enqueue()
            await until(lambda: peek.state(job.id) == "dead")
    assert peek.record(job.id).reason.startswith("deadline")
    assert [line.get("retry_in") for line in logs if line["event"] == "job_failed"] == [0.05, None]


@TRIO
async def test_deadline_counts_over_all_attempts(app: App, queue_name: str, peek: Peek) -> None:
    """A timeout begins anew with each attempt, a deadline does not."""
    attempts: list[int] = []

    @app.task(queue=queue_name, result_ttl=60, max_attempts=100, backoff=Fixed(0))
    async def handle(job: Job) -> None:
        attempts.append(job.attempt)
        await anyio.sleep(0.1)
        if job.attempt <= 3:
            raise RuntimeError("again")
        await anyio.sleep_forever()

    async with app, running(app):
        job = await handle.options(deadline=2.0).enqueue()
        with pytest.raises(JobFailedError):
            await job.result(timeout=10)
    assert attempts[:4] == [1, 2, 3, 4]
    assert len(attempts) <= 5  # one more, if the server's clock had not come quite so far
    error = peek.record(job.id).error
    assert error is not None
    assert "deadline" in error.message


async def test_deadline_is_told_to_a_thread(app: App, queue_name: str) -> None:
    """It reads that its time is up."""
    seen: list[Any] = []

    @app.task(queue=queue_name, result_ttl=60, max_attempts=1)
    def handle(job: SyncJob) -> None:
        while not job.cancelled:
            time.sleep(0.005)
        seen.append(job.cancel_reason)
        raise RuntimeError

    async with app, running(app):
        job = await handle.options(deadline=1.0).enqueue()
        with pytest.raises(JobFailedError, match="the job's deadline has come"):
            await job.result(timeout=10)
    assert seen == ["timeout"]


@TRIO
async def test_deadline_that_comes_while_a_thread_is_queued_for_ends_the_job_unbegun(app: App, queue_name: str) -> None:
    """A timeout waits for the slot, a deadline does not."""
    began: list[str] = []
    go = threading.Event()

    @app.task(queue=queue_name, result_ttl=60, max_attempts=1, timeout=0.4)
    def handle(name: str) -> None:
        began.append(name)
        go.wait(20)

    async with app, running(app, threads=1):
        await handle.enqueue("first")
        await until(lambda: began)
        job = await handle.options(deadline=0.3).enqueue("second")
        with pytest.raises(JobFailedError, match="the job's deadline has come; it had not begun"):
            await job.result(timeout=10)
        go.set()
    assert began == ["first"]


async def test_deadline_of_an_item_leaves_its_batch_alone(app: App, queue_name: str) -> None:
    """Its own, as a timeout of its own is: the handler goes on with the others."""
    seen: list[Any] = []

    @app.task(queue=queue_name, batch=Batch(max_size=2), result_ttl=60, max_attempts=1)
    async def handle(batch: JobBatch[str]) -> None:
        late = batch.items[1]
        while late in list(batch):  # noqa: ASYNC110 - nothing tells of an item that leaves
            await anyio.sleep(0.01)
        seen.append((late.cancel_reason, [item.value for item in batch]))

    async with app:
        one = await handle.enqueue("one")
        late = await handle.options(deadline=1.5).enqueue("late")
        async with running(app):
            await one.result(timeout=10)
            with pytest.raises(JobFailedError, match="deadline"):
                await late.result(timeout=10)
    assert seen == [("timeout", ["one"])]


async def test_deadline_that_came_on_the_way_begins_nothing(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim's reply took so long: no handler begins, and the failure says that it had not."""
    began: list[int] = []

    @app.task(queue=queue_name, result_ttl=60, max_attempts=1)
    async def handle() -> None:
        began.append(1)

    end_by = Lease.end_by
    monkeypatch.setattr(Lease, "end_by", lambda lease, _: end_by(lease, lease.now_ms - 1))
    async with app, running(app):
        job = await handle.options(deadline=60).enqueue()
        with pytest.raises(JobFailedError, match="the job's deadline has come; it had not begun"):
            await job.result(timeout=10)
    assert began == []
