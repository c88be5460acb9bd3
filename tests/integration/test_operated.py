"""Every verb of an operator's, on a queue in full swing; and nothing at all left of one that is obliterated."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest
import redis

from echomq import App, Discard, EchoMQError, Job, JobHandle, JobNotFoundError, JobStateError, Queue, Rate, Snooze, flow
from echomq.backoff import Fixed
from echomq.conformance.invariants import violations
from echomq.conformance.invariants_kin import kin_violations
from echomq.conformance.snapshot import take
from tests.worker.support import TRIO, running

pytestmark = pytest.mark.anyio

LANES = (None, "a", "b", "c")
STATES = ("pending", "active", "schedule", "waiting", "dead", "done")
ROUNDS = 10
HAPPENED = {"completed", "dead", "cancelled", "removed", "redriven", "trimmed"}


def tasks_of(app: App, name: str) -> Any:
    """Give an app a task that ends in all the ways there are."""

    @app.task(queue=name, max_attempts=2, backoff=Fixed(0.01), result_ttl=60)
    async def work(job: Job, how: int) -> int:
        await job.log(f"attempt {job.attempt}")
        await job.checkpoint(how, step=job.attempt)
        match how % 8:
            case 0:
                raise ValueError("no")
            case 1:
                raise Discard("not worth it")
            case 2 if job.attempt == 1:
                raise Snooze(0.01, at_least=0)
            case 3:
                await anyio.sleep(0.05)
        return how

    return work


async def call_all(queue: Queue, ids: list[str], seed: random.Random) -> None:
    """Call every verb once, in some order, on some jobs."""

    async def each(method: Callable[..., Awaitable[Any]], **options: Any) -> None:
        for outcome in await method(seed.sample(ids, min(5, len(ids))), **options):
            assert outcome is None or isinstance(outcome, EchoMQError)

    async def one(method: Callable[..., Awaitable[Any]], *args: Any) -> None:
        with suppress(JobNotFoundError, JobStateError):
            await method(seed.choice(ids), *args)

    async def found() -> None:
        for state in STATES:
            async for job in queue.find(state, limit=20):
                assert job.record.id

    async def looked() -> None:
        await queue.waits()
        await queue.workers()
        for state in STATES:
            await queue.browse(state)
        await queue.job(seed.choice(ids), log=True, children=True)

    async def paused() -> None:
        await queue.pause()
        await queue.lane("a").pause()
        await queue.resume()
        await queue.lane("a").resume()

    verbs: list[Callable[[], Awaitable[Any]]] = [
        lambda: one(queue.update, b"[[3], {}]"),
        lambda: one(queue.cancel),
        lambda: each(queue.reprioritise, priority=seed.randint(-9, 9)),
        lambda: each(queue.reschedule, delay=seed.choice((0, 0.05))),
        lambda: each(queue.promote),
        lambda: each(queue.remove),
        lambda: each(queue.redrive),
        lambda: each(queue.reassign, lane=seed.choice(("", "a", "b", "z"))),
        lambda: queue.dead.redrive(limit=5),
        lambda: queue.dead.remove(limit=2),
        lambda: queue.cancel_where(lane="c", reason="a test"),
        lambda: queue.lane("b").drain(scheduled=True),
        lambda: queue.drain(scheduled=seed.random() < 0.5),
        lambda: queue.trim(dead_max=5, done_max=10),
        lambda: queue.configure(limit=seed.randint(3, 9), rate=Rate(5000)),
        lambda: queue.lane("a").configure(weight=seed.randint(1, 3), limit=seed.randint(1, 5)),
        queue.repair,
        found,
        looked,
        paused,
    ]
    seed.shuffle(verbs)
    for verb in verbs:
        await verb()


@TRIO
@pytest.mark.timeout(120)
async def test_every_verb_keeps_a_queue_in_full_swing_sound(
    app: App, queue_name: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers and two producers, lanes and flows; afterwards all invariants hold, and all that is left ends."""
    monkeypatch.setattr("echomq.worker.beat.EVERY", 0.05)
    work, seed = tasks_of(app, queue_name), random.Random(7)
    ids: list[str] = []
    over = anyio.Event()

    async def produce() -> None:
        n = 0
        while not over.is_set():
            n += 1
            made = [
                await work.options(lane=seed.choice(LANES), delay=seed.choice((0, 0, 0.02))).enqueue(n + more)
                for more in range(8)
            ]
            ids.extend(handle.id for handle in made)
            added = await app.flows.add(flow(work.call(n), [work.call(3), work.options(lane="b").call(4)]))
            ids.append(added.id)
            del ids[:-200]
            await anyio.sleep(0.002)

    async with app, anyio.create_task_group() as tasks:
        queue = app.queue(queue_name)
        async with running(app, concurrency=5), running(app, concurrency=5):
            for _ in range(2):
                tasks.start_soon(produce)
            while len(ids) < 50:  # noqa: ASYNC110 - the producers set no event
                await anyio.sleep(0.01)
            done = 0
            while done < ROUNDS or not (await queue.counts()).totals.keys() >= HAPPENED:
                await call_all(queue, list(ids), seed)
                done += 1
            over.set()
        # The workers have gone: the queue is at rest.
        report = await queue.repair()
        assert (report.mended, report.buried, report.dropped, report.unknown) == (0, 0, 0, ())
        snap = take(redis_client, queue.keys)
        assert violations(snap, awake=1) + kin_violations({queue_name: snap}) == []
        await queue.resume()
        await queue.configure(limit=None, rate=None)
        for lane in ("a", "b", "c", "z"):
            await queue.lane(lane).resume()
            await queue.lane(lane).configure(limit=None)
        async with running(app, concurrency=50):
            with anyio.fail_after(60):
                while True:
                    counts = await queue.counts()
                    if not (counts.pending or counts.active or counts.schedule or counts.waiting):
                        break
                    await queue.promote([job.record.id async for job in queue.find("schedule", limit=50)])
                    await anyio.sleep(0.02)
        assert violations(take(redis_client, queue.keys)) == []
        await queue.obliterate(force=True)


async def test_obliterate_leaves_no_key(app: App, queue_name: str, redis_client: redis.Redis) -> None:
    """Of a queue with lanes, flows, schedules, results, dedup keys, logs, events, and workers that were killed."""
    work = tasks_of(app, queue_name)
    async with app:
        queue = app.queue(queue_name)
        await queue.configure(events="all", limit=50, on_dead="tell")
        await queue.lane("a").configure(weight=2, limit=5, rate=Rate(1000))
        await queue.schedules.put("nightly", b"x", cron="0 0 1 1 *")
        handles: list[JobHandle[Any]] = []
        for n in range(16):
            handles += [await work.options(lane=lane, dedup=f"{n} {lane}").enqueue(n) for lane in LANES]
        await work.options(dedup="w", dedup_window=60, delay=60).enqueue(1)
        await app.flows.add(flow(work.call(4), [work.call(5), work.options(delay=60).call(5)]))
        async with running(app):
            with anyio.fail_after(30):
                while (await queue.counts()).totals.get("completed", 0) < 20:  # noqa: ASYNC110 - other tasks set no event
                    await anyio.sleep(0.01)
        await work.options(lane="b").enqueue(1)
        redis_client.zadd(queue.keys.workers, {"killed": 10**14})
        redis_client.hset(queue.keys.worker("killed"), "name", "killed")
        await queue.pause()
        suffixes = {
            str(key, "utf-8").removeprefix(queue.keys.base) for key in redis_client.scan_iter(f"{queue.keys.base}*")
        }
        assert suffixes >= {"meta", "events", "done", "dead", "waiting", "schedules", "lanes", "counts", "workers"}
        assert await queue.obliterate() > 0
        assert list(redis_client.scan_iter(f"{queue.keys.base}*")) == []
        assert redis_client.zscore(queue.keys.known, queue_name) is None
