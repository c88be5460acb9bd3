"""Jobs that one more expired lease would bury."""

from __future__ import annotations

import anyio
import pytest

from echomq.app import App
from echomq.protocol.records import JobRecord
from echomq.worker import settle
from echomq.worker.last_lives import on_last_life
from tests.worker.support import Peek, running, until

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
    monkeypatch.setattr(settle, "PUT_OFF", 0.2)


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
            await anyio.sleep(0.7)
            (first,) = now
            (other,) = {"a", "b"} - now
            assert {"a", "b"} not in seen
            assert peek.state(jobs["ab".index(other)].id) in ("schedule", "pending", "active")
            gates[first].set()
            await until(lambda: now == {other})
            gates[other].set()
            await until(lambda: worker.statistics().counters.completed == 3)
    assert peek.empty()


async def test_last_life_waits_until_the_others_are_back(app: App, queue_name: str, peek: Peek, quick: None) -> None:
    """Its handler begins when the server has taken the others back: what it kills must not be holding them."""
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
            open_gate.set()
            await until(lambda: worker.statistics().counters.completed == 5)
    assert states[0] == ["active"] + ["schedule"] * 4
    assert peek.count("stalled") == 0
