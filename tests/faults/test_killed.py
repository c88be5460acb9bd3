"""Worker processes killed at random moments: books kept outside prove that no job was ever in two hands."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import orjson
import pytest

from echomq import transitions
from echomq.conformance.invariants import leftovers, violations
from echomq.conformance.snapshot import Snapshot, take
from echomq.conformance.telling import untold
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call
from tests.faults.ledger import Entry, Ledger
from tests.worker.processes import WorkerProcess
from tests.worker.support import Peek

APP = "tests.faults.jobs_app:app"
LEASE = 3.0
WORKERS = 3


@attrs.frozen
class Claim:
    """What the server's own record says of one claim. Times are the server's, ms."""

    at: float
    token: int
    holder: str


@attrs.frozen
class Shift:
    """When one worker was there to take jobs over. Seconds of the machine's clock, which is the server's too."""

    ready: float
    died: float


@attrs.define
class Crew:
    """Three worker processes; one that dies is replaced."""

    url: str
    queue: str
    same_names: bool
    stack: ExitStack
    lease: float = LEASE
    workers: list[WorkerProcess] = attrs.field(factory=list)
    died: dict[int, float] = attrs.field(factory=dict)
    """When each process was surely dead, CLOCK_MONOTONIC, by process id."""
    shifts: list[Shift] = attrs.field(factory=list)
    started: int = 0

    def start(self, place: int) -> WorkerProcess:
        """Start a worker in a place."""
        self.started += 1
        name = f"worker-{place}" if self.same_names else f"worker-{place}.{self.started}"
        options = ("--lease", str(self.lease), "--concurrency", "8", "--grace", "1", "--cleanup", "1", "--name", name)
        worker = WorkerProcess(self.url, self.queue, *options, app=APP)
        self.stack.callback(worker.end)
        return worker

    def fill(self) -> None:
        """Start all."""
        self.workers = [self.start(place) for place in range(WORKERS)]
        for worker in self.workers:
            worker.wait_for("worker_started")

    def note(self, worker: WorkerProcess, died: float) -> None:
        """Note the shift of a worker that is about to end; one that had not yet begun has none."""
        for line in worker.log("worker_started"):
            ready = dt.datetime.fromisoformat(line["timestamp"]).timestamp()
            self.shifts.append(Shift(ready, died))

    def kill(self, place: int) -> None:
        """Kill one as it is, and start another in its place."""
        victim = self.workers[place]
        self.note(victim, time.time())
        victim.signal(signal.SIGKILL)
        victim.wait()
        self.died[victim.pid] = time.monotonic()
        self.workers[place] = self.start(place)


def add_jobs(peek: Peek, count: int, chance: random.Random) -> list[str]:
    """Enqueue short jobs; however often their workers die, none of them is buried for it."""
    jobs = [
        NewJob(task="booked", payload=orjson.dumps({"args": [chance.choice([0.0, 0.02, 0.1, 0.4])]}), max_stalls=10_000)
        for _ in range(count)
    ]
    for start in range(0, count, 200):
        verdicts = peek.run(transitions.enqueue(peek.keys, Call("test"), jobs[start : start + 200]))
        assert {verdict.code for verdict in verdicts} == {"admitted"}
    return [job.id for job in jobs]


def claims_of(peek: Peek) -> dict[str, list[Claim]]:
    """Answer each job's claims, from the events."""
    found: defaultdict[str, list[Claim]] = defaultdict(list)
    for at, fields in peek.events("claimed"):
        found[fields[b"job"].decode()].append(Claim(at, int(fields[b"token"]), fields[b"holder"].decode()))
    return found


def assert_in_one_hand_at_a_time(entries: dict[str, list[Entry]], died: dict[int, float]) -> None:
    """Hold the books: attempts of one job do not overlap, tokens grow, and the effect was accepted once."""
    for job, attempts in entries.items():
        tokens = [each.token for each in attempts]
        assert tokens == sorted(set(tokens)), (job, attempts)
        assert all(each.accepted for each in attempts), (job, attempts)
        for one, two in itertools.pairwise(attempts):
            over = one.ended if one.ended is not None else died[one.pid]
            assert over <= two.began, (job, one, two)
        # An attempt whose worker died after its effect and before its verdict is repeated: at least once.
        assert attempts[-1].effective, (job, attempts)
        assert all(each.effective == (each.ended is not None) for each in attempts), (job, attempts)


def assert_taken_over_in_time(claims: dict[str, list[Claim]], shifts: list[Shift], *, slack: float) -> int:
    """Hold that a lost lease went to another within the lease and a second, by the server's clock; count them.

    `slack` is granted to a machine that is busy with other tests, and with starting workers. Seconds.
    """
    count = 0
    for job, each in claims.items():
        assert len({(it.token, it.holder) for it in each}) == len(each)
        assert [it.token for it in each] == list(range(1, len(each) + 1)), (job, each)
        for one, two in itertools.pairwise(each):
            count += 1
            # Jobs here are shorter than a third of the lease, so none was renewed: it began with its claim.
            over = one.at / 1000 + LEASE
            # The second is a survivor's: who was there when the lease ended, or else who came next, and lived on.
            deadlines = [max(over, it.ready) + 1.0 for it in shifts if it.died >= max(over, it.ready) + 1.0 + slack]
            assert over <= two.at / 1000 <= min(deadlines) + slack, (job, one, two, shifts)
    return count


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """Books outside the queue, which the workers' handlers find in their environment."""
    path = tmp_path / "ledger.sqlite"
    monkeypatch.setenv("TEST_LEDGER", str(path))
    ledger = Ledger(path)
    yield ledger
    ledger.close()


def play(
    url: str,
    peek: Peek,
    books: Ledger,
    *,
    jobs: int,
    kills: int,
    pause: tuple[float, float],
    same_names: bool,
    slack: float,
) -> str:
    """Kill workers at random moments until the queue is empty; answer what happened, in a line."""
    chance = random.Random(jobs + same_names)
    peek.run(transitions.configure(peek.keys, Call("test"), settings={"events": "all"}))
    ids = add_jobs(peek, jobs, chance)
    began = time.monotonic()
    with ExitStack() as stack:
        crew = Crew(url, peek.keys.queue, same_names, stack)
        crew.fill()
        while not peek.empty():
            assert time.monotonic() - began < 240, peek.active()
            time.sleep(chance.uniform(*pause))
            if kills:
                kills -= 1
                crew.kill(chance.randrange(WORKERS))
        took = time.monotonic() - began
        for worker in crew.workers:
            worker.wait_for("worker_started")
            worker.signal(signal.SIGTERM)
            crew.note(worker, math.inf)
        for worker in crew.workers:
            assert worker.wait() == 0
    entries, claims = books.entries(), claims_of(peek)
    assert set(entries) == set(claims) == set(ids)
    assert (peek.count("completed"), peek.count("dead"), peek.count("failed")) == (jobs, 0, 0)
    assert_in_one_hand_at_a_time(entries, crew.died)
    taken_over = assert_taken_over_in_time(claims, crew.shifts, slack=slack)
    assert taken_over == peek.count("stalled") == sum(len(each) - 1 for each in claims.values())
    snap = take(peek.client, peek.keys)
    assert violations(snap) == leftovers(snap) == []
    ends = Counter(fields[b"job"] for _, fields in peek.events("completed"))
    assert set(ends.values()) == {1}
    # One change, one event: replayed from nothing, they lead to what is there, and there are as many as were counted.
    assert list(untold(Snapshot({}), snap)) == []
    dead = len(crew.died)
    return f"{jobs} jobs, {dead} workers killed, {taken_over} leases taken over, all done in {took:.0f} s"


@pytest.mark.slow
def test_workers_killed_now_and_then_never_share_a_job(server_url: str, peek: Peek, books: Ledger) -> None:
    """Some short jobs and a few kills: every job ends, no two leases are live at once, survivors are in time."""
    print(play(server_url, peek, books, jobs=150, kills=3, pause=(0.1, 0.4), same_names=True, slack=2.0))


@pytest.mark.prove
@pytest.mark.timeout(300)
@pytest.mark.parametrize("same_names", [False, True], ids=["fresh names", "names used again"])
def test_workers_killed_at_random_never_share_a_job(
    server_url: str, peek: Peek, books: Ledger, same_names: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thousand short jobs, a worker killed about every second: the same."""
    line = play(server_url, peek, books, jobs=1000, kills=25, pause=(0.3, 1.2), same_names=same_names, slack=0.5)
    with capsys.disabled():
        print(f"\n{line}")
