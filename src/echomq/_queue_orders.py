"""What an operator does with a queue as a whole, and reads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from echomq._items import check_page
from echomq._queue_base import QueueBase
from echomq._walks import drive
from echomq.lanes import Lane, Lanes
from echomq.limits import QueueOptions, QueueSettings, spell_queue
from echomq.morgue import Morgue
from echomq.protocol.times import to_seconds
from echomq.repairs import RepairReport, obliterate_walk, repair_walk
from echomq.sweeps import CancelReport, cancel_walk
from echomq.transitions import (
    Counts,
    Page,
    age,
    browse,
    configure,
    counts,
    pause,
    read_settings,
    resume,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class QueueOrders(QueueBase):
    """The part of `Queue` that is about all of it."""

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
            settings: `events`, `limit`, `rate`, `max_size`, `dead_max`, `dead_age`, `done_max`, `on_dead`: see `QueueOptions`.

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

    # --- control and recovery ---------------------------------------------------------------

    async def cancel_where(
        self,
        *,
        task: str | None = None,
        lane: str | None = None,
        reason: str = "",
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> CancelReport:
        """Cancel all jobs of a task, or of a lane, or of a task in a lane: a walk over the queue, in bounded steps.

        Args:
            task: The task's name; None: any.
            lane: The lane; "": the jobs without one. None: any. One of the two is needed.
            reason: Why, for people; up to 1,024 bytes.
            progress: Awaited now and then with the number of jobs that have been cancelled or asked.

        Returns:
            How many have ended, and how many that run have been asked; see `cancel` for what that means.

        Raises:
            TypeError, ValueError: Neither a task nor a lane is named, or one cannot have that name, or the reason is too
                long, or `progress` cannot be called; nothing was sent.
            UnavailableError: The server was not reached in time; some jobs may be cancelled.

        Server effect: as `cancel`, for up to 128 jobs at once. It passes over what is scheduled, ready and running until
            a pass finds nothing new, eight times at most.
        Cancellation: a checkpoint; what was cancelled or asked stays so.
        Delivery: a job that is there from the beginning to the end is found. One may be missed that moves against the
            walk in each of its passes (it fails and is retried, or its lease is renewed, at just that moment), or that is
            enqueued meanwhile: pause the queue or the lane first where that matters, or call again.
        """
        return await drive(self, cancel_walk(self.keys, task=task, lane=lane, reason=reason), progress)

    @property
    def dead(self) -> Morgue:
        """Its dead jobs: `async for job in queue.dead.find(error="Timeout")`, to redrive or remove some or all."""
        return Morgue(self)

    async def repair(self, progress: Callable[[int], Awaitable[None]] | None = None) -> RepairReport:
        """Bring rows, sets, logs, dedup keys and lanes together again, after writes were lost or made by hand.

        Lists all keys of the server that begin as the queue's do, and looks at what each has to do with the others. A
        sound queue is left as it is, so it may be asked for at any time, and while workers work.

        Args:
            progress: Awaited now and then with the number of jobs, keys and lanes that have been looked at.

        Returns:
            What was found and done.

        Raises:
            TypeError: `progress` cannot be called; nothing was sent.
            PermissionDeniedError: The ACL user may not `SCAN`, `ZSCAN`, `HSCAN`, `EXISTS` or `LRANGE`.
            ServerError: The queue's `meta` is of another type than a hash; nothing was done.
            UnavailableError: The server was not reached in time; what was mended before is.

        Server effect: piece by piece, at once for each: a job stands in the set that its row names, and in no other; one
            whose row does not say where it belongs is buried; places, logs and keys of jobs that are gone go, and so do
            keys of the queue that are of another type than they should be, but `meta` and definitions of schedules.
            Counted as `mended`, `dead` and `dropped`, and told by events.
        Cancellation: a checkpoint; what was mended stays so.
        Delivery: what is torn while it works may be seen by the next call only.
        """
        return await drive(self, repair_walk(self.keys), progress)

    async def obliterate(self, *, force: bool = False, progress: Callable[[int], Awaitable[None]] | None = None) -> int:
        """Erase the queue: all jobs, whatever their state, schedules, lanes, settings, counters and events.

        Args:
            force: Although it is not paused, or jobs run. Their handlers find their leases lost.
            progress: Awaited now and then with the number of jobs that have been erased.

        Returns:
            How many jobs were erased.

        Raises:
            JobStateError: It is not paused, or jobs run, and it is not forced. Nothing was erased.
            TypeError: `progress` cannot be called; nothing was sent.
            PermissionDeniedError: The ACL user may not `SCAN`.
            ServerError: The queue's `meta` is of another type than a hash; nothing was done.
            UnavailableError: The server was not reached in time; some of the queue may be gone.

        Server effect: first the queue is marked as closing, so that enqueues and settings are refused; then up to 128
            jobs go at once, dedup keys with them, and those who wait for a result are told. Its own keys go last.
        Cancellation: a checkpoint. It stays closing; another call goes on, `resume` lets it live with what is left.
        Delivery: may be repeated.
        """
        return await drive(self, obliterate_walk(self.keys, force=force), progress)
