"""An executable model of one queue's jobs: for each call it says the verdicts, and what is true afterwards.

Theory of operation
    The model is written from the protocol page, not from the scripts, and knows nothing of keys: jobs have a state, a
    token, a nonce and budgets. `Queue.rows` spells what the rows must then hold, to be compared with a snapshot.

    It has no clock. Leases and delays of a proof are so long that nothing ends by itself; `expired` and `due` are marks
    that whoever moves a score into the past sets here, too.
"""

from __future__ import annotations

from typing import final

import attrs

from echomq.conformance.model_job import Job
from echomq.conformance.model_lanes import AWAY, CLOSED, RING, Lane, Limits, Rota
from echomq.conformance.model_shelves import Shelves
from echomq.protocol.states import State


@final
@attrs.define
class Turn:
    """What a claim has drawn of a lane, and not looked at yet."""

    lane: Lane
    ids: list[Job] = attrs.Factory(list)
    drawn: bool = False
    """Whether that was all that the lane has."""
    late: bool = False
    """Whether jobs whose time was over were met: then no more is drawn."""


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
    late: frozenset[str] = frozenset()
    """Lanes in which jobs were met whose time was over: that was their turn, and the claim may have looked no further."""


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
    shelves: Shelves = attrs.Factory(Shelves)
    """What is kept at most."""
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

    def _startable(self, lane: Lane) -> int:
        """Answer how many of a lane's jobs could start now."""
        if self.shut(lane):
            return 0
        return min(len(self.waiting(lane.name)), lane.limits.room(len(self.running(lane.name))))

    def _start(self, job: Job, nonce: str) -> None:
        job.move("claim", State.ACTIVE)
        job.token += 1
        job.nonce = nonce

    def _end_late(self, job: Job) -> None:
        if job.late == "dead":
            self.bury(job, "claim")
        else:
            self.finish(job, "claim", "expired")

    def _take(self, turn: Turn, most: int, ahead: int, nonce: str) -> list[Job]:
        """Take up to `most` jobs of the lane whose turn it is, ending those whose time is over on the way."""
        taken: list[Job] = []
        while True:
            if not turn.ids:
                if turn.drawn or turn.late:
                    break
                n = max(most - len(taken), ahead) + 1
                turn.ids = self.waiting(turn.lane.name)[:n]
                turn.drawn = len(turn.ids) < n
            elif len(taken) == most:
                break
            else:
                job = turn.ids.pop(0)
                if job.late:
                    turn.late = True
                    self._end_late(job)
                else:
                    self._start(job, nonce)
                    taken.append(job)
        return taken

    def _serve(self, nonce: str, room: int, by_lane: bool) -> tuple[list[Job], frozenset[str]]:  # noqa: FBT001
        """Walk the ring: the head lane serves its credit, then the ring turns. Answers the jobs, and lanes with late ones."""
        line, behind = [self.rota.lane(name) for name in self.rota.ring], list[Lane]()
        turns: dict[str, Turn] = {}
        rooms: dict[str, int] = {}
        jobs: list[Job] = []
        gone: list[Lane] = []
        length, full = len(line), False
        while room > 0 and (line or behind) and not full:
            if not line:
                line, behind = behind, []
                length = len(line)
            lane = line[0]
            turn = turns.setdefault(lane.name, Turn(lane))
            if lane.name not in rooms:
                rooms[lane.name] = self._meet(lane)
            alone = len(line) == 1 and not behind
            lane.credit = lane.credit or max(1, lane.limits.weight)
            most = min(room, rooms[lane.name]) if alone or by_lane else min(room, rooms[lane.name], lane.credit)
            taken = self._take(turn, most, -(-room // length), nonce) if most else []
            empty = turn.drawn and not turn.ids
            full = turn.late and not empty
            lane.limits.used += len(taken) if lane.limits.burst else 0
            jobs += taken
            room = 0 if by_lane and taken else room - len(taken)
            rooms[lane.name] -= len(taken)
            lane.credit -= 1 if by_lane else 0 if alone else len(taken)
            if empty or rooms[lane.name] == 0:
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
        return jobs, frozenset(turn.lane.name for turn in turns.values() if turn.late)

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
        self.shelves.done += 1
        job.nonce = job.cancel = None
        job.notes |= {"kind": kind, **notes}

    def bury(self, job: Job, verb: str) -> None:
        """End a job in the morgue."""
        self.free(job)
        self.tally("dead")
        self.go(job, verb, State.DEAD)
        self.shelves.dead += 1
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
            seen = sum(map(self._startable, map(self.rota.lane, self.rota.ring if self.rota.on else [""])))
            waits = 0 < seen < min_size
            room = 0 if waits else room
        late: frozenset[str] = frozenset()
        if self.rota.on:
            taken, late = self._serve(nonce, room, by_lane)
        else:
            met = self.waiting("")[:room]
            taken = [job for job in met if not job.late]
            late = frozenset(job.lane for job in met if job.late)
            for job in met:
                self._end_late(job) if job.late else self._start(job, nonce)
        self.limits.used += len(taken) if self.limits.burst else 0
        self.settle()
        left = self.work_left() and not (self.paused or self.closed() or waits)
        return Served(taken, room, left, waits, late)

    def leaving(self, bound: int | None = None) -> tuple[int, int]:
        """Answer how many results and how many dead the present call takes off the shelves (`Shelves.leaving`)."""
        done, dead = self.of(State.DONE), self.of(State.DEAD)
        of_done = (len(done), sum(job.expired for job in done))
        return self.shelves.leaving(of_done, (len(dead), sum(job.expired for job in dead)), bound)

    def trim(self, done: list[Job], dead: list[Job]) -> None:
        """Drop these: the dead, and results before their time, are counted."""
        for job in (*done, *dead):
            if job.state is State.DEAD or not job.expired:
                self.tally("trimmed")
            self.forget(job, "trim")
