"""Jobs that one more expired lease would bury."""

from __future__ import annotations

import itertools

import anyio
import pytest

from echomq.app import App
from echomq.protocol.records import JobRecord
from echomq.results import JobHandle
from echomq.worker import last_lives
from echomq.worker.last_lives import LastLives, on_last_life
from echomq.worker.timers import Timers
from tests.worker.fakes import make_lease, make_settler
from tests.worker.support import TRIO, Peek, proxied, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("row", "last"),
    [
        ({}, False),
        ({b"stalls": b"2"}, False),
        ({b"stalls": b"3"}, True),
        ({b"stalls": b"4"}, True),
        ({b"stalls": b"1", b"max_stalls": b"1"}, True),
        ({b"stalls": b"3", b"max_stalls": b"4"}, False),
        ({b"max_stalls": b"0"}, False),
        ({b"stalls": b"torn"}, False),
        ({b"stalls": b"3", b"max_stalls": b"torn"}, False),
    ],
)
def test_last_life_is_the_one_after_which_a_stall_buries(row: dict[bytes, bytes], last: bool) -> None:
    """A job that has never stalled is not on it, even if its first stall would bury it: its first life is like any."""
    assert on_last_life(JobRecord("JOB00000000000", row)) is last


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put jobs off for a moment only."""
    monkeypatch.setattr(last_lives, "PUT_OFF", 0.2)


@TRIO
async def test_of_two_on_their_last_life_one_runs(app: App, queue_name: str, peek: Peek, quick: None) -> None:
    """The other waits in the schedule, where no killer reaches it, and runs afterwards; healthy ones run meanwhile."""
    now: set[str] = set()
    seen: list[set[str]] = []
    gates = {"a": anyio.Event(), "b": anyio.Event()}

    @app.task(queue=queue_name)
    async def handle(name: str) -> None:
        now.add(name)
        seen.append(set(now))
        if name in gates:
            await gates[name].wait()
        now.remove(name)

    async with app:
        jobs = [await handle.options(max_stalls=1).enqueue(name) for name in ("a", "b")]
        for job in jobs:
            peek.client.hset(peek.keys.job(job.id), "stalls", 1)
        await handle.enqueue("healthy")
        async with running(app) as worker:
            await until(lambda: now and worker.statistics().counters.completed == 1)
            (first,) = now
            (other,) = {"a", "b"} - now
            # Claimed, and put off, again and again.
            await until(lambda: peek.record(jobs["ab".index(other)].id).attempts > 1)
            assert {"a", "b"} not in seen
            gates[first].set()
            await until(lambda: now == {other}, 3)  # at once, not when its time alone is over
            gates[other].set()
            await until(lambda: worker.statistics().counters.completed == 3)
    assert peek.empty()


async def test_last_life_waits_until_the_others_are_back(
    app: App, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler begins when the server has taken the others back: what it kills must not be holding them."""
    monkeypatch.setattr(last_lives, "PUT_OFF", 600.0)
    states: list[list[str]] = []
    open_gate = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        states.append(sorted(peek.state(job.id) for job in jobs))
        await open_gate.wait()

    async with app:
        jobs = [await handle.options(max_stalls=1).enqueue() for _ in range(5)]
        for job in jobs:
            peek.client.hset(peek.keys.job(job.id), "stalls", 1)
        async with running(app) as worker:
            await until(lambda: states)
            monkeypatch.setattr(last_lives, "PUT_OFF", 0.2)
            await app.queue(queue_name).reschedule(
                [job.id for job in jobs if peek.state(job.id) == "schedule"], delay=0
            )
            open_gate.set()
            await until(lambda: worker.statistics().counters.completed == 5)
    assert states[0] == ["active"] + ["schedule"] * 4
    assert peek.count("stalled") == 0


@TRIO
async def test_first_of_many_begins(server_url: str, queue_name: str, peek: Peek) -> None:
    """Claims would overtake what is taken back in several calls, and bring more of them: they wait until it has begun."""
    ran: list[int] = []
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle(n: int) -> None:
            ran.append(n)

        async with app:
            jobs = await app.enqueue_many(handle.options(max_stalls=1).call(n) for n in range(6000))
            with peek.client.pipeline() as pipe:
                for job in jobs:
                    assert isinstance(job, JobHandle)
                    pipe.hset(peek.keys.job(job.id), "stalls", 1)
                pipe.execute()
            proxy.delay = 0.05
            async with running(app, concurrency=1000, cleanup=5.0) as worker:
                await until(lambda: ran, 4)
                assert worker.statistics().counters.claimed <= 1000


async def test_more_of_them_are_put_off_for_longer() -> None:
    """Thousands that came back every two seconds would keep the worker from all else."""
    lives = LastLives(make_settler(Timers()), begun=lambda: None)
    leases = [make_lease(id=str(n)) for n in range(202)]
    for lease in leases:
        lease.claimed.record.row[b"stalls"] = b"3"
    assert [lives.admits(lease) for lease in leases] == [True] + [False] * 201
    delays = [lease.calls.snooze.submitted[0][0].delay_ms / 1000 for lease in leases[1:]]
    assert 1.6 <= delays[0] <= 2.5
    assert 4.7 <= delays[-1] <= 7.3


@TRIO
async def test_one_that_goes_on_lets_the_next_begin(
    app: App, queue_name: str, peek: Peek, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that takes hours keeps nobody waiting for hours."""
    monkeypatch.setattr(last_lives, "ALONE", 0.5)
    began: list[float] = []

    @app.task(queue=queue_name)
    async def handle(n: int) -> None:
        began.append(anyio.current_time())
        await anyio.sleep_forever()

    async with app:
        for n in range(3):
            job = await handle.options(max_stalls=1).enqueue(n)
            peek.client.hset(peek.keys.job(job.id), "stalls", 1)
        async with running(app):
            await until(lambda: len(began) == 3)
    assert min(late - early for early, late in itertools.pairwise(began)) > 0.3


async def test_put_off_job_keeps_the_time_since_when_it_does_not_fit(
    app: App, queue_name: str, peek: Peek, quick: None
) -> None:
    """Else a job that fits nowhere would begin its deploy window anew with each time it is put off."""
    gate = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        await gate.wait()

    async with app:
        first = await handle.options(max_stalls=1, priority=1).enqueue()
        second = await handle.options(max_stalls=1).enqueue()
        for job in (first, second):
            peek.client.hset(peek.keys.job(job.id), mapping={"stalls": 1, "unfit_since": 1})
        async with running(app):
            await until(lambda: peek.state(second.id) == "schedule")
            assert peek.record(second.id).row[b"unfit_since"] == b"1"
            gate.set()
