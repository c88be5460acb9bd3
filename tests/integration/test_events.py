"""Events: followed live, resumed, over reconnects and gaps, and left at any moment."""

from __future__ import annotations

import datetime as dt
import gc
import threading
import time
from contextlib import suppress
from typing import Any

import anyio
import pytest
import redis

import echomq
from echomq import Client, Event, Gap, PermissionDeniedError, Queue, UnavailableError, open_client, sync
from echomq.conformance.proxy import FaultProxy
from echomq.protocol.ids import mint
from echomq.transitions import Failure
from tests.integration.cutting import CuttingProxy
from tests.integration.working import claim_one, complete, until
from tests.worker.support import TRIO

pytestmark = pytest.mark.anyio


def readers(admin: redis.Redis, client: Client) -> int:
    """Count a client's connections that wait for events."""
    names = [each["name"] for each in admin.client_list()]
    return names.count(f"echomq-events-{client.wire.tag}")


def jobs_of(events: list[Event | Gap]) -> list[str | None]:
    """The jobs, in order; there must be no gap."""
    assert [it for it in events if isinstance(it, Gap)] == []
    return [it.job for it in events if isinstance(it, Event)]


async def test_events_of_a_life(client: Client, queue: Queue) -> None:
    """What happens to a job is told in order, with what is known of it; and is its history."""
    await queue.configure(events="all")
    async with queue.events() as events:
        handle = await queue.enqueue(b"")
        job = await claim_one(client, queue)
        failure = Failure(
            job.id, job.token, job.nonce, delay_ms=0, max_attempts=2, error=b'{"type":"KeyError","message":""}'
        )
        assert (await client.wire.group(queue.keys, "fail")(failure)).code == "retry"
        await complete(client, queue)
        with anyio.fail_after(10):
            seen = [await anext(events) for _ in range(6)]
    told = [(it.kind, it.attempt) for it in seen if isinstance(it, Event)]
    assert told == [
        ("enqueued", None), ("claimed", 1), ("failed", 1), ("promoted", None), ("claimed", 2), ("completed", 2)
    ]  # fmt: skip
    failed = seen[2]
    assert isinstance(failed, Event)
    assert (failed.failures, failed.delay, failed.error) == (1, 0.0, "KeyError")
    assert (failed.queue, failed.job) == (queue.name, handle.id)
    assert abs(failed.at - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=5)
    assert await queue.history(handle.id) == seen
    assert await queue.history(mint()) == []
    assert [it async for it in queue.events("0", follow=False, kinds=["claimed"])] == [seen[1], seen[4]]
    assert [it async for it in queue.events(failed.id, follow=False)] == seen[3:]
    assert [it async for it in queue.events(failed.at, follow=False, job=handle.id)][-3:] == seen[3:]


async def test_events_are_failures_unless_told_otherwise(client: Client, queue: Queue) -> None:
    """A job that does well leaves nothing; whoever is on call hears of the rest."""
    await queue.enqueue(b"")
    await complete(client, queue)
    await queue.pause()
    await queue.resume()
    kinds = [it.kind async for it in queue.events("0", follow=False) if isinstance(it, Event)]
    assert kinds == ["paused", "resumed"]
    await queue.configure(events="none")
    await queue.pause()
    assert [it async for it in queue.events("0", follow=False)][2:] == []


async def test_events_live_come_as_they_happen(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """While many jobs are added by another task; the follower waits by one blocking read, and asks far less than once each."""
    await queue.configure(events="all")
    ids: list[str] = []
    got: list[Event | Gap] = []
    async with queue.events() as events, anyio.create_task_group() as tasks:

        async def add() -> None:
            for _ in range(60):
                ids.append((await queue.enqueue(b"")).id)
                await anyio.sleep(0.002)

        tasks.start_soon(add)
        with anyio.fail_after(20):
            while len(got) < 60:
                got.append(await anext(events))
        assert readers(redis_client, client) == 1
    assert jobs_of(got) == ids
    await until(lambda: readers(redis_client, client) == 0)


async def test_events_resume_behind_the_last_one(queue: Queue) -> None:
    """A reader that is gone goes on by an id, and by `position` where it passed what it does not want."""
    await queue.configure(events="all")
    ids = [(await queue.enqueue(b"")).id for _ in range(5)]
    last = "0"
    for expected in ids:
        async with queue.events(last) as events:
            event = await anext(events)
            assert isinstance(event, Event)
            assert (event.job, events.position) == (expected, event.id)
            last = event.id
    of_one = queue.events("0", follow=False, job=ids[1])
    assert of_one.position == "0-0"
    assert jobs_of([it async for it in of_one]) == [ids[1]]
    assert of_one.position == last
    assert [it async for it in queue.events(of_one.position, follow=False)] == []


async def test_events_miss_nothing_over_cuts(queue: Queue, proxy: FaultProxy, redis_client: redis.Redis) -> None:
    """The reader's connections are cut, refused and frozen again and again; each event comes once, in order."""
    await queue.configure(events="all")
    ids: list[str] = []
    got: list[Event | Gap] = []

    async def add() -> None:
        for n in range(120):
            ids.append((await queue.enqueue(b"")).id)
            if n % 20 == 10:
                proxy.cut()
            if n == 50:
                proxy.refusing = True
                proxy.cut()
            if n == 70:
                proxy.refusing = False
                proxy.dropping_replies = True
            if n == 75:
                proxy.dropping_replies = False
                proxy.cut()
            await anyio.sleep(0.005)

    async with (
        open_client(proxy.url, unavailable_after=0.2) as cut_off,
        cut_off.queue(queue.name).events() as events,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(add)
        with anyio.fail_after(40):
            while len(got) < 120:
                got.append(await anext(events))
        assert cut_off.wire.statistics.connects > 3
    assert jobs_of(got) == ids
    assert len(ids) == 120


async def test_events_tell_what_the_bound_took_away_meanwhile(queue: Queue, proxy: FaultProxy) -> None:
    """A reader that was cut off for long is told how many it missed, to the one."""
    await queue.configure(events="all", events_max=200)
    async with open_client(proxy.url, unavailable_after=0.2) as cut_off, cut_off.queue(queue.name).events() as events:
        first = (await queue.enqueue(b"")).id
        with anyio.fail_after(10):
            assert jobs_of([await anext(events)]) == [first]
        proxy.refusing = True
        proxy.cut()
        handles = await queue.enqueue_many([b""] * 1000)
        ids = [handle.id for handle in handles if isinstance(handle, echomq.JobHandle)]
        proxy.refusing = False
        with anyio.fail_after(20):
            gap = await anext(events)
            assert isinstance(gap, Gap)
            assert gap.missed is not None
            assert gap.missed >= 600
            rest = [await anext(events) for _ in range(1000 - gap.missed)]
        assert jobs_of(rest) == ids[gap.missed :]
        assert isinstance(rest[0], Event)
        assert gap.before == rest[0].id


async def test_events_from_an_id_that_is_gone_tell_a_gap(queue: Queue) -> None:
    """Nobody knows how many; and an obliterated queue's events are gone for good."""
    await queue.configure(events="all", events_max=100)
    await queue.enqueue(b"")
    (first,) = [it async for it in queue.events("0", follow=False)]
    assert isinstance(first, Event)
    await queue.enqueue_many([b""] * 500)
    gap, *rest = [it async for it in queue.events(first.id, follow=False)]
    assert isinstance(gap, Gap)
    assert (gap.missed, gap.after) == (None, first.id)
    assert len(jobs_of(rest)) < 300
    await queue.pause()
    await queue.obliterate()
    (gone,) = [it async for it in queue.events(first.id, follow=False)]
    assert gone == Gap(queue=queue.name, after=first.id, before=None, missed=None)
    assert [it async for it in queue.events("0", follow=False)] == []


@pytest.mark.parametrize("new", [350, 600])
async def test_events_tell_a_queue_from_the_next_of_its_name(queue: Queue, new: int) -> None:
    """Obliterated and filled between two looks: what is lost has no number, for it is not counted from what was seen."""
    await queue.configure(events="all", events_max=1000)
    async with queue.events() as events:
        await queue.enqueue_many([b""] * 300)
        with anyio.fail_after(20):
            assert len(jobs_of([await anext(events) for _ in range(300)])) == 300
        await queue.obliterate(force=True)
        await queue.configure(events="all", events_max=100)
        handles = await queue.enqueue_many([b""] * new)
        with anyio.fail_after(20):
            gap = await anext(events)
            assert isinstance(gap, Gap)
            assert gap.missed is None
            event = await anext(events)
    assert event == await anext(queue.events("0", follow=False))
    assert jobs_of([event])[0] in {it.id for it in handles if isinstance(it, echomq.JobHandle)}


async def test_events_cancelled_and_gone_on_with(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Cancelled while it waits, again and again, it loses nothing, and goes on with the read that stands."""
    events = queue.events(kinds=["paused"])
    got: list[Event | Gap] = []
    async with events:
        for _ in range(5):
            with anyio.move_on_after(0.01):
                got.append(await anext(events))
        assert got == []
        assert readers(redis_client, client) == 1
        await queue.pause()
        with anyio.fail_after(10):
            event = await anext(events)
        assert isinstance(event, Event)
        assert event.kind == "paused"
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_events_left_close_their_connection(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """By `break`, by an error, and when another thread collects what is garbage."""
    await queue.pause()

    async def leave(how: str) -> None:
        n = 0
        async for _ in queue.events("0"):
            n += 1
            if n == 1:
                await (queue.resume() if (await queue.settings()).paused else queue.pause())
            elif how == "break":
                break
            elif how == "raise":
                raise LookupError

    with anyio.fail_after(20):
        await leave("break")
        await until(lambda: readers(redis_client, client) == 0)
        with pytest.raises(LookupError):
            await leave("raise")
        gc.collect()
        await until(lambda: readers(redis_client, client) == 0)
        loop: list[Any] = [queue.events()]
        with anyio.move_on_after(0.05):
            await anext(loop[0])
        await until(lambda: readers(redis_client, client) == 1)
        loop.append(loop)  # garbage that only the collector finds
        del loop
        collector = threading.Thread(target=gc.collect)
        collector.start()
        await anyio.to_thread.run_sync(collector.join)
        await until(lambda: readers(redis_client, client) == 0)


async def test_events_end_with_their_client(server_url: str, queue_name: str) -> None:
    """Whoever goes on then is told so; what is left of it is no trouble."""
    async with open_client(server_url) as client:
        events = client.queue(queue_name).events()
        with anyio.move_on_after(0.05):
            await anext(events)
    with pytest.raises(RuntimeError, match="closed"):
        await anext(events)
    del events


async def test_events_say_when_no_server_is_there(proxy: FaultProxy, queue_name: str) -> None:
    """At the first look; and ever, when it does not follow."""
    async with open_client(proxy.url, unavailable_after=0.2) as client:
        queue = client.queue(queue_name)
        await queue.pause()
        proxy.refusing = True
        proxy.cut()
        with pytest.raises(UnavailableError):
            await anext(queue.events("0", follow=False))
        events = queue.events("0")
        with pytest.raises(UnavailableError):
            await anext(events)
        proxy.refusing = False
        event: Event | Gap | None = None
        with anyio.fail_after(10):
            while event is None:
                with suppress(UnavailableError):
                    event = await anext(events)
        assert isinstance(event, Event)
        assert event.kind == "paused"


async def test_events_need_their_rights(server_url: str, queue: Queue, redis_client: redis.Redis) -> None:
    """A user who may not wait for a stream is told so, with the command that is missing."""
    user = f"u{mint()}"
    rights = ("reset", "on", ">pw", "~*", "&*", "+@all", "-xread")
    redis_client.execute_command("ACL", "SETUSER", user, *rights)
    try:
        other = server_url.replace("://", f"://{user}:pw@")
        async with open_client(other) as client:
            events = client.queue(queue.name).events()
            with pytest.raises(PermissionDeniedError, match="xread"):
                await anext(events)
    finally:
        redis_client.execute_command("ACL", "DELUSER", user)


@TRIO
async def test_sync_events(sync_client: sync.Client, queue: Queue) -> None:
    """The same for programs that block: history, a timeout that ends the iteration, and going on after it."""
    it = sync_client.queue(queue.name)
    it.configure(events="all")
    ids = [it.enqueue(b"").id for _ in range(3)]
    assert jobs_of(list(it.events("0", follow=False))) == ids
    assert jobs_of(list(it.events("0", follow=False, job=ids[1]))) == jobs_of([*it.history(ids[1])]) == [ids[1]]
    with it.events(timeout=0.1) as events:
        assert list(events) == []
        later = it.enqueue(b"").id
        assert jobs_of(list(events)) == [later]
    assert list(events) == []
    with pytest.raises(ValueError, match="since"):
        it.events("soon")
    with pytest.raises(ValueError, match="a timeout"):
        it.events(timeout=float("nan"))


@TRIO
async def test_sync_events_survive_a_lost_reply(cutting: CuttingProxy, queue: Queue) -> None:
    """Of the read that waits, and of the one that looks."""
    await queue.configure(events="all")
    with sync.Client(cutting.url) as client, client.queue(queue.name).events(timeout=20) as events:
        for marker in (b"XREAD", b"EVALSHA"):
            cutting.marker, cutting.cuts = marker, 1
            handle = await queue.enqueue(b"")
            found = await anyio.to_thread.run_sync(next, events)
            assert (jobs_of([found]), cutting.cuts) == ([handle.id], 0)


@TRIO
async def test_sync_events_end_in_time_while_the_server_is_away(cutting: CuttingProxy, queue: Queue) -> None:
    """And not when the client gives a call up; a later iteration goes on."""
    with (
        sync.Client(cutting.url, unavailable_after=60) as client,
        client.queue(queue.name).events(timeout=0.1) as events,
    ):
        cutting.marker, cutting.cuts = b"XREAD", 1_000_000
        begun = time.monotonic()
        assert await anyio.to_thread.run_sync(list, events) == []
        assert time.monotonic() - begun < 30
        cutting.cuts = 0
        await queue.pause()
        (event,) = await anyio.to_thread.run_sync(list, events)
        assert isinstance(event, Event)
        assert event.kind == "paused"


@TRIO
async def test_sync_events_hear_of_what_another_does(sync_client: sync.Client, queue: Queue) -> None:
    """It wakes for an event, and does not wait for its time to be over; a gap is told as it is elsewhere."""
    it = sync_client.queue(queue.name)
    await queue.configure(events="all", events_max=100)
    found: list[Event | Gap] = []

    def follow() -> None:
        with it.events(timeout=30) as events:
            entered.set()
            found.append(next(events))

    entered = threading.Event()
    thread = threading.Thread(target=follow)
    thread.start()
    await anyio.to_thread.run_sync(entered.wait)
    handle = await queue.enqueue(b"")
    await anyio.to_thread.run_sync(thread.join)
    assert jobs_of(found) == [handle.id]
    assert isinstance(found[0], Event)
    await queue.enqueue_many([b""] * 400)
    assert isinstance(next(it.events(found[0].id)), Gap)
