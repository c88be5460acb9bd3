"""A Hypothesis state machine that plays producers, workers and operators against a live server, the model beside it.

Theory of operation
    Each rule asks the model first, then the server, and compares the verdicts. After each step the whole keyspace of the
    queue is looked at once: the invariants must hold, the rows, dedup keys, logs and counters must be what the model
    says, and a step that was refused must have changed nothing (but the memory of the call itself).

    A network is played by sending earlier calls again; a dead worker by a claim that is never settled; time by moving
    scores into the past. Picks are small integers taken modulo what is there, so that Hypothesis can shrink a failure.

If you change this
    Nothing here may depend on the wall clock or on the randomness of tags, or failures will not replay.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import redis
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from echomq.conformance import model_verbs
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.expectations import ContradictionError
from echomq.conformance.items import FORGERIES, NOTES, SETTLING, YEAR_MS, Pick, forge, make_item, new_job
from echomq.conformance.machine_damage import Damage
from echomq.conformance.model import Queue
from echomq.conformance.model_job import Job
from echomq.conformance.model_shelves import AGELESS
from echomq.conformance.snapshot import take
from echomq.conformance.stage import Stage, spell
from echomq.protocol.ids import mint
from echomq.protocol.records import NewJob
from echomq.protocol.states import State
from echomq.transitions import CancelRequest, NewPayload, NewPriority, NewTime, Script

PICK: Final = st.integers(0, 255)
PICKS: Final = st.lists(PICK, min_size=1, max_size=4)
CLIENT: Final = st.integers(0, 2)
BOUND: Final = st.sampled_from([1, 2, 256])
LIKELY: Final = {
    "cancel": (State.ACTIVE, State.SCHEDULE),
    "remove": (State.DEAD, State.DONE, State.SCHEDULE),
    "redrive": (State.DEAD,),
    "reschedule": (State.SCHEDULE, State.PENDING),
    "update": (State.PENDING, State.SCHEDULE, State.DEAD),
    "reprioritise": (State.PENDING, State.SCHEDULE, State.DEAD),
}
OPERATORS: Final = tuple(LIKELY)
ROUNDS: Final = ("promote", "reap", "trim", "ring")
REMEMBERED: Final = ("enqueue", "claim", *SETTLING, *NOTES, *OPERATORS, "pause", "resume", "configure")
SHELVES: Final = st.sampled_from(
    [
        {"dead_max": "1", "dead_age": str(AGELESS)}, {"dead_age": ""}, {"dead_max": ""}, {"done_max": "1"},
        {"done_max": "2"}, {"done_max": ""}, {"dead_max": "2", "dead_age": str(AGELESS), "done_max": "1"},
    ]
)  # fmt: skip


class Spine(Stage):
    """What producers, workers, operators, time and the network do."""

    remembered: ClassVar[tuple[str, ...]] = REMEMBERED
    """The verbs whose calls are sent again, now and then."""

    # --- producers ---------------------------------------------------------------------------

    @initialize(picks=st.lists(PICK, min_size=2, max_size=6), count=st.integers(1, 3))
    def begin(self, picks: list[int], count: int) -> None:
        """A queue is never empty at first, and somebody works."""
        self.enqueue(0, [(pick, 0, pick // 4, pick // 8) for pick in picks])
        self.snap = take(self.server, self.keys)
        self.run_claim(0, count, 256)
        self.unchanged = False

    @rule(client=CLIENT, picks=st.lists(st.tuples(PICK, PICK, PICK, PICK), min_size=1, max_size=4))
    def enqueue(self, client: int, picks: list[Pick]) -> None:
        """Jobs of all kinds, now and then under an id that was there already."""
        jobs = [new_job(pick, self.known, self.lanes) for pick in picks]
        expected = [model_verbs.enqueue(self.model, job, self.clients[client].tag) for job in jobs]
        self.known += [job.id for job in jobs if job.id not in self.known]
        self.run_items(client, "enqueue", jobs, expected)

    # --- workers -----------------------------------------------------------------------------

    @rule(client=CLIENT, count=st.integers(1, 4), bound=BOUND)
    def claim(self, client: int, count: int, bound: int) -> None:
        """Reap, promote, lease."""
        self.run_claim(client, count, bound)

    def holders(self, client: int, verb: str, picks: list[int], how: str) -> None:
        """Run a fenced verb on leases as they are, or as they are not any more."""
        items = []
        for pick in picks:
            # Who forges has most to win from a job that is not active any more.
            id = self.choose(pick, State.ACTIVE, *(tuple(State) if how == "before" else ()))
            token, nonce = forge(how, self.leases.get(id, []), pick)
            items.append(make_item(verb, id, token, nonce, pick))
        expected = [model_verbs.fenced(self.model, item) for item in items]
        self.run_items(client, verb, items, expected)

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(client=CLIENT, verb=st.sampled_from(SETTLING), picks=PICKS)
    def settle(self, client: int, verb: str, picks: list[int]) -> None:
        """Holders settle; the same job twice in a call, now and then."""
        self.holders(client, verb, picks, "latest")

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(client=CLIENT, verb=st.sampled_from(NOTES), picks=PICKS)
    def note(self, client: int, verb: str, picks: list[int]) -> None:
        """Holders renew and take notes."""
        self.holders(client, verb, picks, "latest")

    def held(self, verb: str, job: Job, pick: int) -> None:
        """Run a fenced verb for an active job's holder."""
        item = make_item(verb, job.id, job.token, job.nonce or "", pick)
        self.run_items(0, verb, [item], [model_verbs.fenced(self.model, item)])

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(pick=PICK, verb=st.sampled_from(SETTLING))
    def cancel_and_settle(self, pick: int, verb: str) -> None:
        """A request crosses whatever the holder does next."""
        jobs = self.model.of(State.ACTIVE)
        job = jobs[pick % len(jobs)]
        request = CancelRequest(job.id, f"because {pick}")
        self.run_items(1, "cancel", [request], [model_verbs.cancel(self.model, request)])
        self.held(verb, job, pick)

    @precondition(lambda self: any(job.dedup is not None for job in self.model.of(State.ACTIVE)))
    @rule(pick=PICK, kind=st.sampled_from(["", "another", "window", "same"]))
    def die_and_return(self, pick: int, kind: str) -> None:
        """A job that owned a key dies; perhaps another takes the key; then it is redriven."""
        job = next(job for job in self.model.of(State.ACTIVE) if job.dedup is not None)
        self.held("fail" if kind != "same" else "complete", job, pick - pick % 3)
        if kind:
            new = NewJob(
                id=job.id if kind == "same" else mint(),
                dedup=job.dedup,
                dedup_window_ms=YEAR_MS if kind == "window" else None,
            )
            self.known += [new.id] if new.id not in self.known else []
            self.run_items(2, "enqueue", [new], [model_verbs.enqueue(self.model, new, self.clients[2].tag)])
        self.run_items(1, "redrive", [job.id], [model_verbs.redrive(self.model, job.id)])
        self.unchanged = False

    @precondition(lambda self: self.leases)
    @rule(client=CLIENT, verb=st.sampled_from((*SETTLING, *NOTES)), picks=PICKS, how=st.sampled_from(FORGERIES))
    def forged(self, client: int, verb: str, picks: list[int], how: str) -> None:
        """Holders of old, and inventors of new leases write."""
        self.holders(client, verb, picks, how)

    @precondition(lambda self: self.model.ready() and not self.model.paused)
    @rule(client=CLIENT, count=st.integers(1, 4))
    def work(self, client: int, count: int) -> None:
        """Claim once more: a queue lives by being worked on."""
        self.run_claim(client, count, 256)

    @precondition(lambda self: self.awake < 2 and not self.model.paused)
    @rule()
    def wake_up(self) -> None:
        """A parked worker takes a token, and has not claimed yet."""
        if self.server.lpop(self.keys.wake) is not None:
            self.awake += 1

    # --- operators, and the rounds -----------------------------------------------------------

    @rule(client=CLIENT, verb=st.sampled_from(OPERATORS), picks=PICKS)
    def operate(self, client: int, verb: str, picks: list[int]) -> None:
        """Cancel, remove, redrive, reschedule, update and reprioritise, also what cannot be."""
        make = {
            "cancel": self.cancelling,
            "reschedule": self.new_time,
            "update": self.new_payload,
            "reprioritise": self.new_priority,
        }.get(verb, lambda id, _: id)
        items = [make(self.choose(pick, *LIKELY[verb]), pick) for pick in picks]
        run = getattr(model_verbs, verb)
        expected = [run(self.model, item) for item in items]
        self.run_items(client, verb, items, expected)

    def cancelling(self, id: str, pick: int) -> CancelRequest:
        """Cancel a job, now and then by its key."""
        job = self.model.jobs.get(id)
        if job is not None and job.dedup is not None and pick % 4 == 3:
            return CancelRequest("", f"because {pick}", dedup=job.dedup)
        return CancelRequest(id, f"because {pick}")

    def new_time(self, id: str, pick: int) -> NewTime:
        """Give a job another time: now, or a year ahead."""
        return NewTime(id, ("0", f"+{YEAR_MS}", "1", f"+{YEAR_MS}")[pick % 4])

    def new_payload(self, id: str, pick: int) -> NewPayload:
        """Give a job a payload of some length."""
        return NewPayload(id, b"u" * (pick * 2))

    def new_priority(self, id: str, pick: int) -> NewPriority:
        """Give a job a priority, or none."""
        return NewPriority(id, pick % 5 - 2)

    @precondition(lambda self: self.model.paused)
    @rule(client=CLIENT)
    def resume(self, client: int) -> None:
        """Somebody remembers the switch."""
        self.switch(client, "resume")

    @rule(client=CLIENT, verb=st.sampled_from(["resume", "pause"]))
    def switch(self, client: int, verb: str) -> None:
        """The queue's switch."""
        changed = self.model.paused == (verb == "resume")
        self.model.paused = verb == "pause"
        if verb == "resume":
            changed = changed or self.model.limits.told
            self.model.limits.told = False
        seen = self.clients[client].plain(verb)
        self.expect(verb, seen, changed)
        self.replies[client, verb] = seen

    @rule(client=CLIENT, verb=st.sampled_from(ROUNDS), bound=BOUND)
    def round(self, client: int, verb: str, bound: int) -> None:
        """The bare rounds."""
        driver = self.clients[client]
        if verb == "ring":
            self.expect(verb, driver.plain(verb), self.model.work_left())
        elif verb == "trim":
            seen = driver.plain(verb, bound=bound)
            self.expect(verb, seen, self.trimmed(bound))
        else:
            handled = self.model_rounds(verb, bound=bound)
            self.expect(verb, driver.plain(verb, bound=bound), max(handled))
            self.trimmed()

    @rule(client=CLIENT, settings=SHELVES)
    def keep(self, client: int, settings: dict[str, str]) -> None:
        """How many results and dead are kept, and for how long."""
        self.tell(client, settings)

    def tell(self, client: int, settings: dict[str, str]) -> None:
        """Change settings of the queue."""
        expected = model_verbs.configure(self.model, settings)
        seen = self.clients[client].plain("configure", settings=settings)
        self.expect(f"configure {settings}", seen, expected)
        self.replies[client, "configure"] = seen

    @rule(client=CLIENT, pick=PICK)
    def look(self, client: int, pick: int) -> None:
        """Reads answer what is there and change nothing."""
        driver, id = self.clients[client], self.known[pick % len(self.known)]
        counts, ready = driver.plain("counts"), self.model.ready()
        seen = {state: getattr(counts, state) for state in State}
        self.expect("counts", seen, {state: len(self.model.of(state)) for state in State})
        self.expect("paused", counts.paused, self.model.paused)
        job, there = driver.plain("read_job", id, with_log=True), self.model.jobs.get(id)
        self.expect("read_job", job and (job.record.state, list(job.log)), there and (there.state, there.log))
        lane = self.lanes[pick % len(self.lanes)]
        page = driver.plain("browse", state="pending", count=2, offset=pick % 3, lane=lane)
        waiting = self.model.waiting(lane)
        self.expect("browse", [row.id for row, _ in page.jobs], [job.id for job in waiting][pick % 3 :][:2])
        if self.model.rota.on:
            ready = [head for name in self.model.rota.ring for head in self.model.waiting(name)[:1]]
        state, task = (State.PENDING, State.SCHEDULE, State.DEAD, State.DONE)[pick % 4], ("", "b")[pick % 2]
        found = driver.plain("find", state=str(state), lane=lane, of_lane=True, task=task, error="E" * (pick % 8 == 2))
        self.expect("find", sorted(found.ids), self.fitting(state, lane, task, failed=pick % 8 == 2))
        head = driver.plain("age").pending
        self.expect("age", head.id, ready[0].id if ready else None)
        self.unchanged = True

    def fitting(self, state: State, lane: str, task: str, *, failed: bool) -> list[str]:
        """Name the jobs that `find` finds in a set of the whole queue: those of a lane, of a task, that once failed."""
        # Jobs that wait in lanes are in no set of the whole queue.
        jobs = [job for job in self.model.of(state) if state is not State.PENDING or not job.lane]
        return sorted(
            job.id
            for job in jobs
            if job.lane == lane and task in ("", job.fields.get("task")) and (not failed or "error" in job.notes)
        )

    # --- time --------------------------------------------------------------------------------

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(pick=PICK, reap=st.booleans())
    def lease_ends(self, pick: int, reap: bool) -> None:  # noqa: FBT001 - a drawn value
        """A worker died; perhaps somebody notices at once."""
        self.time_comes(pick, State.ACTIVE)
        if reap:
            self.snap = take(self.server, self.keys)
            self.round(0, "reap", 256)

    @rule(pick=PICK, which=st.sampled_from([State.ACTIVE, State.SCHEDULE, State.DONE, State.DEAD]))
    def time_comes(self, pick: int, which: State) -> None:
        """A lease ends, a job is due, a kept result or a dead job is old enough: its score is in the past now."""
        jobs = self.model.of(which)
        if jobs:
            self.pass_time(jobs[pick % len(jobs)], 1000 + pick // 16)

    @precondition(lambda self: any(not all(job.ends.values()) for job in self.model.jobs.values()))
    @rule(pick=PICK)
    def moment_comes(self, pick: int) -> None:
        """A job is too late to begin, or to go on."""
        jobs = [job for job in self.model.jobs.values() if not all(job.ends.values())]
        job = jobs[pick % len(jobs)]
        name = next(name for name, over in job.ends.items() if not over)
        job.ends[name] = True
        self.server.hset(self.keys.job(job.id), name, 1)

    @precondition(lambda self: any(window for _, window in self.model.dedup.values()))
    @rule()
    def window_ends(self) -> None:
        """A throttle's window runs out."""
        key = next(key for key, (_, window) in self.model.dedup.items() if window)
        self.server.delete(self.keys.dedup(key))
        del self.model.dedup[key]

    # --- the network -------------------------------------------------------------------------

    @rule(client=CLIENT, pick=PICK)
    def resend(self, client: int, pick: int) -> None:
        """The reply was lost: the same call again is answered from memory, and not run."""
        driver = self.clients[client]
        verbs = [verb for verb in self.remembered if verb != "extend" and (client, verb) in self.replies]
        if not verbs:
            return
        verb = verbs[pick % len(verbs)]
        reply = driver.resend(verb)
        if verb == "claim":
            held = [
                lease
                for lease in self.replies[client, verb]
                if (job := self.model.jobs.get(lease[0]))
                and job.state is State.ACTIVE
                and (job.id, job.token, job.nonce) == lease
            ]
            for id, _, _ in held:
                self.model.jobs[id].expired = False
            self.expect("claim again", [(job.id, job.token, job.nonce) for job in reply.jobs], held)
            self.unchanged = not held
            return
        self.expect(
            f"{verb} again", reply if isinstance(reply, int) else [spell(v) for v in reply], self.replies[client, verb]
        )
        self.unchanged = True

    @rule(client=CLIENT, pick=PICK)
    def late_copy(self, client: int, pick: int) -> None:
        """An old socket delivers a call that a later one has overtaken: refused."""
        driver = self.clients[client]
        verbs = [verb for verb in self.remembered if verb != "extend" and len(driver.sent[verb]) > 1]
        if not verbs:
            return
        verb = verbs[pick % len(verbs)]
        try:
            reply = driver.resend(verb, back=2)
        except CallRefusedError as error:
            self.expect(f"late {verb}", error.verdict.code, "EMQSTALE")
        else:
            raise ContradictionError(f"a late copy of {verb} was answered: {reply!r}")
        self.unchanged = True

    @precondition(lambda self: self.steps > 30)
    @rule()
    def everything_ends(self) -> None:
        """All jobs end and are trimmed: only the queue's own keys remain, and those that go by themselves."""
        self.ground.end_all()
        for name in ("removed", "completed", "trimmed"):
            self.model.totals[name] = int(take(self.server, self.keys).hash("counts").get(name, "0"))
        self.model.forget_all()
        self.ground.expect_empty()

    @precondition(lambda self: self.steps > 30)
    @rule(client=CLIENT, bound=st.sampled_from([1, 3, 256]))
    def obliterated(self, client: int, bound: int) -> None:
        """The queue goes, and is made anew by whoever comes next."""
        self.ground.obliterate(self.clients[client], bound)
        self.expect("keys left", [s for s, it in take(self.server, self.keys).entries.items() if not it.ttl], [])
        self.model, self.clients = Queue(), [self.ground.client() for _ in range(3)]
        self.by_hand = True
        self.tell_all()
        self.replies.clear()
        self.leases.clear()
        self.awake = 0


def machine(server: redis.Redis, scripts: Mapping[str, Script] | None = None) -> type[Spine]:
    """Make the machine for a server, perhaps with changed scripts."""
    return type("SpineMachine", (Damage, Spine), {"server": server, "scripts": scripts or {}})
