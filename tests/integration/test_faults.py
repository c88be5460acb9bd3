"""What `docs/explanation/faults.md` says of servers that forget or are full, with a worker at work."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import anyio
import pytest
import redis

import echomq
from echomq.embedded import Server, open_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that the test may empty or fill."""
    with open_server() as server:
        yield server


async def test_emptied_server_ends_handlers_and_those_who_wait(server: Server) -> None:
    """Renewals are refused, so the handler is cancelled; a result that can never come is told; new jobs are served."""
    app = echomq.App(server.url)
    ended: list[str | None] = []
    began = anyio.Event()

    @app.task(result_ttl=60)
    async def work(job: echomq.Job, how: str) -> str:
        if how == "wait":
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(job.cancel_reason)
        return how

    async with app, anyio.create_task_group() as tasks:
        worker = await tasks.start(partial(echomq.run_worker, app, lease=1.0))
        handle = await work.enqueue("wait")
        await began.wait()
        with redis.Redis.from_url(server.url) as admin:
            admin.flushall()
        with pytest.raises(echomq.ResultNotKeptError):
            await handle.result(10)
        with anyio.fail_after(10):
            while not ended:  # noqa: ASYNC110 - the worker's doing
                await anyio.sleep(0.01)
        assert ended == ["lease_lost"]
        assert await (await work.enqueue("new")).result(10) == "new"
        worker.stop()


async def test_full_server_refuses_new_work_and_drains(server: Server) -> None:
    """Enqueueing, checkpoints and log lines are refused; claims, progress and verdicts go on."""
    app = echomq.App(server.url)
    refused: list[str] = []

    @app.task(result_ttl=60)
    async def work(job: echomq.Job) -> str:
        for note in (partial(job.checkpoint, 1), partial(job.log, "a line")):
            try:
                await note()
            except echomq.OutOfMemoryError as error:
                refused.append(str(error))
        await job.progress(1)
        return "done"

    async with app, anyio.create_task_group() as tasks:
        handle = await work.enqueue()
        with redis.Redis.from_url(server.url) as admin:
            admin.config_set("maxmemory", "1")
            with pytest.raises(echomq.OutOfMemoryError):
                await work.enqueue()
            worker = await tasks.start(partial(echomq.run_worker, app))
            assert await handle.result(10) == "done"
            admin.config_set("maxmemory", "0")
        assert [text.rpartition(" ")[2] for text in refused] == ["(checkpoint)", "(log)"]
        assert await (await work.enqueue()).result(10) == "done"
        worker.stop()


@pytest.mark.parametrize("ends", ["crash", "failure"])
async def test_no_stalls_and_one_attempt_are_not_repeated(server: Server, ends: str) -> None:
    """With `max_stalls=0` and `max_attempts=1` a job whose worker died, or whose handler failed, is dead."""
    async with echomq.open_client(server.url) as client, anyio.create_task_group() as tasks:
        queue = client.queue("once")
        handle = await queue.enqueue(b"1", max_stalls=0, max_attempts=1, result_ttl=60)
        began: list[int] = []

        async def work(job: echomq.Job, payload: int) -> None:
            began.append(job.token)
            if ends == "failure":
                raise LookupError
            with redis.Redis.from_url(server.url) as admin:  # as if nobody had renewed
                admin.zadd(queue.keys.active, {job.id: 1})
            await anyio.sleep_forever()

        worker = await tasks.start(partial(echomq.run_worker, queue, work, grace=0))
        with pytest.raises(echomq.JobFailedError, match="Stalled" if ends == "crash" else "LookupError"):
            await handle.result(10)
        assert await handle.state() == "dead"
        assert began == [1]
        worker.stop()
