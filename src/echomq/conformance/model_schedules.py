"""The executable model of recurring schedules: what each call answers, which jobs a slot makes, where a schedule stands.

Theory of operation
    There is no clock: a slot is `over` when its number is below that of the year 2001, and ahead otherwise. What comes
    after a slot is whoever fires it to say, so the model knows nothing of cron or time zones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import attrs

from echomq.conformance.model import Queue
from echomq.conformance.model_job import Job
from echomq.conformance.model_verbs import content
from echomq.protocol.records import NewJob
from echomq.protocol.states import State
from echomq.transitions import Firing

_OVER: Final = 10**12
MOST_OPEN: Final = 8
_OPEN: Final = frozenset({State.PENDING, State.SCHEDULE, State.ACTIVE})


def over(moment: int) -> bool:
    """Whether a moment has come."""
    return moment < _OVER


@final
@attrs.define
class Schedule:
    """One schedule."""

    digest: str
    overlap: str
    job: NewJob
    slot: int
    paused: bool = False
    count: int = 0
    skipped: int = 0
    last: tuple[str, int] | None = None
    """Its latest job, and that one's slot."""
    open: list[str] = attrs.Factory(list)

    @property
    def found(self) -> float:
        """Answer where it is found."""
        return float("inf") if self.paused or not self.slot else self.slot

    def fields(self) -> dict[str, str]:
        """Spell what must be in its definition, but for the template."""
        fields = {"digest": self.digest, "overlap": self.overlap, "slot": str(self.slot)}
        fields |= {name: str(n) for name, n in (("count", self.count), ("skipped", self.skipped)) if n}
        if self.last:
            fields |= {"last_id": self.last[0], "last_slot": str(self.last[1])}
        return fields


@final
@attrs.define
class Schedules:
    """A queue's schedules."""

    queue: Queue
    by_name: dict[str, Schedule] = attrs.Factory(dict)

    @property
    def due(self) -> bool:
        """Whether some slot waits to be fired."""
        return any(over(it.found) for it in self.by_name.values())  # type: ignore[arg-type]

    def put(self, name: str, digest: str, overlap: str, job: NewJob, slot: int) -> str:
        """Define a schedule."""
        old = self.by_name.get(name)
        if old is not None and old.digest == digest:
            return "same"
        if slot and over(slot):
            return "stale"
        if old is None:
            self.by_name[name] = Schedule(digest, overlap, job, slot)
            return "created"
        waits = old.slot and over(old.slot) and not old.paused
        old.digest, old.overlap, old.job, old.slot = digest, overlap, job, old.slot if waits else slot
        return "changed"

    def pause(self, name: str) -> str:
        """Let it rest."""
        it = self.by_name.get(name)
        if it is None:
            return "EMQGONE"
        was, it.paused = it.paused, True
        return "same" if was else "ok"

    def resume(self, name: str, digest: str, slot: int) -> str:
        """Let it go on."""
        it = self.by_name.get(name)
        if it is None:
            return "EMQGONE"
        if not it.paused:
            return "same"
        if it.digest != digest or (slot and over(slot)):
            return "EMQSTALE"
        it.paused, it.slot = False, slot
        return "ok"

    def remove(self, name: str) -> str:
        """Remove it; its jobs stay."""
        return "EMQGONE" if self.by_name.pop(name, None) is None else "ok"

    def fire(
        self, name: str, firings: Sequence[Firing], by: str, *, digest: str, slot: int, next_slot: int
    ) -> list[str] | str:
        """Fire a slot, or run it now; answers a verdict each, or the word by which the whole call is refused."""
        it, at_once = self.by_name.get(name), slot == 0
        if it is None:
            return "EMQGONE"
        if not at_once and (it.slot != slot or it.digest != digest or it.paused or 0 < next_slot <= max(slot, _OVER)):
            return "EMQSTALE"
        known = [id for id in it.open if (job := self.queue.jobs.get(id)) and job.state in _OPEN]
        waits = any(self.queue.jobs[id].state is not State.ACTIVE for id in known)
        verdicts = []
        for firing in firings:
            fits = it.overlap == "allow" or not known or (it.overlap == "queue" and len(known) == 1 and not waits)
            verdicts.append("admitted" if at_once or fits else "skipped")
            if verdicts[-1] == "admitted":
                known, waits = [*known, firing.id], True
        most, admitted = self.queue.max_size, verdicts.count("admitted")
        if most and admitted > most - len(self.queue.ready()) - len(self.queue.of(State.SCHEDULE)):
            return "EMQFULL"
        for firing, verdict in zip(firings, verdicts, strict=True):
            if verdict == "admitted":
                self._make(it, name, firing, by)
                it.last = (firing.id, firing.slot_ms)
            else:
                self.queue.tally("skipped")
        it.open = [] if it.overlap == "allow" else known[-MOST_OPEN:]
        it.skipped += verdicts.count("skipped")
        if not at_once:
            it.count, it.slot = it.count + admitted, next_slot
        return verdicts

    def _make(self, it: Schedule, name: str, firing: Firing, by: str) -> None:
        job = Job(id=firing.id, by=by, **content(it.job))
        job.fields |= {"schedule": name, "slot": str(firing.slot_ms)}
        if job.lane:
            self.queue.rota.begin()
        self.queue.go(job, "schedule_fire", State.PENDING if over(firing.due_ms) else State.SCHEDULE)
        self.queue.jobs[job.id] = job
