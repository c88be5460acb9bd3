"""What handlers share: opened before the first claim, closed after the last handler, whatever happens in between."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq import INJECTED, App, Batch, Job, JobBatch, SyncJob, run_worker
from echomq.worker.options import WorkerOptions
from echomq.worker.run import Worker
from tests.worker.processes import worker_process
from tests.worker.support import QUICK, Peek, running, until
from tests.worker.test_command import put

pytestmark = pytest.mark.anyio


class Pool:
    """Something that opens and closes."""

    def __init__(self) -> None:
        self.open = True


class Other(Pool):
    """Something else: a subclass is another type."""


class Third(Pool):
    """A third one."""


class Told(list[str]):
    """What has happened, in its order."""

    def provide(self, app: App, kind: type[Pool], **breaks: Any) -> None:
        """Provide a type, telling when it is opened and closed; breaking where it is said to."""
        name = kind.__name__

        async def at(moment: str) -> None:
            self.append(f"{moment} {name}")
            await anyio.lowlevel.checkpoint()
            if breaks.get(moment) == "hangs":
                await anyio.sleep_forever()
            if breaks.get(moment) == "slowly":
                await anyio.sleep(0.2)
            if breaks.get(moment) == "all the same":
                with contextlib.suppress(anyio.get_cancelled_exc_class()):
                    await anyio.sleep_forever()
            if isinstance(breaks.get(moment), BaseException):
                raise breaks[moment]

        @contextlib.asynccontextmanager
        async def factory() -> AsyncIterator[Pool]:
            await at("opens")
            pool = kind()
            try:
                yield pool
            finally:
                pool.open = False
                try:
                    await at("closes")
                    self.append(f"closed {name}")
                except anyio.get_cancelled_exc_class():
                    self.append(f"cancelled {name}")
                    raise

        app.provide(kind, factory)


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


def declare(app: App, queue: str, *kinds: type[Pool]) -> Any:
    """A task that asks for Pool, Other and Third."""

    @app.task(queue=queue)
    async def handle(pool: Pool = INJECTED, other: Other = INJECTED, third: Third = INJECTED) -> None: ...

    return handle


def bare(error: BaseException) -> BaseException:
    """What is in groups of one."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@pytest.mark.parametrize("error", [LookupError("no database"), SystemExit(3), KeyboardInterrupt()], ids=repr)
async def test_resource_that_fails_to_open_stops_the_worker_with_its_error(
    app: App, queue_name: str, told: Told, peek: Peek, error: BaseException
) -> None:
    """Nothing is claimed; what is open is closed, what comes after is not opened."""
    told.provide(app, Pool)
    told.provide(app, Other, opens=error)
    told.provide(app, Third)
    task = declare(app, queue_name)
    with capture_logs() as logs:
        async with app:
            job = await task.enqueue()
            with pytest.raises(type(error)) as raised:
                await run_worker(app, **QUICK)
    assert raised.value is error
    assert told == ["opens Pool", "opens Other", "closes Pool", "closed Pool"]
    assert peek.state(job.id) == "pending"
    (line,) = (line for line in logs if line["event"] == "resource_failed")
    assert line["error"] == repr(error)
    assert line["resource"].endswith("Other")


async def test_resource_that_is_no_context_manager_stops_the_worker(app: App, queue_name: str) -> None:
    """A factory that answers something else is a programmer's error, told as such."""
    app.provide(Pool, lambda: Pool())  # noqa: PLW0108 - a function that answers no context manager

    @app.task(queue=queue_name)
    async def handle(pool: Pool = INJECTED) -> None: ...

    async with app:
        with pytest.raises(TypeError, match="asynchronous context manager"):
            await run_worker(app, **QUICK)


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
async def test_resource_that_hangs_at_open_is_cancelled(app: App, queue_name: str, told: Told, how: str) -> None:
    """By a stop, or by a cancellation of the worker; those that are open are closed in peace."""
    told.provide(app, Pool)
    told.provide(app, Other, opens="hangs")
    told.provide(app, Third)
    declare(app, queue_name)
    async with app, anyio.create_task_group() as tasks:
        if how == "cancelled":
            tasks.start_soon(partial(run_worker, app, **QUICK))
            await until(lambda: "opens Other" in told)
            tasks.cancel_scope.cancel()
        else:
            handlers: Any = {app.queue(queue_name).keys: app.tasks}
            plan = app.provide.plan(app.tasks.values())
            options = WorkerOptions(**QUICK)
            worker = Worker(app.client.wire, handlers, options, codec=app.codec, providers=plan)
            tasks.start_soon(worker.run)
            await until(lambda: "opens Other" in told)
            worker.stop()
    assert told == ["opens Pool", "opens Other", "closes Pool", "closed Pool"]


async def test_resource_that_opens_in_spite_of_a_stop_is_the_last(app: App, queue_name: str, told: Told) -> None:
    """Nothing is opened after it, and it is closed."""
    told.provide(app, Pool)
    told.provide(app, Other, opens="all the same")
    told.provide(app, Third)
    declare(app, queue_name)
    async with app, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(run_worker, app, **QUICK))
        await until(lambda: "opens Other" in told)
        tasks.cancel_scope.cancel()
    assert told[:3] == ["opens Pool", "opens Other", "closes Other"]
    assert told[-2:] == ["closes Pool", "closed Pool"]


async def test_resource_error_at_close_is_raised_by_run(app: App, queue_name: str, told: Told) -> None:
    """The others are closed all the same; of two errors the first is raised, and both are logged."""
    error = LookupError("cannot close")
    told.provide(app, Pool)
    told.provide(app, Other, closes=ValueError("second"))
    told.provide(app, Third, closes=error)
    declare(app, queue_name)
    with capture_logs() as logs:
        async with app:
            with pytest.raises(BaseExceptionGroup) as raised:
                async with running(app):
                    pass
    assert bare(raised.value) is error
    assert told[3:] == ["closes Third", "closes Other", "closes Pool", "closed Pool"]
    assert [line["error"] for line in logs if line["event"] == "resource_failed"] == [
        "LookupError('cannot close')",
        "ValueError('second')",
    ]


async def test_resource_that_hangs_at_close_is_cancelled(app: App, queue_name: str, told: Told) -> None:
    """After what is left of `cleanup`; the log says which."""
    told.provide(app, Pool)
    told.provide(app, Other, closes="hangs")
    told.provide(app, Third)
    declare(app, queue_name)
    with capture_logs() as logs:
        async with app, running(app, cleanup=0.05):
            pass
    assert told[3:] == [
        "closes Third",
        "closed Third",
        "closes Other",
        "cancelled Other",
        "closes Pool",
        "cancelled Pool",
    ]
    assert [line["resource"].rpartition(".")[2] for line in logs if line["event"] == "resource_cancelled"] == [
        "Other",
        "Pool",
    ]


async def test_resource_that_fails_while_the_worker_works_stops_it_in_order(
    app: App, queue_name: str, peek: Peek
) -> None:
    """A provider's own task group may crash: handlers have their grace, then `run` raises its error."""
    crash, ended = anyio.Event(), []

    @app.provide
    async def open_pool() -> AsyncIterator[Pool]:
        async with anyio.create_task_group() as tasks:

            async def poll() -> None:
                await crash.wait()
                raise LookupError("poller")

            tasks.start_soon(poll)
            yield Pool()

    @app.task(queue=queue_name)
    async def handle(pool: Pool = INJECTED) -> None:
        crash.set()
        await anyio.sleep(0.05)
        ended.append(1)

    async with app:
        await handle.enqueue()
        with pytest.raises(BaseExceptionGroup) as raised:
            await run_worker(app, **{**QUICK, "grace": 5.0})
    assert str(bare(raised.value)) == "poller"
    assert ended == [1]
    assert peek.count("completed") == 1


async def test_resource_that_ends_by_itself_stops_the_worker(app: App, queue_name: str) -> None:
    """A provider whose own time limit ends it would leave handlers with something closed."""

    @app.provide
    async def open_pool() -> AsyncIterator[Pool]:
        with anyio.move_on_after(0.05):
            yield Pool()

    @app.task(queue=queue_name)
    async def handle(pool: Pool = INJECTED) -> None: ...

    async with app:
        with (
            pytest.raises(RuntimeError, match=r"provider of .*Pool closed it while handlers may need it"),
            anyio.fail_after(10),
        ):
            await run_worker(app, **QUICK)


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
