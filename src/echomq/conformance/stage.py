"""The stage on which the state machine plays: the queue, its clients, the model, and what is checked after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import redis
from hypothesis.stateful import RuleBasedStateMachine, invariant

from echomq.conformance import model_verbs
from echomq.conformance.expectations import ContradictionError, compare, no_change
from echomq.conformance.keyspace import Playground
from echomq.conformance.model import Queue, Served
from echomq.conformance.model_job import Job
from echomq.conformance.model_lanes import CLOSED
from echomq.conformance.snapshot import Snapshot, take
from echomq.conformance.telling import untold
from echomq.protocol.refusals import Verdict
from echomq.protocol.states import State
from echomq.transitions import Script

ANY: Final = 230
"""Picks (0 to 255) from here on take any job that ever was; the others, one in a state that makes sense."""


def spell(verdict: Verdict) -> str:
    """Spell a verdict as the model does."""
    return "retry" if verdict.code == "retry" else f"{verdict.code} {verdict.detail}".strip()


class Stage(RuleBasedStateMachine):
    """One queue, three clients, no clock. `machine.machine` makes the class that sets `server`."""

    server: ClassVar[redis.Redis]
    scripts: ClassVar[Mapping[str, Script]] = {}
    lanes: ClassVar[tuple[str, ...]] = ("",)
    """The lanes that its jobs are in."""

    def __init__(self) -> None:
        super().__init__()
        self.ground = Playground(self.server, scripts=self.scripts)
        self.keys = self.ground.keys
        self.clients = [self.ground.client() for _ in range(3)]
        self.model = Queue()
        self.known: list[str] = []
        self.leases: dict[str, list[tuple[int, str]]] = {}
        self.replies: dict[tuple[int, str], Any] = {}
        self.snap = Snapshot({})
        self.unchanged = False
        self.by_hand = False
        """Whether something was torn or erased in this step: then its events do not tell all."""
        self.awake = 0
        self.steps = 0
        self.tell_all()

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.ground.clear()

    def tell_all(self) -> None:
        """Have all events kept."""
        self.ground.client().plain("configure", settings={"events": "all"})

    # --- what is checked after each step -----------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        """Look at everything once."""
        before, self.snap = self.snap, take(self.server, self.keys)
        if self.unchanged:
            no_change(before, self.snap)
        compare(self.model, self.snap, awake=self.awake)
        wrong = [] if self.by_hand else [*untold(before, self.snap)]
        if wrong:
            raise ContradictionError("\n".join(wrong))
        self.unchanged = self.by_hand = False
        self.steps += 1

    def expect(self, what: str, seen: object, expected: object) -> None:
        """Compare an answer."""
        if seen != expected:
            raise ContradictionError(f"{what}: expected {expected!r}, seen {seen!r}")

    def model_rounds(self, *verbs: str, bound: int) -> list[int]:
        """Make a claim's first rounds, or one of them, in the model; answers how many entries each handled."""
        handled = []
        if "reap" in verbs:
            handled.append(self.model.reap(self.order("active"), bound))
        if "promote" in verbs:
            handled.append(self.model.promote(self.order("schedule"), bound))
            self.model.settle()
            handled.append(self.model.reopen(self.order("closed"), bound))
        self.model.settle()
        return handled

    def run_claim(self, client: int, count: int, bound: int, **options: Any) -> None:
        """Run a claim and compare what it takes, and whether it says to ask again."""
        more = bound in self.model_rounds("reap", "promote", bound=bound)
        driver = self.clients[client]
        reply = driver.claim(count, bound=bound, **options)
        nonce = f"{driver.tag}.{len(driver.sent['claim'])}"
        if options:
            options["lingers"] = options.pop("linger_ms", 0) > 0
        served = self.model.claim(nonce, count, **options)
        seen = [(job.id, job.token, job.nonce) for job in reply.jobs]
        self.expect("claim", seen, [(job.id, job.token, nonce) for job in served.jobs])
        # A lane that was emptied unnoticed may stand on the ring until its next turn.
        stale = bool(self.server.exists(self.keys.ring)) and not (
            self.model.paused or self.model.closed() or served.lingers
        )
        self.expect("claim says to ask again at once", reply.next_ms == 0, served.left or more or stale)
        self.expect("a schedule is due", reply.due, self.is_due())
        self.trimmed()
        for id, token, _ in seen:
            self.leases.setdefault(id, []).append((token, nonce))
        self.replies[client, "claim"] = seen
        self.awake = int(served.lingers)  # its timer stands in for a token
        self.served(served, count, options)

    def turns_begin_anew(self) -> None:
        """Lanes were moved by hand: what was counted of their turns is void."""

    def is_due(self) -> bool:
        """Whether a claim must tell of a recurring schedule's slot."""
        return False

    def trimmed(self, bound: int | None = None) -> int:
        """Take off the shelves what the call must have taken off: as many as the model says, none before one that stays."""
        leaving = self.model.leaving(bound)
        self.model.shelves.begin()
        if not sum(leaving):
            return 0
        snap = take(self.server, self.keys)
        gone = []
        for state, most in zip((State.DONE, State.DEAD), leaving, strict=True):
            there, before = snap.zset(str(state)), self.snap.zset(str(state))
            jobs = [job for job in self.model.of(state) if job.id not in there]
            self.expect(f"trimmed of {state}", len(jobs), most)
            soonest = min(there.values(), default=0)
            late = [job.id for job in jobs if before.get(job.id, 0) > soonest > 0]
            self.expect(f"trimmed of {state} before those that went sooner", late, [])
            gone.append(jobs)
        self.model.trim(*gone)
        return sum(leaving)

    def served(self, served: Served, count: int, options: Mapping[str, Any]) -> None:
        """What more there is to check about a claim."""

    def pass_time(self, job: Job, moment: int) -> None:
        """Move a job's moment into the past: its lease ends, it is due, or has been kept for long enough."""
        which = job.state
        self.server.zadd(getattr(self.keys, str(which)), {job.id: moment}, xx=True)
        job.due, job.expired = which is State.SCHEDULE, which is not State.SCHEDULE
        if which is State.ACTIVE and job.lane:
            self.server.zadd(self.keys.lane_active(job.lane), {job.id: moment}, xx=True)
            lane = self.model.rota.lane(job.lane)
            if lane.where == CLOSED and self.model.full_of_dead(lane):
                # It waits for the soonest of its leases.
                lane.due = True
                self.server.zadd(self.keys.closed, {job.lane: moment}, xx=True, lt=True)

    def run_items(self, client: int, verb: str, items: Sequence[Any], expected: list[str]) -> None:
        """Run one call and compare its verdicts."""
        self.model.settle()
        seen = [spell(verdict) for verdict in self.clients[client].items(verb, *items)]
        self.expect(f"{verb} {[model_verbs.spell(item) for item in items]}", seen, expected)
        self.trimmed()
        self.replies[client, verb] = seen
        self.unchanged = all(text.startswith(("EMQ", "duplicate", "collision")) for text in seen)

    def order(self, *names: str) -> list[str]:
        """Answer the ids of sets in the order in which the server meets them."""
        return [id for name in names for id in self.snap.zset(name)]

    def choose(self, pick: int, *states: State) -> str:
        """Choose a job: mostly one in a state that makes sense, now and then any that ever was."""
        fitting = [id for id in self.known if id in self.model.jobs and self.model.jobs[id].state in states]
        ids = fitting if fitting and pick < ANY else self.known
        return ids[pick % len(ids)]
