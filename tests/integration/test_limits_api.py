"""What a queue is told, by an operator and by a program: limits, rates, capacity, and whose word wins."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from echomq import App, Client, JobHandle, Queue, QueueFullError, Rate, UnavailableError, run_worker, sync
from echomq.conformance.proxy import FaultProxy
from tests.integration.working import complete, until
from tests.worker.support import TRIO

pytestmark = pytest.mark.anyio


async def test_queue_settings_are_kept_and_cleared(queue: Queue) -> None:
    """What is not named stays, None clears, an answer says whether anything changed."""
    fresh = await queue.settings()
    assert (fresh.events, fresh.limit, fresh.rate, fresh.max_size, fresh.paused) == (
        "failures",
        None,
        None,
        None,
        False,
    )
    assert await queue.configure(limit=3, rate=Rate(5, per=2, burst=4), max_size=10**12, events="all")
    settings = await queue.settings()
    assert (settings.limit, settings.rate, settings.max_size) == (3, Rate(5, per=2, burst=4), 10**12)
    assert settings.events == "all"
    assert not await queue.configure(limit=3)
    assert await queue.configure(limit=None, events=None)
    settings = await queue.settings()
    assert (settings.limit, settings.rate, settings.events) == (None, Rate(5, per=2, burst=4), "failures")
    await queue.pause()
    assert (await queue.settings()).paused
    with pytest.raises(TypeError, match="max_size"):
        await queue.configure()
    with pytest.raises(ValueError, match=r"limit .*0"):
        await queue.configure(limit=0, events="none")
    assert (await queue.settings()).events == "failures"


async def test_only_unset_leaves_what_is_set(queue: Queue) -> None:
    """Each setting by itself."""
    await queue.configure(limit=3)
    assert await queue.configure(limit=9, max_size=7, only_unset=True)
    settings = await queue.settings()
    assert (settings.limit, settings.max_size) == (3, 7)
    assert not await queue.configure(limit=9, max_size=9, only_unset=True)


async def test_full_queue_refuses_and_takes_again(client: Client, queue: Queue) -> None:
    """What waits counts, in lanes, scheduled or neither; what runs does not."""
    await queue.configure(max_size=3)
    await queue.enqueue(b"1")
    await queue.enqueue(b"2", lane="a")
    await queue.enqueue(b"3", delay=60)
    with pytest.raises(QueueFullError) as caught:
        await queue.enqueue(b"4", lane="b")
    assert caught.value.queue == queue.name
    await complete(client, queue)
    assert (await queue.enqueue(b"4")).admitted
    await queue.configure(max_size=None)
    assert (await queue.enqueue(b"5")).admitted


async def test_full_queue_fails_its_own_jobs_only(app: App, queue_name: str) -> None:
    """Of many, the refused ones answer the error; those that need no room go on, and other queues."""
    here = app.task_stub("t", queue=queue_name)
    there = app.task_stub("t", queue=f"{queue_name}.b")
    async with app:
        await app.queue(queue_name).configure(max_size=2)
        answers = await app.enqueue_many(
            [
                here.options(dedup="k").call(1),
                here.call(2),
                here.call(3),
                there.call(4),
                here.options(dedup="k", dedup_mode="replace").call(5),
                here.options(dedup="k").call(6),
                here.call(7),
            ]
        )
        told = [answer.outcome if isinstance(answer, JobHandle) else type(answer) for answer in answers]
        assert told == [
            "admitted", "admitted", QueueFullError, "admitted", "replaced", "duplicate", QueueFullError
        ]  # fmt: skip


def test_sync_settings_and_capacity(sync_client: sync.Client, queue_name: str) -> None:
    """The same, without an event loop."""
    queue = sync_client.queue(queue_name)
    assert queue.configure(limit=2, rate=Rate(3), max_size=2)
    assert not queue.configure(limit=5, only_unset=True)
    settings = queue.settings()
    assert (settings.limit, settings.rate, settings.max_size, settings.closed_for) == (2, Rate(3), 2, 0)
    answers = list(queue.enqueue_many([b""] * 4))
    assert [isinstance(answer, QueueFullError) for answer in answers] == [False, False, True, True]
    with pytest.raises(QueueFullError):
        queue.enqueue(b"")
    assert queue.configure(max_size=None)
    assert queue.enqueue(b"").admitted
    with pytest.raises(TypeError, match="size"):
        queue.configure(size=3)  # type: ignore[call-arg]


# --- declared by a program --------------------------------------------------------------------


async def test_declared_settings_are_there_before_the_first_job(client: Client, app: App, queue_name: str) -> None:
    """Declared at import, sent at first use; and not for a queue that nobody uses."""
    await client.queue(f"{queue_name}.known").configure(limit=1)  # the server knows the script
    queue = app.queue(queue_name, max_size=1, limit=5)
    other = app.queue(f"{queue_name}.b", limit=1)
    stub = app.task_stub("t", queue=queue_name)
    with pytest.raises(RuntimeError, match="not open"):
        await queue.counts()
    async with app:
        answers = await app.enqueue_many(stub.call(n) for n in range(3))
        assert [isinstance(answer, QueueFullError) for answer in answers] == [False, True, True]
        assert (await queue.settings()).limit == 5
    assert (await client.queue(other.name).settings()).limit is None
    async with app:  # again, and by the queue itself
        await queue.configure(limit=7)
    async with app:
        assert (await queue.settings()).limit == 7
        assert (await app.queue(queue_name).counts()).pending == 1
        with pytest.raises(QueueFullError):
            await queue.enqueue(b"")


async def test_declaring_is_checked_and_said_once(app: App, queue_name: str) -> None:
    """Parts may come from several modules; two words about one thing are an error there and then."""
    queue = app.queue(queue_name, limit=5)
    assert app.queue(queue_name, rate=Rate(3), limit=5) is queue
    assert app.queue(queue_name) is queue
    with pytest.raises(ValueError, match=r"limit .*5 .*6"):
        app.queue(queue_name, limit=6)
    with pytest.raises(ValueError, match="max_size"):
        app.queue(queue_name, max_size=0)
    with pytest.raises(ValueError, match="a b"):
        app.queue("a b", limit=1)
    with pytest.raises(RuntimeError, match="not open"):
        app.queue(f"{queue_name}.b")
    async with app:
        await queue.counts()
        await until(lambda: has_limit(queue, 5))
        assert app.queue(queue_name, max_size=9) is queue  # while it is open
        await queue.counts()
        settings = await queue.settings()
        assert (settings.limit, settings.rate, settings.max_size) == (5, Rate(3), 9)


async def has_limit(queue: Queue, limit: int) -> bool:
    """Whether the server knows of it."""
    return (await queue.settings()).limit == limit


async def test_declared_settings_give_way_to_the_operator(client: Client, app: App, queue: Queue) -> None:
    """What stands on the server stays."""
    await queue.configure(limit=2)
    declared = app.queue(queue.name, limit=50, max_size=50)
    async with app:
        await declared.enqueue(b"")
        await until(lambda: has_size(queue, 50))
    assert (await queue.settings()).limit == 2


async def has_size(queue: Queue, size: int) -> bool:
    """Whether the server knows of it."""
    return (await queue.settings()).max_size == size


@TRIO
async def test_declared_settings_wait_for_a_server_that_is_away(
    proxy: FaultProxy, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening does not fail, leaving does not wait, and they come when the server does."""
    monkeypatch.setattr("echomq._declared.FIRST_PAUSE", 0.05)
    app = App(proxy.url, unavailable_after=0.2)
    declared = app.queue(queue.name, limit=4)
    proxy.refusing = True
    with anyio.fail_after(15):
        async with app:
            with pytest.raises(UnavailableError):
                await declared.enqueue(b"")
        async with app:
            with pytest.raises(UnavailableError):
                await declared.enqueue(b"")
            await anyio.sleep(0.3)  # the call itself has been given up
            proxy.refusing = False
            await until(lambda: has_limit(queue, 4))


async def test_worker_declares_when_it_starts(app: App, queue: Queue) -> None:
    """Though it finds no job."""
    app.queue(queue.name, limit=3)
    app.task(name="t", queue=queue.name)(lambda: None)
    async with app, anyio.create_task_group() as tasks:
        worker = await tasks.start(partial(run_worker, app))
        await until(lambda: has_limit(queue, 3))
        worker.stop()


async def test_queue_limit_holds_in_a_worker(app: App, queue: Queue) -> None:
    """Whatever its concurrency."""
    running = most = done = 0
    app.queue(queue.name, limit=2)

    @app.task(queue=queue.name)
    async def handle() -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await anyio.sleep(0.01)
        running -= 1
        done += 1

    async with app, anyio.create_task_group() as tasks:
        await app.enqueue_many(handle.call() for _ in range(20))
        worker = await tasks.start(partial(run_worker, app, concurrency=10))
        await until(lambda: done == 20)
        worker.stop()
    assert most == 2
