"""One queue, as producers and operators see it.

Every method checks its arguments before any I/O. Calls of one verb that are made at the same moment leave as one
(group commit), so a thousand tasks that enqueue cost about as much as one `enqueue_many`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, final

from echomq._bulk import EnqueueStream
from echomq._items import MINTS, holder_of, taken
from echomq._options import EnqueueOptions, JobOptions
from echomq._queue_jobs import QueueJobs
from echomq._queue_orders import QueueOrders
from echomq.errors import EchoMQError
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import COLLISION, Verdict
from echomq.protocol.stamps import StampedJob
from echomq.results import JobHandle
from echomq.schedules import Schedules

if TYPE_CHECKING:
    from echomq._queue_base import Door
    from echomq.protocol.codec import Codec
    from echomq.protocol.keys import QueueKeys
    from echomq.wire.client import WireClient
    from echomq.wire.group import Group

T = TypeVar("T")


@final
class Queue(QueueJobs, QueueOrders):
    """One queue of a client. Made by `Client.queue`."""

    def __init__(self, door: Door, keys: QueueKeys, codec: Codec) -> None:
        super().__init__(door, keys, codec)
        self._enqueues: Group[StampedJob] | None = None
        self._wire: WireClient | None = None

    @property
    def enqueues(self) -> Group[StampedJob]:
        """Where its new jobs gather."""
        # Made when first used, in the event loop: a queue or a handle may be made anywhere. Another time an app is
        # open, another client is behind it.
        wire = self._door.wire
        if self._enqueues is None or self._wire is not wire:
            self._enqueues, self._wire = wire.group(self.keys, "enqueue"), wire
        wire.note_use(self.keys)
        return self._enqueues

    def _check(self) -> None:
        self.wire.check()

    def handle(self, id: str) -> JobHandle[Any]:
        """Make a handle for a job by its id; nothing is sent. Its result comes as the codec decodes it without a type.

        Raises:
            ValueError: Not an id.
        """
        return JobHandle(check_id(id), self.name, "admitted", self, self._decode)

    @property
    def schedules(self) -> Schedules:
        """Its recurring jobs: `queue.schedules.put(...)`, `async for schedule in queue.schedules`."""
        return Schedules(self)

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
            lambda payload: (self, task, payload, chosen, self._decode, None),
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
