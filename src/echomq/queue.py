"""One queue, as producers and operators see it.

Every method checks its arguments before any I/O. Calls of one verb that are made at the same moment leave as one
(group commit), so a thousand tasks that enqueue cost about as much as one `enqueue_many`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, final

import anyio.lowlevel

from echomq._bulk import Content, Round, not_sent
from echomq._items import (
    CANCEL_STATES,
    MINTS,
    check_ids,
    check_page,
    check_reason,
    redrive_error,
    remove_error,
    taken,
)
from echomq._options import EnqueueOptions, JobOptions
from echomq.errors import EchoMQError, UnavailableError
from echomq.protocol.ids import check_id
from echomq.protocol.keys import QueueKeys, check_task_name
from echomq.protocol.refusals import COLLISION, DUPLICATE, Verdict
from echomq.protocol.stamps import StampedJob
from echomq.protocol.times import to_seconds
from echomq.results import JobHandle
from echomq.transitions import (
    Call,
    CancelRequest,
    Counts,
    JobInFull,
    Page,
    age,
    browse,
    configure,
    counts,
    pause,
    read_job,
    resume,
)

if TYPE_CHECKING:
    from echomq._channels import Channels
    from echomq.protocol.codec import Codec
    from echomq.transitions.configure import EventLevel
    from echomq.wire.client import WireClient
    from echomq.wire.group import Group

T = TypeVar("T")

CancelOutcome = Literal["cancelled", "asked"]
"""`cancelled`: it was not running and has ended. `asked`: it runs, and its worker has been told."""


@final
class Queue:
    """One queue of a client. Made by `Client.queue`."""

    def __init__(self, wire: WireClient, channels: Channels, keys: QueueKeys, codec: Codec) -> None:
        self.keys = keys
        """The names of its keys."""
        self.channels = channels
        """Where results are told."""
        self.wire = wire
        """What runs its transitions."""
        self.codec = codec
        """What decodes results that have no declared type."""
        self._call = Call(wire.tag)
        self._decode: Callable[[bytes], Any] = codec.decode

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @cached_property
    def _enqueue(self) -> Group[StampedJob]:
        # Made when first used, in the event loop: a queue or a handle may be made anywhere.
        return self.wire.group(self.keys, "enqueue")

    @property
    def name(self) -> str:
        """Its name."""
        return self.keys.queue

    def handle(self, id: str) -> JobHandle[Any]:
        """Make a handle for a job by its id; nothing is sent. Its result comes as the codec decodes it without a type.

        Raises:
            ValueError: Not an id.
        """
        return JobHandle(check_id(id), self.name, admitted=True, owner=self, read=self._decode)

    # --- enqueueing -------------------------------------------------------------------------

    async def enqueue(self, payload: bytes, *, task: str = "", **options: Unpack[EnqueueOptions]) -> JobHandle[Any]:
        """Enqueue one job.

        Args:
            payload: What the handler gets, up to 1 MiB.
            task: Which handler; "" for a queue that has one.
            options: When, how often, and so on: see `EnqueueOptions`.

        Returns:
            The job's handle. If another job holds the dedup key, that job's, with `admitted` False.

        Raises:
            TypeError, ValueError: An argument does not fit; nothing was sent.
            QueueFullError: The queue takes no more.
            JobStateError: The queue is being closed.
            OutOfMemoryError: The server's memory is full; what is queued can still be worked off.
            UnavailableError: The server was not reached in time; `sent` says whether the job may be there.

        Server effect: at once and wholly, the job's row is written, the job placed in `pending` or `schedule`, its
            dedup key taken, a parked worker woken, and `enqueued` emitted.
        Cancellation: a checkpoint. Cancelled before it was sent, nothing happens; after, the job may be there.
        Delivery: a repetition after a lost connection is answered from the server's memory: one call, one job. Not so
            when *you* call again after an error whose `sent` is True: there a `dedup` key helps, with a window if the
            job may have ended by then.
        """
        job = JobOptions.of(options).new_job(task, payload)
        return await self.send(job, self._decode)

    async def send(self, job: StampedJob, read: Callable[[bytes], T]) -> JobHandle[T]:
        """Enqueue a job that is made already; see `enqueue`."""
        verdict = await self._enqueue(job)
        for _ in range(MINTS - 1):
            if verdict.code != COLLISION:
                break
            job = job.again()
            verdict = await self._enqueue(job)
        handle = self._handle(job.id, verdict, read)
        if isinstance(handle, EchoMQError):
            raise handle
        return handle

    async def enqueue_many(
        self,
        payloads: Iterable[bytes],
        *,
        task: str = "",
        progress: Callable[[int], Awaitable[None]] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobHandle[Any] | EchoMQError]:
        """Enqueue any number of jobs, a few hundred a call.

        Args:
            payloads: Any iterable; it is drawn from as calls are answered, so it may be longer than memory.
            task: Which handler; "" for a queue that has one.
            progress: Awaited now and then with the number of jobs that have been answered.
            options: For all of them: see `EnqueueOptions`.

        Returns:
            For each payload, in order, the job's handle, or the error it met. One that is refused fails no other.
            After an `UnavailableError` the rest is not sent.

        Raises:
            TypeError, ValueError: An option does not fit, or a payload is not bytes. Payloads before it may be queued.

        Server effect, Delivery: as for `enqueue`, each job by itself: many jobs are not one transaction.
        Cancellation: a checkpoint. What was answered or sent stays.
        """
        chosen = JobOptions.of(options)
        if task:
            check_task_name(task)
        jobs = ((task, payload, chosen, self._decode) for payload in payloads)
        return await self.send_many(jobs, progress)

    async def send_many(
        self,
        jobs: Iterable[Content],
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> list[Any]:
        """Enqueue jobs by task, payload, options and how to read the result; see `enqueue_many`."""
        answers: list[Any] = []
        source = iter(jobs)
        broken: UnavailableError | None = None
        while broken is None:
            before = len(answers)
            broken = await self._send_round(source, answers)
            if len(answers) == before:
                await anyio.lowlevel.checkpoint()
                return answers
            if progress is not None:
                await progress(len(answers))
        answers.extend(not_sent(broken) for _ in source)
        return answers

    async def _send_round(self, source: Iterator[Content], answers: list[Any]) -> UnavailableError | None:
        round_ = Round(source, answers)
        outcomes = await self._enqueue.many(round_)
        broken = None
        for at, job, read, outcome in zip(round_.places, round_.jobs, round_.reads, outcomes, strict=True):
            if type(outcome) is not Verdict:
                answers[at] = outcome
                broken = outcome if isinstance(outcome, UnavailableError) else broken
            elif outcome.code == "admitted":
                answers[at] = JobHandle(job.id, self.keys.queue, True, self, read)
            elif outcome.code == COLLISION:
                try:
                    answers[at] = await self.send(job.again(), read)
                except EchoMQError as error:
                    answers[at] = error
            else:
                answers[at] = self._handle(job.id, outcome, read)
        return broken

    def _handle(self, id: str, verdict: Verdict, read: Callable[[bytes], T]) -> JobHandle[T] | EchoMQError:
        if verdict.code == DUPLICATE:
            return JobHandle(verdict.detail, self.name, admitted=False, owner=self, read=read)
        if verdict.code == COLLISION:
            return taken(id)
        error = verdict.error(id=id, queue=self.name)
        return error or JobHandle(id, self.name, admitted=True, owner=self, read=read)

    # --- single jobs ------------------------------------------------------------------------

    async def cancel(self, id: str, *, reason: str = "") -> CancelOutcome:
        """Cancel a job.

        Args:
            id: The job.
            reason: Why, for people; up to 1,024 bytes.

        Returns:
            `cancelled` if it was not running: it has ended. `asked` if it runs: its worker has been told and cancels
            the handler; should the handler complete first, that wins.

        Raises:
            ValueError: Not an id, or the reason is too long.
            JobNotFoundError: There is no such job (any more).
            JobStateError: It has ended already.
            UnavailableError: As for `enqueue`.

        Server effect: a job that is not running ends as cancelled: out of its set, dedup key freed, waiters told. A
            running one is marked, so that it never becomes ready again, and the request is published.
        Cancellation: a checkpoint; if cancelled after it was sent, the job may be cancelled.
        Delivery: may be repeated. The worker hears at once, or with its next heartbeat at the latest.
        """
        check_id(id)
        verdict = await self.wire.group(self.keys, "cancel")(CancelRequest(id, check_reason(reason)))
        error = verdict.error(id=id, queue=self.name, expected=CANCEL_STATES)
        if error is not None:
            raise error
        return "asked" if verdict.code == "asked" else "cancelled"

    async def remove(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Erase jobs that do not run, results and all, without a trace but an event.

        Returns:
            For each id, in order: None if it was removed, or a `JobNotFoundError`, or a `JobStateError` for one that
            runs (cancel it), or the error its call met.

        Raises:
            ValueError: One is not an id; nothing was sent.

        Server effect: rows, logs and places go; dedup keys are freed; waiters are told.
        Cancellation: a checkpoint; some may have been removed.
        """
        return await self._each("remove", ids, remove_error)

    async def redrive(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Begin a new life for dead jobs: budgets and error reset; token, checkpoint and payload kept.

        Returns:
            For each id, in order: None if it is pending again, or a `JobNotFoundError`, or a `JobStateError` for one
            that is not dead, or whose dedup key another job holds by now, or the error its call met.

        Raises:
            ValueError: One is not an id; nothing was sent.

        Server effect: from `dead` to `pending`; dedup keys are taken again; workers are woken.
        Cancellation: a checkpoint; some may have been redriven.
        """
        return await self._each("redrive", ids, redrive_error)

    async def _each(
        self, verb: str, ids: Iterable[str], error_of: Callable[[Verdict, str, str], EchoMQError | None]
    ) -> list[EchoMQError | None]:
        checked = check_ids(ids)
        outcomes = await self.wire.group(self.keys, verb).many(checked)
        return [
            error_of(outcome, id, self.name) if isinstance(outcome, Verdict) else outcome
            for id, outcome in zip(checked, outcomes, strict=True)
        ]

    async def job(self, id: str, *, log: bool = False) -> JobInFull | None:
        """Read a job's row, its place and, if asked, its log; None when it has no row.

        Raises:
            ValueError: Not an id.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        return await self.wire.run(read_job(self.keys, self._call, check_id(id), with_log=log))

    # --- the queue --------------------------------------------------------------------------

    async def pause(self) -> bool:
        """Let no more jobs be claimed, until `resume`; what runs goes on. Answers whether this call did it.

        Server effect: `meta.paused` is set; workers that claim get nothing. Dead workers' jobs are still recovered.
        Cancellation: a checkpoint; if cancelled after it was sent, the queue may be paused.
        """
        return await self.wire.remembered(self.keys, lambda call: pause(self.keys, call), verb="pause")

    async def resume(self) -> bool:
        """Let jobs be claimed again. Answers whether this call did it.

        Server effect: `meta.paused` is removed, and parked workers are woken.
        Cancellation: a checkpoint; if cancelled after it was sent, the queue may be resumed.
        """
        return await self.wire.remembered(self.keys, lambda call: resume(self.keys, call), verb="resume")

    async def configure(self, *, events: EventLevel) -> bool:
        """Choose which events the queue keeps in its stream: `none`, `failures` (the default) or `all`.

        Cancellation: a checkpoint; if cancelled after it was sent, the setting may be changed.
        """
        if events not in {"none", "failures", "all"}:
            raise ValueError(f"events is none, failures or all, not {events!r}")
        return await self.wire.remembered(
            self.keys, lambda call: configure(self.keys, call, settings={"events": events}), verb="configure"
        )

    async def counts(self) -> Counts:
        """Count the jobs by state, and what has ended so far.

        Cancellation: a checkpoint.
        """
        return await self.wire.run(counts(self.keys, self._call))

    async def browse(self, state: str, *, offset: int = 0, count: int = 50, reverse: bool = False) -> Page:
        """Read a page of a state's jobs, in the order of their turn.

        Args:
            state: `pending`, `active`, `schedule`, `dead` or `done`.
            offset: How many to skip.
            count: How many to read, 1 to 256.
            reverse: From the far end.

        Raises:
            ValueError: An argument is out of range.

        Cancellation: a checkpoint.
        Delivery: jobs that come or go between two pages shift the next: it may repeat or miss some.
        """
        check_page(state, offset, count)
        return await self.wire.run(
            browse(self.keys, self._call, state=state, offset=offset, count=count, reverse=reverse)
        )

    async def age(self) -> tuple[str, float] | None:
        """Answer the job next in turn and for how many seconds it has been ready; None when none is.

        Cancellation: a checkpoint.
        """
        oldest = await self.wire.run(age(self.keys, self._call))
        return None if oldest is None else (oldest[0], to_seconds(oldest[1]))
