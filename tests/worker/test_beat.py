"""The beat: who works is seen, with what; it delays nothing, and nothing depends on it."""

from __future__ import annotations

import os
import platform
from typing import Any

import anyio
import pytest
import redis

from echomq import App, Job, Queue, open_client
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import take
from tests.worker.support import proxied, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beat often."""
    monkeypatch.setattr("echomq.worker.beat.EVERY", 0.05)


async def seen(queue: Queue, fits: Any) -> Any:
    """Wait for the only worker to be as it should, and answer it."""
    with anyio.fail_after(15):
        while True:
            workers = await queue.workers()
            if len(workers) == 1 and fits(workers[0]):
                return workers[0]
            await anyio.sleep(0.01)


async def test_worker_is_seen_with_what_it_runs_and_goes_at_its_end(app: App, queue_name: str) -> None:
    """Name, place, slots, jobs; a job in full says who has it."""
    let_go = anyio.Event()

    @app.task(queue=queue_name, name="wait")
    async def wait(job: Job) -> None:
        await let_go.wait()

    async with app:
        queue = app.queue(queue_name)
        assert await queue.workers() == []
        async with running(app, name="the one", concurrency=7):
            idle = await seen(queue, lambda worker: True)
            assert (idle.name, idle.host, idle.pid) == ("the one", platform.node(), os.getpid())
            assert (idle.concurrency, idle.running, idle.jobs) == (7, 0, ())
            handles = [await wait.enqueue() for _ in range(3)]
            busy = await seen(queue, lambda worker: worker.running == 3)
            assert [(job.id, job.task, job.attempt) for job in busy.jobs] == [(each.id, "wait", 1) for each in handles]
            assert busy.since <= busy.jobs[0].since <= busy.seen
            job = await queue.job(handles[0].id)
            assert job is not None
            assert (job.worker, 0 < (job.lease_left or 0) <= 5) == ("the one", True)
            assert queue_name in {name for name, _ in await app.client.queues()}
            let_go.set()
            await seen(queue, lambda worker: worker.running == 0)
        assert await queue.workers() == []


async def test_beats_are_no_part_of_a_queue_that_is_erased(
    app: App, queue_name: str, redis_client: redis.Redis
) -> None:
    """While it is closing none is noted; what a living worker says afterwards goes by itself."""

    @app.task(queue=queue_name)
    async def work() -> None: ...

    async with app:
        queue = app.queue(queue_name)
        async with running(app):
            await work.enqueue()
            await seen(queue, lambda worker: True)
            assert violations(take(redis_client, queue.keys, at_once=True), awake=1) == []
            await queue.obliterate(force=True)
            await until(lambda: redis_client.exists(queue.keys.workers))
            left = take(redis_client, queue.keys, at_once=True).entries
            assert [suffix for suffix, entry in left.items() if not entry.ttl and suffix != "meta"] == []


async def test_worker_works_on_where_its_beats_are_refused(
    app: App, queue_name: str, redis_client: redis.Redis
) -> None:
    """A key that is none: its beats are told once to the log, and jobs are done."""
    done = anyio.Event()

    @app.task(queue=queue_name)
    async def work() -> None:
        done.set()

    async with app:
        queue = app.queue(queue_name)
        redis_client.set(queue.keys.workers, "no set")
        async with running(app):
            await work.enqueue()
            with anyio.fail_after(15):
                await done.wait()
        redis_client.delete(queue.keys.workers)


async def test_worker_that_cannot_say_goodbye_ends_all_the_same(
    server_url: str, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed until its time is over."""
    monkeypatch.setattr("echomq.worker.beat.FAREWELL", 0.1)
    async with proxied(server_url) as proxy, open_client(proxy.url) as client, open_client(server_url) as direct:
        queue = client.queue(queue_name)
        async with running(queue, lambda payload: None, cleanup=0.2):
            await seen(direct.queue(queue_name), lambda worker: True)
            proxy.frozen = True
        assert len(await direct.queue(queue_name).workers()) == 1
