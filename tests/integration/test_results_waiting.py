"""Waiting for results: every way a job can end, and what may go wrong on the way."""

from __future__ import annotations

import gc
import math
from typing import Any

import anyio
import pytest
import redis

from echomq import (
    App,
    Client,
    DecodeError,
    JobCancelledError,
    JobFailedError,
    JobHandle,
    PermissionDeniedError,
    Queue,
    ResultNotKeptError,
    State,
    open_client,
    sync,
)
from echomq.conformance.proxy import FaultProxy
from echomq.embedded import open_server
from echomq.protocol.codec import JsonCodec
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


class Broken:
    """A codec of a user's that cannot read a 2."""

    def encode(self, value: Any) -> bytes:
        """Write as JSON."""
        return JsonCodec().encode(value)

    def decode(self, data: bytes, type: Any = None) -> Any:
        """Read, or fail as users' code does."""
        if data == b"2":
            raise KeyError("of the user's")
        return JsonCodec().decode(data)


async def test_result_that_a_codec_cannot_read_is_one_jobs_error(
    client: Client, queue: Queue, sync_client: sync.Client, server_url: str
) -> None:
    """Whatever the codec raises: an iterator over results goes on, and whoever waits hears the same."""
    async with open_client(server_url, codec=Broken()) as mine:
        here = mine.queue(queue.name)
        handles = [await here.enqueue(b"", result_ttl=60) for _ in range(4)]
        for n in range(4):
            await complete(client, queue, b"%d" % n)
        with anyio.fail_after(4):
            found = {handle.id: value async for handle, value in mine.results(handles)}
        assert [found[handles[n].id] for n in (0, 1, 3)] == [0, 1, 3]
        error = found[handles[2].id]
        assert isinstance(error, DecodeError)
        assert f'{handles[2].id} cannot be decoded: KeyError: "of the user\'s"' in str(error)
        assert isinstance(error.__cause__, KeyError)
        for timeout in (None, 0, 1):
            with pytest.raises(DecodeError, match="KeyError"):
                await handles[2].result(timeout)
    with sync.Client(server_url, codec=Broken()) as blocking, pytest.raises(DecodeError, match="KeyError"):
        blocking.handle(handles[2].id, queue.name).result(timeout=0)


async def test_results_of_a_closed_client_say_so(server_url: str, queue_name: str) -> None:
    """One clear error, and not in a group."""
    async with open_client(server_url) as mine:
        results = mine.results([await mine.queue(queue_name).enqueue(b"", result_ttl=60)])
        errors: list[Exception] = []

        async def wait() -> None:
            try:
                await anext(results)
            except Exception as error:
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(0.1)
            mine.wire.close()
            for bell in list(results._bells.values()):
                bell.ring()
    with pytest.raises(RuntimeError, match="closed"):
        await anext(results)
    assert [type(error) for error in errors] == [RuntimeError]


@pytest.mark.parametrize(
    ("timeout", "error"), [("1", TypeError), (True, TypeError), (b"", TypeError), (math.nan, ValueError)]
)
async def test_result_refuses_a_timeout_that_is_none(
    queue: Queue, sync_client: sync.Client, timeout: Any, error: type[Exception]
) -> None:
    """Before anything is sent, and in the same words with and without an event loop."""
    handle = await queue.enqueue(b"", result_ttl=60)
    for call in (lambda: handle.result(timeout), lambda: handle.result(timeout=timeout)):
        with pytest.raises(error, match="a timeout is a number of seconds"):
            await call()
    with pytest.raises(error, match="a timeout is a number of seconds"):
        sync_client.handle(handle.id, queue.name).result(timeout)


@pytest.mark.parametrize("timeout", [10**400, math.inf, 1e300, 60])
async def test_result_takes_any_number_of_seconds(
    client: Client, queue: Queue, sync_client: sync.Client, timeout: float
) -> None:
    """However large; and less than nothing only looks."""
    handle = await queue.enqueue(b"", result_ttl=60)
    blocking = sync_client.handle(handle.id, queue.name)
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(handle.result, timeout)
            await anyio.sleep(0.05)
            for least in (-timeout, 0):
                with pytest.raises(TimeoutError):
                    await handle.result(least)
                with pytest.raises(TimeoutError):
                    blocking.result(least)
            await complete(client, queue, b"7")
        assert await handle.result(timeout) == blocking.result(timeout) == 7


@pytest.mark.parametrize(
    ("seconds", "error"),
    [("1", TypeError), (None, TypeError), (math.nan, ValueError), (0, ValueError), (-1, ValueError)],
)
async def test_client_refuses_a_patience_that_is_none(server_url: str, seconds: Any, error: type[Exception]) -> None:
    """When it is made, and with the argument's name."""
    with pytest.raises(error, match="unavailable_after is a number of seconds"):
        open_client(server_url, unavailable_after=seconds)
    if error is TypeError or seconds != seconds:  # noqa: PLR0124 - NaN
        with pytest.raises(error, match="unavailable_after is a number of seconds"):
            sync.Client(server_url, unavailable_after=seconds)


async def test_client_takes_any_patience(server_url: str, queue_name: str) -> None:
    """However large."""
    for seconds in (10**400, math.inf):
        async with open_client(server_url, unavailable_after=seconds) as client:
            assert (await client.queue(queue_name).counts()).pending == 0
        with sync.Client(server_url, unavailable_after=seconds) as blocking:
            assert blocking.queue(queue_name).counts().pending == 0


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
