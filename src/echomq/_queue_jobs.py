"""What a queue does with single jobs, named by their ids or by a dedup key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echomq._delivery import news_walk
from echomq._items import (
    cancel_outcome,
    check_ids,
    check_reason,
    dedup_key,
    dedup_shown,
    new_due,
    new_payload,
    new_priority,
    reassign_error,
    redrive_error,
    remove_error,
    reschedule_error,
    waiting_error,
)
from echomq._queue_base import QueueBase
from echomq._walks import drive
from echomq.finding import job_walk
from echomq.limits import lane_name
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import Verdict
from echomq.transitions import CancelRequest, JobInFull, NewPriority, NewTime, Reassignment

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable

    from echomq._items import CancelOutcome
    from echomq.errors import EchoMQError


class QueueJobs(QueueBase):
    """The part of `Queue` that is about single jobs."""

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
        item = CancelRequest(check_id(id), check_reason(reason))
        outcome = cancel_outcome(await self.wire.group(self.keys, "cancel")(item), id, self.name)
        await drive(self, news_walk(self.keys))
        return outcome

    async def cancel_dedup(self, key: str, *, reason: str = "") -> CancelOutcome:
        """Cancel the job that holds a dedup key; see `cancel` for what it answers and promises.

        Args:
            key: The dedup key.
            reason: Why, for people; up to 1,024 bytes.

        Raises:
            ValueError: Not a dedup key, or the reason is too long.
            JobNotFoundError: No job holds the key. (One that a window has outlived has ended.)
            JobStateError: The job has ended; a window keeps its key.
            UnavailableError: The server was not reached in time.

        Server effect: as `cancel`. The key is free as soon as the job has ended, but for a window.
        Cancellation: a checkpoint; if cancelled after it was sent, the job may be cancelled.
        """
        item = CancelRequest("", check_reason(reason), dedup=dedup_key(key))
        outcome = cancel_outcome(await self.wire.group(self.keys, "cancel")(item), dedup_shown(key), self.name)
        await drive(self, news_walk(self.keys))
        return outcome

    async def reschedule(
        self, ids: Iterable[str], *, delay: float | dt.timedelta | None = None, at: dt.datetime | None = None
    ) -> list[EchoMQError | None]:
        """Give jobs that wait another time, whether they are scheduled or ready.

        Args:
            ids: The jobs.
            delay: Seconds or a timedelta: not before this long from now, by the server's clock.
            at: An aware datetime: not before this moment. One of the two; what is not ahead is now.

        Returns:
            For each id, in order: None if it has its new time, or a `JobNotFoundError`, or a `JobStateError` for one that
            runs or has ended, or the error its call met.

        Raises:
            TypeError, ValueError: One is not an id, or there is no time, or one that does not fit; nothing was sent.

        Server effect: they stand in `schedule`, or are ready; parked workers wake in time. What waits for its next
            attempt is a scheduled job like any other. Emits `rescheduled`.
        Cancellation: a checkpoint; some may have their new time.
        """
        due = new_due(delay, at)
        return await self._each("reschedule", ids, reschedule_error, lambda id: NewTime(id, due))

    async def promote(self, ids: Iterable[str]) -> list[EchoMQError | None]:
        """Let scheduled jobs run now, as `reschedule(ids, delay=0)` does; those that are ready stay so."""
        return await self.reschedule(ids, delay=0)

    async def reprioritise(self, ids: Iterable[str], *, priority: int) -> list[EchoMQError | None]:
        """Give jobs that wait, or are dead, another priority.

        Args:
            ids: The jobs.
            priority: -2047 to 2047, higher is served first.

        Returns:
            For each id, in order: None if it has that priority, or a `JobNotFoundError`, or a `JobStateError` for one that
            runs or has ended, or the error its call met.

        Raises:
            TypeError, ValueError: One is not an id, or the priority is none; nothing was sent.

        Server effect: what is ready takes its new place at once; all others have it when they are ready, a dead one when
            it is redriven. Emits `reprioritised`.
        Cancellation: a checkpoint; some may have their new priority.
        """
        priority = new_priority(priority)
        return await self._each("reprioritise", ids, waiting_error, lambda id: NewPriority(id, priority))

    async def update(self, id: str, payload: bytes) -> None:
        """Replace the payload of a job that waits (ready, scheduled, or for its children) or is dead.

        Args:
            id: The job.
            payload: What its handler gets instead, encoded, up to 1 MiB. Nobody checks it against the task before a worker
                does: `task.call(...).payload` is one that fits.

        Raises:
            TypeError, ValueError: Not an id, or the payload is not bytes.
            InvalidJobError: The payload is too large.
            JobNotFoundError: There is no such job (any more).
            JobStateError: It runs, or has ended.
            OutOfMemoryError: The server's memory is full.
            UnavailableError: The server was not reached in time.

        Server effect: the row has the new payload, and all else that it had: task, budgets, checkpoint, place. A worker
            that had lost its lease can no longer complete it. Emits `updated`.
        Cancellation: a checkpoint; if cancelled after it was sent, the payload may be replaced.
        Delivery: may be repeated.
        """
        item = new_payload(id, payload)
        error = waiting_error(await self.wire.group(self.keys, "update")(item), id, self.name)
        if error is not None:
            raise error

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
        outcomes = await self._each("remove", ids, remove_error)
        await drive(self, news_walk(self.keys))
        return outcomes

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
        outcomes = await self._each("redrive", ids, redrive_error)
        await drive(self, news_walk(self.keys))
        return outcomes

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

    async def job(self, id: str, *, log: bool = False, children: bool = False) -> JobInFull | None:
        """Read a job's row, its place, who runs it (`worker`, `lease_left`); None when it has no row.

        Args:
            id: The job.
            log: Whether its log is read, too.
            children: Whether its children are, by further calls: their names and ids, and how those ended that have.

        Raises:
            ValueError: Not an id.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        return await drive(self, job_walk(self.keys, id, log=log, children=children))
