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
        return row


@final
@attrs.define
class Queue:
    """The jobs of a queue, its dedup keys, its pause and its counters."""

    jobs: dict[str, Job] = attrs.Factory(dict)
    dedup: dict[str, tuple[str, bool]] = attrs.Factory(dict)
    """Key -> (the job it names, whether it goes by its own window)."""
    paused: bool = False
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

    # --- what an ending owes -----------------------------------------------------------------

    def free(self, job: Job) -> None:
        """Free the job's dedup key, unless it names another or goes by itself."""
        if job.dedup is not None and self.dedup.get(job.dedup) == (job.id, False):
            del self.dedup[job.dedup]

    def forget(self, job: Job, verb: str) -> None:
        """Drop the row and all that is its own."""
        job.move(verb, None)
        del self.jobs[job.id]

    def finish(self, job: Job, verb: str, kind: str, **notes: str) -> None:
        """End a job: on the shelf if it asked for that, else the row goes."""
        self.free(job)
        self.tally(kind)
        if not job.ttl:
            self.forget(job, verb)
            return
        job.move(verb, State.DONE)
        job.nonce = job.cancel = None
        job.notes |= {"kind": kind, **notes}

    def bury(self, job: Job, verb: str) -> None:
        """End a job in the morgue."""
        self.free(job)
        self.tally("dead")
        job.move(verb, State.DEAD)
        job.nonce = None
        job.notes["kind"] = "dead"

    def again(self, job: Job, verb: str, target: State, *, due: bool = False) -> str | None:
        """Back to the machine, unless a cancel request waits; answers the verdict of that."""
        if job.cancel is not None:
            reason = job.cancel
            self.finish(job, verb, "cancelled", reason=reason)
            return f"cancelled {reason}"
        job.move(verb, target)
        job.due = due
        return None

    # --- rounds and claims -------------------------------------------------------------------

    def reap(self, order: list[str], bound: int) -> int:
        """Take expired leases back, `bound` at most, in the order of their ending."""
        expired = [id for id in order if (job := self.jobs[id]).state is State.ACTIVE and job.expired][:bound]
        for id in expired:
            job = self.jobs[id]
            if job.cancel is None:
                job.stalls += 1
                if job.stalls > job.max_stalls:
                    self.bury(job, "reap")
                    continue
                self.tally("stalled")
            self.again(job, "reap", State.PENDING)  # the nonce stays: the late holder may still complete
        return len(expired)

    def promote(self, order: list[str], bound: int) -> int:
        """Move jobs whose time has come, `bound` at most, in the order of their times."""
        due = [id for id in order if (job := self.jobs[id]).state is State.SCHEDULE and job.due][:bound]
        for id in due:
            self.again(self.jobs[id], "promote", State.PENDING)
        return len(due)

    def claim(self, nonce: str, count: int) -> list[Job]:
        """Lease the next jobs in turn."""
        taken = [] if self.paused else self.ready()[:count]
        for job in taken:
            job.move("claim", State.ACTIVE)
            job.token += 1
            job.nonce = nonce
        return taken

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
