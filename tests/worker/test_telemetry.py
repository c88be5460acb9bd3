"""What is measured of a worker: each measurement moved by what it is to measure."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from echomq.app import App
from echomq.backoff import Fixed
from echomq.batches import Batch, JobBatch
from echomq.flows import flow
from echomq.instruments import (
    JobClaimed,
    JobEnqueued,
    JobSettled,
    LeaseRenewed,
    LoopTicked,
    Measurement,
    Parked,
    QueueSampled,
    Reconnected,
    StructlogInstrument,
    run_sampler,
)
from echomq.job import Job
from echomq.queue import Queue
from echomq.sync import Client as SyncClient
from echomq.tasks import JobCall
from echomq.verdicts import Discard, RateLimited, Retry, Snooze
from echomq.worker import run
from echomq.worker.entry import run_worker
from tests.worker.support import PATIENCE, QUICK, TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio
M = TypeVar("M", bound=Measurement)


class Kept:
    """Keeps all measurements."""

    def __init__(self) -> None:
        self.all: list[Measurement] = []

    def record(self, measurement: Measurement) -> None:
        """Keep it."""
        self.all.append(measurement)

    def of(self, kind: type[M]) -> list[M]:
        """Answer those of a kind."""
        return [each for each in self.all if isinstance(each, kind)]

    async def settled(self, count: int = 1) -> list[JobSettled]:
        """Wait for so many verdicts."""
        await until(lambda: len(self.of(JobSettled)) >= count)
        return self.of(JobSettled)


@pytest.fixture
def kept() -> Kept:
    """An instrument that keeps everything."""
    return Kept()


@pytest.fixture
def app(server_url: str, kept: Kept) -> App:
    """An app with that instrument."""
    return App(server_url, unavailable_after=5.0, instruments=[kept])


async def test_job_is_measured_from_enqueue_to_verdict(app: App, queue_name: str, kept: Kept, peek: Peek) -> None:
    """One enqueue, one claim, one verdict, with times that belong together."""

    @app.task(queue=queue_name)
    async def work() -> None:
        await anyio.sleep(0.05)

    async with app:
        before = time.monotonic()
        handle = await work.options(lane="acme").enqueue()
        await anyio.sleep(0.1)
        async with running(app):
            (settled,) = await kept.settled()
        whole = time.monotonic() - before
    (enqueued,), (claimed,) = kept.of(JobEnqueued), kept.of(JobClaimed)
    assert (enqueued.queue, enqueued.task, enqueued.error) == (queue_name, "work", "")
    assert enqueued.seconds is not None
    assert 0 < enqueued.seconds <= whole
    assert (claimed.queue, claimed.task, claimed.lane, claimed.id, claimed.attempt) == (
        queue_name, "work", "acme", handle.id, 1,
    )  # fmt: skip
    assert 0.09 <= claimed.waited <= whole + 0.01
    assert (settled.queue, settled.task, settled.lane, settled.id, settled.attempt) == (
        queue_name, "work", "acme", handle.id, 1,
    )  # fmt: skip
    assert (settled.outcome, settled.refusal) == ("completed", "")
    assert settled.ran is not None
    assert settled.settled is not None
    assert settled.lasted is not None
    assert 0.04 <= settled.ran <= whole
    assert 0 < settled.settled <= whole
    assert 0.14 <= settled.lasted <= whole + 0.01


@pytest.mark.parametrize(
    ("error", "outcome", "ended"),
    [
        (Retry(60), "failed", False),
        (Snooze(60), "snoozed", False),
        (RateLimited(60), "rate_limited", False),
        (Discard("no"), "discarded", True),
        (ValueError("no"), "dead", True),
    ],
)
@TRIO
async def test_outcome_of_what_a_handler_raises(
    app: App, queue_name: str, kept: Kept, error: Exception, outcome: str, ended: bool
) -> None:
    """Each by its name; how long it lasted, only of a job that has ended."""

    @app.task(queue=queue_name, max_attempts=1 if outcome == "dead" else 3)
    async def work() -> None:
        raise error

    async with app, running(app):
        await work.enqueue()
        (settled,) = await kept.settled()
    assert settled.outcome == outcome
    assert (settled.lasted is not None) is ended
    assert settled.ran is not None


@TRIO
async def test_outcome_of_cancelled_suspended_and_released(app: App, queue_name: str, kept: Kept) -> None:
    """A person's cancel, a wait for children, and the worker's end."""
    begun: list[str] = []

    @app.task(queue=queue_name)
    async def child() -> None:
        await anyio.sleep_forever()

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        async with job.nursery() as children:
            children.enqueue(child.call())

    @app.task(queue=queue_name)
    async def endless(job: Job) -> None:
        begun.append(job.id)
        await anyio.sleep_forever()

    async with app:
        async with running(app):
            handle = await endless.enqueue()
            await until(lambda: begun)
            await handle.cancel()
            await kept.settled()
            await parent.enqueue()
            await kept.settled(2)
            await until(lambda: len(kept.of(JobClaimed)) == 3)
        settled = await kept.settled(3)
    assert [(each.task, each.outcome) for each in settled] == [
        ("endless", "cancelled"),
        ("parent", "suspended"),
        ("child", "released"),
    ]
    assert len(kept.of(JobEnqueued)) == 3  # the child, too
    assert [each.seconds is None for each in kept.of(JobEnqueued)] == [False, False, True]


@TRIO
async def test_outcome_of_a_fence_that_refuses(app: App, queue_name: str, kept: Kept, peek: Peek) -> None:
    """Somebody else has the job: what the handler did is refused, and the code is told."""
    gate, begun = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def work() -> None:
        begun.set()
        await gate.wait()

    async with app, running(app):
        handle = await work.enqueue()
        await begun.wait()
        peek.expire(handle.id)
        assert [job.id for job in peek.claim()] == [handle.id]
        gate.set()
        (settled,) = await kept.settled()
    assert (settled.outcome, settled.refusal, settled.lasted) == ("refused", "EMQSTALE", None)


@TRIO
async def test_outcome_of_a_lost_lease_and_what_was_left_of_a_good_one(
    app: App, queue_name: str, kept: Kept, peek: Peek
) -> None:
    """Renewals tell what was left; the one that is refused ends the handler, and nothing is sent."""

    @app.task(queue=queue_name)
    async def work() -> None:
        await anyio.sleep_forever()

    async with app, running(app, lease=1.5):
        handle = await work.enqueue()
        await until(lambda: kept.of(LeaseRenewed))
        peek.expire(handle.id)
        peek.claim()
        (settled,) = await kept.settled()
    renewed = kept.of(LeaseRenewed)[0]
    assert (renewed.queue, renewed.task) == (queue_name, "work")
    assert 0 <= renewed.left <= 1.35 - 0.45  # a third of the lease is over, and a tenth is the margin
    assert (settled.outcome, settled.settled, settled.lasted) == ("lost", None, None)


@TRIO
async def test_outcome_of_a_verdict_that_cannot_be_delivered(
    server_url: str, queue_name: str, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is away for longer than a verdict is kept."""
    gate, begun = anyio.Event(), anyio.Event()
    async with proxied(server_url) as proxy:
        app = App(proxy.url, unavailable_after=0.2, instruments=[kept])

        @app.task(queue=queue_name)
        async def work() -> None:
            begun.set()
            await gate.wait()

        async with app, running(app, settle_within=1.0):
            await work.enqueue()
            await begun.wait()
            proxy.refusing = True
            proxy.cut()
            gate.set()
            (settled,) = await kept.settled()
    assert (settled.outcome, settled.settled) == ("undelivered", None)


async def test_batch_is_measured_by_item(app: App, queue_name: str, kept: Kept) -> None:
    """Each item has a claim and a verdict of its own."""

    @app.task(queue=queue_name, batch=Batch(max_size=3), max_attempts=1)
    async def work(batch: JobBatch[int]) -> None:
        for item in batch:
            if item.value == 1:
                batch.fail(item, ValueError("odd"))

    async with app:
        await app.enqueue_many(work.call(n) for n in range(3))
        async with running(app):
            settled = await kept.settled(3)
    assert sorted(each.outcome for each in settled) == ["completed", "completed", "dead"]
    assert all(each.ran is not None and each.settled is not None for each in settled)
    assert len(kept.of(JobClaimed)) == 3
    assert [each.seconds for each in kept.of(JobEnqueued)] == [None] * 3


async def test_loop_that_is_blocked_and_doorbell_are_measured(app: App, queue_name: str, kept: Kept) -> None:
    """The tick after a block tells how late it is; waiting for work is told as well, also without instruments."""

    @app.task(queue=queue_name)
    async def block() -> None:
        time.sleep(0.7)

    async with app, running(app) as worker:
        await until(lambda: kept.of(Parked))
        assert worker.statistics().counters.parked > 0
        await block.enqueue()
        await until(lambda: [tick for tick in kept.of(LoopTicked) if tick.lag > 0.4])
    assert all(tick.lag >= 0 for tick in kept.of(LoopTicked))


async def test_reconnect_is_measured(server_url: str, queue_name: str, kept: Kept) -> None:
    """Each connection that was lost and stands again; not the first ones."""
    async with proxied(server_url) as proxy:
        app = App(proxy.url, instruments=[kept])

        @app.task(queue=queue_name)
        async def work() -> None: ...

        async with app, running(app) as worker:
            await work.enqueue()
            await kept.settled()
            assert not kept.of(Reconnected)
            proxy.cut()
            await until(lambda: kept.of(Reconnected))
            await until(lambda: worker.statistics().ready)
            assert worker.statistics().counters.reconnects == len(kept.of(Reconnected))


@TRIO
async def test_samples_tell_of_the_reaped_and_the_buried(app: App, queue_name: str, kept: Kept, peek: Peek) -> None:
    """A worker asked to sample tells states, ages, lanes and what the queue has counted."""

    @app.task(queue=queue_name, max_attempts=1)
    async def work() -> None:
        raise ValueError("no")

    async with app:
        handle = await work.enqueue()
        peek.claim()
        peek.expire(handle.id)
        await work.options(lane="acme", delay=600).enqueue()
        paused = app.queue(queue_name).lane("globex")
        await paused.pause()
        await work.options(lane="globex").enqueue()
        async with running(app, sample_every=0.1, sample_lanes=10):
            await until(lambda: [each for each in kept.of(QueueSampled) if {"dead", "stalled"} <= each.totals.keys()])
    sample = kept.of(QueueSampled)[-1]
    assert (sample.queue, sample.totals["stalled"], sample.totals["dead"]) == (queue_name, 1, 1)
    assert (sample.jobs["dead"], sample.jobs["schedule"], sample.jobs["pending"]) == (1, 1, 1)
    assert [(lane.pending, lane.paused) for lane in sample.lanes if lane.name == "globex"] == [(1, True)]


@TRIO
async def test_sampler_bounds_lanes_and_outlives_an_outage(server_url: str, queue_name: str, kept: Kept) -> None:
    """No more lanes than asked for; an outage is told once, and samples come again."""
    async with proxied(server_url) as proxy:
        app = App(proxy.url, unavailable_after=0.2)

        @app.task(queue=queue_name)
        async def work() -> None: ...

        async with app, anyio.create_task_group() as tasks:
            for n in range(5):
                await work.options(lane=f"lane{n}").enqueue()

            async def sampling() -> None:
                await run_sampler([app.queue(queue_name)], [kept], every=0.05, lanes=2)

            with capture_logs() as logs:
                tasks.start_soon(sampling)
                await until(lambda: kept.of(QueueSampled))
                assert len(kept.of(QueueSampled)[0].lanes) == 2
                proxy.refusing = True
                proxy.cut()
                await until(lambda: [line for line in logs if line["event"] == "queue_not_sampled"])
                count = len(kept.of(QueueSampled))
                proxy.refusing = False
                await until(lambda: len(kept.of(QueueSampled)) > count)
                tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "wrong", [{"every": 0}, {"lanes": -1}, {"every": float("nan")}, {"every": "x"}, {"lanes": 1.5}, {"lanes": None},
              {"every": None}, {"queues": None}, {"instruments": None}],
)  # fmt: skip
async def test_sampler_refuses_what_does_not_fit(wrong: dict[str, Any]) -> None:
    """Before anything is read, in our words."""
    ((name, value),) = wrong.items()
    with pytest.raises((TypeError, ValueError), match=rf"^{name}.*{re.escape(repr(value))}"):
        await run_sampler(**{"queues": [], "instruments": [], **wrong})


async def test_instrument_that_raises_hurts_no_job(server_url: str, queue_name: str) -> None:
    """Jobs are enqueued, run, renewed and settled as if it were not there."""

    class Broken:
        def record(self, measurement: Measurement) -> None:
            raise SystemExit(1)

    app = App(server_url, instruments=[Broken()])

    @app.task(queue=queue_name, result_ttl=60)
    async def work() -> int:
        await anyio.sleep(0.3)
        return 1

    with capture_logs() as logs:
        async with app, running(app, lease=0.6, sample_every=0.1) as worker:
            handle = await work.enqueue()
            assert await handle.result(timeout=PATIENCE) == 1
            await until(lambda: worker.statistics().renewals)
    assert [line["event"] for line in logs].count("instrument_failed") == 1


@TRIO
async def test_enqueue_that_fails_is_measured(server_url: str, queue_name: str, kept: Kept) -> None:
    """By the type of what the caller gets; a schedule's call is no enqueue; a synchronous client's is one."""
    app = App(server_url, instruments=[kept])

    @app.task(queue=queue_name)
    async def work() -> None: ...

    refusing: list[Exception] = []

    @app.around_enqueue
    def refuse(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        if refusing:
            raise refusing.pop()
        yield call

    async with app:
        queue = app.queue(queue_name)
        await queue.schedules.put("often", work.call(), every=3600)
        refusing.append(ZeroDivisionError())
        with pytest.raises(ZeroDivisionError):
            await queue.schedules.put("rare", work.call(), every=3600)
        assert not kept.of(JobEnqueued)
        await queue.configure(max_size=1)
        await work.enqueue()
        with pytest.raises(Exception, match="full"):
            await work.enqueue()

        def synchronously() -> None:
            with SyncClient(server_url) as client, pytest.raises(Exception, match="full"):
                client.enqueue(work.call())

        await anyio.to_thread.run_sync(synchronously)
    assert [each.error for each in kept.of(JobEnqueued)] == ["", *["echomq.errors.QueueFullError"] * 2]


@TRIO
async def test_many_are_measured_by_their_answers(server_url: str, queue_name: str, kept: Kept) -> None:
    """Of many, too, it is what the caller gets: of streams, of a synchronous client, and of flows."""
    app = App(server_url, instruments=[kept])

    @app.task(queue=queue_name)
    async def work(text: str) -> None: ...

    full = "echomq.errors.QueueFullError"
    async with app:
        await app.queue(queue_name).configure(max_size=1)
        await app.enqueue_many([work.call("a"), work.call("b"), work.options(dedup="b").call("c")])
        assert [each.error for each in kept.of(JobEnqueued)] == ["", full, full]
        assert {each.seconds for each in kept.of(JobEnqueued)} == {None}

        def synchronously() -> None:
            with SyncClient(server_url) as client:
                client.enqueue_many([work.call("d")])

        await anyio.to_thread.run_sync(synchronously)
        assert [each.error for each in kept.of(JobEnqueued)[3:]] == [full]
        with pytest.raises(Exception, match="full"):
            await app.flows.add(flow(work.call("e"), [work.call("f")]))
        assert [each.error for each in kept.of(JobEnqueued)[4:]] == [full, full]
        await app.queue(queue_name).configure(max_size=None)
        await app.flows.add(flow(work.call("e"), [work.call("f")]))
        assert [each.error for each in kept.of(JobEnqueued)[6:]] == ["", ""]


@TRIO
async def test_child_is_measured_once_however_often_its_parent_runs(app: App, queue_name: str, kept: Kept) -> None:
    """A later attempt enqueues it again, and the server knows it."""
    runs: list[int] = []

    @app.task(queue=queue_name)
    async def child() -> None: ...

    @app.task(queue=queue_name, backoff=Fixed(0.001))
    async def parent(job: Job) -> None:
        async with job.nursery() as children:
            children.enqueue(child.call())
        runs.append(job.attempt)
        if len(runs) == 1:
            raise ValueError

    async with app, running(app):
        await parent.enqueue()
        await until(lambda: len(runs) == 2)
    assert [(each.task, each.error) for each in kept.of(JobEnqueued)] == [("parent", ""), ("child", "")]


@TRIO
async def test_worker_of_a_bare_queue_takes_instruments(app: App, queue_name: str, kept: Kept) -> None:
    """A queue has no app, so the worker is given them; an app has its own, and says so."""

    async def handle(payload: int) -> None: ...

    async with app:
        queue: Queue = app.queue(queue_name)
        await queue.enqueue(b"1")
        async with running(queue, handle, instruments=[kept]):
            (settled,) = await kept.settled()
        app.task(queue=queue_name)(handle)
        with pytest.raises(TypeError, match=r"App\(instruments="):
            await run_worker(app, instruments=[kept], **QUICK)
    assert (settled.outcome, settled.task) == ("completed", "")


@TRIO
async def test_worker_that_nobody_serves_is_not_ready(
    server_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connected, and for some time without an answer: not ready, until there is one."""
    monkeypatch.setattr(run, "LATELY", 1.5)
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def work() -> None: ...

        async with app, running(app, lease=2.0) as worker:
            await until(lambda: worker.statistics().ready)
            proxy.frozen = True
            await until(lambda: not worker.statistics().ready)
            assert app.client.wire.connected
            proxy.frozen = False
            await until(lambda: worker.statistics().ready)


@TRIO
async def test_worker_whose_slots_are_taken_is_ready(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It neither claims nor renews: its one handler has settled its batch, and goes on."""
    monkeypatch.setattr(run, "LATELY", 0.2)
    settled, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, batch=Batch(max_size=1))
    async def work(batch: JobBatch[int]) -> None:
        for item in batch:
            batch.done(item)
        settled.set()
        await gate.wait()

    async with app, running(app, concurrency=1, lease=0.4) as worker:
        await work.enqueue(1)
        await settled.wait()
        await until(lambda: worker.statistics().counters.completed)
        served = worker._served_at
        await until(lambda: time.monotonic() - worker._served_at > 0.5)
        assert worker._served_at == served
        assert worker.statistics().ready
        gate.set()


async def test_structlog_instrument_in_a_worker(server_url: str, queue_name: str) -> None:
    """One line a job, named as all lines are."""
    app = App(server_url, instruments=[StructlogInstrument(level="info")])

    @app.task(queue=queue_name)
    async def work() -> None: ...

    structlog.reset_defaults()
    with capture_logs() as logs:
        async with app, running(app):
            handle = await work.enqueue()
            await until(lambda: [line for line in logs if line["event"] == "job_settled"])
    (line,) = [line for line in logs if line["event"] == "job_settled"]
    assert (line["queue"], line["task"], line["job"], line["attempt"]) == (queue_name, "work", handle.id, 1)
