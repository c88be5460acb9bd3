"""How what is around a handler ends with its job: cancelled, timed out, given back; threads and processes too."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq import (
    App,
    Fixed,
    HandlerCall,
    Job,
)
from echomq.protocol.failures import ErrorRecord
from tests.worker import process_jobs
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


def declare(app: App, queue: str, **options: Any) -> Any:
    """A task that ends at once."""

    @app.task(queue=queue, **options)
    async def quick(n: int) -> int:
        return n

    return quick


def error_of(peek: Peek, id: str) -> ErrorRecord:
    """What a job failed by."""
    error = peek.record(id).error
    assert error is not None
    return error


@pytest.mark.parametrize("where", ["before", "within", "after"])
async def test_around_handling_is_cancelled_with_its_job(app: App, queue_name: str, peek: Peek, where: str) -> None:
    """A person's cancel reaches it wherever it is; what it cleans up still has the lease."""
    began, told = anyio.Event(), []

    @app.task(queue=queue_name)
    async def handle() -> None:
        if where == "within":
            began.set()
            await anyio.sleep_forever()

    @app.around_handling
    async def waits(job: Job, call: HandlerCall) -> Any:
        try:
            if where == "before":
                began.set()
                await anyio.sleep_forever()
            await call()
            began.set()
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            told.append(job.cancel_reason)
            with anyio.CancelScope(shield=True):
                await job.log("left")
            raise

    async with app, running(app):
        job = await handle.enqueue()
        await began.wait()
        await app.queue(queue_name).cancel(job.id)
        await until(lambda: not peek.active())
    assert told == ["cancelled"]
    assert peek.count("cancelled") == 1


async def test_around_handling_is_within_the_timeout(app: App, queue_name: str, peek: Peek) -> None:
    """A middleware that hangs is the attempt's failure."""
    task = declare(app, queue_name, timeout=0.05, backoff=Fixed(600))

    @app.around_handling
    async def hangs(job: Job, call: HandlerCall) -> Any:
        await call()
        await anyio.sleep_forever()

    async with app, running(app):
        job = await task.enqueue(1)
        await until(lambda: peek.state(job.id) == "schedule")
    assert error_of(peek, job.id).type == "TimeoutError"


async def test_around_handling_is_given_back_at_shutdown(app: App, queue_name: str, peek: Peek) -> None:
    """The handler is cancelled through it, and the job is pending again."""
    began = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        began.set()
        await anyio.sleep_forever()

    @app.around_handling
    async def plain(job: Job, call: HandlerCall) -> Any:
        return await call()

    async with app:
        async with running(app):
            job = await handle.enqueue()
            await began.wait()
        assert peek.state(job.id) == "pending"


async def test_around_handling_hears_of_a_threads_error(app: App, queue_name: str, peek: Peek) -> None:
    """What a plain function raises is raised at the call, in the event loop; the thread is the handler's own."""
    threads: list[int] = []

    @app.task(queue=queue_name, max_attempts=1)
    def handle() -> None:
        threads.append(threading.get_ident())
        raise SystemExit(3)

    @app.around_handling
    async def hears(job: Job, call: HandlerCall) -> Any:
        threads.append(threading.get_ident())
        try:
            await call()
        except SystemExit as error:
            raise LookupError(error.code) from error

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    assert threads[0] != threads[1]
    assert error_of(peek, job.id).type == "LookupError"


async def test_around_handling_that_hangs_is_shown_in_the_log(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What will not end is named with the line where it stands, also when its handler has ended."""
    task, free = declare(app, queue_name, timeout=0.05), anyio.Event()

    @app.around_handling
    async def stubborn(job: Job, call: HandlerCall) -> Any:
        await call()
        with anyio.CancelScope(shield=True):
            await free.wait()

    with capture_logs() as logs:
        async with app, running(app, cleanup=0.1):
            await task.enqueue(1)
            await until(lambda: [line for line in logs if line["event"] == "handler_will_not_end"])
            free.set()
    (line,) = (line for line in logs if line["event"] == "handler_will_not_end")
    assert "in stubborn" in line["stack"]


async def test_around_handling_is_around_a_process(app: App, queue_name: str, peek: Peek) -> None:
    """The payload is replaced before the process gets its arguments; what it raises is raised at the call, and tells where."""
    seen = []

    @app.around_handling
    async def around(job: Job, call: HandlerCall) -> Any:
        assert type(job) is Job
        await job.log("on its way")
        try:
            return await call(payload=b'{"args":[2,3]}' if job.task == "add" else None)
        except LookupError as error:
            seen.append(str(error))
            raise

    add = app.task(name="add", queue=queue_name, result_ttl=60, run_in="process")(process_jobs.add)
    fail = app.task(name="fail", queue=queue_name, max_attempts=1, run_in="process")(process_jobs.fail)
    async with app, running(app):
        assert await (await add.enqueue(0, 0)).result(timeout=20) == 5
        job = await fail.enqueue("deep")
        await until(lambda: peek.state(job.id) == "dead")
    assert seen == ["deep"]
    assert "process_jobs.py" in error_of(peek, job.id).traceback


async def test_around_handling_does_not_count_the_wait_for_a_thread(app: App, queue_name: str) -> None:
    """A plain function's timeout begins when its thread is had, middleware or not."""

    @app.around_handling
    async def around(job: Job, call: HandlerCall) -> Any:
        return await call()

    began, go = threading.Event(), threading.Event()

    @app.task(queue=queue_name, timeout=1.0, result_ttl=60, max_attempts=1)
    def handle(waits: bool) -> str:
        began.set()
        if waits:
            go.wait(20)
        return "done"

    async with app, running(app, threads=1) as worker:
        first = await handle.options(timeout=600).enqueue(True)
        await until(began.is_set)
        others = [await handle.enqueue(False) for _ in range(2)]
        await until(lambda: worker.statistics().running == 3)
        await anyio.sleep(1.2)  # longer than they may run
        go.set()
        assert [await each.result(timeout=10) for each in (first, *others)] == ["done"] * 3
