"""The model's verbs that carry items: one item, the expected verdict, and what it changes.

Verdicts are spelled as the scripts answer them, `code detail`; a detail that holds a moment of the server's clock is
left out, and compared by its code only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs

from echomq.conformance.model import Job, Queue
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
from echomq.transitions.release import Release
from echomq.transitions.snooze import Snoozed

Fenced = Completion | Renewal | Failure | Release | Snoozed | Ending | Progress | Checkpoint | LogLine
_ENDED: Final = frozenset({State.DEAD, State.DONE})


def _text(value: bytes | str | int) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def enqueue(queue: Queue, new: NewJob, by: str) -> str:
    """Admit a job, unless its id or its dedup key is taken."""
    there = queue.jobs.get(new.id)
    if there is not None:
        return "admitted" if there.by == by else "collision"
    if new.dedup is not None:
        id, window = queue.dedup.get(new.dedup, ("", False))
        holder = queue.jobs.get(id)
        if id and id != new.id and (window or (holder is not None and holder.state not in _ENDED)):
            return f"duplicate {id}"
        queue.dedup[new.dedup] = (new.id, new.dedup_window_ms is not None)
    flat = iter(new.fields())
    job = Job(
        id=new.id,
        by=by,
        fields={_text(name): _text(value) for name, value in zip(flat, flat, strict=True)},
        dedup=new.dedup,
        priority=new.priority,
        max_stalls=3 if new.max_stalls is None else new.max_stalls,
        ttl=new.result_ttl_ms or 0,
    )
    # Moments of a proof are the distant past or a year ahead.
    job.move("enqueue", State.SCHEDULE if new.delay_ms or (new.at_ms or 0) > 10**12 else State.PENDING)
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
        if job.failures >= item.max_attempts:
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
    del job.log[:-100]
    return "ok"


_FENCED: Final[dict[type, Callable[..., str]]] = {
    Renewal: _extend,
    Failure: _fail,
    Release: _release,
    Snoozed: _snooze,
    Ending: _end,
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
    job = queue.jobs.get(item.id)
    if job is None:
        return "EMQGONE"
    if job.state in {State.PENDING, State.SCHEDULE}:
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
        named, window = queue.dedup.get(job.dedup, ("", False))
        holder = queue.jobs.get(named)
        if named and named != id and (window or (holder is not None and holder.state not in _ENDED)):
            return f"duplicate {named}"
        if named != id:
            queue.dedup[job.dedup] = (id, False)
    job.move("redrive", State.PENDING)
    job.failures = job.stalls = 0
    job.notes = {name: value for name, value in job.notes.items() if name in {"step", "checkpoint"}}
    queue.tally("redriven")
    return "ok"


def spell(item: object) -> str:
    """Say an item in a report, briefly."""
    return item if isinstance(item, str) else str(attrs.asdict(item))  # type: ignore[arg-type]
