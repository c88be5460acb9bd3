"""Limits of lanes while worker processes are killed and stopped, and rates: what an observer outside the scripts sees."""

from __future__ import annotations

import random
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import anyio
import attrs
import orjson
import pytest

from echomq import transitions
from echomq.app import App
from echomq.job import Job
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call, Completion, RateLimit
from tests.faults.ledger import Ledger
from tests.faults.test_killed import Crew
from tests.worker.support import TRIO, Peek, running, until

LEASE = 2.0
LIMITS = {"one": 1, "three": 3}


def add_jobs(
    peek: Peek, lane: str | None, count: int, task: str = "nothing", seconds: tuple[float, ...] = (0.0,)
) -> list[str]:
    """Enqueue jobs of a lane; however often their workers die, none of them is buried for it."""
    jobs = [
        NewJob(
            task=task, lane=lane, payload=orjson.dumps({"args": [pause] if task == "booked" else []}), max_stalls=10_000
        )
        for pause in random.Random(count).choices(seconds, k=count)
    ]
    for start in range(0, count, 200):
        verdicts = peek.run(transitions.enqueue(peek.keys, Call("test"), jobs[start : start + 200]))
        assert {verdict.code for verdict in verdicts} == {"admitted"}
    return [job.id for job in jobs]


# --- how many run at once --------------------------------------------------------------------


@attrs.define
class Hold:
    """A lane's slot in a worker's hand, from a claim to its verdict or its lease's end, whichever was first. Server ms."""

    job: str
    token: int
    began: float
    ended: float
    verdict: bool = False


def holds_of(peek: Peek) -> dict[str, list[Hold]]:
    """Answer each job's claims in their order, from the events."""
    found: defaultdict[str, list[Hold]] = defaultdict(list)
    for at, fields in peek.events():
        job, event = fields[b"job"].decode(), fields[b"event"]
        if event == b"claimed":
            # Jobs here are much shorter than a third of the lease: none is renewed, but for those that were stopped.
            found[job].append(Hold(job, int(fields[b"token"]), at, at + LEASE * 1000))
        elif event == b"stalled":
            assert at >= found[job][-1].ended, (fields, found[job])
        elif event == b"completed":
            found[job][-1].ended, found[job][-1].verdict = at, True
    return found


def most_at_once(spans: list[tuple[float, float]]) -> int:
    """Answer how many of the spans overlap at most; one that ends where another begins does not."""
    edges = sorted([(began, 1) for began, _ in spans] + [(ended, -1) for _, ended in spans])
    most = now = 0
    for _, change in edges:
        now += change
        most = max(most, now)
    return most


def assert_within_limits(peek: Peek, books: Ledger, lanes: dict[str, list[str]], offset: float) -> dict[str, int]:
    """Hold what the server's events say, and what the handlers wrote elsewhere, against each lane's limit.

    `offset` is the server's clock less that of the books, ms. Answers the most at once by lane.
    """
    holds, entries = holds_of(peek), books.entries()
    most = {}
    for lane, ids in lanes.items():
        held = [hold for id in ids for hold in holds[id]]
        most[lane] = most_at_once([(hold.began, hold.ended) for hold in held])
        assert most[lane] == LIMITS[lane], lane
        leases = {(hold.job, hold.token): hold for hold in held}
        seen = []
        for entry in (entry for id in ids for entry in entries[id]):
            hold = leases[entry.job, entry.token]
            ended = hold.ended if entry.ended is None else min(entry.ended * 1000 + offset, hold.ended)
            if (began := entry.began * 1000 + offset) < ended:
                seen.append((began, ended))
        assert most_at_once(seen) <= LIMITS[lane], lane
        for id in ids:
            assert [hold.token for hold in holds[id]] == list(range(1, len(holds[id]) + 1)), holds[id]
            assert [hold.verdict for hold in holds[id]] == [False] * (len(holds[id]) - 1) + [True], holds[id]
            assert any(entry.effective for entry in entries[id]), id
    return most


def assert_no_slot_is_lost(peek: Peek) -> None:
    """Hold that nothing is left of the lanes' jobs, and that each lane gives as many again as it may, and no more."""
    for lane in LIMITS:
        assert not peek.client.exists(peek.keys.lane_active(lane), peek.keys.lane_pending(lane))
    assert not peek.client.exists(peek.keys.active, peek.keys.base + "ring", peek.keys.base + "closed")
    ids = {lane: add_jobs(peek, lane, limit + 1) for lane, limit in LIMITS.items()}
    held = peek.claim(100)
    for lane, limit in LIMITS.items():
        assert sum(each.id in ids[lane] for each in held) == limit, lane
    for _ in range(2):
        peek.run(
            transitions.complete(
                peek.keys, Call("test"), [Completion(each.id, each.token, each.nonce, b"") for each in held]
            )
        )
        held = peek.claim(100)
    assert not peek.client.exists(peek.keys.active)


@attrs.define
class Stopped:
    """Workers that are stopped now, and when each goes on."""

    crew: Crew
    until: dict[int, float] = attrs.field(factory=dict)
    """By place, CLOCK_MONOTONIC."""
    count: int = 0

    def stop(self, place: int, seconds: float) -> None:
        """Stop one in the middle of whatever it does."""
        self.crew.workers[place].signal(signal.SIGSTOP)
        self.until[place] = time.monotonic() + seconds
        self.count += 1

    def go_on(self, *, all_of_them: bool = False) -> None:
        """Let those go on whose time has come."""
        for place, moment in list(self.until.items()):
            if all_of_them or moment <= time.monotonic():
                self.crew.workers[place].signal(signal.SIGCONT)
                del self.until[place]


def left(peek: Peek) -> bool:
    """Tell whether any job is waiting or running."""
    counts = peek.run(transitions.counts(peek.keys, Call("test")))
    return bool(counts.pending or counts.active)


@pytest.fixture
def books(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    """Books outside the queue, which the workers' handlers find in their environment."""
    path = tmp_path / "ledger.sqlite"
    monkeypatch.setenv("TEST_LEDGER", str(path))
    ledger = Ledger(path)
    yield ledger
    ledger.close()


def play(url: str, peek: Peek, books: Ledger, *, jobs: int, blows: int, pause: tuple[float, float]) -> str:
    """Kill and stop workers at random moments until both lanes are empty; answer what happened, in a line."""
    chance = random.Random(jobs)
    peek.run(transitions.configure(peek.keys, Call("test"), settings={"events": "all"}))
    for lane, limit in LIMITS.items():
        peek.run(transitions.set_lane(peek.keys, Call("test"), lane=lane, settings={"limit": str(limit)}))
    lanes = {lane: add_jobs(peek, lane, jobs, "booked", (0.0, 0.01, 0.03)) for lane in LIMITS}
    offset = peek.now() - time.monotonic() * 1000
    began = time.monotonic()
    with ExitStack() as stack:
        crew = Crew(url, peek.keys.queue, same_names=True, stack=stack, lease=LEASE)
        crew.fill()
        stopped = Stopped(crew)
        while left(peek):
            assert time.monotonic() - began < 240, peek.active()
            time.sleep(chance.uniform(*pause))
            stopped.go_on()
            place = chance.randrange(len(crew.workers))
            if blows > 0 and place not in stopped.until:
                blows -= 1
                if chance.random() < 0.5:
                    stopped.stop(place, chance.uniform(0.2, 2 * LEASE))
                else:
                    crew.kill(place)
        took = time.monotonic() - began
        stopped.go_on(all_of_them=True)
        for worker in crew.workers:
            worker.wait_for("worker_started")
            worker.signal(signal.SIGTERM)
        for worker in crew.workers:
            worker.wait()
    assert (peek.count("completed"), peek.count("dead"), peek.count("failed")) == (2 * jobs, 0, 0)
    most = assert_within_limits(peek, books, lanes, offset)
    assert_no_slot_is_lost(peek)
    return (
        f"{2 * jobs} jobs, {len(crew.died)} workers killed, {stopped.count} stopped, {peek.count('stalled')} leases taken "
        f"over, at once {most}, all done in {took:.0f} s"
    )


@pytest.mark.slow
def test_limits_hold_while_workers_are_killed_and_stopped(server_url: str, peek: Peek, books: Ledger) -> None:
    """Some jobs and a few blows: never more of a lane under live leases than its limit, and all its slots come back."""
    print(play(server_url, peek, books, jobs=120, blows=5, pause=(0.1, 0.5)))


@pytest.mark.prove
@pytest.mark.timeout(300)
def test_limits_hold_for_a_thousand_jobs_whatever_befalls_workers(
    server_url: str, peek: Peek, books: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    """A thousand jobs a lane, a worker killed or stopped about every second: the same."""
    line = play(server_url, peek, books, jobs=1000, blows=30, pause=(0.3, 1.2))
    with capsys.disabled():
        print(f"\n{line}")


# --- how many start in a time ----------------------------------------------------------------


SETTLED_MS = 500.0
"""Server ms after the first start from which on starts are counted: what had gathered before is away by then."""
WORKERS = 4
MOST_CALLS = {5: 30, 500: 500}
"""Calls a second, by starts a second; about 14 and 290 are needed. Workers that ask until they get something make more than
1,000: an idle worker asks every second, and else each wakes when the rate has opened, 40 times a second at most, claims,
completes what it got by one call, and waits."""


@attrs.frozen
class Pace:
    """What was seen of starts at a rate, from one moment on until another."""

    starts: list[float]
    """Server ms of each start."""
    since: float
    until: float
    calls: int
    """Scripts run and waits begun by clients meanwhile."""


async def nothing(_job: Job) -> None:
    """Do nothing."""


async def start_workers(stack: AsyncExitStack, url: str, queue: str, **options: Any) -> None:
    """Run workers, each with a client of its own, until the stack ends."""
    for number in range(WORKERS):
        app = App(url)
        app.task(queue=queue, name="nothing")(nothing)
        await stack.enter_async_context(running(app, name=f"worker-{number}", **options))


def calls_so_far(peek: Peek) -> int:
    """Count what clients asked: scripts run, and waits begun. What scripts ask within is not among it."""
    stats: Any = peek.client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "blpop"))


async def watch(url: str, peek: Peek, per_second: int, seconds: float, *, lane: str | None) -> Pace:
    """Let four workers drain more than the rate allows, of a lane or of the queue; answer what was seen."""
    rate = RateLimit(count=per_second, per_ms=1000).spell()
    peek.run(transitions.configure(peek.keys, Call("test"), settings={"events": "all"}))
    if lane is None:
        peek.run(transitions.configure(peek.keys, Call("test"), settings={"rate": rate}))
    else:
        peek.run(transitions.set_lane(peek.keys, Call("test"), lane=lane, settings={"rate": rate}))
    starts: list[float] = []
    newest: Any = peek.client.xrevrange(peek.keys.events, count=1)
    last = "(" + newest[0][0].decode() if newest else "-"

    def look() -> None:
        nonlocal last
        found: Any = peek.client.xrange(peek.keys.events, min=last)
        for at, fields in found:
            last = "(" + at.decode()
            if fields[b"event"] == b"claimed":
                starts.append(float(at.split(b"-")[0]))

    async with AsyncExitStack() as stack:
        await start_workers(stack, url, peek.keys.queue)
        add_jobs(peek, lane, int(per_second * (seconds + 2)) + 20)
        while not starts or starts[-1] < starts[0] + SETTLED_MS:
            await anyio.sleep(0.02)
            look()
        before, since = calls_so_far(peek), peek.now()
        while peek.now() < since + seconds * 1000:  # the events that are kept are fewer than the starts
            await anyio.sleep(0.2)
            look()
        until, calls = peek.now(), calls_so_far(peek) - before
        look()
    return Pace(starts, since, until, calls)


def assert_never_too_fast(starts: list[float], per_second: int) -> None:
    """Hold that no stretch of time has more starts than the rate, and what may gather in 50 ms, allow."""
    every = 1000 / per_second
    soonest = 0.0
    for at in starts:
        # The clock of the events has whole ms.
        assert at >= soonest - 50 - 1, (at, soonest)
        soonest = max(soonest, at) + every


RATES = pytest.mark.parametrize("lane", ["paced", None], ids=["a lane", "the queue"])


async def keep_pace(
    url: str, peek: Peek, per_second: int, seconds: float, lane: str | None, *, lag: float = 0.02
) -> str:
    """Hold the rate from above, from below, and what was asked meanwhile; answer what was seen, in a line.

    Never too many may start, and never may more be asked. Too few start where the machine has no time for the workers,
    which is no fault of theirs: so that is held of one of three tries, and within `lag`, the part that may be missing.
    """
    lines = []
    for _ in range(3):
        pace = await watch(url, peek, per_second, seconds, lane=lane)
        span = (pace.until - pace.since) / 1000
        seen = sum(pace.since <= at < pace.until for at in pace.starts)
        line = f"{per_second} a second: {seen} in {span:.2f} s, {pace.calls / span:.1f} calls a second"
        lines.append(line)
        assert_never_too_fast(pace.starts, per_second)
        assert pace.calls <= MOST_CALLS[per_second] * span, line
        short = per_second * span - seen
        assert -short <= max(1.0, 0.02 * per_second * span), line
        if short <= max(1.0, lag * per_second * span):
            return line
    raise AssertionError(lines)


@pytest.mark.slow
@pytest.mark.anyio
@TRIO
@pytest.mark.parametrize(("per_second", "lane"), [(5, None), (500, "paced")], ids=["5-the queue", "500-a lane"])
async def test_rates_are_kept_by_four_workers_without_asking(
    server_url: str, peek: Peek, per_second: int, lane: str | None
) -> None:
    """Never more than 2 % or one too many, no part of them missing that a busy machine would not explain, and no polling."""
    print(await keep_pace(server_url, peek, per_second, 3.0, lane, lag=0.25))


@pytest.mark.prove
@pytest.mark.anyio
@TRIO
@RATES
@pytest.mark.parametrize("per_second", [5, 500])
async def test_rates_are_exact_over_ten_seconds(
    server_url: str, peek: Peek, per_second: int, lane: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many jobs start as may, within one or 2 %, over ten seconds."""
    line = await keep_pace(server_url, peek, per_second, 10.0, lane)
    with capsys.disabled():
        print(f"\n{line}")


# --- who wakes ---------------------------------------------------------------------------------


@pytest.mark.anyio
@TRIO
@pytest.mark.parametrize(
    "lanes", [(None, None, None), ("a", "a", "a"), ("a", "b", None)], ids=["flat", "one lane", "lanes"]
)
async def test_three_jobs_wake_three_idle_workers(server_url: str, peek: Peek, lanes: tuple[str | None, ...]) -> None:
    """One call with three jobs: each goes to another worker, and all three run at the same time."""
    ran: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for name in ("first", "second", "third"):
            app = App(server_url)

            async def work(job: Job, name: str = name) -> None:
                ran[job.id] = name
                await until(lambda: len(ran) == 3)

            app.task(queue=peek.keys.queue, name="nothing")(work)
            await stack.enter_async_context(running(app, concurrency=1))
        await until(lambda: peek.client.info("clients")["blocked_clients"] >= 3)
        jobs = [NewJob(task="nothing", payload=b'{"args":[]}', lane=lane) for lane in lanes]
        peek.run(transitions.enqueue(peek.keys, Call("test"), jobs))
        await until(lambda: peek.count("completed") == 3)
    assert set(ran) == {job.id for job in jobs}
    assert set(ran.values()) == {"first", "second", "third"}
