"""Handles of jobs, for programs that block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar, final

import attrs

from echomq._follow import NOT_OFTENER, NOTES, REREAD_AFTER, LogReader, Look, Progress, ProgressReader, Reader
from echomq.protocol.times import to_wait
from echomq.results import Ended, raise_one, read_outcome
from echomq.sync.listening import Listener

if TYPE_CHECKING:
    import datetime as dt

    from echomq._items import CancelOutcome
    from echomq.protocol.states import State
    from echomq.results import EnqueueOutcome
    from echomq.sync.queue import Queue
    from echomq.transitions import JobInFull

R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")


@final
@attrs.frozen
class JobHandle(Generic[R_co]):
    """A job that was enqueued, by its id. What `echomq.JobHandle` is, with methods that block."""

    id: str
    """The job's id: always that of the job which holds the dedup key, if there is one."""
    queue: str
    """Where it is."""
    outcome: EnqueueOutcome = attrs.field(eq=False)
    """What the enqueue did: see `echomq.results.EnqueueOutcome`."""
    _owner: Queue = attrs.field(eq=False, repr=False)
    _read: Callable[[bytes], R_co] = attrs.field(eq=False, repr=False)

    @property
    def admitted(self) -> bool:
        """Whether this enqueue made the job; False: its dedup key was held, and this is the job that holds it."""
        return self.outcome == "admitted"

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the job has ended, and answer what its handler returned.

        Args:
            timeout: Seconds to wait at most; 0 only looks; None means for as long as it takes.

        Raises:
            EchoMQError, TimeoutError, TypeError, ValueError: As `echomq.JobHandle.result`.

        Delivery: a message that is lost costs up to 5 s.
        """
        if timeout is not None:
            timeout = to_wait(timeout)
        if timeout == 0:
            ended = self._look()
            if ended is None:
                raise self._late(timeout)
            return ended.value
        deadline = None if timeout is None else time.monotonic() + timeout
        listener = Listener(self._owner.runner.pool, self._owner.keys.result_channel(self.id))
        try:
            while True:
                listener.open()
                ended = self._look()
                if ended is not None:
                    return ended.value
                left = REREAD_AFTER if deadline is None else min(REREAD_AFTER, deadline - time.monotonic())
                if left <= 0:
                    raise self._late(timeout)
                listener.wait(left, NOTES)
        finally:
            listener.close()

    def _look(self) -> Ended[R_co] | None:
        return read_outcome(self.id, self._owner.job(self.id), self._read)

    def _late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self.id} has not ended within {timeout:g} s")

    def state(self) -> State | None:
        """Answer where the job is; None when it has no row."""
        job = self._owner.job(self.id)
        return None if job is None else job.record.state

    def info(self, *, log: bool = False) -> JobInFull | None:
        """Answer the job's row, its place and, if asked, its log; None when it has no row."""
        return self._owner.job(self.id, log=log)

    def cancel(self, *, reason: str = "") -> CancelOutcome:
        """Cancel the job. See `echomq.Queue.cancel`."""
        return self._owner.cancel(self.id, reason=reason)

    def reschedule(self, *, delay: float | dt.timedelta | None = None, at: dt.datetime | None = None) -> None:
        """Give the job another time, while it waits. See `echomq.JobHandle.reschedule`."""
        raise_one(self._owner.reschedule([self.id], delay=delay, at=at))

    def promote(self) -> None:
        """Let the job run now, if it waits for its time. See `echomq.JobHandle.promote`."""
        raise_one(self._owner.promote([self.id]))

    def progress(self) -> Iterator[Progress]:
        """Follow how far the job is: `for note in handle.progress()`. See `echomq.JobHandle.progress`."""
        return self._follow(ProgressReader())

    def logs(self) -> Iterator[str]:
        """Follow the job's log: `for line in handle.logs()`. See `echomq.JobHandle.logs`."""
        return self._follow(LogReader())

    def _follow(self, reader: Reader[T]) -> Iterator[T]:
        listener = Listener(self._owner.runner.pool, self._owner.keys.result_channel(self.id))
        try:
            while True:
                listener.open()
                next_at = time.monotonic() + NOT_OFTENER
                look = Look(reader, self._owner.job(self.id, log=reader.with_log))
                yield from look.new
                if look.over:
                    return
                listener.wait(look.again, reader.deaf)
                time.sleep(max(0.0, next_at - time.monotonic()))
        finally:
            listener.close()
