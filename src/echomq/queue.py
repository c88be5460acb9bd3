"""One queue, as producers and operators see it.

Every method checks its arguments before any I/O. Calls of one verb that are made at the same moment leave as one
(group commit), so a thousand tasks that enqueue cost about as much as one `enqueue_many`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, Unpack, final

from echomq._bulk import EnqueueStream
from echomq._items import (
    CANCEL_STATES,
    MINTS,
    check_ids,
    check_page,
    check_reason,
    holder_of,
    reassign_error,
    redrive_error,
    remove_error,
    taken,
)
from echomq._options import EnqueueOptions, JobOptions
from echomq.errors import EchoMQError
from echomq.lanes import Lane, Lanes
from echomq.limits import QueueOptions, QueueSettings, lane_name, spell_queue
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import COLLISION, Verdict
from echomq.protocol.stamps import StampedJob
from echomq.protocol.times import to_seconds
from echomq.results import JobHandle
from echomq.schedules import Schedules
from echomq.transitions import (
    Call,
    CancelRequest,
    Counts,
    JobInFull,
    Page,
    Reassignment,
    age,
    browse,
    configure,
    counts,
    pause,
    read_job,
    read_settings,
    resume,
)

if TYPE_CHECKING:
    from echomq._channels import Channels
    from echomq.protocol.codec import Codec
    from echomq.protocol.keys import QueueKeys
    from echomq.wire.client import WireClient
    from echomq.wire.group import Group

T = TypeVar("T")

CancelOutcome = Literal["cancelled", "asked"]
"""`cancelled`: it was not running and has ended. `asked`: it runs, and its worker has been told."""


class Door(Protocol):
    """What is behind a queue: an open client, or an app that has one when it is open."""

    @property
    def wire(self) -> WireClient:
        """What runs transitions."""

    @property
    def channels(self) -> Channels:
        """Where results are told."""


@final
class Queue:
    """One queue of a client. Made by `Client.queue`."""

    def __init__(self, door: Door, keys: QueueKeys, codec: Codec) -> None:
        self.keys = keys
        """The names of its keys."""
        self.codec = codec
        """What decodes results that have no declared type."""
        self._door = door
        self._decode: Callable[[bytes], Any] = codec.decode
        self._enqueues: Group[StampedJob] | None = None
        self._wire: WireClient | None = None

    def __repr__(self) -> str:
        return f"<Queue {self.name!r}>"

    @property
    def wire(self) -> WireClient:
        """What runs its transitions."""
        return self._door.wire

    @property
    def channels(self) -> Channels:
        """Where results are told."""
        return self._door.channels

    @property
    def enqueues(self) -> Group[StampedJob]:
        """Where its new jobs gather."""
        # Made when first used, in the event loop: a queue or a handle may be made anywhere. Another time an app is
        # open, another client is behind it.
        wire = self._door.wire
        if self._enqueues is None or self._wire is not wire:
            self._enqueues, self._wire = wire.group(self.keys, "enqueue"), wire
        return self._enqueues

    @property
    def _call(self) -> Call:
        return Call(self.wire.tag)

    def _check(self) -> None:
        self.wire.check()

    @property
    def name(self) -> str:
        """Its name."""
        return self.keys.queue

    def handle(self, id: str) -> JobHandle[Any]:
        """Make a handle for a job by its id; nothing is sent. Its result comes as the codec decodes it without a type.

        Raises:
            ValueError: Not an id.
        """
        return JobHandle(check_id(id), self.name, "admitted", self, self._decode)

    # --- enqueueing -------------------------------------------------------------------------

    async def enqueue(self, payload: bytes, *, task: str = "", **options: Unpack[EnqueueOptions]) -> JobHandle[Any]:
        """Enqueue one job.

        Args:
            payload: What the handler gets, up to 1 MiB.
            task: Which handler; "" for a queue that has one.
            options: When, how often, and so on: see `EnqueueOptions`.

        Returns:
            The job's handle. If another job holds the dedup key, that job's: its `outcome` is `duplicate`, or `replaced`
            if that job has the new content now, and `admitted` is False.

        Raises:
            TypeError, ValueError: An argument does not fit; nothing was sent.
            QueueFullError: As many jobs wait as the queue's `max_size` says.
            JobStateError: The queue is being closed.
            OutOfMemoryError: The server's memory is full; what is queued can still be worked off.
            UnavailableError: The server was not reached in time; `sent` says whether the job may be there.

        Server effect: at once and wholly, the job's row is written, the job placed in `pending`, its lane or `schedule`,
            its dedup key taken, a parked worker woken, and `enqueued` emitted. By `dedup_mode`, the waiting holder of the
            key gets content and options instead, and `replaced` is emitted.
        Cancellation: a checkpoint. Cancelled before it was sent, nothing happens; after, the job may be there.
        Delivery: a repetition after a lost connection is answered from the server's memory: one call, one job. Not so
            when *you* call again after an error whose `sent` is True: there a `dedup` key helps, with a window if the
            job may have ended by then.
        """
        job = JobOptions.of(options).new_job(task, payload)
        return await self.send(job, self._decode)

    async def send(self, job: StampedJob, read: Callable[[bytes], T]) -> JobHandle[T]:
        """Enqueue a job that is made already; see `enqueue`."""
        enqueues = self.enqueues
        verdict = await enqueues(job)
        for _ in range(MINTS - 1):
            if verdict.code != COLLISION:
                break
            job = job.again()
            verdict = await enqueues(job)
        handle = self.answer(job.id, verdict, read)
        if isinstance(handle, EchoMQError):
            raise handle
        return handle

    def enqueue_stream(
        self,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        task: str = "",
        progress: Callable[[int], Awaitable[None]] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> EnqueueStream[Any]:
        """Enqueue any number of jobs, a few hundred a call, in memory that does not grow with their number.

        Args:
            payloads: Any iterable, asynchronous ones too; it is drawn from in rounds of 8,192 jobs or 8 MiB at most. Of
                an asynchronous one, each payload is sent as it is drawn, and its answer may come with the next one's.
            task: Which handler; "" for a queue that has one.
            progress: Awaited now and then with the number of jobs that have been answered.
            options: For all of them: see `EnqueueOptions`.

        Returns:
            An asynchronous iterator, which does nothing before it is iterated over. For each payload, in order, it
            answers the job's handle, or the error it met. One that is refused fails no other. After an
            `UnavailableError` the rest is not sent: each is answered with an error that says so.

        Raises:
            TypeError, ValueError: An option does not fit; what iterating raises see there.

        Server effect, Delivery: as for `enqueue`, each job by itself: many jobs are not one transaction.
        Cancellation: it may be left half way, or cancelled: what was sent stays, and nothing else is sent.
        """
        chosen = JobOptions.of(options)
        chosen.stamp(task)
        return EnqueueStream(
            payloads,
            lambda payload: (self, task, payload, chosen, self._decode),
            check=self._check,
            progress=progress,
        )

    async def enqueue_many(
        self,
        payloads: Iterable[bytes] | AsyncIterable[bytes],
        *,
        task: str = "",
        progress: Callable[[int], Awaitable[None]] | None = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobHandle[Any] | EchoMQError]:
        """Enqueue any number of jobs, and answer what became of all of them; see `enqueue_stream` for its arguments.

        Returns:
            For each payload, in order, the job's handle, or the error it met. For more of them than memory holds there
            is `enqueue_stream`.

        Raises:
            TypeError, ValueError: An option does not fit, or a payload is not bytes. Payloads before it may be queued.

        Server effect, Delivery: as for `enqueue`, each job by itself: many jobs are not one transaction.
        Cancellation: a checkpoint. What was answered or sent stays.
        """
        return await self.enqueue_stream(payloads, task=task, progress=progress, **options).collect()

    def answer(self, id: str, verdict: Verdict, read: Callable[[bytes], T]) -> JobHandle[T] | EchoMQError:
        """Answer what a verdict of `enqueue` means to its caller."""
        holder = holder_of(verdict)
        if holder is not None:
            return JobHandle(holder[0], self.name, holder[1], self, read)
        if verdict.code == COLLISION:
            return taken(id)
        error = verdict.error(id=id, queue=self.name)
        return error or JobHandle(id, self.name, "admitted", self, read)

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

    async def reassign(self, ids: Iterable[str], *, lane: str) -> list[EchoMQError | None]:
        """Move jobs that wait, or are dead, to another lane.

        Args:
            ids: The jobs.
            lane: Where they go; "": to the jobs without a lane. They keep their priority, and stand in the order of
                their making.

        Returns:
            For each id, in order: None if it is there now, or a `JobNotFoundError`, or a `JobStateError` for one that
            runs or has ended, or the error its call met.

        Raises:
            ValueError: One is not an id, or a lane cannot have that name; nothing was sent.

        Server effect: rows and places change; parked workers are woken if the lane can be served.
        Cancellation: a checkpoint; some may have been moved.
        """
        lane = lane_name(lane)
        return await self._each("reassign", ids, reassign_error, lambda id: Reassignment(id, lane))

    async def _each(
        self,
        verb: str,
        ids: Iterable[str],
        error_of: Callable[[Verdict, str, str], EchoMQError | None],
        item: Callable[[str], Any] = str,
    ) -> list[EchoMQError | None]:
        checked = check_ids(ids)
        outcomes = await self.wire.group(self.keys, verb).many(map(item, checked))
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

        Server effect: `meta.paused` is removed, a queue that a handler's `RateLimited(scope="queue")` has closed is open
            again, and parked workers are woken. Lanes are resumed one by one.
        Cancellation: a checkpoint; if cancelled after it was sent, the queue may be resumed.
        """
        return await self.wire.remembered(self.keys, lambda call: resume(self.keys, call), verb="resume")

    async def configure(self, *, only_unset: bool = False, **settings: Unpack[QueueOptions]) -> bool:
        """Change the queue's settings; those not named stay, and None clears one.

        Args:
            only_unset: Leave what is set already as it is: the word of a program, where the operator's wins.
            settings: `events`, `limit`, `rate`, `max_size`: see `QueueOptions`.

        Returns:
            Whether anything changed.

        Raises:
            TypeError, ValueError: A setting does not fit, or there is none; nothing was sent.
            JobStateError: The queue is being closed.
            UnavailableError: The server was not reached in time.

        Server effect: from the next call on, for all clients and workers. What runs goes on, also beyond a lower limit.
        Cancellation: a checkpoint; if cancelled after it was sent, the settings may be changed.
        """
        spelled = spell_queue(settings)
        return await self.wire.remembered(
            self.keys,
            lambda call: configure(self.keys, call, settings=spelled, only_unset=only_unset),
            verb="configure",
        )

    async def settings(self) -> QueueSettings:
        """Read what the queue was told.

        Cancellation: a checkpoint.
        """
        return QueueSettings.of(await self.wire.run(read_settings(self.keys, self._call)))

    def lane(self, name: str) -> Lane:
        """Answer one of its lanes; "" is the lane of the jobs without one. Nothing is sent.

        Raises:
            ValueError: A lane cannot have that name.
        """
        return Lane(self, name)

    @property
    def lanes(self) -> Lanes:
        """Its lanes that have jobs or settings: `async for lane in queue.lanes`, or by pages."""
        return Lanes(self)

    @property
    def schedules(self) -> Schedules:
        """Its recurring jobs: `queue.schedules.put(...)`, `async for schedule in queue.schedules`."""
        return Schedules(self)

    async def counts(self) -> Counts:
        """Count the jobs by state, and what has ended so far.

        Cancellation: a checkpoint.
        """
        return await self.wire.run(counts(self.keys, self._call))

    async def browse(
        self, state: str, *, offset: int = 0, count: int = 50, reverse: bool = False, lane: str = ""
    ) -> Page:
        """Read a page of a state's jobs, in the order of their turn.

        Args:
            state: `pending`, `active`, `schedule`, `dead` or `done`.
            offset: How many to skip.
            count: How many to read, 1 to 256.
            reverse: From the far end.
            lane: A lane, whose `pending` or `active` jobs are read. Without one, `pending` are the jobs that have none;
                all other states are the whole queue's.

        Raises:
            ValueError: An argument is out of range.

        Cancellation: a checkpoint.
        Delivery: jobs that come or go between two pages shift the next: it may repeat or miss some.
        """
        lane = check_page(state, offset, count, lane)
        return await self.wire.run(
            browse(self.keys, self._call, state=state, offset=offset, count=count, reverse=reverse, lane=lane)
        )

    async def age(self) -> tuple[str, float] | None:
        """Answer the job next in turn and for how many seconds it has been ready; None when none is.

        Cancellation: a checkpoint.
        """
        oldest = await self.wire.run(age(self.keys, self._call))
        return None if oldest is None else (oldest[0], to_seconds(oldest[1]))
