"""The model's verbs that carry items: one item, the expected verdict, and what it changes.

Verdicts are spelled as the scripts answer them, `code detail`; a detail that holds a moment of the server's clock is
left out, and compared by its code only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from echomq.conformance.model import Queue
from echomq.conformance.model_job import Job
from echomq.protocol.payloads import payload_fields
from echomq.protocol.records import NewJob
from echomq.protocol.states import State
from echomq.transitions.cancel import CancelRequest
from echomq.transitions.checkpoint import Checkpoint
from echomq.transitions.complete import Completion
from echomq.transitions.end import Ending
from echomq.transitions.extend import Renewal
from echomq.transitions.fail import Failure
from echomq.transitions.log import LogLine
from echomq.transitions.progress import Progress
from echomq.transitions.rate_limited import Closing
from echomq.transitions.reassign import Reassignment
from echomq.transitions.release import Release
from echomq.transitions.reprioritise import NewPriority
from echomq.transitions.reschedule import NewTime
from echomq.transitions.snooze import Snoozed
from echomq.transitions.update import NewPayload

Fenced = Completion | Renewal | Failure | Release | Snoozed | Ending | Closing | Progress | Checkpoint | LogLine
_ENDED: Final = frozenset({State.DEAD, State.DONE})
_WAITING: Final = frozenset({State.PENDING, State.SCHEDULE})


def _text(value: bytes | str | int) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def _taken(queue: Queue, key: str, id: str) -> tuple[str, bool]:
    """Answer who holds a dedup key against a job, "" when nobody does, and whether a window guards it."""
    named, window = queue.dedup.get(key, ("", False))
    holder = queue.jobs.get(named)
    held = named != id and (window or (holder is not None and holder.state not in _ENDED))
    return (named if held else ""), window


def content(new: NewJob) -> dict[str, Any]:
    """Answer what a producer says of a job, by the names of the model."""
    flat = iter(new.fields())
    return {
        "fields": {_text(name): _text(value) for name, value in zip(flat, flat, strict=True)},
        "dedup": new.dedup,
        "priority": new.priority,
        "max_stalls": 3 if new.max_stalls is None else new.max_stalls,
        "ttl": new.result_ttl_ms or 0,
        "lane": new.lane or "",
        "ends": {
            name: not moment.startswith("+")
            for name, moment in (("expires_ms", new.expires), ("deadline_ms", new.deadline))
            if moment is not None
        },
    }


def _replace(queue: Queue, job: Job, new: NewJob) -> str:
    """Give a waiting job another's content: a new budget under the id and the token that it has."""
    source, before, due = job.state, job.lane, job.due
    for name, value in (content(new) | {"lane": new.lane or before}).items():
        setattr(job, name, value)
    job.failures, job.stalls, job.nonce, job.notes = 0, 0, None, {}
    scheduled = new.dedup_mode == "debounce" or source is State.SCHEDULE
    job.move("enqueue", State.SCHEDULE if scheduled else State.PENDING)
    job.due = due and new.dedup_mode == "replace"
    if job.lane:
        queue.rota.begin()
    if source is State.PENDING and (scheduled or before != job.lane):
        if not scheduled:
            queue.rota.touch(job.lane)
        queue.rota.touch(before)
    return f"replaced {job.id}"


def enqueue(queue: Queue, new: NewJob, by: str) -> str:
    """Admit a job, unless its id or its dedup key is taken, or the queue is full; or replace the key's holder."""
    there = queue.jobs.get(new.id)
    if there is not None:
        return "admitted" if there.by == by else "collision"
    if new.dedup is not None:
        id, window = _taken(queue, new.dedup, new.id)
        holder, last_wins = queue.jobs.get(id), new.dedup_mode != "reject"
        if holder is not None and holder.state in _WAITING and last_wins:
            return _replace(queue, holder, new)
        if id and (window or not last_wins or holder is None or holder.state is not State.ACTIVE):
            return f"duplicate {id}"
    if queue.max_size and len(queue.ready()) + len(queue.of(State.SCHEDULE)) >= queue.max_size:
        return f"EMQFULL {queue.max_size}"
    if new.dedup is not None:
        queue.dedup[new.dedup] = (new.id, new.dedup_window_ms is not None)
    job = Job(id=new.id, by=by, **content(new))
    if job.lane:
        queue.rota.begin()
    # Moments of a proof are the distant past or a year ahead.
    queue.go(job, "enqueue", State.SCHEDULE if new.delay_ms or (new.at_ms or 0) > 10**12 else State.PENDING)
    queue.jobs[new.id] = job
    return "admitted"


def _fenced(queue: Queue, item: Fenced) -> tuple[Job | None, str]:
    job = queue.jobs.get(item.id)
    if job is None:
        return None, "EMQGONE"
    if job.state is not State.ACTIVE:
        return None, f"EMQSTALE {job.state}"
    if (job.token, job.nonce) != (item.token, item.nonce):
        return None, "EMQSTALE active"
    return job, ""


def _complete(queue: Queue, job: Job, item: Completion) -> str:
    queue.finish(job, "complete", "completed", result=_text(item.result))
    return "ok"


def complete(queue: Queue, item: Completion) -> str:
    """Retire a job; the late holder of a reaped one may, too."""
    job, refusal = _fenced(queue, item)
    if job is None:
        late = queue.jobs.get(item.id)
        if late is None or late.state is not State.PENDING or (late.token, late.nonce) != (item.token, item.nonce):
            return refusal
        job = late
    return _complete(queue, job, item)


def _extend(queue: Queue, job: Job, item: Renewal) -> str:  # noqa: ARG001
    job.move("extend", State.ACTIVE)
    return "ok" if job.cancel is None else f"cancel {job.cancel}"


def _fail(queue: Queue, job: Job, item: Failure) -> str:
    if job.cancel is None:
        job.failures += 1
        job.notes["error"] = _text(item.error)
        # A deadline of a proof is over, or half a year ahead; a delay is nought, or a year.
        missed = "deadline_ms" in job.ends and (job.ends["deadline_ms"] or item.delay_ms > 0)
        if job.failures >= item.max_attempts or missed:
            queue.bury(job, "fail")
            return "dead"
    verdict = queue.again(job, "fail", State.SCHEDULE, due=item.delay_ms == 0)
    if verdict is None:
        job.nonce = None
        job.notes.pop("unfit_since", None)
        queue.tally("failed")
    return verdict or "retry"


def _release(queue: Queue, job: Job, item: Release) -> str:  # noqa: ARG001
    verdict = queue.again(job, "release", State.PENDING)
    job.nonce = None
    return verdict or "ok"


def _snooze(queue: Queue, job: Job, item: Snoozed) -> str:
    verdict = queue.again(job, "snooze", State.SCHEDULE, due=item.delay_ms == 0)
    job.nonce = None
    if verdict is not None:
        return verdict  # it has ended, with its notes as they were
    if item.unfit:
        job.notes["unfit_since"] = "since the first time"
    else:
        job.notes.pop("unfit_since", None)
    return "ok"


def _end(queue: Queue, job: Job, item: Ending) -> str:
    queue.finish(job, "end", item.kind, reason=item.reason)
    return "ok"


def _rate_limited(queue: Queue, job: Job, item: Closing) -> str:
    if item.scope == "queue":
        queue.limits.told = True
    else:
        queue.rota.begin()
        queue.rota.lane(job.lane).limits.told = True
        queue.rota.touch(job.lane)
    verdict = queue.again(job, "rate_limited", State.PENDING)
    job.nonce = None
    return verdict or "ok"


def _progress(queue: Queue, job: Job, item: Progress) -> str:  # noqa: ARG001
    job.notes["progress"] = _text(item.data)
    return "ok"


def _checkpoint(queue: Queue, job: Job, item: Checkpoint) -> str:  # noqa: ARG001
    kept = int(job.notes.get("step", "-1"))
    if item.step < kept:
        return f"EMQSTATE step {kept}"
    job.notes |= {"step": str(item.step), "checkpoint": _text(item.state)}
    return "ok"


def _log(queue: Queue, job: Job, item: LogLine) -> str:  # noqa: ARG001
    job.log.append(_text(item.line))
    job.log_lines += 1
    del job.log[:-100]
    return "ok"


_FENCED: Final[dict[type, Callable[..., str]]] = {
    Renewal: _extend,
    Failure: _fail,
    Release: _release,
    Snoozed: _snooze,
    Ending: _end,
    Closing: _rate_limited,
    Progress: _progress,
    Checkpoint: _checkpoint,
    LogLine: _log,
}


def fenced(queue: Queue, item: Fenced) -> str:
    """Do what a holder asks, if it is the holder."""
    if isinstance(item, Completion):
        return complete(queue, item)
    job, refusal = _fenced(queue, item)
    return refusal if job is None else _FENCED[type(item)](queue, job, item)


def cancel(queue: Queue, item: CancelRequest) -> str:
    """End a job that does not run; ask one that does."""
    named = queue.dedup.get(item.dedup, ("", False))[0] if item.dedup else item.id
    job = queue.jobs.get(named)
    if job is None:
        return "EMQGONE"
    if job.state in _WAITING:
        queue.finish(job, "cancel", "cancelled", reason=item.reason)
        return f"cancelled {item.reason}"
    if job.state is not State.ACTIVE:
        return f"EMQSTATE {job.state}"
    job.cancel = item.reason
    return f"asked {job.token}"


def remove(queue: Queue, id: str) -> str:
    """Erase a job that does not run."""
    job = queue.jobs.get(id)
    if job is None:
        return "EMQGONE"
    if job.state is State.ACTIVE:
        return "EMQSTATE active"
    queue.free(job)
    queue.tally("removed")
    queue.forget(job, "remove")
    return "ok"


def redrive(queue: Queue, id: str) -> str:
    """Begin a new life for a dead job, unless another took its dedup key meanwhile."""
    job = queue.jobs.get(id)
    if job is None:
        return "EMQGONE"
    if job.state is not State.DEAD:
        return f"EMQSTATE {job.state}"
    if job.dedup is not None:
        named, _ = _taken(queue, job.dedup, id)
        if named:
            return f"duplicate {named}"
        if queue.dedup.get(job.dedup, ("", False))[0] != id:
            queue.dedup[job.dedup] = (id, False)
    queue.go(job, "redrive", State.PENDING)
    job.failures = job.stalls = 0
    job.ends = {}
    job.notes = {name: value for name, value in job.notes.items() if name in {"step", "checkpoint"}}
    queue.tally("redriven")
    return "ok"


def reschedule(queue: Queue, item: NewTime) -> str:
    """Give a job that waits another time: a year ahead, or now."""
    job = queue.jobs.get(item.id)
    if job is None:
        return "EMQGONE"
    if job.state not in _WAITING:
        return f"EMQSTATE {job.state}"
    target = State.SCHEDULE if item.due.startswith("+") else State.PENDING
    if job.state is target:
        job.move("reschedule", target)
    else:
        queue.go(job, "reschedule", target)
    job.nonce = None
    return "ok"


def update(queue: Queue, item: NewPayload) -> str:
    """Give a job that waits, or is dead, another payload."""
    job = queue.jobs.get(item.id)
    if job is None:
        return "EMQGONE"
    if job.state in {State.ACTIVE, State.DONE}:
        return f"EMQSTATE {job.state}"
    pieces = iter(payload_fields(item.payload))
    job.fields = {name: value for name, value in job.fields.items() if not name.startswith("payload")}
    job.fields |= {_text(name): _text(value) for name, value in zip(pieces, pieces, strict=True)}
    _stays(job, "update")
    return "ok"


def reprioritise(queue: Queue, item: NewPriority) -> str:
    """Give a job that waits, or is dead, another priority."""
    job = queue.jobs.get(item.id)
    if job is None:
        return "EMQGONE"
    if job.state in {State.ACTIVE, State.DONE}:
        return f"EMQSTATE {job.state}"
    job.priority = item.priority
    job.fields.pop("priority", None)
    job.fields |= {"priority": str(item.priority)} if item.priority else {}
    _stays(job, "reprioritise")
    return "ok"


def _stays(job: Job, verb: str) -> None:
    """Note a change that moves nothing: who held the job does no more."""
    marks = (job.due, job.expired)
    job.move(verb, job.state)
    job.due, job.expired = marks
    job.nonce = None


def reassign(queue: Queue, item: Reassignment) -> str:
    """Move a job that waits, or is dead, to another lane."""
    job = queue.jobs.get(item.id)
    if job is None:
        return "EMQGONE"
    if job.state not in _WAITING | {State.DEAD}:
        return f"EMQSTATE {job.state}"
    if job.lane == item.lane:
        return "ok"
    before, marks = job.lane, (job.due, job.expired)
    job.lane, job.nonce = item.lane, None
    job.move("reassign", job.state)
    job.due, job.expired = marks
    queue.rota.begin()
    if job.state is State.PENDING:
        queue.rota.touch(job.lane)
        queue.rota.touch(before)
    return "ok"


def drain(queue: Queue, lane: str, bound: int) -> int:
    """Erase a lane's pending jobs, the next in turn first."""
    jobs = queue.waiting(lane)[:bound]
    for job in jobs:
        queue.free(job)
        queue.tally("removed")
        queue.forget(job, "drain")
    return len(jobs)


def set_lane(queue: Queue, name: str, settings: Mapping[str, str]) -> bool:
    """Change a lane's settings; they survive an empty lane."""
    limits = queue.rota.lane(name).limits
    before = (limits.settings, limits.told)
    for setting, value in settings.items():
        limits.put(setting, value)
    if before == (limits.settings, limits.told):
        return False
    queue.rota.begin()
    queue.rota.touch(name)
    return True


def configure(queue: Queue, settings: Mapping[str, str]) -> bool:
    """Change the queue's limits, how many may wait, or how many are kept."""
    before = (queue.limits.settings, queue.max_size, queue.shelves.settings)
    for setting, value in settings.items():
        if setting == "max_size":
            queue.max_size = int(value or 0)
        elif setting in {"dead_max", "dead_age", "done_max"}:
            setattr(queue.shelves, setting, int(value or 0))
        else:
            queue.limits.put(setting, value)
    return before != (queue.limits.settings, queue.max_size, queue.shelves.settings)


def spell(item: object) -> str:
    """Say an item in a report, briefly."""
    return item if isinstance(item, str) else str(attrs.asdict(item))  # type: ignore[arg-type]
