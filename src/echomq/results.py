"""Handles of enqueued jobs, and waiting for their results (Runtime, section 4, Results).

Theory of operation
    Whoever waits subscribes to the channel of the job's row, then reads the row, then waits. Channels lose messages, so
    the row is read again after each reconnect of the subscription and every 5 s. What the row says decides; a message
    only says when to look. All waiters of a client share one subscription connection, opened by the first.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar, final

import anyio
import anyio.lowlevel
import attrs

from echomq._follow import REREAD_AFTER, LogReader, Progress, ProgressReader
from echomq.errors import (
    DecodeError,
    EchoMQError,
    JobCancelledError,
    JobExpiredError,
    JobFailedError,
    ResultNotKeptError,
)
from echomq.following import Followed
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.states import State
from echomq.protocol.times import to_wait

if TYPE_CHECKING:
    import datetime as dt

    from echomq._channels import Bell
    from echomq._items import CancelOutcome
    from echomq.queue import Queue
    from echomq.transitions import JobInFull

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

EnqueueOutcome = Literal["admitted", "duplicate", "replaced"]
"""What an enqueue did. `admitted`: it made a job. `duplicate`: nothing, for another job holds the dedup key. `replaced`:
the job that holds the dedup key waits, and has the new content now (`dedup_mode`)."""
AT_ONCE: Final = 64
"""Rows read at the same time by one `app.results`: they share flushes, and a burst of thousands is cut."""


@final
@attrs.frozen
class Ended(Generic[T]):
    """A job that has ended well."""

    value: T
    """What its handler returned."""


def read_outcome(id: str, job: JobInFull | None, read: Callable[[bytes], T]) -> Ended[T] | None:
    """Tell from a job's row how it ended.

    Args:
        id: The job's id.
        job: What is known of it; None when it has no row.
        read: Decodes the result.

    Returns:
        Its ending, or None when it has not ended.

    Raises:
        JobFailedError: It is in the morgue, or was discarded (then its type is `Discard`).
        JobCancelledError: It was cancelled.
        JobExpiredError: It was too late.
        ResultNotKeptError: There is no row, or there will be none when the job has ended.
        DecodeError: The result is not of the declared type, the codec failed, or the row is torn.
    """
    if job is None:
        raise ResultNotKeptError(id)
    record = job.record
    state = record.state
    if state is State.DEAD:
        error, reason = record.error, record.reason
        if error is None or reason.startswith("stalled"):
            raise JobFailedError(id, "Stalled" if reason.startswith("stalled") else "", reason, "", record.attempts)
        raise JobFailedError(id, error.type, error.message, error.traceback, record.attempts)
    if state is not State.DONE:
        if record.result_ttl_ms is None:
            raise ResultNotKeptError(id)
        return None
    kind, reason = record.kind, record.reason
    if kind == "completed":
        return Ended(_decoded(id, read, record.result or b"null"))
    if kind == "cancelled":
        raise JobCancelledError(id, reason)
    if kind == "expired":
        raise JobExpiredError(id)
    raise JobFailedError(id, "Discard" if kind == "discarded" else kind, reason, "", record.attempts)


def _decoded(id: str, read: Callable[[bytes], T], data: bytes) -> T:
    """Decode a result. A codec of the user's may raise anything: here as on the worker, that is one error of one job."""
    try:
        return read(data)
    except EchoMQError:
        raise
    except Exception as error:
        record = ErrorRecord.from_exception(error)
        raise DecodeError(f"the result of {id} cannot be decoded: {record.type}: {record.message}") from error


@final
@attrs.frozen
class JobHandle(Generic[R_co]):
    """A job that was enqueued, by its id: a value that costs nothing to keep, drop or make again (`app.handle`)."""

    id: str
    """The job's id: always that of the job which holds the dedup key, if there is one."""
    queue: str
    """Where it is."""
    outcome: EnqueueOutcome = attrs.field(eq=False)
    """What the enqueue did: see `EnqueueOutcome`."""
    _owner: Queue = attrs.field(eq=False, repr=False)
    _read: Callable[[bytes], R_co] = attrs.field(eq=False, repr=False)

    @property
    def admitted(self) -> bool:
        """Whether this enqueue made the job; False: its dedup key was held, and this is the job that holds it."""
        return self.outcome == "admitted"

    @property
    def channel(self) -> str:
        """The channel on which the job's ending is told."""
        return self._owner.keys.result_channel(self.id)

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait until the job has ended, and answer what its handler returned.

        Args:
            timeout: Seconds to wait at most; 0 only looks; None means for as long as it takes.

        Returns:
            The handler's result, decoded to the type it declares if the handle was made by a task.

        Raises:
            JobFailedError: The job was given up, or discarded (then its type is `Discard`).
            JobCancelledError: It was cancelled.
            JobExpiredError: It was not taken in time.
            ResultNotKeptError: It keeps no result (no `result_ttl`), or its row is gone. Raised at once.
            TimeoutError: It has not ended in time. It may still; ask again.
            DecodeError: The result is not of the declared type, or the codec failed.
            TypeError, ValueError: The timeout is no number of seconds.
            UnavailableError: The server could not be reached for the client's `unavailable_after`.

        Cancellation: a checkpoint. Cancelling ends the waiting and not the job.
        Delivery: a message that is lost costs up to 5 s. May be awaited any number of times, until the result's time is over.
        """
        if timeout is None:
            return await self._wait()
        timeout = to_wait(timeout)
        if not timeout:
            ended = self.ending(await self._owner.job(self.id))
            if ended is not None:
                return ended.value
        else:
            with anyio.move_on_after(timeout) as scope:
                return await self._wait()
            assert scope.cancelled_caught  # noqa: S101 - else it has returned or raised
        raise TimeoutError(f"{self.id} has not ended within {timeout:g} s")

    async def _wait(self) -> R_co:
        owner = self._owner
        async with owner.channels.listen(self.channel) as bell:
            while True:
                ended = self.ending(await owner.job(self.id))
                if ended is not None:
                    return ended.value
                await bell.wait(REREAD_AFTER)

    def ending(self, job: JobInFull | None) -> Ended[R_co] | None:
        """Tell from a job's row how it ended; see `read_outcome`."""
        return read_outcome(self.id, job, self._read)

    async def state(self) -> State | None:
        """Answer where the job is; None when it has no row: finished and not kept, or never there."""
        job = await self._owner.job(self.id)
        return None if job is None else job.record.state

    async def info(self, *, log: bool = False) -> JobInFull | None:
        """Answer the job's row, its place and, if asked, its log; None when it has no row."""
        return await self._owner.job(self.id, log=log)

    async def cancel(self, *, reason: str = "") -> CancelOutcome:
        """Cancel the job. See `Queue.cancel`."""
        return await self._owner.cancel(self.id, reason=reason)

    async def reschedule(self, *, delay: float | dt.timedelta | None = None, at: dt.datetime | None = None) -> None:
        """Give the job another time, while it waits. See `Queue.reschedule`.

        Raises:
            TypeError, ValueError: Neither a delay nor a moment, or one that does not fit; nothing was sent.
            JobNotFoundError: There is no such job (any more).
            JobStateError: It runs, or has ended.
            UnavailableError: The server was not reached in time.
        """
        raise_one(await self._owner.reschedule([self.id], delay=delay, at=at))

    async def promote(self) -> None:
        """Let the job run now, if it waits for its time. See `Queue.promote`; what it raises is as for `reschedule`."""
        raise_one(await self._owner.promote([self.id]))

    def progress(self) -> Followed[Progress]:
        """Follow how far the job is: `async for note in handle.progress()`.

        Returns:
            An asynchronous iterator: the note that stands, if there is one, then each later one, until the job has ended,
            its row gone or not. A job that is not there has ended, as far as anybody can tell, and nothing comes: one
            that ended and was not kept is no different from an id that never was. It may be left at any moment. While
            iterating it raises `UnavailableError` when the server was not reached in time, `DecodeError` for a note that
            is none.

        Cancellation: each step is a checkpoint; nothing is lost.
        Delivery: the latest note wins: of several within a tenth of a second the last one comes. A message that is lost
            costs up to 5 s; of a job that keeps no result, a second. The last notes of such a job may go with its row. A
            new attempt begins anew.
        """
        return Followed(self._owner, self.id, ProgressReader())

    def logs(self) -> Followed[str]:
        """Follow the job's log: `async for line in handle.logs()`.

        Returns:
            An asynchronous iterator: the lines that are there, then each later one, until the job has ended. Where lines
            are gone before they could be read, for a log keeps the last 100 and 64 KiB, a `MissedLines` stands among
            them: text that says so, with their number. Else as `progress`: of a job that is not there, no lines.

        Cancellation: each step is a checkpoint; nothing is lost.
        Delivery: each line that is read comes once, in order. A message that is lost costs up to 5 s; of a job that
            keeps no result, a second. The last lines of such a job may go with its row.
        """
        return Followed(self._owner, self.id, LogReader())


def raise_one(outcomes: list[EchoMQError | None]) -> None:
    """Raise what became of the one job that was asked for."""
    for error in outcomes:
        if error is not None:
            raise error


@final
class Results(Generic[T]):
    """Handles with their results as the jobs finish. Made by `app.results`; iterate over it once, in one task.

    It may be left at any moment; what it holds (subscriptions) goes with it.
    """

    def __init__(self, handles: Iterable[JobHandle[T]]) -> None:
        self._open: dict[str, list[JobHandle[T]]] = {}
        self._found: deque[tuple[JobHandle[T], T | EchoMQError]] = deque()
        self._bells: dict[str, Bell] = {}
        self._todo: dict[str, None] = {}  # an ordered set: the channels whose rows are to be read
        self._event = anyio.Event()
        self._look_at_all = -math.inf
        for handle in handles:
            self._open.setdefault(handle.channel, []).append(handle)

    def __aiter__(self) -> AsyncIterator[tuple[JobHandle[T], T | EchoMQError]]:
        return self

    def close(self) -> None:
        """Forget what has not finished."""
        self._open.clear()
        for bell in self._bells.values():
            bell.close()
        self._bells.clear()

    def __del__(self) -> None:
        self.close()

    async def __anext__(self) -> tuple[JobHandle[T], T | EchoMQError]:
        """Wait for the next job that has ended: its handle, and its result or the error `handle.result()` would raise.

        Raises:
            UnavailableError: The server could not be reached in time. Asking again goes on where it was.
            StopAsyncIteration: All have ended.

        Cancellation: a checkpoint; loses nothing.
        """
        if self._open:
            next(iter(self._open.values()))[0]._owner.wire.check()  # noqa: SLF001 - same module
        await anyio.lowlevel.checkpoint()
        while not self._found:
            if not self._open:
                raise StopAsyncIteration
            await self._look()
        return self._found.popleft()

    async def _look(self) -> None:
        """Read some rows of which word came, or that are due to be read; wait if there are none."""
        now = anyio.current_time()
        if now >= self._look_at_all:
            self._look_at_all = now + REREAD_AFTER
            self._todo.update(dict.fromkeys(self._open))
        channels = list(islice(self._todo, AT_ONCE))
        if not channels:
            self._event = anyio.Event()
            with anyio.move_on_after(self._look_at_all - now):
                await self._event.wait()
            return
        failures: list[Exception] = []

        async def read(channel: str) -> None:
            try:
                await self._read(channel)
            except Exception as error:  # noqa: BLE001 - raised below, and not in a group
                failures.append(error)

        async with anyio.create_task_group() as tasks:
            for channel in channels:
                tasks.start_soon(read, channel)
        if failures and not self._found:
            raise failures[0]  # the server's, not a job's

    async def _read(self, channel: str) -> None:
        handles = self._open.get(channel)
        if handles is None:
            self._todo.pop(channel, None)
            return
        owner = handles[0]._owner  # noqa: SLF001 - same module
        if channel not in self._bells:
            self._bells[channel] = await owner.channels.open_bell(channel, self._ringer(channel))
        # Off the list before the row is read: word that comes meanwhile puts it there again.
        self._todo.pop(channel, None)
        try:
            job = await owner.job(handles[0].id)
        except BaseException:
            self._todo[channel] = None
            raise
        outcomes: list[tuple[JobHandle[T], T | EchoMQError]] = []
        for handle in handles:
            try:
                ended = handle.ending(job)
            except EchoMQError as error:
                outcomes.append((handle, error))
            else:
                if ended is None:
                    return
                outcomes.append((handle, ended.value))
        self._found.extend(outcomes)
        del self._open[channel]
        self._todo.pop(channel, None)
        self._bells.pop(channel).close()

    def _ring(self, channel: str) -> None:
        if channel in self._open:
            self._todo[channel] = None
            self._event.set()

    def _ringer(self, channel: str) -> Callable[[], None]:
        # Weak: an iterator that was dropped is garbage, though its bells still hang somewhere.
        weak = weakref.ref(self)

        def ring() -> None:
            me = weak()
            if me is not None:
                me._ring(channel)  # noqa: SLF001 - itself

        return ring
