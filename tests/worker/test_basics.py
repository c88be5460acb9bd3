"""A worker does its work: arguments, results, threads, several queues, concurrency, the end of a burst."""

from __future__ import annotations

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
import redis

from echomq.app import App
from echomq.job import Job, SyncJob
from echomq.wire.calls import NumberedCall
from echomq.worker.calls import QueueCalls
from echomq.worker.entry import run_worker
from echomq.worker.run import Worker
from tests.worker.support import QUICK, Peek, running, until

pytestmark = pytest.mark.anyio


async def test_worker_gives_a_handler_typed_arguments_and_keeps_its_result(app: App, queue_name: str) -> None:
    """Arguments come as their declared types, the job is injected, and the result is typed at the waiter."""
    seen: list[Any] = []

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(job: Job, path: Path, when: dt.date, size: int = 128) -> dt.timedelta:
        seen.append((job.queue, job.task, job.attempt, job.token, job.failures, path, when, size, job.headers))
        await job.progress(1, 3, "on it")
        await job.checkpoint([1, 2], step=3)
        await job.log("a line")
        return dt.timedelta(seconds=size)

    async with app, running(app):
        handle_ = await handle.options(headers={"a": "b"}).enqueue(Path("a/b.png"), dt.date(2024, 2, 29), size=3)
        assert await handle_.result(timeout=10) == dt.timedelta(seconds=3)
        found = await handle_.info(log=True)
    assert seen == [(queue_name, "handle", 1, 1, 0, Path("a/b.png"), dt.date(2024, 2, 29), 3, {"a": "b"})]
    assert found is not None
    assert found.record.progress == {"done": 1, "total": 3, "message": "on it"}
    assert (found.record.checkpoint, found.record.step) == (b"[1,2]", 3)
    assert found.log == ("a line",)


async def test_worker_runs_a_plain_function_in_a_thread_with_its_notes(app: App, queue_name: str, peek: Peek) -> None:
    """A plain function blocks nobody, and its job's notes work from its thread."""

    @app.task(queue=queue_name, result_ttl=60)
    def handle(job: SyncJob, left: int) -> int:
        job.progress(left)
        job.checkpoint({"left": left}, step=1)
        job.log("from a thread")
        assert job.checkpoint_state is None
        assert not job.cancelled
        return left * 2

    async with app, running(app):
        handle_ = await handle.enqueue(21)
        assert await handle_.result(timeout=10) == 42
    record = peek.record(handle_.id)
    assert (record.progress["done"], record.step) == (21, 1)
    assert peek.client.lrange(peek.keys.log(handle_.id), 0, -1) == [b"from a thread"]


async def test_worker_checkpoint_is_read_by_the_next_attempt(app: App, queue_name: str) -> None:
    """What an attempt kept is there for the next one, also from a thread."""
    seen: list[Any] = []

    @app.task(queue=queue_name, backoff=lambda *_: 0.0)
    async def coroutine(job: Job) -> None:
        seen.append((job.checkpoint_state, job.checkpoint_step, job.failures))
        if job.failures == 0:
            await job.checkpoint("half", step=7)
            raise RuntimeError

    @app.task(queue=queue_name, backoff=lambda *_: 0.0)
    def plain(job: SyncJob) -> None:
        seen.append((job.checkpoint_state, job.checkpoint_step, job.failures))
        if job.failures == 0:
            job.checkpoint("half", step=7)
            raise RuntimeError

    async with app, running(app):
        await coroutine.enqueue()
        await until(lambda: len(seen) == 2)
        await plain.enqueue()
        await until(lambda: len(seen) == 4)
    assert seen == [(None, None, 0), ("half", 7, 1)] * 2


async def test_worker_serves_queues_in_turn(app: App, queue_name: str) -> None:
    """A long backlog in one queue does not keep another one waiting."""
    order: list[str] = []

    def declare(queue: str) -> Any:
        @app.task(name=queue, queue=queue)
        async def handle() -> None:
            order.append(queue)

        return handle

    tasks = [declare(f"{queue_name}-{n}") for n in range(3)]
    async with app:
        for task in tasks:
            await app.enqueue_many(task.call() for _ in range(20))
        async with running(app, concurrency=2):
            await until(lambda: len(order) == 60)
    for queue in {task.queue for task in tasks}:
        assert order.index(queue) < 20


async def test_worker_respects_its_concurrency(app: App, queue_name: str, peek: Peek) -> None:
    """Never more handlers, and never more leases, than slots: there is no prefetch."""
    now = most = 0
    leases = 0

    @app.task(queue=queue_name)
    async def handle() -> None:
        nonlocal now, most, leases
        now += 1
        most = max(most, now)
        leases = max(leases, peek.client.zcard(peek.keys.active))
        await anyio.sleep(0.005)
        now -= 1

    async with app:
        await app.enqueue_many(handle.call() for _ in range(40))
        async with running(app, concurrency=3) as worker:
            await until(lambda: worker.statistics().counters.completed == 40)
    assert most == 3
    # The slot is free when the handler has ended; its verdict may still be on the way.
    assert leases <= 2 * 3


@pytest.mark.parametrize(("concurrency", "most"), [(3, 3), (20, 16), (100, 50)])
async def test_claims_come_in_portions(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch, concurrency: int, most: int
) -> None:
    """No claim asks for more than half of many slots, so that server and handlers work at the same time."""
    asked: list[int] = []

    @app.task(queue=queue_name)
    async def handle() -> None:
        pass

    def start_claim(self: QueueCalls, count: int, lease: float) -> NumberedCall:
        asked.append(count)
        return original(self, count, lease)

    original = QueueCalls.start_claim
    monkeypatch.setattr(QueueCalls, "start_claim", start_claim)
    async with app:
        await app.enqueue_many(handle.call() for _ in range(300))
        async with running(app, concurrency=concurrency) as worker:
            await until(lambda: worker.statistics().counters.completed == 300)
    assert max(asked) == most


async def test_worker_serves_a_bare_queue_with_one_handler(app: App, queue_name: str, peek: Peek) -> None:
    """`run_worker(queue, handler)` hands each decoded payload over, and the job if asked for."""
    seen: list[Any] = []

    async def handle(payload: Any, job: Job) -> None:
        seen.append((payload, job.payload))

    async with app:
        queue = app.queue(queue_name)
        async with running(queue, handle):
            await queue.enqueue(b'{"a": 1}')
            await until(lambda: seen and peek.empty())
    assert seen == [({"a": 1}, b'{"a": 1}')]


async def test_worker_needs_a_handler_for_a_bare_queue(app: App, queue_name: str) -> None:
    """A queue without a handler is the caller's mistake, said at once."""
    async with app:
        with pytest.raises(TypeError, match="needs a handler"):
            await run_worker(app.queue(queue_name))


async def test_worker_refuses_a_queue_for_which_it_has_no_task(app: App, queue_name: str) -> None:
    """A misspelt queue is refused: it would claim jobs that it can only put off."""

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    with pytest.raises(TypeError, match="no task on queue 'mispelt'"):
        await run_worker(app, queues=["mispelt"])


async def test_worker_opens_and_closes_the_app_itself(app: App, queue_name: str, redis_client: redis.Redis) -> None:
    """An app that is not open is opened for the run; burst ends it when the queue is empty, scheduled jobs included."""
    done: list[int] = []

    @app.task(queue=queue_name)
    async def handle(n: int) -> None:
        done.append(n)

    async with app:
        await app.enqueue_many(handle.call(n) for n in range(10))
        await handle.options(delay=0.3).enqueue(10)
    with anyio.fail_after(15):
        await run_worker(app, burst=True, **QUICK)
    assert sorted(done) == list(range(11))
    assert not app.is_open


async def test_worker_tells_that_it_has_started_only_after_a_claim(app: App, queue_name: str, peek: Peek) -> None:
    """`task_status` comes after the first successful claim, also of an empty queue."""

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    async with app, anyio.create_task_group() as tasks:
        # The margin leaves a busy machine's loop some seconds before it is late, and the worker not ready.
        options = {**QUICK, "lease": 60.0, "margin": 10.0}
        worker: Worker = await tasks.start(partial(run_worker, app, **options))
        assert list(peek.client.scan_iter(f"{peek.keys.base}once:*:claim", count=10_000))
        statistics = worker.statistics()
        assert statistics.ready
        assert (statistics.running, statistics.unsettled) == (0, 0)
        worker.stop()
        assert not worker.statistics().ready


async def test_worker_counts_what_it_did(app: App, queue_name: str, peek: Peek) -> None:
    """Statistics tell claims and endings apart."""

    @app.task(queue=queue_name, backoff=lambda *_: 0.0)
    async def handle(fails: int) -> None:
        if fails:
            raise RuntimeError

    async with app:
        await app.enqueue_many(handle.call(n % 2) for n in range(6))
        async with running(app) as worker:
            await until(peek.empty)
            counters = worker.statistics().counters
    assert (counters.claimed, counters.completed, counters.failed, counters.dead) == (3 + 9, 3, 9, 3)


async def test_worker_options_say_what_is_out_of_range(app: App, queue_name: str) -> None:
    """A bad option is refused before anything is opened, and the message shows the value."""

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    wrong: list[dict[str, Any]] = [
        {"concurrency": 0}, {"concurrency": 1.5}, {"lease": "30"}, {"lease": float("nan")}, {"grace": -1},
        {"margin": 20.0}, {"margin": "1"}, {"result_limit": 0},
    ]  # fmt: skip
    for options in wrong:
        (name,) = options
        with pytest.raises(ValueError, match=name):
            await run_worker(app, **options)
    with pytest.raises(TypeError, match="leese"):
        await run_worker(app, leese=30)
