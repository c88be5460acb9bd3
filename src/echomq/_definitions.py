"""What defines a recurring schedule, checked before any I/O and spelled for the server."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq._options import JobOptions
from echomq.middleware import passed
from echomq.protocol._convert import shown
from echomq.protocol.keys import check_schedule_name
from echomq.protocol.newjob import NewJob
from echomq.recurrence import Recurrence
from echomq.tasks import JobCall
from echomq.transitions.schedule_put import PutReply, schedule_put
from echomq.transitions.schedules import ENDED, OVERLAPS, Overlap

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq._options import EnqueueOptions
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Call, Transition

_SENSELESS: Final = {
    "delay_ms": ("delay", "its slots say when its jobs run"),
    "at_ms": ("at", "its slots say when its jobs run"),
    "dedup": ("dedup", "overlap= says what a slot does while the last one's job is not over"),
    "dedup_mode": ("dedup_mode", "overlap= says what a slot does while the last one's job is not over"),
    "dedup_window_ms": ("dedup_window", "overlap= says what a slot does while the last one's job is not over"),
}
"""Options of a job that a schedule's jobs cannot have, and why."""


@final
@attrs.frozen(kw_only=True)
class Definition:
    """A schedule as it is to be. Made by `define`."""

    name: str
    """Its name."""
    recurrence: Recurrence
    """Its slots."""
    overlap: Overlap
    """What a slot does while the last one's job is not over."""
    spec: bytes
    """The recurrence, spelled."""
    digest: str
    """Of slots, overlap and what is enqueued: the same definition from another process has the same one. What middleware
    makes of the call is no part of it: a trace's headers are others at each start."""
    make: Callable[[], NewJob] = attrs.field(eq=False)
    """Makes what its jobs are, after middleware; asked when there is something to send."""

    def put(
        self, keys: QueueKeys, call: Call, *, job: NewJob, origin: str, now_ms: int, made: int
    ) -> Transition[PutReply]:
        """Make the call that defines it, seen from a moment of the server's clock."""
        return schedule_put(
            keys, call, name=self.name, digest=self.digest, spec=self.spec, origin=origin, overlap=self.overlap,
            slot_ms=slot_after(self.recurrence, now_ms, made), job=job,
        )  # fmt: skip


def define(
    name: str,
    call: JobCall[Any] | bytes,
    recurrence: Recurrence,
    *,
    overlap: Overlap = "allow",
    task: str = "",
    options: EnqueueOptions | None = None,
    queue: str = "",
) -> Definition:
    """Check a definition.

    Args:
        name: The schedule's name.
        call: A call of a task, or a payload.
        recurrence: Its slots.
        overlap: What a slot does while the last one's job is not over.
        task: For a payload, which handler.
        options: Of its jobs, in place of those of the call.
        queue: The queue it is for; "": that of the call.

    Raises:
        TypeError: A value is of another type.
        ValueError: The call is for another queue, an option makes no sense here, or a value is out of range; the message
            names it.
    """
    check_schedule_name(name)
    if overlap not in OVERLAPS:
        raise ValueError(f"overlap is one of {', '.join(OVERLAPS)}, not {shown(overlap)}")
    options = options or {}
    if isinstance(call, JobCall):
        if task:
            raise ValueError(f"task={task!r} is for a payload; the call is one of task {call.task!r} already")
        if queue and call.queue != queue:
            raise ValueError(f"the call is one for queue {call.queue!r}, and this schedule's is {queue!r}")
    job = _job(call, task, options)
    spec = recurrence.spell()
    _id, priority, _due, ends, _dedup, _rule, lane, _count, *fields = job.arguments()
    return Definition(
        name=name, recurrence=recurrence, overlap=overlap, spec=spec,
        digest=_digest(spec, overlap, priority, ends, lane, *fields),
        make=lambda: _job(call if isinstance(call, bytes) else passed(call, counted=False), task, options),
    )  # fmt: skip


def _job(call: JobCall[Any] | bytes, task: str, options: EnqueueOptions) -> NewJob:
    if isinstance(call, bytes):
        chosen, payload = JobOptions.of(options), call
    elif not isinstance(call, JobCall):
        raise TypeError(
            f"what a schedule enqueues is a call of a task, such as report.call(), or bytes, not {shown(call)}"
        )
    else:
        chosen, payload, task = call.options.with_(options), call.payload, call.task
    for field, (option, why) in _SENSELESS.items():
        if field in chosen.fields:
            raise ValueError(f"{option}: a recurring job cannot have it: {why}")
    for name in ("expires", "deadline"):
        if not str(chosen.fields.get(name, "+")).startswith("+"):
            raise ValueError(
                f"{name}: a recurring job has it in seconds or as a timedelta, from its slot on, not as a moment"
            )
    job = chosen.model(task, payload)
    # An order of no meaning is no part of the definition.
    return attrs.evolve(job, headers=dict(sorted(job.headers.items()))) if job.headers else job


def slot_after(recurrence: Recurrence, now_ms: int, made: int, moved_ms: int = 0) -> int:
    """Answer the slot at which a schedule goes on that has made so many jobs, or `ENDED`."""
    slot_ms = None if recurrence.is_over(made) else recurrence.next(now_ms + moved_ms)
    return ENDED if slot_ms is None else slot_ms - moved_ms


def _digest(*parts: bytes | str | int) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()[:32]
