"""What hands and lost writes do to a queue, and `repair` undoes: a rule of the state machines.

Theory of operation
    One thing is torn, then looked at, in the step of the machine. Then everything must be as the model says again: what a
    row still says is mended, what it does not say is buried, what has no row is dropped. What comes after plays on with
    the queue as it was mended.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from echomq.conformance.model_job import Job
from echomq.conformance.model_lanes import AWAY, CLOSED, RING, Limits
from echomq.conformance.stage import Stage
from echomq.protocol.states import State
from echomq.transitions import Look

_SETS: Final = ("pending", "active", "schedule", "dead", "done")
_HOLDERS: Final = (State.PENDING, State.SCHEDULE, State.ACTIVE)
JOBS: Final = ("out of its set", "in another set", "row gone", "state gone", "another lane's", "lease gone")
ROTA: Final = ("off the ring", "twice on the ring", "closed, too", "not closed", "field gone", "miscounted")


class Damage(Stage):
    """Tears something, and repairs it."""

    def place_of(self, job: Job) -> str:
        """Name the set in which a job is."""
        return f"lane:{job.lane}:pending" if job.state is State.PENDING and job.lane else str(job.state)

    def repaired(self, expected: str, *looks: Look) -> None:
        """Repair, and compare the verdict of the first look."""
        self.by_hand = True
        self.model.settle()
        seen = self.clients[0].items("repair", *looks)[0].code
        self.expect(f"repair {looks}", seen, expected)
        self.trimmed()
        self.turns_begin_anew()

    @precondition(lambda self: self.model.jobs)
    @rule(pick=st.integers(0, 255), how=st.sampled_from(JOBS))
    def tear_a_job(self, pick: int, how: str) -> None:
        """A job's place or row is lost."""
        ids = sorted(self.model.jobs)
        job = self.model.jobs[ids[pick % len(ids)]]
        base, look = self.keys.base, Look("job", job.id)
        laned = job.state is State.PENDING and bool(job.lane)
        match how:
            case "out of its set":
                self.server.zrem(base + self.place_of(job), job.id)
                self.counted(-1 if laned else 0)
                job.due, job.expired = job.state is State.SCHEDULE, job.state is State.ACTIVE
                if job.state is State.PENDING:
                    self.model.rota.touch(job.lane)
                self.full_again(job)
                self.mended(job)
            case "in another set":
                other = next(name for name in _SETS[pick % 5 :] + _SETS if name not in (self.place_of(job), job.state))
                self.server.zadd(base + other, {job.id: 5})
                if other == "pending":
                    self.model.rota.touch("")
                self.mended(job)
            case "another lane's" if self.model.rota.on:
                other = "a" if job.lane != "a" else "b"
                self.server.zadd(self.keys.lane_active(other), {job.id: 5})
                self.mended(job, other)
            case "lease gone" if job.state is State.ACTIVE and job.lane:
                self.server.zrem(self.keys.lane_active(job.lane), job.id)
                self.mended(job)
            case "row gone" if not job.dedup:
                self.server.delete(self.keys.job(job.id), self.keys.log(job.id))
                self.lost(job)
                self.model.tally("dropped")
                # Only whoever walks the lanes' sets knows in which the job was.
                self.repaired("dropped", Look("job", job.id, job.lane))
            case "state gone":
                self.server.hdel(self.keys.job(job.id), "state")
                self.buried(job)
                self.model.tally("dead")
                self.repaired("buried", look)
                self.key_of(job)
            case _:
                self.unchanged = True

    def mended(self, job: Job, lane: str = "") -> None:
        """Repair what a row still says; one that lives takes its key again, if it is free."""
        for name in filter(None, (lane, job.lane)):
            self.model.rota.touch(name)
        lives = job.state in _HOLDERS and job.dedup is not None and "dedup_window_ms" not in job.fields
        if lives and job.dedup is not None:
            self.model.dedup.setdefault(job.dedup, (job.id, False))
        self.model.tally("mended")
        self.repaired("mended", Look("job", job.id, lane))

    def counted(self, n: int) -> None:
        """Count a job that a hand took out of a lane's set, as a script does."""
        if n:
            self.server.hincrby(self.keys.meta, "laned", n)

    def lost(self, job: Job) -> None:
        """A job's row is gone, and with it all else."""
        self.model.rota.touch(job.lane)
        del self.model.jobs[job.id]

    def buried(self, job: Job) -> None:
        """A row did not say where it belongs."""
        self.model.rota.touch(job.lane)
        if job.state is not State.DEAD:
            job.expired = False
        job.state, job.nonce, job.cancel, job.due = State.DEAD, None, None, False
        job.notes["kind"] = "dead"

    def key_of(self, job: Job) -> None:
        """A job that is over holds no key, but for a window's."""
        if job.dedup is not None and self.model.dedup.get(job.dedup) == (job.id, False):
            del self.model.dedup[job.dedup]
            self.model.tally("mended")
            self.repaired("dropped", Look("dedup", job.dedup))

    def full_again(self, job: Job) -> None:
        """A lane that is closed for its limit waits for a lease that is over now."""
        lane = self.model.rota.lane(job.lane)
        if job.state is State.ACTIVE and job.lane and lane.where == CLOSED and self.model.full_of_dead(lane):
            lane.due = True

    @precondition(lambda self: self.model.dedup)
    @rule(pick=st.integers(0, 255))
    def tear_a_key(self, pick: int) -> None:
        """A dedup key is lost, or names nobody."""
        keys = sorted(self.model.dedup)
        key = keys[pick % len(keys)]
        id, window = self.model.dedup[key]
        job = self.model.jobs.get(id)
        lives = job is not None and job.state in _HOLDERS and job.dedup == key
        if job is None or not lives or window or "dedup_window_ms" in job.fields:
            self.unchanged = True
        elif pick % 2:
            self.server.delete(self.keys.dedup(key))
            self.mended(job)
        else:
            self.server.set(self.keys.dedup(key), "JOB00000000001")
            self.model.tally("mended")
            self.repaired("dropped", Look("dedup", key))
            self.mended(job)

    @precondition(lambda self: self.model.rota.on)
    @rule(pick=st.integers(0, 255), how=st.sampled_from(ROTA))
    def tear_the_rota(self, pick: int, how: str) -> None:
        """A lane's place is lost, or how many wait in lanes."""
        rota = self.model.rota
        names = sorted(name for name in rota.lanes if self.model.waiting(name))
        if how == "miscounted" or not names:
            self.server.hincrby(self.keys.meta, "laned", 1 + pick)
            self.lane_mended("")
            return
        lane = rota.lane(names[pick % len(names)])
        match how:
            case "off the ring" if lane.where == RING:
                self.server.lrem(self.keys.ring, 0, lane.name)
            case "twice on the ring" if lane.where == RING:
                self.server.rpush(self.keys.ring, lane.name)
            case "closed, too" if lane.where == RING:
                self.server.zadd(self.keys.closed, {lane.name: 5})
            case "not closed" if lane.where == CLOSED:
                self.server.zrem(self.keys.closed, lane.name)
            case "field gone":
                self.server.hdel(self.keys.lanes, lane.name)
                lane.limits = Limits()
            case _:
                self.unchanged = True
                return
        if lane.name in rota.ring:
            rota.ring.remove(lane.name)
        lane.where, lane.credit, lane.due = AWAY, 0, False
        rota.touch(lane.name)
        self.lane_mended(lane.name)

    def lane_mended(self, name: str) -> None:
        """Repair a lane's place."""
        self.model.tally("mended")
        self.repaired("mended", Look("lane", name))
