"""A queue under disorder for long: failures, timeouts, workers that come and go; it stays level and ends empty."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import orjson
import pytest
import redis

from echomq import transitions
from echomq.conformance.driver import connect
from echomq.conformance.invariants import leftovers, violations
from echomq.conformance.snapshot import take
from echomq.embedded import Server, open_server
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call
from tests.worker.processes import WorkerProcess
from tests.worker.support import Peek

APP = "tests.faults.jobs_app:app"
BACKLOG = 2000
"""Jobs that are kept ready, so that workers never wait for the producer and the queue never grows."""
ROUND = 200
MEGABYTE = 1 << 20
DISORDER = {"failed": 11, "dead": 1}
"""Of a hundred: one in ten fails and one in a hundred is too slow, once each; one in a hundred fails twice, and dies."""
ONE_IN_TEN = {"failed": 10, "dead": 0}


@attrs.frozen
class Sample:
    """One look at everything that might grow."""

    seconds: float
    enqueued: int
    ended: int
    keys: int
    """All keys but those of remembered calls, which come with each client and go by themselves."""
    remembered: int
    events: int
    """Entries of the stream of events."""
    memory: int
    """Bytes that the server uses."""
    worker: int
    """Bytes that the process uses which is there from the beginning to the end."""


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that holds nothing else."""
    with open_server() as server:
        yield server


def resident(pid: int) -> int:
    """Answer how much memory a process has, bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(pid)


@attrs.define
class Soak:
    """One run: `jobs` jobs through workers that come and go."""

    server: Server
    peek: Peek
    jobs: int
    every: int
    """Jobs between two looks."""
    changes: int
    """How often a worker leaves and another joins."""
    say: Callable[[str], None]
    task: str = "disorderly"
    """What each job does; it gets a number."""
    options: tuple[str, ...] = ("--concurrency", "100", "--lease", "15", "--grace", "2", "--cleanup", "2")
    """What the workers are told."""
    enqueued: int = 0
    samples: list[Sample] = attrs.field(factory=list)
    workers: list[WorkerProcess] = attrs.field(factory=list)

    @property
    def client(self) -> redis.Redis:
        """The server's client."""
        return self.peek.client

    def join(self, stack: ExitStack) -> None:
        """Start one more worker."""
        worker = WorkerProcess(self.server.url, self.peek.keys.queue, *self.options, app=APP)
        stack.callback(worker.end)
        self.workers.append(worker)
        worker.wait_for("worker_started", 40)

    def leave(self, worker: WorkerProcess) -> None:
        """Have a worker end in order."""
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.text()[-2000:]
        self.workers.remove(worker)

    def feed(self) -> None:
        """Fill the backlog up."""
        while self.enqueued < self.jobs and self.client.zcard(self.peek.keys.pending) <= BACKLOG - ROUND:
            numbers = range(self.enqueued, min(self.enqueued + ROUND, self.jobs))
            items = [NewJob(task=self.task, payload=orjson.dumps({"args": [n]})) for n in numbers]
            verdicts = self.peek.run(transitions.enqueue(self.peek.keys, Call("soak"), items))
            assert {verdict.code for verdict in verdicts} == {"admitted"}
            self.enqueued += len(items)

    def clear_dead(self) -> None:
        """Do an operator's part: look at the dead, and remove them."""
        found = self.client.zrange(self.peek.keys.dead, 0, ROUND - 1)
        ids = [id.decode() for id in found]  # type: ignore[union-attr]
        if ids:
            verdicts = self.peek.run(transitions.remove(self.peek.keys, Call("soak"), ids))
            assert all(verdict.ok for verdict in verdicts)

    def look(self, began: float) -> None:
        """Take a sample, and hold the invariants while everything is in motion."""
        snap = take(self.client, self.peek.keys, at_once=True)
        # Every worker may have taken a token and be on its way to claim.
        assert violations(snap, awake=len(self.workers)) == []
        remembered = sum(suffix.startswith("once:") for suffix in snap.entries)
        self.samples.append(
            Sample(
                time.monotonic() - began,
                self.enqueued,
                self.peek.count("completed") + self.peek.count("dead"),
                len(snap.entries) - remembered,
                remembered,
                int(self.client.xlen(self.peek.keys.events)),
                int(self.client.info("memory")["used_memory"]),
                resident(self.workers[0].pid),
            )
        )
        it = self.samples[-1]
        self.say(
            f"{it.seconds:7.0f} s {it.ended:8,d} ended {it.keys:6,d} keys {it.events:6,d} events {it.remembered:5,d} remembered calls "
            f"{it.memory / MEGABYTE:7.1f} MB server {it.worker / MEGABYTE:7.1f} MB worker {len(self.workers)} workers"
        )

    def run(self) -> None:
        """Play it to its end."""
        began = time.monotonic()
        with ExitStack() as stack:
            self.join(stack)  # this one stays
            self.join(stack)
            looks, changes = 0, 0
            # On a busy machine the last jobs may end before the turn of the last exchange has come.
            while not (self.enqueued == self.jobs and self.peek.empty() and changes == self.changes):
                assert time.monotonic() - began < 1700
                self.feed()
                self.clear_dead()
                ended = self.peek.count("completed") + self.peek.count("dead")
                if ended >= looks * self.every:
                    looks += 1
                    self.look(began)
                if changes < self.changes and ended > (changes + 1) * self.jobs / (self.changes + 1):
                    changes += 1
                    self.join(stack)
                    self.leave(self.workers[1])
                time.sleep(0.02)
            self.look(began)
            while self.workers:
                self.leave(self.workers[-1])
        while self.client.exists(self.peek.keys.dead):
            self.clear_dead()

    def assert_drained(self, *, failed: int, dead: int) -> None:
        """Hold that each job ended once, and that nothing is left behind.

        Args:
            failed: How many of a hundred jobs failed and were tried again.
            dead: How many of a hundred jobs died.
        """
        seen = {name: self.peek.count(name) for name in ("completed", "failed", "dead", "stalled")}
        of = self.jobs // 100
        assert seen == {"completed": self.jobs - dead * of, "failed": failed * of, "dead": dead * of, "stalled": 0}
        snap = take(self.client, self.peek.keys)
        assert violations(snap) == leftovers(snap) == []
        assert len(self.client.client_list()) == 1

    def assert_level(self) -> None:
        """Hold that the last quarter of the run needed no more than the one before; the first half fills the events."""
        third, last = self._quarters()[2:]
        assert max(it.keys for it in last) <= 2 * BACKLOG + 500
        assert max(it.events for it in last) <= 1.05 * 10_000
        assert max(it.memory for it in last) <= 1.1 * max(it.memory for it in third)
        assert max(it.worker for it in last) <= 1.05 * max(it.worker for it in third) + 2 * MEGABYTE

    def _quarters(self) -> list[Sequence[Sample]]:
        return [
            [
                it
                for it in self.samples
                if n * self.jobs <= it.ended * 4 < (n + 1) * self.jobs or (n == 3 and it.ended == self.jobs)
            ]
            for n in range(4)
        ]

    def table(self) -> Iterator[str]:
        """Sum up, a line a quarter."""
        yield "quarter |  jobs/s | keys, most | server MB, most | worker MB, most"
        before = 0.0
        for n, part in enumerate(self._quarters(), 1):
            took, before = part[-1].seconds - before, part[-1].seconds
            yield (
                f"{n:7d} | {self.jobs / 4 / max(took, 0.001):7,.0f} | {max(it.keys for it in part):10,d} | "
                f"{max(it.memory for it in part) / MEGABYTE:15.1f} | {max(it.worker for it in part) / MEGABYTE:15.1f}"
            )


def _plain(server: Server, peek: Peek, *, jobs: int, every: int, say: Callable[[str], None]) -> Soak:
    peek.run(transitions.configure(peek.keys, Call("soak"), settings={"events": "all"}))
    return Soak(server, peek, jobs=jobs, every=every, changes=0, say=say, task="plain", options=())


@pytest.mark.slow
def test_disorder_leaves_nothing_behind(server: Server, queue_name: str) -> None:
    """Some thousand jobs, failing and too slow ones among them; one worker is exchanged: each ends once, nothing remains."""
    with connect(server.url) as client:
        soak = Soak(server, Peek(client, queue_name), jobs=2000, every=400, changes=1, say=print)
        soak.run()
        soak.assert_drained(**DISORDER)


@pytest.mark.slow
def test_plain_jobs_leave_nothing_behind(server: Server, queue_name: str) -> None:
    """Some thousand no-op jobs by workers with default options, all events kept: one in ten fails, once."""
    with connect(server.url) as client:
        soak = _plain(server, Peek(client, queue_name), jobs=4000, every=1000, say=print)
        soak.run()
        soak.assert_drained(**ONE_IN_TEN)


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_a_million_plain_jobs_stay_level(server: Server, queue_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The same with 1,000,000: keys, events, the server's memory and a worker's do not grow; nothing remains."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    with connect(server.url) as client:
        soak = _plain(server, Peek(client, queue_name), jobs=1_000_000, every=25_000, say=say)
        say("")
        soak.run()
        for line in soak.table():
            say(line)
        soak.assert_drained(**ONE_IN_TEN)
        soak.assert_level()


@pytest.mark.prove
@pytest.mark.timeout(1800)
def test_long_disorder_stays_level(server: Server, queue_name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """200,000 jobs, ten exchanges of workers: keys, the server's memory and a worker's do not grow; nothing remains."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    with connect(server.url) as client:
        soak = Soak(server, Peek(client, queue_name), jobs=200_000, every=5000, changes=10, say=say)
        say("")
        soak.run()
        for line in soak.table():
            say(line)
        soak.assert_drained(**DISORDER)
        soak.assert_level()
