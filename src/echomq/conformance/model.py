"""An executable model of one queue's jobs: for each call it says the verdicts, and what is true afterwards.

Theory of operation
    The model is written from the protocol page, not from the scripts, and knows nothing of keys: jobs have a state, a
    token, a nonce and budgets. `Queue.rows` spells what the rows must then hold, to be compared with a snapshot.

    It has no clock. Leases and delays of a proof are so long that nothing ends by itself; `expired` and `due` are marks
    that whoever moves a score into the past sets here, too.

    Every change of state goes through `Job.move`, which looks it up in `MOVES`: a move that is not listed there is a
    bug of the model or of the table, and fails the proof.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from echomq.conformance.model_lanes import AWAY, CLOSED, RING, Lane, Limits, Rota
from echomq.protocol.states import MOVES, State

_LEGAL: Final = frozenset(
    (move.verb, source, target) for move in MOVES for source in move.sources for target in move.targets
)


class IllegalMoveError(AssertionError):
    """The model made a move that the table does not list."""


@final
@attrs.define
class Job:
    """One job."""

    id: str
    by: str
    fields: dict[str, str]
    """What the producer set, by row field."""
    dedup: str | None = None
    priority: int = 0
    max_stalls: int = 3
    ttl: int = 0
    lane: str = ""
    state: State | None = None
    token: int = 0
    nonce: str | None = None
    """Who may write: the holder while active, the late holder after a reap."""
    failures: int = 0
    stalls: int = 0
    cancel: str | None = None
    notes: dict[str, str] = attrs.Factory(dict)
    """Row fields written by handlers and endings."""
    log: list[str] = attrs.Factory(list)
    expired: bool = False
    """Its lease has ended, or its time on the shelf has."""
    due: bool = False

    def move(self, verb: str, target: State | None) -> None:
        """Go to a state, if the table allows it."""
        if (verb, self.state, target) not in _LEGAL:
            raise IllegalMoveError(f"{verb}: {self.state} -> {target} is not in MOVES")
        self.state = target
        self.expired = self.due = False

    def row(self) -> dict[str, str]:
        """Spell the row, but for its moment of entry and reasons made up by the scripts."""
        row = {"state": str(self.state), "by": self.by, **self.fields, **self.notes}
        row |= {name: str(n) for name, n in (("attempts", self.token), ("failures", self.failures)) if n}
        if self.stalls:
            row["stalls"] = str(self.stalls)
        if self.nonce is not None:
            row["holder"] = self.nonce
        if self.cancel is not None:
            row["cancel"] = self.cancel
        if self.log:
            row["log_bytes"] = str(sum(len(line) for line in self.log))
        if self.lane:
            row["lane"] = self.lane
        return row


@final
@attrs.define
class Served:
    """What a claim takes."""

    jobs: list[Job]
    """In the order of their turn."""
    room: int
    """How many the queue's own limits, its pause and the batch let start."""
    left: bool
    """Whether something can still be served."""
    lingers: bool = False
    """Nothing was taken because too few are ready yet."""


@final
@attrs.define
class Queue:
    """The jobs of a queue, its dedup keys, its lanes and limits, its pause and its counters."""

    jobs: dict[str, Job] = attrs.Factory(dict)
    dedup: dict[str, tuple[str, bool]] = attrs.Factory(dict)
    """Key -> (the job it names, whether it goes by its own window)."""
    paused: bool = False
    limits: Limits = attrs.Factory(Limits)
    """The queue's own."""
    max_size: int = 0
    """How many may wait; 0: any number."""
    rota: Rota = attrs.Factory(Rota)
    totals: dict[str, int] = attrs.Factory(dict)

    def tally(self, name: str) -> None:
        """Count."""
        self.totals[name] = self.totals.get(name, 0) + 1

    def of(self, state: State) -> list[Job]:
        """Answer the jobs in a state, in order of minting."""
        return sorted((job for job in self.jobs.values() if job.state is state), key=lambda job: job.id)

    def ready(self) -> list[Job]:
        """Answer the pending jobs in their turn."""
        return sorted(self.of(State.PENDING), key=lambda job: (-job.priority, job.id))

    def waiting(self, lane: str) -> list[Job]:
        """Answer a lane's pending jobs in their turn."""
        return [job for job in self.ready() if job.lane == lane]

    def running(self, lane: str) -> list[Job]:
        """Answer a lane's active jobs; of the jobs without a lane none, for they have no set of leases of their own."""
        return [job for job in self.of(State.ACTIVE) if job.lane == lane] if lane else []

    def go(self, job: Job, verb: str, target: State | None) -> None:
        """Change a job's state, and tell its lane."""
        source = job.state
        job.move(verb, target)
        if target is State.PENDING:
            self.rota.touch(job.lane)
        if source is State.PENDING or (source is State.ACTIVE and job.lane):
            self.rota.touch(job.lane)

    # --- lanes -------------------------------------------------------------------------------

    def shut(self, lane: Lane) -> list[str]:
        """Say why a lane cannot be served."""
        return lane.limits.reasons(len(self.running(lane.name)))

    def full_of_dead(self, lane: Lane) -> bool:
        """Whether a lane waits for nothing but slots, one of which a lease that has ended holds."""
        return self.shut(lane) == ["limit"] and any(job.expired for job in self.running(lane.name))

    def serviceable(self) -> list[str]:
        """Name the lanes that have pending jobs and may start one, in the ring's order."""
        if not self.rota.on:
            return [""] if self.waiting("") else []
        return [name for name in self.rota.ring if self.waiting(name) and not self.shut(self.rota.lane(name))]

    def work_left(self) -> bool:
        """Whether there is a lane to be asked, whatever the queue's own limits say."""
        return bool(self.rota.ring) if self.rota.on else bool(self.ready())

    def closed(self) -> list[str]:
        """Say why nothing may start by the queue's own limits."""
        return self.limits.reasons(len(self.of(State.ACTIVE)))

    def settle(self) -> None:
        """Put each lane that was touched where it belongs: the end of every call."""
        rota = self.rota
        names, rota.touched = list(rota.touched), {}
        for lane in map(rota.lane, names):
            if lane.where == RING:
                continue  # whatever has become of it is seen when its turn comes
            if not self.waiting(lane.name):
                lane.leave(AWAY)
            elif self.shut(lane) and not self.full_of_dead(lane):
                lane.leave(CLOSED)
            else:
                lane.where, lane.due = RING, False
                rota.ring.append(lane.name)

    def reopen(self, order: list[str], bound: int) -> int:
        """Look again at closed lanes whose moment has come, `bound` at most, in the order of their moments."""
        lanes = [lane for name in order if (lane := self.rota.lane(name)).where == CLOSED and lane.due][:bound]
        for lane in lanes:
            self.rota.touch(lane.name)
        self.settle()
        return len(lanes)

    def _meet(self, lane: Lane) -> int:
        """At a lane's first turn in a claim: how many of its jobs may start. A full one looks for leases that are over."""
        running = self.running(lane.name)
        if lane.limits.limit and len(running) >= lane.limits.limit:
            for job in running:
                if job.expired:
                    self._reap_one(job)
        return 0 if self.shut(lane) else lane.limits.room(len(self.running(lane.name)))

    def _start(self, job: Job, nonce: str) -> None:
        job.move("claim", State.ACTIVE)
        job.token += 1
        job.nonce = nonce

    def _serve(self, nonce: str, room: int, by_lane: bool) -> list[Job]:  # noqa: FBT001
        """Walk the ring: the head lane serves its credit, then the ring turns."""
        line, behind = [self.rota.lane(name) for name in self.rota.ring], list[Lane]()
        rooms: dict[str, int] = {}
        taken: list[Job] = []
        gone: list[Lane] = []
        while room > 0 and (line or behind):
            if not line:
                line, behind = behind, []
            lane = line[0]
            if lane.name not in rooms:
                rooms[lane.name] = self._meet(lane)
            alone = len(line) == 1 and not behind
            lane.credit = lane.credit or max(1, lane.limits.weight)
            most = min(room, rooms[lane.name]) if alone or by_lane else min(room, rooms[lane.name], lane.credit)
            jobs = self.waiting(lane.name)[:most]
            for job in jobs:
                self._start(job, nonce)
            lane.limits.used += len(jobs) if lane.limits.burst else 0
            taken += jobs
            room = 0 if by_lane and jobs else room - len(jobs)
            rooms[lane.name] -= len(jobs)
            lane.credit -= 1 if by_lane else 0 if alone else len(jobs)
            if not self.waiting(lane.name) or rooms[lane.name] == 0:
                gone.append(lane)
            elif lane.credit <= 0 and not alone:
                lane.credit = 0
                behind.append(lane)
            else:
                break  # its turn goes on with the next claim
            del line[0]
        self.rota.ring = [lane.name for lane in (*line, *behind)]
        for lane in gone:
            lane.leave(CLOSED if self.waiting(lane.name) else AWAY)
            lane.due = lane.where == CLOSED and self.full_of_dead(lane)
        return taken

    def forget_all(self) -> None:
        """All jobs have ended and been trimmed, and what held the queue back is lifted."""
        self.jobs.clear()
        self.dedup = {key: entry for key, entry in self.dedup.items() if entry[1]}
        self.paused, self.limits, self.rota.ring = False, Limits(), []
        for lane in self.rota.lanes.values():
            lane.leave(AWAY)

    # --- what an ending owes -----------------------------------------------------------------

    def free(self, job: Job) -> None:
        """Free the job's dedup key, unless it names another or goes by itself."""
        if job.dedup is not None and self.dedup.get(job.dedup) == (job.id, False):
            del self.dedup[job.dedup]

    def forget(self, job: Job, verb: str) -> None:
        """Drop the row and all that is its own."""
        self.go(job, verb, None)
        del self.jobs[job.id]

    def finish(self, job: Job, verb: str, kind: str, **notes: str) -> None:
        """End a job: on the shelf if it asked for that, else the row goes."""
        self.free(job)
        self.tally(kind)
        if not job.ttl:
            self.forget(job, verb)
            return
        self.go(job, verb, State.DONE)
        job.nonce = job.cancel = None
        job.notes |= {"kind": kind, **notes}

    def bury(self, job: Job, verb: str) -> None:
        """End a job in the morgue."""
        self.free(job)
        self.tally("dead")
        self.go(job, verb, State.DEAD)
        job.nonce = None
        job.notes["kind"] = "dead"

    def again(self, job: Job, verb: str, target: State, *, due: bool = False) -> str | None:
        """Back to the machine, unless a cancel request waits; answers the verdict of that."""
        if job.cancel is not None:
            reason = job.cancel
            self.finish(job, verb, "cancelled", reason=reason)
            return f"cancelled {reason}"
        self.go(job, verb, target)
        job.due = due
        return None

    # --- rounds and claims -------------------------------------------------------------------

    def reap(self, order: list[str], bound: int) -> int:
        """Take expired leases back, `bound` at most, in the order of their ending."""
        expired = [id for id in order if (job := self.jobs[id]).state is State.ACTIVE and job.expired][:bound]
        for id in expired:
            self._reap_one(self.jobs[id])
        return len(expired)

    def _reap_one(self, job: Job) -> None:
        if job.cancel is None:
            job.stalls += 1
            if job.stalls > job.max_stalls:
                self.bury(job, "reap")
                return
            self.tally("stalled")
        self.again(job, "reap", State.PENDING)  # the nonce stays: the late holder may still complete

    def promote(self, order: list[str], bound: int) -> int:
        """Move jobs whose time has come, `bound` at most, in the order of their times."""
        due = [id for id in order if (job := self.jobs[id]).state is State.SCHEDULE and job.due][:bound]
        for id in due:
            self.again(self.jobs[id], "promote", State.PENDING)
        return len(due)

    def claim(
        self, nonce: str, count: int, *, by_lane: bool = False, min_size: int = 1, lingers: bool = False
    ) -> Served:
        """Lease the next jobs in turn. `lingers`: fewer than `min_size` are waited for, and nobody has waited for long."""
        room = 0 if self.paused or self.closed() else min(count, self.limits.room(len(self.of(State.ACTIVE))))
        waits = False
        if room and lingers and not (by_lane and self.rota.on):
            seen = sum(len(self.waiting(name)) for name in (self.rota.ring if self.rota.on else [""]))
            waits = 0 < seen < min_size
            room = 0 if waits else room
        if self.rota.on:
            taken = self._serve(nonce, room, by_lane)
        else:
            taken = self.waiting("")[:room]
            for job in taken:
                self._start(job, nonce)
        self.limits.used += len(taken) if self.limits.burst else 0
        self.settle()
        left = self.work_left() and not (self.paused or self.closed() or waits)
        return Served(taken, room, left, waits)

    def trim(self, order: list[str], bound: int, dead_max: int) -> int:
        """Drop results past their time, then the oldest dead beyond `dead_max`, `bound` in all."""
        gone = [job for id in order if (job := self.jobs[id]).state is State.DONE and job.expired][:bound]
        dead = [self.jobs[id] for id in order if self.jobs[id].state is State.DEAD]
        over = dead[: max(0, min(len(dead) - dead_max, bound - len(gone)))]
        for _ in over:
            self.tally("trimmed")
        for job in [*gone, *over]:
            self.forget(job, "trim")
        return len(gone) + len(over)
