"""What a queue does with single jobs, named by their ids or by a dedup key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from echomq._items import (
    CANCEL_STATES,
    check_ids,
    check_reason,
    reassign_error,
    redrive_error,
    remove_error,
)
from echomq._queue_base import QueueBase
from echomq.limits import lane_name
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import Verdict
from echomq.transitions import CancelRequest, JobInFull, Reassignment, read_job

if TYPE_CHECKING:
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
