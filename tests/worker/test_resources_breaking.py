"""What handlers share, and what breaks: at opening, at closing, in between. The worker stops with its error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq import INJECTED, App, run_worker
from echomq.worker.options import WorkerOptions
from echomq.worker.run import Worker
from tests.worker.sharing import Other, Pool, Third, Told, bare, declare
from tests.worker.support import QUICK, Peek, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def told() -> Told:
    """The test's list."""
    return Told()


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
