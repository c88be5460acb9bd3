"""What a scenario works with: a fresh queue, clients, time that comes when it is told to, and expectations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, final

import redis

from echomq.conformance.driver import CallRefusedError, Driver
from echomq.conformance.expectations import no_change
from echomq.conformance.items import make_item
from echomq.conformance.keyspace import Playground
from echomq.conformance.snapshot import Snapshot
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed, NewJob
from echomq.protocol.refusals import Verdict
from echomq.transitions import ClaimReply, Script


class UnexpectedError(AssertionError):
    """An answer was another than the protocol says."""

    def __init__(self, what: str, expected: object, seen: object) -> None:
        super().__init__(f"{what}: expected {expected!r}, seen {seen!r}")
        self.what, self.expected, self.seen = what, expected, seen


def spell(verdict: Verdict) -> str:
    """Spell a verdict as the script answered it."""
    return f"{verdict.code} {verdict.detail}".strip()


@final
class Bench:
    """One scenario's queue. `producer`, `worker` and `other` are clients with tags of their own."""

    def __init__(
        self,
        server: redis.Redis,
        *,
        prefix: str = "emq-proof",
        scripts: Mapping[str, Script] | None = None,
        keys: QueueKeys | None = None,
    ) -> None:
        self.server = server
        self.ground = Playground(server, prefix=prefix, scripts=scripts, keys=keys)
        self.keys: QueueKeys = self.ground.keys
        self.queues: dict[str, Bench] = {self.keys.queue: self}
        """This queue, and those beside it, by name."""
        self.drivers: list[Driver] = []
        self.producer, self.worker, self.other = self.client(), self.client(), self.client()
        self.checks = 0
        """How many answers were as expected."""
        self.torn = False
        """Set by a scenario that breaks the queue on purpose: then its end is not held against the invariants."""

    def client(self, *, numbered: bool = True, tag: str = "") -> Driver:
        """Make one more client."""
        self.drivers.append(self.ground.client(numbered=numbered, tag=tag))
        return self.drivers[-1]

    def beside(self, name: str) -> Bench:
        """Answer the bench of another queue under the same prefix, made when it is first asked for."""
        if name not in self.queues:
            keys = QueueKeys(prefix=self.keys.prefix, queue=name)
            other = Bench(self.server, scripts=self.ground.scripts, keys=keys)
            other.queues = self.queues
            self.queues[name] = other
        return self.queues[name]

    @property
    def verbs(self) -> set[str]:
        """Which verbs have been run, in any of the queues."""
        drivers = (driver for bench in self.queues.values() for driver in bench.drivers)
        return {verb for driver in drivers for verb, sent in driver.sent.items() if sent}

    # --- doing -------------------------------------------------------------------------------

    def add(self, **options: Any) -> str:
        """Enqueue a job and answer its id."""
        job = NewJob(**options)
        self.expect("enqueue", spell(self.producer.item("enqueue", job)), "admitted")
        return job.id

    def enqueue(self, **options: Any) -> str:
        """Enqueue a job and answer the verdict."""
        return spell(self.producer.item("enqueue", NewJob(**options)))

    def take(self, driver: Driver | None = None, **options: Any) -> Claimed:
        """Claim one job, which must be there."""
        jobs = (driver or self.worker).claim(1, **options).jobs
        self.expect("jobs claimed", len(jobs), 1)
        return jobs[0]

    def settle(self, verb: str, claimed: Claimed, pick: int = 0, *, driver: Driver | None = None) -> str:
        """Run a fenced verb on behalf of a claim, and spell the verdict; `pick` varies the item (`items.make_item`)."""
        item = make_item(verb, claimed.id, claimed.token, claimed.nonce, pick)
        return spell((driver or self.worker).item(verb, item))

    def on(self, verb: str, *items: Any, driver: Driver | None = None) -> list[str]:
        """Run a verb on items, and spell the verdicts."""
        return [spell(verdict) for verdict in (driver or self.producer).items(verb, *items)]

    def bury(self, id: str) -> None:
        """Have a pending job, the next in turn, fail for good."""
        claimed = self.take()
        self.expect("the job in turn", claimed.id, id)
        self.expect("fail", self.settle("fail", claimed, 0), "dead")

    def set_lane(self, lane: str, **settings: str) -> None:
        """Change a lane's settings."""
        self.producer.plain("set_lane", lane=lane, settings=settings)

    def configure(self, **settings: str) -> None:
        """Change the queue's settings."""
        self.producer.plain("configure", settings=settings)

    # --- time --------------------------------------------------------------------------------

    def clock(self) -> int:
        """Read the server's clock, ms."""
        seconds, micros = self.server.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def rescore(self, state: str, id: str, score: float) -> None:
        """Move a score: how a proof makes time pass."""
        self.expect(
            f"members moved in {state}", self.server.zadd(getattr(self.keys, state), {id: score}, xx=True, ch=True), 1
        )

    def expire(self, id: str) -> None:
        """End a job's lease, in its lane, too, without telling anybody."""
        self.rescore("active", id, 1000)
        lane = self.row(id).get("lane")
        if lane:
            self.server.zadd(self.keys.lane_active(lane), {id: 1000}, xx=True)

    def due(self, id: str) -> None:
        """Let a scheduled job's time come."""
        self.rescore("schedule", id, 1000)

    def moments(self, lane: str | None, **moments: int) -> None:
        """Rewrite `tat` or `till` of a lane's settings, or of the queue's (None); its closed lane's score stays."""
        snap = self.look()
        text = snap.hash("meta")["limits"] if lane is None else snap.hash("lanes")[lane]
        words = text.split(" ")
        for name, moment in moments.items():
            words[{"tat": -3, "till": -1}[name]] = str(moment)
        key, field = (self.keys.meta, "limits") if lane is None else (self.keys.lanes, lane)
        self.server.hset(key, field, " ".join(words))

    # --- looking -----------------------------------------------------------------------------

    def look(self) -> Snapshot:
        """Look at all keys of the queue."""
        return self.ground.look()

    def row(self, id: str) -> dict[str, str]:
        """Answer a job's row; empty when there is none."""
        return self.look().row(id)

    def state(self, id: str) -> str:
        """Answer a job's state; "" when there is no row."""
        return self.row(id).get("state", "")

    def count(self, name: str) -> int:
        """Answer one of the queue's counters."""
        return int(self.look().hash("counts").get(name, "0"))

    def tokens(self) -> int:
        """Count the wake tokens."""
        return len(self.look().items("wake"))

    def score(self, state: str, id: str) -> float | None:
        """Answer a job's score in a set."""
        return self.look().zset(state).get(id)

    def ring(self) -> list[str]:
        """Name the lanes on the ring, the next first."""
        return list(self.look().items("ring"))

    def closed(self) -> dict[str, float]:
        """Answer the closed lanes, and when each is looked at again."""
        return self.look().zset("closed")

    def field(self, lane: str) -> str:
        """Answer a lane's field; "" when it has none."""
        return self.look().hash("lanes").get(lane, "")

    def lanes_of(self, reply: ClaimReply) -> str:
        """Spell the lanes of the jobs claimed, in order, each by its first letter; `.` is the lane without a name."""
        return "".join(job.record.lane[:1] or "." for job in reply.jobs)

    # --- expecting ---------------------------------------------------------------------------

    def expect(self, what: str, seen: object, expected: object) -> None:
        """Hold an answer against what the protocol says.

        Raises:
            UnexpectedError: They differ.
        """
        if seen != expected:
            raise UnexpectedError(what, expected, seen)
        self.checks += 1

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Hold that the block changes nothing but the memory of calls."""
        before = self.look()
        yield
        no_change(before, self.look())

    def refuses(self, what: str, expected: str, run: Callable[..., object], *args: Any, **options: Any) -> None:
        """Hold that a verdict, or the refusal of a whole call, begins with these words, and that nothing changed."""
        with self.unchanged():
            try:
                seen = run(*args, **options)
            except CallRefusedError as error:
                seen = str(error)
            if isinstance(seen, list) and len(seen) == 1:
                seen = seen[0]
            if isinstance(seen, bytes):
                seen = seen.decode()
            if not (isinstance(seen, str) and seen.startswith(expected)):
                raise UnexpectedError(what, expected, seen)
            self.checks += 1
