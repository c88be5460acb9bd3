"""Waiting for results: every way a job can end, and what may go wrong on the way."""

from __future__ import annotations

import gc
from typing import Any

import anyio
import pytest
import redis

from echomq import (
    App,
    Client,
    JobCancelledError,
    JobFailedError,
    JobHandle,
    PermissionDeniedError,
    Queue,
    ResultNotKeptError,
    State,
    open_client,
)
from echomq.conformance.proxy import FaultProxy
from echomq.embedded import open_server
from echomq.protocol.ids import mint
from tests.integration.working import complete, end, fail, until

pytestmark = pytest.mark.anyio


def listeners(server: redis.Redis, handles: list[JobHandle[Any]]) -> list[int]:
    """How many connections listen for each job."""
    return [count for _, count in server.pubsub_numsub(*(handle.channel for handle in handles))]


async def test_result_is_told_as_soon_as_the_job_has_ended(client: Client, queue: Queue) -> None:
    """The waiter hears of it by the channel and does not wait for the next look."""
    handle = await queue.enqueue(b"", result_ttl=60)
    with anyio.fail_after(4):  # less than the 5 s between looks
        async with anyio.create_task_group() as tasks:
            values: list[object] = []

            async def wait() -> None:
                values.append(await handle.result())

            for _ in range(3):
                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await complete(client, queue, b'{"n":1}')
    assert values == [{"n": 1}] * 3
    assert await handle.result(timeout=0) == {"n": 1}


async def test_result_of_a_job_that_keeps_none_is_refused_at_once(client: Client, queue: Queue) -> None:
    """Pitfall 34: a default job's row goes when it completes, so nobody waits for what cannot come."""
    handle = await queue.enqueue(b"")
    with anyio.fail_after(2):
        with pytest.raises(ResultNotKeptError):
            await handle.result()
        await complete(client, queue)
        with pytest.raises(ResultNotKeptError):
            await handle.result(timeout=60)
        with pytest.raises(ResultNotKeptError):
            await queue.handle(mint()).result()


async def test_result_raises_what_became_of_the_job(client: Client, queue: Queue) -> None:
    """Failed, cancelled and discarded jobs each have their error, with what is known."""
    failed = await queue.enqueue(b"", result_ttl=60)
    await fail(client, queue, KeyError("nope"))
    with pytest.raises(JobFailedError) as caught:
        await failed.result()
    assert (caught.value.type, caught.value.message, caught.value.attempts) == ("KeyError", "'nope'", 1)
    assert "KeyError" in caught.value.traceback
    cancelled = await queue.enqueue(b"", result_ttl=60)
    await cancelled.cancel(reason="changed my mind")
    with pytest.raises(JobCancelledError, match="changed my mind"):
        await cancelled.result()
    discarded = await queue.enqueue(b"", result_ttl=60)
    await end(client, queue, "discarded", "too old")
    with pytest.raises(JobFailedError) as caught:
        await discarded.result()
    assert (caught.value.type, caught.value.message) == ("Discard", "too old")


async def test_result_of_a_dead_job_is_its_failure_though_it_keeps_none(client: Client, queue: Queue) -> None:
    """The morgue keeps every row, so there is something to say."""
    handle = await queue.enqueue(b"")
    await fail(client, queue, ValueError("broken"))
    with pytest.raises(JobFailedError, match="broken"):
        await handle.result()


async def test_result_ends_when_the_job_is_removed(queue: Queue) -> None:
    """A waiter is told of a removal too."""
    handle = await queue.enqueue(b"", result_ttl=60)
    with anyio.fail_after(4):
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(ResultNotKeptError):
                    await handle.result()

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await queue.remove([handle.id])


async def test_result_times_out_and_may_be_asked_again(client: Client, queue: Queue) -> None:
    """The job lives on; 0 only looks."""
    handle = await queue.enqueue(b"", result_ttl=60)
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError, match=handle.id):
            await handle.result(timeout=timeout)
    await complete(client, queue, b"7")
    assert await handle.result(timeout=5) == 7


async def test_result_survives_a_lost_subscription(client: Client, proxy: FaultProxy, queue: Queue) -> None:
    """A message lost with the connection is made up for by reading the row after the reconnect."""
    async with open_client(proxy.url) as mine:
        handle = await mine.queue(queue.name).enqueue(b"", result_ttl=60)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                values: list[object] = []

                async def wait() -> None:
                    values.append(await handle.result())

                tasks.start_soon(wait)
                await anyio.sleep(0.1)
                proxy.refusing = True
                proxy.cut()
                await complete(client, queue, b"7")
                proxy.refusing = False
        assert values == [7]


async def test_waiters_share_one_connection_and_leave_no_channel(
    client: Client, queue: Queue, redis_client: redis.Redis
) -> None:
    """However many wait, there is one subscription connection; whoever is done has unsubscribed."""
    handles = [await queue.enqueue(b"", result_ttl=60) for _ in range(5)]
    before = client.wire.statistics.connections
    async with anyio.create_task_group() as tasks:
        for handle in handles:
            tasks.start_soon(handle.result)
        await until(lambda: listeners(redis_client, handles) == [1] * 5)
        assert client.wire.statistics.connections == before + 1
        for _ in handles:
            await complete(client, queue)
    await until(lambda: not any(listeners(redis_client, handles)))


async def test_results_come_as_jobs_finish(client: Client, queue: Queue) -> None:
    """Errors of jobs are values here; the order is that of finishing; handles of one job both get it."""
    kept = [await queue.enqueue(b"%d" % n, result_ttl=60) for n in range(3)]
    default = await queue.enqueue(b"")
    found: dict[str, object] = {}
    handles = [*kept, default, queue.handle(kept[0].id)]
    with anyio.fail_after(4):
        iterator = client.results(handles)
        handle, value = await anext(iterator)
        assert handle == default
        assert isinstance(value, ResultNotKeptError)
        await complete(client, queue, b"0")
        await fail(client, queue, KeyError("x"))
        await complete(client, queue, b"2")
        count = 0
        async for handle, value in iterator:
            found[handle.id] = value
            count += 1
    assert count == 4
    assert found[kept[0].id] == 0
    assert isinstance(found[kept[1].id], JobFailedError)
    assert found[kept[2].id] == 2


async def test_results_of_many_jobs(client: Client, queue: Queue) -> None:
    """Several hundred rows are read in portions, each once it has something to say."""
    handles = [h for h in await queue.enqueue_many([b""] * 300, result_ttl=60) if isinstance(h, JobHandle)]
    seen = []
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:

            async def work() -> None:
                for _ in handles:
                    await complete(client, queue, b"1")

            tasks.start_soon(work)
            async for handle, value in client.results(handles):
                assert value == 1
                seen.append(handle.id)
    assert sorted(seen) == sorted(handle.id for handle in handles)


async def test_results_may_be_left_early(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Breaking out of the loop leaves no subscription behind once anybody waits again."""
    handles = [await queue.enqueue(b"", result_ttl=60) for _ in range(3)]
    await complete(client, queue, b"1")
    async for _ in client.results(handles):
        break
    gc.collect()
    assert await handles[0].result() == 1
    await until(lambda: not any(listeners(redis_client, handles)))


async def test_result_of_a_task_has_its_declared_type(app: App, queue_name: str) -> None:
    """What the handler says it returns is what the waiter gets."""

    @app.task(queue=queue_name, result_ttl=60)
    async def sizes(name: str) -> dict[str, tuple[int, int]]:
        return {name: (1, 2)}

    async with app:
        handle = await sizes.enqueue("a")
        await complete(app.client, app.queue(queue_name), sizes.dump_result({"a": (1, 2)}))
        assert await handle.result(timeout=5) == {"a": (1, 2)}
        assert await app.handle(handle.id, queue_name).result(timeout=5) == {"a": [1, 2]}


async def test_result_goes_on_when_channels_are_forbidden_and_allowed_again(
    queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ACL that takes the channels away costs waiters the quick word; one that gives them back needs no restart."""
    monkeypatch.setattr("echomq.results.REREAD_AFTER", 0.5)
    with open_server() as server, redis.Redis.from_url(server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", ">secret", "+@all", "~*", "allchannels")
        address = server.url.partition("://")[2].rpartition("@")[2]
        async with open_client(f"valkey://app:secret@{address}") as mine:
            queue = mine.queue(queue_name)
            first, second = [await queue.enqueue(b"", result_ttl=60) for _ in range(2)]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(first.result)
                await until(lambda: listeners(admin, [first]) == [1])
                admin.execute_command("ACL", "SETUSER", "app", "resetchannels")
                await anyio.sleep(0.3)  # the subscription is lost, and refused on the new connection
                with pytest.raises(PermissionDeniedError, match=second.id), anyio.fail_after(4):
                    await second.result()
                admin.execute_command("ACL", "SETUSER", "app", "allchannels")
                tasks.start_soon(second.result)
                await until(lambda: listeners(admin, [second]) == [1])
                await complete(mine, queue)
                await complete(mine, queue)


async def test_result_cancelled_leaves_the_job_and_no_channel(queue: Queue, redis_client: redis.Redis) -> None:
    """Cancelling ends the waiting, not the job, and lets go of what the waiting held."""
    handle = await queue.enqueue(b"", result_ttl=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(handle.result)
        await until(lambda: listeners(redis_client, [handle]) == [1])
        tasks.cancel_scope.cancel()
    await until(lambda: listeners(redis_client, [handle]) == [0])
    assert await handle.state() is State.PENDING
