"""Following a job live: its progress and its log, over reconnects, gaps and endings of every kind."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
import redis

from echomq import Client, MissedLines, Progress, Queue, UnavailableError, open_client, sync
from echomq.conformance.proxy import FaultProxy
from echomq.protocol.ids import mint
from echomq.protocol.records import Claimed
from echomq.transitions import MULTI, Completion, LogLine
from echomq.transitions import Progress as ProgressNote
from tests.integration.test_sync_client import claim_one as claim_here
from tests.integration.working import claim_one, complete, fail, until
from tests.worker.support import TRIO

pytestmark = pytest.mark.anyio


async def note(client: Client, queue: Queue, job: Claimed, data: bytes) -> None:
    """Note progress on behalf of a claim."""
    verdict = await client.wire.group(queue.keys, "progress")(ProgressNote(job.id, job.token, job.nonce, data))
    assert verdict.ok


async def log(client: Client, queue: Queue, job: Claimed, *lines: str) -> None:
    """Append lines on behalf of a claim."""
    items = [LogLine(job.id, job.token, job.nonce, line.encode()) for line in lines]
    for verdict in await client.wire.group(queue.keys, "log").many(items):
        assert not isinstance(verdict, Exception)
        assert verdict.ok


async def finish(client: Client, queue: Queue, job: Claimed) -> None:
    """Complete it."""
    assert (await client.wire.group(queue.keys, "complete")(Completion(job.id, job.token, job.nonce, b"null"))).ok


async def test_progress_is_followed_to_the_end(client: Client, queue: Queue) -> None:
    """The note that stands, each later one, and then it is over."""
    handle = await queue.enqueue(b"", result_ttl=60)
    job = await claim_one(client, queue)
    await note(client, queue, job, b'{"done":1,"total":3,"message":"one"}')
    notes = handle.progress()
    with anyio.fail_after(5):
        assert await anext(notes) == Progress(done=1, total=3, message="one")
        await note(client, queue, job, b'{"done":2,"total":3,"message":null}')
        assert await anext(notes) == Progress(done=2, total=3)
        await note(client, queue, job, b'{"done":3,"total":3}')
        await finish(client, queue, job)
        assert [each async for each in notes] == [Progress(done=3, total=3)]
        assert [each async for each in notes] == []


async def test_log_is_followed_while_lines_come(client: Client, queue: Queue) -> None:
    """Each line once, in order, however many come at a time."""
    handle = await queue.enqueue(b"", result_ttl=60)
    job = await claim_one(client, queue)
    await log(client, queue, job, "first", "second")
    lines: list[str] = []
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:

            async def follow() -> None:
                lines.extend([line async for line in handle.logs()])

            tasks.start_soon(follow)
            for n in range(60):
                await log(client, queue, job, f"line {n}")
                await anyio.sleep(0.005)
            await finish(client, queue, job)
    assert lines == ["first", "second", *(f"line {n}" for n in range(60))]


async def test_gap_in_a_log_is_told(client: Client, queue: Queue) -> None:
    """More lines came than a log keeps, before anybody looked."""
    handle = await queue.enqueue(b"", result_ttl=60)
    job = await claim_one(client, queue)
    await log(client, queue, job, *(f"{n}" for n in range(130)))
    lines = handle.logs()
    with anyio.fail_after(5):
        gap = await anext(lines)
        assert isinstance(gap, MissedLines)
        assert gap.missed == 30
        assert [await anext(lines) for _ in range(100)] == [f"{n}" for n in range(30, 130)]
        await finish(client, queue, job)
        assert [line async for line in lines] == []


@TRIO
@pytest.mark.parametrize("how", ["completes", "dies", "is cancelled", "is removed", "never was"])
async def test_following_ends_with_a_job_that_keeps_nothing(client: Client, queue: Queue, how: str) -> None:
    """Its end is not told: it is looked for."""
    handle = queue.handle(mint()) if how == "never was" else await queue.enqueue(b"")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:

            async def follow(iterator: AsyncIterator[Any]) -> None:
                assert [each async for each in iterator] == []

            tasks.start_soon(follow, handle.progress())
            tasks.start_soon(follow, handle.logs())
            await anyio.sleep(0.2)
            match how:
                case "completes":
                    await complete(client, queue)
                case "dies":
                    await fail(client, queue, KeyError())
                case "is cancelled":
                    await handle.cancel()
                case "is removed":
                    await queue.remove([handle.id])


async def test_following_outlives_a_lost_connection(client: Client, proxy: FaultProxy, queue: Queue) -> None:
    """What was noted meanwhile comes after the reconnect."""
    async with open_client(proxy.url) as other:
        handle = other.queue(queue.name).handle((await queue.enqueue(b"", result_ttl=60)).id)
        job = await claim_one(client, queue)
        await log(client, queue, job, "before")
        lines = handle.logs()
        with anyio.fail_after(10):
            assert await anext(lines) == "before"
            proxy.cut()
            await log(client, queue, job, "after")
            assert await anext(lines) == "after"
            await finish(client, queue, job)
            assert [line async for line in lines] == []


@TRIO
async def test_following_goes_on_after_an_outage_that_was_told(client: Client, proxy: FaultProxy, queue: Queue) -> None:
    """The iterator that raised is iterated over on, and nothing is missing."""
    async with open_client(proxy.url, unavailable_after=0.3) as other:
        handle = other.queue(queue.name).handle((await queue.enqueue(b"")).id)
        job = await claim_one(client, queue)
        await log(client, queue, job, "before")
        lines = handle.logs()
        with anyio.fail_after(15):
            assert await anext(lines) == "before"
            proxy.refusing = True
            proxy.cut()
            await log(client, queue, job, "meanwhile")
            with pytest.raises(UnavailableError):
                await anext(lines)
            proxy.refusing = False
            while True:
                try:
                    assert await anext(lines) == "meanwhile"
                except UnavailableError:
                    continue
                break


@TRIO
async def test_following_makes_up_for_a_look_that_was_cancelled(
    client: Client, proxy: FaultProxy, queue: Queue
) -> None:
    """The next one is not left to the clock."""
    async with open_client(proxy.url) as other:
        handle = other.queue(queue.name).handle((await queue.enqueue(b"", result_ttl=60)).id)
        job = await claim_one(client, queue)
        await log(client, queue, job, "before")
        lines = handle.logs()
        with anyio.fail_after(4):  # less than the 5 s between looks
            assert await anext(lines) == "before"
            await log(client, queue, job, "after")
            await until(lambda: lines._due)
            proxy.delay = 1.0
            with anyio.move_on_after(0.3) as scope:
                await anext(lines)
            assert scope.cancelled_caught
            proxy.delay = 0.0
            assert await anext(lines) == "after"


async def test_many_notes_cost_few_reads(client: Client, queue: Queue) -> None:
    """A look every tenth of a second at most; who waits for the result alone does not look at all."""
    handle = await queue.enqueue(b"", result_ttl=60)
    job = await claim_one(client, queue)
    async with open_client(client.wire.url) as other:
        mine = other.queue(queue.name).handle(handle.id)
        with anyio.fail_after(15):
            async with anyio.create_task_group() as tasks:

                async def wait() -> None:
                    await mine.result()

                tasks.start_soon(wait)
                await until(lambda: other.wire.statistics.sent >= 2)
                before = other.wire.statistics.sent
                for n in range(100):
                    await note(client, queue, job, b'{"done":%d}' % n)
                await anyio.sleep(0.1)
                assert other.wire.statistics.sent == before
                seen: list[Progress] = []
                began = anyio.current_time()

                async def follow() -> None:
                    seen.extend([each async for each in mine.progress()])

                tasks.start_soon(follow)
                for n in range(100, 200):
                    await note(client, queue, job, b'{"done":%d}' % n)
                    await anyio.sleep(0.002)
                await finish(client, queue, job)
        assert seen[-1] == Progress(done=199)
        longer = max(0.0, anyio.current_time() - began - 2.5)  # on a busy machine
        assert len(seen) <= 30 + 10 * longer
        assert other.wire.statistics.sent - before <= 40 + 10 * longer


async def test_followers_that_are_left_listen_no_more(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Dropped, closed, or cancelled while they wait."""
    handle = await queue.enqueue(b"")
    job = await claim_one(client, queue)
    await log(client, queue, job, "x")
    async for _ in handle.logs():
        break
    closed = handle.logs()
    assert await anext(closed) == "x"
    closed.close()
    assert [line async for line in closed] == []
    cancelled = handle.progress()
    with anyio.move_on_after(0.2):
        await anext(cancelled)
    await note(client, queue, job, b'{"done":1}')
    with anyio.fail_after(5):
        assert await anext(cancelled) == Progress(done=1)
    del cancelled
    gc.collect()
    # Closing only notes it; whoever comes next unsubscribes.
    other = await queue.enqueue(b"", result_ttl=60)
    with pytest.raises(TimeoutError):
        await other.result(timeout=0.05)
    await until(lambda: redis_client.pubsub_numsub(handle.channel)[0][1] == 0)


def test_sync_handles_follow_too(sync_client: sync.Client, queue_name: str) -> None:
    """The same, by `for`."""
    queue = sync_client.queue(queue_name)
    handle = queue.enqueue(b"", result_ttl=60)
    job = claim_here(queue)

    def send(verb: str, item: Any) -> None:
        assert queue.runner.remembered(queue.keys, verb, lambda call: MULTI[verb](queue.keys, call, [item]))[0].ok

    send("log", LogLine(job.id, job.token, job.nonce, b"one"))
    send("progress", ProgressNote(job.id, job.token, job.nonce, b'{"done":1,"total":2}'))
    lines, notes = handle.logs(), handle.progress()
    assert next(lines) == "one"
    assert next(notes) == Progress(done=1, total=2)

    def work() -> None:
        send("log", LogLine(job.id, job.token, job.nonce, b"two"))
        send("progress", ProgressNote(job.id, job.token, job.nonce, b'{"done":2,"total":2}'))
        send("complete", Completion(job.id, job.token, job.nonce, b"5"))

    worker = threading.Timer(0.2, work)
    worker.start()
    assert list(lines) == ["two"]
    assert list(notes) == [Progress(done=2, total=2)]
    assert handle.result(timeout=5) == 5
    worker.join()
    gone = queue.enqueue(b"")
    queue.remove([gone.id])
    assert list(gone.logs()) == []
