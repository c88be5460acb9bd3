"""An app that is left while its worker still works: the worker ends in order, and no job is lost."""

from __future__ import annotations

from functools import partial

import anyio
import pytest
import structlog.testing

from echomq import App, open_client, run_worker

pytestmark = pytest.mark.anyio


def make_app(url: str, queue: str, leaving: anyio.Event) -> App:
    """Make an app whose handlers take a while to end from `leaving` on, also when they are cancelled."""
    app = App(url)

    @app.task(queue=queue)
    async def work(seconds: float) -> None:
        try:
            await leaving.wait()
            await anyio.sleep(seconds)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.1)

    return app


@pytest.mark.parametrize("stopped", ["before", "cancelled"])
async def test_worker_that_stops_while_its_app_is_left_ends_in_order(
    server_url: str, queue_name: str, stopped: str
) -> None:
    """It says what could not be delivered, and raises nothing; the jobs are still there."""
    leaving = anyio.Event()
    app = make_app(server_url, queue_name, leaving)
    run = partial(run_worker, app, grace=0.1, cleanup=0.2, lease=1.0)
    with structlog.testing.capture_logs() as logs, anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, app:
            worker = await tasks.start(run)
            for seconds in (0.05, 30):
                await app.client.enqueue(app.tasks["work"].call(seconds))
            while worker.statistics().running < 2:  # noqa: ASYNC110 - no event tells of it
                await anyio.sleep(0.005)
            leaving.set()
            worker.stop() if stopped == "before" else tasks.cancel_scope.cancel()
    assert "verdicts_undelivered" in [log["event"] for log in logs]
    assert not [log for log in logs if "exc_info" in log]
    async with open_client(server_url) as client:
        counts = await client.queue(queue_name).counts()
        assert counts.active + counts.pending == 2


async def test_worker_whose_app_is_left_stops_with_one_clear_error(server_url: str, queue_name: str) -> None:
    """Nobody has stopped it: that its client is gone is an error, and is told as it is."""
    app = make_app(server_url, queue_name, anyio.Event())
    errors: list[BaseException] = []
    statuses: list[object] = []

    class Status:
        def started(self, value: object = None) -> None:
            statuses.append(value)

    async def run() -> None:
        try:
            await run_worker(app, grace=0.1, cleanup=0.2, lease=1.0, task_status=Status())
        except BaseException as error:
            errors.append(error)
            if isinstance(error, anyio.get_cancelled_exc_class()):
                raise

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, app:
            tasks.start_soon(run)
            await app.client.enqueue(app.tasks["work"].call(30))
            while not statuses:  # noqa: ASYNC110 - no event tells of it
                await anyio.sleep(0.005)
    (error,) = errors
    assert type(error) is RuntimeError
    assert "closed" in str(error)
