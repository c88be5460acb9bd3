"""The server itself is frozen, or killed and comes back with its log: time is lost, and nothing else."""

from __future__ import annotations

import itertools
import os
import random
import signal
from collections import defaultdict
from collections.abc import Iterator, Sized
from functools import partial

import anyio
import anyio.to_thread
import pytest

from echomq.app import App
from echomq.conformance.driver import connect
from echomq.conformance.invariants import leftovers, violations
from echomq.conformance.snapshot import take
from echomq.embedded import Server, open_server
from echomq.job import Job
from tests.worker.support import TRIO, Peek, running, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that writes a log of all it does, before it answers.

    `everysec` does so, too, unless the disk is so busy that the last flush takes long: then it answers first.
    """
    with open_server(config={"appendonly": "yes", "appendfsync": "no"}) as server:
        yield server


def has(items: Sized, count: int) -> bool:
    """Tell whether there are so many."""
    return len(items) >= count


@TRIO
async def test_server_frozen_past_all_leases_has_no_job_in_two_hands(server: Server, queue_name: str) -> None:
    """SIGSTOP for longer than the leases: handlers have ended by their own clock when it wakes and gives jobs away."""
    app = App(server.url, unavailable_after=15.0)
    spans: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    reasons: set[str | None] = set()
    frozen = anyio.Event()

    @app.task(queue=queue_name)
    async def work(job: Job) -> None:
        began = anyio.current_time()
        try:
            if not frozen.is_set():
                await anyio.sleep_forever()
            await anyio.sleep(0.05)
        finally:
            reasons.add(job.cancel_reason)
            spans[job.id].append((began, anyio.current_time()))

    with connect(server.url) as client:
        peek = Peek(client, queue_name)
        async with app:
            options = {"lease": 1.0, "concurrency": 6}
            async with running(app, **options) as one, running(app, **options) as two:
                jobs = [await work.enqueue() for _ in range(12)]
                await until(lambda: one.statistics().running + two.statistics().running == len(jobs))
                os.kill(server.pid, signal.SIGSTOP)
                try:
                    await until(lambda: len(spans) == len(jobs))
                    frozen.set()
                    await anyio.sleep(0.5)  # the leases are over on the server too
                finally:
                    os.kill(server.pid, signal.SIGCONT)
                await until(peek.empty)
        assert peek.count("completed") == len(jobs)
        assert max(len(each) for each in spans.values()) >= 2
        for each in spans.values():
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(each))
        assert reasons == {"lease_lost", None}
        # At most two: a renewal that was under way when it froze may have been counted when it woke.
        assert peek.count("stalled") <= 2 * len(jobs)
        assert violations(take(client, peek.keys), awake=1) == []


@TRIO
async def test_server_killed_at_random_forgets_nothing_of_its_log(server: Server, queue_name: str) -> None:
    """SIGKILL while jobs come and go: what was acknowledged is there, whole, and is done once; no lease is disturbed."""
    app = App(server.url, unavailable_after=20.0)
    chance = random.Random(7)
    ran: list[int] = []
    admitted: list[str] = []
    done = anyio.Event()

    @app.task(queue=queue_name)
    async def work(n: int) -> None:
        await anyio.sleep(0.01)
        ran.append(n)

    async def produce(first: int) -> None:
        n = first
        while not done.is_set():
            admitted.append((await work.enqueue(n)).id)
            n += 4
            await anyio.sleep(0.002)

    async with app, running(app, lease=10.0, concurrency=20):
        async with anyio.create_task_group() as tasks:
            for first in range(4):
                tasks.start_soon(produce, first)
            for _ in range(3):
                await anyio.sleep(chance.uniform(0.1, 0.5))
                await anyio.to_thread.run_sync(server.kill)
                await anyio.to_thread.run_sync(server.start)
                await until(partial(has, admitted, len(admitted) + 20))
            done.set()
        with connect(server.url) as client:
            peek = Peek(client, queue_name)
            await until(peek.empty)
            assert len(set(admitted)) == len(admitted)
            assert (peek.count("completed"), peek.count("stalled")) == (len(admitted), 0)
            assert sorted(ran) == sorted(set(ran))
            assert len(ran) == len(admitted)
            snap = take(client, peek.keys)
            assert violations(snap, awake=1) == leftovers(snap) == []
