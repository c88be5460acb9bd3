"""One handler for many jobs, each of which has a lease, a scope and a verdict of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.backoff import Fixed
from echomq.batches import Batch, BatchItem, JobBatch
from echomq.errors import JobStateError, LeaseLostError
from echomq.job import Job
from echomq.results import JobHandle
from echomq.tasks import Task
from echomq.verdicts import Discard, Retry, Snooze
from echomq.wire.group import Group
from echomq.worker import last_lives, watchdog
from echomq.worker.entry import run_worker
from tests.worker.support import QUICK, TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio

TEN = Batch(max_size=10)
"""As many as the worker of `running` has slots."""


@attrs.frozen
class Row:
    """A value that JSON does not know."""

    n: int


async def put(app: App, task: Task[[Any], Any], values: Any, **options: Any) -> list[JobHandle[Any]]:
    """Enqueue one item each; before the worker begins, so that its first claim gets them all."""
    handles = []
    for handle in await app.enqueue_many(task.options(**options).call(value) for value in values):
        assert isinstance(handle, JobHandle)
        handles.append(handle)
    return handles


# --- how items end ---------------------------------------------------------------------------------------------------


async def test_batch_completes_with_its_handler(app: App, queue_name: str, peek: Peek) -> None:
    """One call gets all, each value as its type, and when it returns all are done."""
    seen: list[list[Row]] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def insert(batch: JobBatch[Row]) -> None:
        assert (batch.queue, batch.lane, len(batch), len(batch.items)) == (queue_name, None, 5, 5)
        seen.append([item.value for item in batch])

    async with app:
        jobs = await put(app, insert, map(Row, range(5)))
        async with running(app):
            assert [await job.result(timeout=10) for job in jobs] == [None] * 5
    assert seen == [list(map(Row, range(5)))]


async def test_batch_is_no_larger_than_its_size(app: App, queue_name: str) -> None:
    """One claim is at most one batch, and what is left is the next one."""
    sizes: list[int] = []

    @app.task(queue=queue_name, batch=Batch(max_size=4))
    async def insert(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))

    async with app:
        await put(app, insert, range(10))
        async with running(app, burst=True):
            await until(lambda: sum(sizes) == 10)
    assert sizes == [4, 4, 2]


async def test_item_is_a_job_of_its_own(app: App, queue_name: str, peek: Peek) -> None:
    """Token, notes and log are the item's, and nobody else's."""

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def note(batch: JobBatch[str]) -> None:
        first, _ = batch
        assert isinstance(first, Job)
        assert (first.attempt, first.token, first.task, first.cancelled) == (1, 1, "note", False)
        await first.progress(1, message=first.value)
        await first.log("for one")

    async with app:
        jobs = await put(app, note, "ab")
        async with running(app):
            await jobs[1].result(timeout=10)
        infos = [await job.info(log=True) for job in jobs]
    assert [info and (info.record.progress, info.log) for info in infos] == [
        ({"done": 1, "total": None, "message": "a"}, ("for one",)),
        (None, ()),
    ]


async def test_verdicts_are_sent_at_once(app: App, queue_name: str, peek: Peek) -> None:
    """While the handler goes on: one is done, one has failed, one is put off, and their slots are free."""
    gate, settled = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, batch=TEN, result_ttl=60, backoff=Fixed(600))
    async def handle(batch: JobBatch[str]) -> None:
        done, failed, snoozed, discarded, retried, _ = batch
        assert batch.done(done, "result")
        assert batch.fail(failed, ValueError("on purpose"))
        assert batch.fail(snoozed, Snooze(500))
        assert batch.fail(discarded, Discard("of no use"))
        assert batch.fail(retried, Retry(700))
        assert [item.value for item in batch] == ["rest"]
        assert len(batch) == 1
        settled.set()
        await gate.wait()

    async with app:
        jobs = await put(app, handle, ["done", "failed", "snoozed", "discarded", "retried", "rest"])
        async with running(app) as worker:
            await settled.wait()
            assert await jobs[0].result(timeout=10) == "result"
            await until(lambda: not worker.statistics().unsettled)
            assert worker.statistics().running == 1
            states = [peek.state(job.id) for job in jobs]
            assert states == ["done", "schedule", "schedule", "done", "schedule", "active"]
            assert [peek.record(jobs[n].id).failures for n in (1, 2, 4)] == [1, 0, 1]
            assert peek.record(jobs[3].id).kind == "discarded"
            gate.set()
            assert await jobs[5].result(timeout=10) is None
    error = peek.record(jobs[1].id).error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "on purpose")


@pytest.mark.parametrize(("error", "failures"), [(ValueError("on purpose"), 1), (Snooze(500), 0)])
async def test_exception_is_that_of_the_items_not_settled(
    app: App, queue_name: str, peek: Peek, error: Exception, failures: int
) -> None:
    """What is done stays done; all else fails, or is put off, as one job would."""

    @app.task(queue=queue_name, batch=TEN, result_ttl=60, backoff=Fixed(600))
    async def handle(batch: JobBatch[int]) -> None:
        first, *_ = batch
        batch.done(first, "done")
        await anyio.lowlevel.checkpoint()
        raise error

    async with app:
        jobs = await put(app, handle, range(4))
        async with running(app) as worker:
            await until(lambda: [peek.state(job.id) for job in jobs] == ["done"] + ["schedule"] * 3)
            await until(lambda: not worker.statistics().running and not worker.statistics().unsettled)
    assert [peek.record(job.id).failures for job in jobs] == [0] + [failures] * 3


async def test_result_that_cannot_be_encoded_fails_its_item_alone(app: App, queue_name: str, peek: Peek) -> None:
    """As the result of any handler."""

    @app.task(queue=queue_name, batch=TEN, result_ttl=60, max_attempts=1)
    async def handle(batch: JobBatch[int]) -> None:
        first, second = batch
        batch.done(first, object())
        batch.done(second, 2)

    async with app:
        jobs = await put(app, handle, range(2))
        async with running(app):
            assert await jobs[1].result(timeout=10) == 2
            await until(lambda: peek.state(jobs[0].id) == "dead")


async def test_item_is_settled_once(app: App, queue_name: str) -> None:
    """A second verdict, and one for an item of another batch, are mistakes that are told."""
    said: list[Any] = []
    kept: list[tuple[JobBatch[int], BatchItem[int]]] = []
    text: Any = "text"

    @app.task(queue=queue_name, batch=Batch(max_size=2))
    async def handle(batch: JobBatch[int]) -> None:
        one, two = batch
        kept.append((batch, one))
        batch.done(one)
        for mistake in (
            partial(batch.done, one),
            partial(batch.fail, one, ValueError()),
            partial(batch.start_soon, never, one),
            partial(batch.done, kept[0][1]),
            partial(batch.fail, two, text),
        ):
            try:
                mistake()
            except (JobStateError, ValueError, TypeError) as error:
                said.append(type(error))

    async def never(item: BatchItem[int]) -> None:
        raise AssertionError

    async with app:
        await put(app, handle, range(4))
        async with running(app) as worker:
            await until(lambda: worker.statistics().counters.completed == 4)
            with pytest.raises(ValueError, match="the batch is over"):
                kept[1][0].done(kept[1][1])
            assert list(kept[1][0]) == []
    assert said == [JobStateError] * 4 + [TypeError] + [JobStateError] * 3 + [ValueError, TypeError]


# --- work for one item -----------------------------------------------------------------------------------------------


async def test_work_settles_its_item_alone(app: App, queue_name: str, peek: Peek) -> None:
    """What it returns is the result, what it raises fails its item; and it settles it, nobody else."""
    refused: list[Any] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60, max_attempts=1)
    async def handle(batch: JobBatch[int]) -> None:
        for item in batch:
            assert batch.start_soon(work, item, 10)
            for mistake in (partial(batch.done, item), partial(batch.start_soon, work, item, 1)):
                try:
                    mistake()
                except JobStateError as error:
                    refused.append(error.id)

    async def work(item: BatchItem[int], factor: int) -> int:
        await anyio.sleep(0.01)
        if item.value == 1:
            raise ValueError("on purpose")
        if item.value == 2:
            raise Discard("of no use")
        return item.value * factor

    async with app:
        jobs = await put(app, handle, range(5))
        async with running(app):
            assert [await jobs[n].result(timeout=10) for n in (0, 3, 4)] == [0, 30, 40]
            await until(lambda: peek.state(jobs[1].id) == "dead" and peek.state(jobs[2].id) == "done")
    assert sorted(refused) == sorted([job.id for job in jobs] * 2)


async def test_work_ends_with_a_handler_that_raises(app: App, queue_name: str, peek: Peek) -> None:
    """One task group: what the handler raises cancels the work, and those items fail with it."""
    ended: list[int] = []

    @app.task(queue=queue_name, batch=TEN, max_attempts=1)
    async def handle(batch: JobBatch[int]) -> None:
        for item in batch:
            batch.start_soon(work, item)
        await anyio.sleep(0.1)
        raise ValueError("on purpose")

    async def work(item: BatchItem[int]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(item.value)

    async with app:
        jobs = await put(app, handle, range(3))
        async with running(app):
            await until(lambda: [peek.state(job.id) for job in jobs] == ["dead"] * 3)
    assert sorted(ended) == [0, 1, 2]
    errors = [peek.record(job.id).error for job in jobs]
    assert [error and error.message for error in errors] == ["on purpose"] * 3


@pytest.mark.parametrize("where", ["handler", "work"])
async def test_scope_left_open_fails_and_hurts_nobody_else(app: App, queue_name: str, peek: Peek, where: str) -> None:
    """A scope that was entered and not left must not keep the batch's own from closing."""

    @app.task(queue=queue_name, batch=TEN, max_attempts=1, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        one, two = batch
        if where == "handler":
            batch.done(two)
            await leave(one)
        else:
            batch.start_soon(leave, one)

    async def leave(item: BatchItem[int]) -> None:
        anyio.CancelScope().__enter__()

    async with app:
        jobs = await put(app, handle, range(2))
        async with running(app):
            await until(lambda: [peek.state(job.id) for job in jobs] == ["dead", "done"])


@pytest.mark.parametrize("where", ["handler", "work"])
async def test_keyboard_interrupt_gives_the_batch_back(app: App, queue_name: str, peek: Peek, where: str) -> None:
    """Ctrl-C stops the worker in order; what is done stays done, the rest spends nothing."""

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        one, two, _ = batch
        batch.done(one)
        if where == "work":
            batch.start_soon(interrupt, two)
            await anyio.sleep_forever()
        await interrupt(two)

    async def interrupt(item: BatchItem[int]) -> None:
        await anyio.sleep(0.05)
        raise KeyboardInterrupt

    async with app:
        jobs = await put(app, handle, range(3))
        with pytest.raises(KeyboardInterrupt), anyio.fail_after(10):
            await run_worker(app, **QUICK)
    assert [peek.state(job.id) for job in jobs] == ["done", "pending", "pending"]
    assert [peek.record(job.id).failures for job in jobs] == [0, 0, 0]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_stray_cancellation_fails_its_item_alone(app: App, queue_name: str, peek: Peek) -> None:
    """Work that awaited a task which somebody cancelled: nobody has cancelled the work."""

    @app.task(queue=queue_name, batch=TEN, max_attempts=1, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        one, two = batch
        batch.start_soon(stray, one)
        await anyio.sleep(0.1)
        batch.done(two)

    async def stray(item: BatchItem[int]) -> None:
        task = asyncio.create_task(asyncio.sleep(100))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    async with app:
        jobs = await put(app, handle, range(2))
        async with running(app):
            await until(lambda: [peek.state(job.id) for job in jobs] == ["dead", "done"])


# --- items that leave ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [False, True])
async def test_lost_item_leaves_and_the_others_stay(app: App, queue_name: str, peek: Peek, work: bool) -> None:
    """Its work ends, nothing is written for it, iteration passes over it; a verdict for it answers False."""
    began, gate, told = anyio.Event(), anyio.Event(), list[Any]()

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        first, *_ = batch
        if work:
            batch.start_soon(wait, first)
        began.set()
        await gate.wait()
        told.extend([batch.done(first, "late"), batch.fail(first, ValueError()), batch.start_soon(wait, first)])
        told.extend([first.cancel_reason, [item.value for item in batch], len(batch), len(batch.items)])

    async def wait(item: BatchItem[int]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            told.append(item.cancel_reason)

    async with app:
        jobs = await put(app, handle, range(10))
        async with running(app, lease=2.4) as worker:
            await began.wait()
            peek.expire(jobs[0].id)
            assert [each.id for each in peek.claim()] == [jobs[0].id]
            row = peek.record(jobs[0].id).row
            await until(lambda: worker.statistics().counters.lost == 1)
            assert worker.statistics().running == 9
            gate.set()
            for job in jobs[1:]:
                assert await job.result(timeout=10) is None
        assert peek.record(jobs[0].id).row == row
    assert told == ["lease_lost"] * work + [False] * 3 + ["lease_lost", list(range(1, 10)), 9, 10]


@pytest.mark.parametrize("work", [False, True])
async def test_cancelled_item_leaves_at_once(app: App, queue_name: str, peek: Peek, work: bool) -> None:
    """The job has ended as cancelled while the handler goes on with the others."""
    began, gate, told = anyio.Event(), anyio.Event(), list[Any]()

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        first, second = batch
        if work:
            batch.start_soon(wait, first)
        began.set()
        await gate.wait()
        told.extend([batch.done(first), first.cancel_reason, [item.value for item in batch]])
        batch.done(second, 2)

    async def wait(item: BatchItem[int]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await item.log("cleaned up")

    async with app:
        jobs = await put(app, handle, range(2))
        async with running(app, lease=600.0):  # it comes by channel, and no heartbeat helps
            await began.wait()
            await jobs[0].cancel(reason="by hand")
            await until(lambda: peek.record(jobs[0].id).kind == "cancelled")
            assert peek.state(jobs[1].id) == "active"
            gate.set()
            assert await jobs[1].result(timeout=10) == 2
        info = await jobs[0].info(log=True)
        assert info is not None
        assert info.log == ("cleaned up",) * work
    assert peek.record(jobs[0].id).reason == "by hand"
    assert told == [False, "cancelled", [1]]


async def test_handler_is_cancelled_when_nothing_is_left(app: App, queue_name: str, peek: Peek) -> None:
    """One is done, the others are cancelled by a person: there is nothing to go on with."""
    began, ended = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        first, *_ = batch
        batch.done(first)
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with app:
        jobs = await put(app, handle, range(3))
        async with running(app):
            await began.wait()
            await jobs[1].cancel()
            await until(lambda: peek.record(jobs[1].id).kind == "cancelled")
            await anyio.sleep(0.1)
            assert not ended.is_set()
            await jobs[2].cancel()
            with anyio.fail_after(10):
                await ended.wait()
    assert [peek.record(job.id).kind for job in jobs] == ["completed", "cancelled", "cancelled"]


async def test_note_that_is_refused_makes_its_item_leave(app: App, queue_name: str, peek: Peek) -> None:
    """Long before a heartbeat would tell; the next item is not hurt."""
    began, gate = anyio.Event(), anyio.Event()
    alive: list[list[int]] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        first, _ = batch
        began.set()
        await gate.wait()
        with pytest.raises(LeaseLostError):
            await first.progress(1)
        alive.append([item.value for item in batch])

    async with app:
        jobs = await put(app, handle, range(2))
        async with running(app, lease=600.0, concurrency=10) as worker:
            await began.wait()
            worker._intake.stop()  # so that the test gets the job
            peek.expire(jobs[0].id)
            assert peek.claim()
            gate.set()
            await jobs[1].result(timeout=10)
    assert alive == [[1]]


# --- time ------------------------------------------------------------------------------------------------------------


async def test_timeout_of_the_task_fails_what_is_not_settled(app: App, queue_name: str, peek: Peek) -> None:
    """The handler is stopped as a whole, and has ended before its items may run again."""
    ended: list[Any] = []

    @app.task(queue=queue_name, batch=TEN, timeout=0.3, max_attempts=1, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        first, *_ = batch
        batch.done(first)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append([(item.value, item.cancel_reason) for item in batch])
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.2)
            ended.append([peek.state(job.id) for job in jobs])

    async with app:
        jobs = await put(app, handle, range(3))
        async with running(app):
            await until(lambda: [peek.state(job.id) for job in jobs] == ["done", "dead", "dead"])
    assert ended == [[(1, "timeout"), (2, "timeout")], ["done", "active", "active"]]
    error = peek.record(jobs[1].id).error
    assert error is not None
    assert (error.type, "its timeout" in error.message) == ("TimeoutError", True)


async def test_item_with_a_timeout_of_its_own_leaves_by_itself(app: App, queue_name: str, peek: Peek) -> None:
    """It fails, but not before the handler has ended, which may have it in hand; nor is it done when that returns."""
    seen: list[Any] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60, max_attempts=1)
    async def handle(batch: JobBatch[int]) -> None:
        short, _ = batch
        await until(lambda: short.cancelled)
        await anyio.sleep(0.1)
        seen.extend([short.cancel_reason, len(batch), batch.done(short), peek.state(jobs[0].id)])

    async with app:
        jobs = [*await put(app, handle, [0], timeout=0.2), *await put(app, handle, [1])]
        async with running(app):
            assert await jobs[1].result(timeout=10) is None
            await until(lambda: peek.state(jobs[0].id) == "dead")
    assert seen == ["timeout", 1, False, "active"]


async def test_handler_of_a_settled_batch_ends_by_its_timeout(app: App, queue_name: str) -> None:
    """It holds no lease any more, but a slot, and the task's timeout."""
    free: list[int] = []

    @app.task(queue=queue_name, batch=TEN, timeout=0.3)
    async def handle(batch: JobBatch[int]) -> None:
        for item in batch:
            batch.done(item)
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await until(lambda: worker.statistics().counters.completed == 3)
                await until(lambda: not worker._watchdog.late)
                free.append(worker._free())

    async with app:
        await put(app, handle, range(3))
        async with running(app) as worker:
            await until(lambda: free)
            await until(lambda: worker._free() == 10)
    assert free == [9]


@TRIO
async def test_batch_is_renewed_in_one_call(
    app: App, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many renewals there have been, each took all items along."""
    calls: list[int] = []
    take = Group.take

    def counted(self: Group[Any]) -> Any:
        taken = take(self)
        if self.verb == "extend":
            calls.append(len(taken))
        return taken

    monkeypatch.setattr(Group, "take", counted)

    gate = anyio.Event()

    @app.task(queue=queue_name, batch=Batch(max_size=100))
    async def handle(batch: JobBatch[int]) -> None:
        await gate.wait()

    async with app:
        await put(app, handle, range(100))
        async with running(app, concurrency=100, lease=2.4) as worker:
            await until(lambda: worker.statistics().renewals >= 300)
            gate.set()
            await until(lambda: worker.statistics().counters.completed == 100)
    assert len(calls) >= 3
    assert calls == [100] * len(calls)
    assert peek.count("stalled") == 0


@pytest.mark.parametrize("renewed", [False, True])
async def test_batch_ends_before_its_leases_do_on_the_server(
    server_url: str, queue_name: str, peek: Peek, renewed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, from the first lease or a later one, the handler is stopped by its own clock, a margin early.

    Held of one of three tries: a machine that stands still for as long as the margin is no fault of the worker's.
    """
    monkeypatch.setattr(watchdog, "TICK", 600.0)  # it is not the watchdog that must do it
    left: list[float] = []
    while len(left) < 3 and max(left, default=0.0) <= 0:
        left.append(await left_at_the_end(server_url, Peek(peek.client, f"{queue_name}-{len(left)}"), renewed=renewed))
    assert left[-1] > 0, left


async def left_at_the_end(server_url: str, peek: Peek, *, renewed: bool) -> float:
    """Cut a worker off while its handler runs; answer how much of the server's leases was left when that ended, ms."""
    left: list[float] = []
    gate = anyio.Event()
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=peek.keys.queue, batch=TEN)
        async def handle(batch: JobBatch[int]) -> None:
            if renewed:
                await gate.wait()
            proxy.frozen = True
            try:
                await anyio.sleep_forever()
            finally:
                left.append(min(peek.active().values()) - peek.now())
                assert {item.cancel_reason for item in batch.items} == {"lease_lost"}
                assert len(batch) == 0

        async with app:
            await put(app, handle, range(3))
            async with running(app, lease=1.0, margin=0.3) as worker:
                if renewed:
                    await until(lambda: worker.statistics().renewals >= 6)
                    gate.set()
                await until(lambda: left)
                await until(lambda: worker.statistics().counters.lost >= 3)
                proxy.frozen = False
    return left[0]


# --- the end of the worker -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "cancel"])
@pytest.mark.parametrize("work", [False, True])
async def test_shutdown_gives_back_what_is_not_settled(
    app: App, queue_name: str, peek: Peek, how: str, work: bool
) -> None:
    """The handler is cancelled as a whole and has ended before; the settled stay settled, the rest spends nothing."""
    began = anyio.Event()
    seen: list[Any] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        first, *others = batch
        batch.done(first)
        for item in others if work else ():
            batch.start_soon(wait, item)
        began.set()
        if not work:
            await wait(others[0])

    async def wait(item: BatchItem[int]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            seen.append((item.cancel_reason, peek.state(item.id)))

    async with app:
        jobs = await put(app, handle, range(3))
        async with anyio.create_task_group() as tasks:
            worker = await tasks.start(partial(run_worker, app, **QUICK))
            await began.wait()
            if how == "stop":
                worker.stop()
            else:
                tasks.cancel_scope.cancel()
    assert seen == [("shutdown", "active")] * (2 if work else 1)
    assert [peek.state(job.id) for job in jobs] == ["done", "pending", "pending"]
    assert [(peek.record(job.id).failures, peek.record(job.id).stalls) for job in jobs] == [(0, 0)] * 3
    assert peek.active() == {}


async def test_handler_that_finishes_all_the_same_has_completed_its_items(
    app: App, queue_name: str, peek: Peek
) -> None:
    """A shutdown takes nothing out of its hands: it still goes over all of them, and what it returns counts."""
    began = anyio.Event()
    seen: list[int] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        began.set()
        with anyio.CancelScope(shield=True):
            await until(lambda: all(item.cancelled for item in batch))
            seen.extend(item.value for item in batch)

    async with app:
        jobs = await put(app, handle, range(3))
        async with running(app):
            await began.wait()
    assert seen == [0, 1, 2]
    assert [peek.state(job.id) for job in jobs] == ["done"] * 3


async def test_stop_ends_a_handler_that_has_settled_its_batch(app: App, queue_name: str) -> None:
    """It holds no lease by which it could be stopped, and the worker waits for it all the same."""
    ended = anyio.Event()

    @app.task(queue=queue_name, batch=TEN)
    async def handle(batch: JobBatch[int]) -> None:
        for item in batch:
            batch.done(item)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with app:
        await put(app, handle, range(3))
        with anyio.fail_after(10):
            async with running(app) as worker:
                await until(lambda: worker.statistics().counters.completed == 3)
                await anyio.sleep(0.05)
                assert not ended.is_set()
    assert ended.is_set()


async def test_stop_waits_for_a_handler_that_has_settled_its_batch(app: App, queue_name: str) -> None:
    """Within the grace, like for any other."""
    ended = anyio.Event()

    @app.task(queue=queue_name, batch=TEN)
    async def handle(batch: JobBatch[int]) -> None:
        for item in batch:
            batch.done(item)
        await anyio.sleep(0.5)
        ended.set()

    async with app, anyio.create_task_group() as tasks:
        await put(app, handle, range(3))
        worker = await tasks.start(partial(run_worker, app, **{**QUICK, "grace": 10.0}))
        await until(lambda: worker.statistics().counters.completed == 3)
        worker.stop()
    assert ended.is_set()


@TRIO
async def test_burst_waits_for_a_handler_that_has_settled_its_batch(app: App, queue_name: str) -> None:
    """The queue is empty, but the handler is not done."""
    ended = anyio.Event()

    @app.task(queue=queue_name, batch=TEN)
    async def handle(batch: JobBatch[int]) -> None:
        for item in batch:
            batch.done(item)
        await anyio.sleep(1.8)
        ended.set()

    async with app:
        await put(app, handle, range(3))
        await run_worker(app, **{**QUICK, "grace": 0.0}, burst=True)
    assert ended.is_set()


# --- items that cannot be run, or not now ----------------------------------------------------------------------------


async def test_item_that_cannot_be_run_leaves_the_others_alone(app: App, queue_name: str, peek: Peek) -> None:
    """Bytes that are no call are buried; arguments that do not fit, and unknown tasks, are put off; the handler sees none."""
    seen: list[list[int]] = []

    @app.task(queue=queue_name, batch=TEN, result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        seen.append([item.value for item in batch])

    async with app:
        queue = app.queue(queue_name)
        odd = [
            await queue.enqueue(payload, task=task)
            for payload, task in [
                (b"\xff", "handle"),
                (b'{"args":["text"]}', "handle"),
                (b'{"args":[1,2]}', "handle"),
                (b'{"args":[1]}', "nobody-knows"),
            ]
        ]
        jobs = await put(app, handle, range(2))
        async with running(app):
            for job in jobs:
                await job.result(timeout=10)
            await until(lambda: [peek.state(job.id) for job in odd] == ["dead"] + ["schedule"] * 3)
    assert seen == [[0, 1]]
    assert [peek.record(job.id).failures for job in odd] == [1, 0, 0, 0]


async def test_batch_in_which_nothing_can_be_run_calls_nobody(app: App, queue_name: str, peek: Peek) -> None:
    """And its slots are free."""

    @app.task(queue=queue_name, batch=TEN)
    async def handle(batch: JobBatch[int]) -> None:
        raise AssertionError

    async with app:
        jobs = [await app.queue(queue_name).enqueue(b"\xff", task="handle") for _ in range(3)]
        async with running(app) as worker:
            await until(lambda: [peek.state(job.id) for job in jobs] == ["dead"] * 3)
            await until(lambda: worker._free() == 10)
    assert [peek.record(job.id).failures for job in jobs] == [1] * 3


@TRIO
async def test_item_on_its_last_life_is_a_batch_of_one(
    app: App, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kills its process must not take a batch along: it begins alone, and the others of its kind wait their turn."""
    monkeypatch.setattr(last_lives, "PUT_OFF", 0.2)
    seen: list[list[int]] = []
    gate = anyio.Event()

    @app.task(queue=queue_name, batch=TEN, max_stalls=1)
    async def handle(batch: JobBatch[int]) -> None:
        seen.append([item.value for item in batch])
        if seen[-1][0] < 2:
            await gate.wait()

    async with app:
        jobs = await put(app, handle, range(6))
        for job in jobs[:2]:
            peek.client.hset(peek.keys.job(job.id), "stalls", 1)
        async with running(app) as worker:
            await until(lambda: worker.statistics().counters.completed == 4 and len(seen) == 2)
            await anyio.sleep(0.5)
            assert len(seen) == 2
            gate.set()
            await until(lambda: worker.statistics().counters.completed == 6)
    assert sorted(seen) == [[0], [1], [2, 3, 4, 5]]


async def test_worker_refuses_batches_larger_than_its_slots(app: App, queue_name: str) -> None:
    """At its start: to take less than was asked for would change the batches behind the handler's back."""

    @app.task(queue=queue_name, batch=Batch(max_size=11))
    async def handle(batch: JobBatch[int]) -> None: ...

    with (
        pytest.raises(ValueError, match=r"'handle' takes batches of up to 11 jobs.*concurrency is 10"),
        anyio.fail_after(5),
    ):
        await run_worker(app, concurrency=10)


async def test_failure_of_a_batch_is_logged_for_each_item(app: App, queue_name: str) -> None:
    """With the item's id: whoever looks for a job finds it."""

    @app.task(queue=queue_name, batch=TEN, max_attempts=1)
    async def handle(batch: JobBatch[int]) -> None:
        raise ValueError("on purpose")

    with capture_logs() as logs:
        async with app:
            jobs = await put(app, handle, range(2))
            async with running(app) as worker:
                await until(lambda: worker.statistics().counters.dead == 2)
    assert sorted(line["job"] for line in logs if line["event"] == "job_failed") == sorted(job.id for job in jobs)
