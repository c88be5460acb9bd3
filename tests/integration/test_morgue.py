"""The morgue: looked at, redriven and emptied, by filters, within limits, at a rate, while jobs die on."""

from __future__ import annotations

import datetime as dt

import anyio
import pytest
import redis

from echomq import App, Client, DeadJob, Job, Queue, Rate, State, open_client, sync
from tests.integration.working import fail, until
from tests.worker.support import TRIO, running

pytestmark = pytest.mark.anyio


async def bury(client: Client, queue: Queue, count: int, error: Exception, task: str = "") -> list[str]:
    """Have jobs die."""
    await queue.enqueue_many([b""] * count, task=task)
    return [await fail(client, queue, error) for _ in range(count)]


def age(server: redis.Redis, queue: Queue, id: str, seconds: float) -> None:
    """Have a job died earlier."""
    at = int(server.zscore(queue.keys.dead, id) - seconds * 1000)  # type: ignore[operator]
    server.zadd(queue.keys.dead, {id: at})
    server.hset(queue.keys.job(id), "since", at)


async def test_find_shows_what_is_known(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Error, attempts, age and reason; the longest dead first."""
    (first,) = await bury(client, queue, 1, TimeoutError("the mail server"), "send")
    (second,) = await bury(client, queue, 1, KeyError("x"), "count")
    age(redis_client, queue, first, 7200)
    found = [job async for job in queue.dead.find()]
    assert [job.id for job in found] == [first, second]
    assert isinstance(found[0], DeadJob)
    assert (found[0].task, found[0].attempts) == ("send", 1)
    assert found[0].error is not None
    assert (found[0].error.type, found[0].error.message) == ("TimeoutError", "the mail server")
    assert 7200 <= found[0].age < 7260
    assert found[1].age < 60
    assert found[0].reason
    ids = [
        [job.id async for job in queue.dead.find(**filters)]
        for filters in (
            {"task": "send"},
            {"error": "KeyError"},
            {"error": "mail server"},
            {"older": dt.timedelta(hours=1)},
            {"older": 3600, "task": "count"},
            {"error": "nowhere"},
        )
    ]
    assert ids == [[first], [second], [first], [first], [], []]


async def test_find_survives_that_its_answers_are_redriven(client: Client, queue: Queue) -> None:
    """Each is met once, though the set shrinks behind; it may be left half way."""
    dead = await bury(client, queue, 300, ValueError())
    seen = []
    async for job in queue.dead.find():
        seen.append(job.id)
        assert await queue.redrive([job.id]) == [None]
    assert sorted(seen) == sorted(dead)
    assert (await queue.counts()).pending == 300
    async for _ in queue.dead.find():
        break


async def test_find_shows_a_torn_row(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """As far as it goes."""
    (id,) = await bury(client, queue, 1, ValueError())
    redis_client.hset(queue.keys.job(id), "attempts", "many")
    (job,) = [job async for job in queue.dead.find()]
    assert (job.id, job.attempts) == (id, 0)
    assert "torn" in job.reason


async def test_redrive_takes_what_fits_up_to_a_limit(client: Client, queue: Queue) -> None:
    """The longest dead first; what is not asked for stays."""
    first = await bury(client, queue, 5, TimeoutError("slow"), "send")
    await bury(client, queue, 3, KeyError(), "count")
    assert await queue.dead.redrive(error="Timeout", limit=2) == 2
    counts = await queue.counts()
    assert (counts.pending, counts.dead) == (2, 6)
    for id in first[:2]:
        job = await queue.job(id)
        assert job is not None
        assert job.record.state is State.PENDING
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    assert await queue.dead.redrive(progress=progress) == 6
    assert told[-1] == 6
    assert await queue.dead.redrive() == 0


async def test_redrive_passes_those_whose_key_is_taken(client: Client, queue: Queue) -> None:
    """They stay, and are not counted; nor do they keep it from ending."""
    await queue.enqueue(b"", dedup="k")
    dead = await fail(client, queue, ValueError())
    assert (await queue.enqueue(b"", dedup="k", delay=60)).admitted
    await bury(client, queue, 3, ValueError())
    assert await queue.dead.redrive() == 3
    assert [job.id async for job in queue.dead.find()] == [dead]


@TRIO
async def test_redriven_jobs_that_die_again_are_left(app: App, queue_name: str) -> None:
    """While a worker buries them again as fast as they come: each is tried once."""
    tried: list[str] = []

    @app.task(queue=queue_name, name="die", max_attempts=1)
    async def die(job: Job) -> None:
        tried.append(job.id)
        raise ValueError("again")

    async with app:
        queue = app.queue(queue_name)
        await app.enqueue_many(die.call() for _ in range(600))
        async with running(app, concurrency=50):
            await until(lambda: len(tried) == 600)

            async def buried() -> bool:
                return (await queue.counts()).dead == 600

            await until(buried)
            assert await queue.dead.redrive() == 600
            await until(lambda: len(tried) == 1200)
            await until(buried)
        assert len(tried) == 1200


async def test_find_and_redrive_take_what_was_dead_at_their_beginning(client: Client, queue: Queue) -> None:
    """What dies while they are at it is left, whichever job it is."""
    first = await bury(client, queue, 300, ValueError())
    seen: list[str] = []
    async for job in queue.dead.find():
        if not seen:
            await anyio.sleep(0.002)  # the server's clock counts milliseconds
            await bury(client, queue, 5, ValueError())
        seen.append(job.id)
    assert seen == first

    async def die_again(_: int) -> None:
        await anyio.sleep(0.002)
        for _ in range((await queue.counts()).pending):
            await fail(client, queue, ValueError())

    await anyio.sleep(0.002)
    assert await queue.dead.redrive(progress=die_again) == 305
    assert (await queue.counts()).dead == 305


async def test_redrive_keeps_its_rate(client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evenly, by the clock: a tenth of a second between jobs."""
    await bury(client, queue, 6, ValueError())
    now, pauses = 1000.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(round(seconds, 3))

    monkeypatch.setattr("echomq._walks.anyio.sleep", sleep)
    monkeypatch.setattr("echomq.morgue.anyio.current_time", lambda: now)
    assert await queue.dead.redrive(rate=Rate(10)) == 6
    assert pauses == [0.1] * 5


async def test_redrive_may_be_left_half_way(client: Client, queue: Queue) -> None:
    """What was redriven stays so; another call does the rest."""
    await bury(client, queue, 20, ValueError())

    async def five() -> bool:
        return (await queue.counts()).pending == 5

    async def leave(scope: anyio.CancelScope) -> None:
        await until(five)
        await anyio.sleep(0.1)
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(leave, scope)
            await queue.dead.redrive(rate=Rate(1, per=60, burst=5))
    assert scope.cancelled_caught
    assert (await queue.counts()).pending == 5
    assert await queue.dead.redrive() == 15


async def test_remove_empties_the_morgue(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """By the same filters; rows go."""
    dead = await bury(client, queue, 300, ValueError("a"))
    await bury(client, queue, 2, KeyError())
    assert await queue.dead.remove(error="ValueError") == 300
    assert not redis_client.exists(*map(queue.keys.job, dead))
    assert await queue.dead.remove(limit=1) == 1
    assert (await queue.counts()).dead == 1


def test_sync_morgue_has_the_same_verbs(sync_client: sync.Client, queue_name: str, server_url: str) -> None:
    """Each answers what its sibling does."""

    async def prepare() -> None:
        async with open_client(server_url) as client:
            await bury(client, client.queue(queue_name), 40, ValueError("x"), "t")

    anyio.run(prepare, backend="trio")
    queue = sync_client.queue(queue_name)
    assert len(list(queue.dead.find(task="t", error="ValueError: x"))) == 40
    assert next(queue.dead.find()).attempts == 1
    told: list[int] = []
    assert queue.dead.redrive(limit=10, rate=Rate(1000), progress=told.append) == 10
    assert told[-1] == 10
    assert queue.dead.remove(older=0) == 30
    assert queue.counts().dead == 0
    with pytest.raises(TypeError, match="rate"):
        queue.dead.redrive(rate=3)  # type: ignore[arg-type]
