"""Obliterating a queue: nothing of it is left, nothing of others is touched, and it may be stopped and gone on with."""

from __future__ import annotations

import anyio
import pytest
import redis

from echomq import App, Client, JobStateError, Queue, ResultNotKeptError, sync
from echomq.protocol.ids import mint
from tests.integration.test_repair import prepare
from tests.worker.support import running

pytestmark = pytest.mark.anyio


async def test_obliterate_leaves_nothing(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Jobs in every place, lanes, settings, logs, torn keys; other queues stay."""
    await prepare(client, queue)
    other = client.queue(f"{queue.name}.x")
    await other.enqueue(b"")
    await queue.lane("settings").configure(weight=3)
    redis_client.rpush(queue.keys.log(mint()), "line")
    redis_client.set(queue.keys.dedup("nobody"), mint())
    with pytest.raises(JobStateError, match="running, expected paused"):
        await queue.obliterate()
    await queue.pause()
    with pytest.raises(JobStateError, match="active 2"):
        await queue.obliterate()
    assert (await queue.counts()).active == 2
    assert await queue.obliterate(force=True) == 8
    assert redis_client.keys(f"{queue.keys.base}*") == []
    assert (await other.counts()).pending == 1
    assert (await queue.enqueue(b"")).admitted  # a new queue of that name begins
    assert (await queue.counts()).totals == {}


async def test_obliterate_goes_on_where_it_was_left(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Closing meanwhile, and `resume` gives what is left back."""
    await queue.enqueue_many([b""] * 1000)
    await queue.enqueue_many([b""] * 300, lane="a")
    await queue.pause()

    async def leave_at(most: int) -> None:
        with anyio.CancelScope() as scope:

            async def leave(count: int) -> None:
                if count >= most:
                    scope.cancel()
                    await anyio.sleep_forever()

            await queue.obliterate(progress=leave)
        assert scope.cancelled_caught

    await leave_at(300)
    with pytest.raises(JobStateError, match="closing"):
        await queue.enqueue(b"")
    left = (await queue.counts()).pending
    assert 0 < left < 1000
    await queue.resume()
    assert (await queue.enqueue(b"")).admitted
    await queue.pause()
    await leave_at(200)
    left = (await queue.counts()).pending
    assert await queue.obliterate() == left
    assert redis_client.keys(f"{queue.keys.base}*") == []
    assert await queue.obliterate() == 0
    assert redis_client.keys(f"{queue.keys.base}*") == []


async def test_obliterate_under_a_worker(app: App, queue_name: str, redis_client: redis.Redis) -> None:
    """Forced, its handlers find their leases lost; waiters are told; what others enqueue meanwhile begins a new queue."""
    started = anyio.Event()

    @app.task(queue=queue_name, name="work", result_ttl=60)
    async def work() -> None:
        started.set()
        await anyio.sleep_forever()

    async with app:
        queue = app.queue(queue_name)
        handle = await work.enqueue()
        async with running(app, lease=1.0):
            with anyio.fail_after(15):
                await started.wait()
                async with anyio.create_task_group() as tasks:

                    async def wait() -> None:
                        with pytest.raises(ResultNotKeptError):
                            await handle.result()

                    tasks.start_soon(wait)
                    await anyio.sleep(0.1)
                    assert await queue.obliterate(force=True) == 1
                assert (await queue.counts()).active == 0
        assert redis_client.keys(f"{queue.keys.base}job:*") == []


def test_sync_obliterate_does_the_same(sync_client: sync.Client, queue_name: str, redis_client: redis.Redis) -> None:
    """By the same walk."""
    queue = sync_client.queue(queue_name)
    queue.enqueue_many([b""] * 600)
    told: list[int] = []
    assert queue.obliterate(force=True, progress=told.append) == 600
    assert told[-1] == 600
    assert redis_client.keys(f"{queue.keys.base}*") == []
