"""A lease is a scope: while it is renewed the job is nobody else's, and when it is over the handler is too."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.errors import LeaseLostError
from echomq.job import Job
from echomq.worker.reasons import Reason
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio

ONE = {"concurrency": 1}
"""A worker that is full does not claim, so that the test can."""


@pytest.mark.slow
@TRIO
@pytest.mark.parametrize("leases", [8, pytest.param(20, marks=pytest.mark.prove)])
async def test_long_job_and_long_delay_are_delivered_once(app: App, queue_name: str, peek: Peek, leases: int) -> None:
    """Work, and a delay, of many leases: one attempt each, no stall."""
    lease, attempts = 0.8, []

    @app.task(queue=queue_name)
    async def work(job: Job, seconds: float) -> None:
        attempts.append((job.id, job.attempt))
        await anyio.sleep(seconds)

    async with app, running(app, lease=lease) as worker:
        long = await work.enqueue(leases * lease)
        late = await work.options(delay=leases * lease).enqueue(0)
        await until(lambda: worker.statistics().counters.completed == 2, 40)
        assert worker.statistics().renewals >= leases
    assert sorted(attempts) == sorted([(long.id, 1), (late.id, 1)])
    assert peek.count("stalled") == 0


async def test_lost_lease_ends_the_handler_and_writes_nothing(app: App, queue_name: str, peek: Peek) -> None:
    """Reaped and claimed by another: the handler is cancelled with its reason, its notes are refused, the row is theirs."""
    began = anyio.Event()
    seen: list[str | None] = []
    overs: list[bool] = []

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(job: Job) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            (lease,) = worker._leases
            overs.append(lease.over(anyio.current_time()))
            seen.append(job.cancel_reason)
            with anyio.CancelScope(shield=True):
                for note in (partial(job.progress, 1), partial(job.checkpoint, 1), partial(job.log, "x")):
                    try:
                        await note()
                    except Exception as error:
                        seen.append(type(error).__name__)

    with capture_logs() as logs:
        async with app, running(app, lease=2.4, **ONE) as worker:
            job = await handle.enqueue()
            await began.wait()
            peek.expire(job.id)
            assert [each.id for each in peek.claim()] == [job.id]
            row = peek.record(job.id).row
            await until(lambda: worker.statistics().counters.lost == 1)
        assert seen == ["lease_lost", *["LeaseLostError"] * 3]
        assert peek.record(job.id).row == row
        assert list(peek.active()) == [job.id]
    assert overs == [False]  # by a heartbeat's answer, before the deadline had to do it
    assert [(line["job"], line["detail"]) for line in logs if line["event"] == "lease_lost"] == [(job.id, "EMQSTALE")]


async def test_lost_lease_overrides_a_cancel_request(app: App, queue_name: str, peek: Peek) -> None:
    """A handler that is cleaning up, cancelled by a person, loses its lease: then nothing is written for it at all."""
    began, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(10, shield=True):
                await gate.wait()

    async with app, running(app, lease=2.4, **ONE) as worker:
        job = await handle.enqueue()
        await began.wait()
        (lease,) = worker._leases
        await job.cancel(reason="by hand")
        await until(lambda: lease.reason is Reason.CANCELLED)
        peek.client.hdel(peek.keys.job(job.id), "cancel")  # else the reap below ends it
        peek.expire(job.id)
        assert peek.claim()
        await until(lambda: lease.reason is Reason.LEASE_LOST)
        gate.set()
        await until(lambda: worker.statistics().counters.lost == 1)
        counters = worker.statistics().counters
    assert (counters.refused, counters.cancelled) == (0, 0)


async def test_refused_note_ends_the_lease(app: App, queue_name: str, peek: Peek) -> None:
    """A note is as good as a heartbeat: refused, the handler is cancelled as lost, though no renewal is due for long."""
    began = anyio.Event()
    seen: list[str | None] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        began.set()
        try:
            while not seen:
                try:
                    await job.log("still here")  # not progress: a note that is held back is refused behind its back
                except LeaseLostError:
                    seen.append("refused")
                await anyio.sleep(0.01)
            await anyio.sleep_forever()
        finally:
            seen.append(job.cancel_reason)

    async with app, running(app, lease=600.0, **ONE) as worker:
        job = await handle.enqueue()
        await began.wait()
        peek.expire(job.id)
        assert peek.claim()
        await until(lambda: worker.statistics().counters.lost == 1)
    assert seen == ["refused", "lease_lost"]


async def test_worker_claims_its_own_reaped_job_while_the_old_scope_dies(app: App, queue_name: str, peek: Peek) -> None:
    """Leases are known by id and token: the new attempt is not hit by the old one's end."""
    seen: list[Any] = []
    gate = anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(job: Job) -> int:
        if job.attempt == 1:
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    with anyio.move_on_after(10):
                        await gate.wait()
                seen.append((job.attempt, job.cancel_reason))
        seen.append(job.attempt)
        gate.set()
        await anyio.sleep(0.3)
        return job.attempt

    async with app, running(app, lease=2.4) as worker:
        job = await handle.enqueue()
        await until(lambda: worker.statistics().running)
        peek.expire(job.id)
        peek.reap()
        assert await job.result(timeout=10) == 2
        await until(lambda: not worker.statistics().running)
        counters = worker.statistics().counters
    assert seen == [2, (1, "lease_lost")]
    assert (counters.completed, counters.lost, counters.refused) == (1, 1, 0)
    assert peek.count("stalled") == 1


@TRIO
async def test_claim_that_took_as_long_as_its_lease_begins_nothing(
    server_url: str, queue_name: str, peek: Peek
) -> None:
    """The deadline counts from before the claim was sent: a job whose lease may be over is given back, not begun."""
    ran: list[int] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle(job: Job) -> None:
            ran.append(job.attempt)

        async with app, running(app, lease=0.5) as worker:
            proxy.delay = 0.55
            async with App(server_url) as direct:
                await direct.queue(queue_name).enqueue(b"{}", task="handle")
            await until(lambda: worker.statistics().counters.claimed)
            assert ran == []
            proxy.delay = 0.0
            await until(peek.empty)
    assert len(ran) == 1
    assert ran[0] > 1


@pytest.mark.parametrize("renewed", [False, True])
async def test_handler_ends_before_its_lease_does_on_the_server(
    server_url: str, queue_name: str, peek: Peek, renewed: bool
) -> None:
    """Slow replies, then none: the handler is stopped while the server still holds the lease, the first or a later one.

    Held of one of three tries: a machine that stands still for as long as the margin is no fault of the worker's.
    """
    left: list[float] = []
    while len(left) < 3 and max(left, default=0.0) <= 0:
        left.append(await left_at_the_end(server_url, Peek(peek.client, f"{queue_name}-{len(left)}"), renewed=renewed))
    assert left[-1] > 0, left


async def left_at_the_end(server_url: str, peek: Peek, *, renewed: bool) -> float:
    """Cut a worker off while its handler runs; answer how much of the server's lease was left when that ended, ms."""
    left: list[float] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=peek.keys.queue)
        async def handle(job: Job) -> None:
            if renewed:
                await until(lambda: worker.statistics().renewals)
            proxy.frozen = True
            try:
                await anyio.sleep_forever()
            finally:
                left.append(peek.active()[job.id] - peek.now())

        async with app, running(app, lease=1.0, margin=0.3, **ONE) as worker:
            proxy.delay = 0.2
            async with App(server_url) as direct:
                await direct.queue(peek.keys.queue).enqueue(b"{}", task="handle")
            await until(lambda: left)
            await until(lambda: worker.statistics().counters.lost >= 1)
            proxy.delay, proxy.frozen = 0.0, False
    return left[0]


async def test_job_that_was_changed_meanwhile_runs_anew(server_url: str, queue_name: str, peek: Peek) -> None:
    """An operator's word in between (it clears the holder) makes it new work: the old completion does not count for it."""
    ran: list[int] = []
    gate = anyio.Event()
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name, result_ttl=60)
        async def handle(job: Job) -> int:
            ran.append(job.attempt)
            await gate.wait()
            return job.attempt

        async with app, running(app, lease=30.0) as worker:
            job = await handle.enqueue()
            await until(lambda: ran)
            proxy.refusing = True
            proxy.cut()
            await until(lambda: app.client.wire.statistics.waiting)
            gate.set()
            await until(lambda: worker.statistics().unsettled)
            peek.expire(job.id)
            peek.reap()
            peek.client.hdel(peek.keys.job(job.id), "holder")
            proxy.refusing = False
            await until(lambda: peek.state(job.id) == "done")
    assert ran == [1, 2]
    assert peek.record(job.id).result == b"2"


@pytest.mark.parametrize("how", ["cut", "frozen"])
async def test_completion_that_an_outage_delayed_is_accepted(
    server_url: str, queue_name: str, peek: Peek, how: str
) -> None:
    """Away for longer than the lease, handler done meanwhile, job reaped: the verdict counts, nothing runs twice.

    Also when the worker's own next claim goes first, and gets the job that it has done.
    """
    ran: list[int] = []
    gate = anyio.Event()
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name, result_ttl=60)
        async def handle(job: Job) -> str:
            ran.append(job.attempt)
            await gate.wait()
            return "done"

        async with app, running(app, lease=30.0) as worker:
            job = await handle.enqueue()
            await until(lambda: ran)
            wire = app.client.wire
            if how == "cut":
                proxy.refusing = True
                proxy.cut()
            else:
                proxy.frozen = True
            # A claim is in the line before the verdict: it will take the job back first.
            await until(lambda: wire.statistics.waiting or (how == "frozen" and wire.statistics.unanswered_bytes))
            gate.set()
            await until(lambda: worker.statistics().unsettled)
            peek.expire(job.id)
            peek.reap()
            assert peek.state(job.id) == "pending"
            proxy.refusing = proxy.frozen = False
            await until(lambda: peek.state(job.id) == "done")
            await until(lambda: not worker.statistics().unsettled)
    assert ran == [1]
    assert peek.record(job.id).result == b'"done"'
    assert peek.record(job.id).failures == 0


async def test_claim_that_the_server_forgot_may_come_back_under_its_token(
    app: App, queue_name: str, peek: Peek
) -> None:
    """After a restored snapshot this very worker may get the job anew with the same token, while the old handler runs."""
    runs: list[int] = []
    ended: list[str | None] = []

    @app.task(queue=queue_name)
    async def handle(job: Job) -> None:
        runs.append(job.token)
        if len(runs) == 1:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(job.cancel_reason)

    async with app, running(app, lease=0.9) as worker:
        job = await handle.enqueue()
        await until(lambda: runs)
        with peek.client.pipeline() as back:  # as it was before the claim
            back.zrem(peek.keys.active, job.id)
            back.hset(peek.keys.job(job.id), "state", "pending")
            back.hdel(peek.keys.job(job.id), "attempts", "holder")
            back.zadd(peek.keys.pending, {job.id: 0})
            back.lpush(peek.keys.wake, "1")
            back.execute()
        await until(lambda: worker.statistics().counters.completed == 1)
        await until(lambda: ended)
        await until(lambda: not worker.statistics().running)
    assert runs == [1, 1]
    assert ended == ["lease_lost"]
    assert peek.empty()
