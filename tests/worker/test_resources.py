"""What handlers share: opened before the first claim, closed after the last handler, whatever happens in between."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest

from echomq import INJECTED, App, Batch, Job, JobBatch, SyncJob, run_worker
from tests.worker.processes import worker_process
from tests.worker.sharing import Other, Pool, Third, Told, declare
from tests.worker.support import QUICK, Peek, running, until
from tests.worker.test_command import put

pytestmark = pytest.mark.anyio


@pytest.fixture
def told() -> Told:
    """The test's list."""
    return Told()


async def test_resources_are_open_while_handlers_run(app: App, queue_name: str, told: Told) -> None:
    """In the order of need and in the reverse one; once for all jobs; nothing that nobody asks for."""
    pools: set[int] = set()
    for kind in (Third, Pool, Other):
        told.provide(app, kind)

    @app.task(queue=queue_name)
    async def asks(job: Job, pool: Pool = INJECTED, *, other: Other = INJECTED, n: int) -> None:
        assert type(pool) is Pool
        assert type(other) is Other
        assert pool.open
        pools.add(id(pool))
        told.append(f"ran {n}")

    @app.task(queue=queue_name)
    def asks_in_a_thread(n: int, other: Other = INJECTED, job: SyncJob = None) -> None:  # type: ignore[assignment]
        assert type(other) is Other
        assert type(job) is SyncJob
        told.append(f"ran {n}")

    async with app, running(app):
        await asks.enqueue(n=1)
        await asks_in_a_thread.enqueue(2)
        await asks.enqueue(n=3)
        await until(lambda: len(told) == 5)
    assert told[:2] == ["opens Pool", "opens Other"]
    assert sorted(told[2:5]) == ["ran 1", "ran 2", "ran 3"]
    assert told[5:] == ["closes Other", "closed Other", "closes Pool", "closed Pool"]
    assert len(pools) == 1


async def test_resources_are_open_before_the_first_claim(app: App, queue_name: str, peek: Peek) -> None:
    """However long that takes: a job that waits is not claimed meanwhile."""
    attempts = []

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(pool: Pool = INJECTED) -> bool:
        return pool.open

    async with app:
        job = await handle.enqueue()

        @app.provide
        async def open_pool() -> AsyncIterator[Pool]:
            with anyio.move_on_after(0.5):
                await until(lambda: peek.record(job.id).attempts)
            attempts.append(peek.record(job.id).attempts)
            yield Pool()

        async with running(app):
            assert await job.result(timeout=10) is True
    assert attempts == [0]


async def test_resources_reach_handlers_of_batches(app: App, queue_name: str, told: Told) -> None:
    """With and without middleware around."""
    told.provide(app, Pool)

    @app.task(queue=queue_name, batch=Batch(max_size=3), result_ttl=60)
    async def handle(batch: JobBatch[int], pool: Pool = INJECTED) -> None:
        for item in batch:
            batch.done(item, [item.value, type(pool).__name__, pool.open])

    async with app, running(app):
        assert await (await handle.enqueue(1)).result(timeout=10) == [1, "Pool", True]

        @app.around_handling
        async def around(job: Any, call: Any) -> Any:
            return await call()

        assert await (await handle.enqueue(2)).result(timeout=10) == [2, "Pool", True]


async def test_resources_reach_handlers_through_middleware(app: App, queue_name: str, told: Told) -> None:
    """Both kinds of handlers."""
    told.provide(app, Pool)

    @app.around_handling
    async def around(job: Any, call: Any) -> Any:
        return await call()

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(n: int, pool: Pool = INJECTED) -> Any:
        return [n, pool.open]

    @app.task(queue=queue_name, result_ttl=60)
    def in_thread(n: int, pool: Pool = INJECTED) -> Any:
        return [n, pool.open]

    async with app, running(app):
        assert await (await handle.enqueue(1)).result(timeout=10) == [1, True]
        assert await (await in_thread.enqueue(2)).result(timeout=10) == [2, True]


async def test_resources_are_closed_after_the_last_handler(app: App, queue_name: str, told: Told) -> None:
    """Also after one that takes its time to end; and closing may take its time, too."""
    told.provide(app, Pool, closes="slowly")
    began = anyio.Event()

    @app.task(queue=queue_name)
    async def slow(pool: Pool = INJECTED) -> None:
        began.set()
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.05)
            told.append(f"handler left, pool open: {pool.open}")

    async with app, running(app):
        await slow.enqueue()
        await began.wait()
    assert told == ["opens Pool", "handler left, pool open: True", "closes Pool", "closed Pool"]


async def test_resources_may_hold_a_task_group_open(app: App, queue_name: str) -> None:
    """Opened and closed in one task: a poller may run beside the handlers."""
    polled = anyio.Event()

    @app.provide
    async def open_pool() -> AsyncIterator[Pool]:
        async with anyio.create_task_group() as tasks:

            async def poll() -> None:
                while True:
                    await anyio.sleep(0.001)
                    polled.set()

            tasks.start_soon(poll)
            yield Pool()
            tasks.cancel_scope.cancel()

    @app.provide
    async def open_other() -> AsyncIterator[Other]:
        with anyio.CancelScope():
            async with anyio.create_task_group():
                yield Other()

    @app.task(queue=queue_name, result_ttl=60)
    async def handle(pool: Pool = INJECTED, other: Other = INJECTED) -> str:
        await polled.wait()
        return "polled"

    async with app, running(app):
        assert await (await handle.enqueue()).result(timeout=10) == "polled"


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_worker_cancelled_while_it_opens_or_closes_leaves_nothing_open(
    app: App, queue_name: str, told: Told, steps: int
) -> None:
    """At each of its first steps: what was opened is closed, and nothing is raised but the cancellation."""
    told.provide(app, Pool)
    told.provide(app, Other)
    told.provide(app, Third)
    declare(app, queue_name)
    async with app, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(run_worker, app, **QUICK))
        for _ in range(steps):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    opened = [each.removeprefix("opens ") for each in told if each.startswith("opens")]
    closed = [each.removeprefix("closed ") for each in told if each.startswith("closed")]
    cancelled = [each.removeprefix("cancelled ") for each in told if each.startswith("cancelled")]
    # The last one may have been met in the middle of its opening, or in the step after it.
    assert [*cancelled, *closed] in (opened[::-1], opened[-2::-1])
    assert cancelled in ([], opened[-1:])


async def test_worker_of_an_app_misses_a_provider_before_it_opens_anything(app: App, queue_name: str) -> None:
    """One clear TypeError; a program that only enqueues needs no provider."""
    task = declare(app, queue_name)
    with pytest.raises(TypeError, match="nobody provides it"):
        await run_worker(app, **QUICK)
    assert not app.is_open
    async with app:
        assert (await task.enqueue()).admitted


async def test_worker_opens_for_its_own_queues_only(app: App, queue_name: str, told: Told) -> None:
    """What the tasks of other queues ask for is not needed, nor provided."""
    declare(app, f"{queue_name}.other")

    @app.task(queue=queue_name, result_ttl=60)
    async def asks_nobody() -> int:
        return 1

    async with app, running(app, queues=[queue_name]):
        assert await (await asks_nobody.enqueue()).result(timeout=10) == 1
    assert told == []


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_worker_command_opens_and_closes(
    server_url: str, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As embedded; a provider that fails ends the process with its error and code 1."""
    put(peek, "asks")
    with worker_process(server_url, queue_name, "--burst", app="tests.worker.jobs_app:providing") as worker:
        assert worker.wait() == 0
        assert worker.told() == ["opened", "ran with a Pool", "closed"]
    monkeypatch.setenv("TEST_POOL", "breaks")
    with worker_process(server_url, queue_name, app="tests.worker.jobs_app:providing") as worker:
        assert worker.wait() == 1
        assert "LookupError: no database" in worker.text()
