"""What an operator does with a queue as a whole, and reads of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from echomq._events import history_walk, new_reader
from echomq._items import check_page
from echomq._queue_base import QueueBase
from echomq._walks import drive
from echomq.clearing import drain_walk, trim_walk
from echomq.events import EventStream
from echomq.finding import FoundJobs, find_walk
from echomq.lanes import Lane, Lanes
from echomq.limits import QueueOptions, QueueSettings, spell_queue
from echomq.morgue import Morgue
from echomq.protocol.ids import check_id
from echomq.protocol.states import State
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
from echomq.waits import next_in_turn, waits_walk
from echomq.workers import workers_walk

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from echomq._events import Event, Since
    from echomq.finding import JobFilters
    from echomq.transitions import JobInFull
    from echomq.waits import Waits
    from echomq.workers import WorkerInfo


def _as_it_is(job: JobInFull) -> JobInFull:
    return job


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
            settings: `events`, `events_max`, `limit`, `rate`, `max_size`, `dead_max`, `dead_age`, `done_max`, `on_dead`: see `QueueOptions`.

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
            state: `pending`, `active`, `schedule`, `waiting`, `dead` or `done`.
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

    def find(
        self,
        state: str,
        *,
        lane: str | None = None,
        limit: int | None = None,
        reverse: bool = False,
        **filters: Unpack[JobFilters],
    ) -> AsyncIterator[JobInFull]:
        """Go through a state's jobs in full, in the order of their turn: `async for job in queue.find("pending", task="send")`.

        Args:
            state: `pending`, `active`, `schedule`, `waiting`, `dead` or `done`.
            lane: A lane, whose jobs are meant; "": those without one. None: any. What is ready is gone through lane by
                lane.
            limit: How many at most; None: all.
            reverse: From the far end (of each lane).
            filters: `task`, `error`, `older`: see `JobFilters`.

        Returns:
            An asynchronous iterator, which may be left at any moment. It answers jobs that were in the state when it
            began and are when their row is read. What it has answered may be moved or removed on the way.

        Raises:
            TypeError, ValueError: An argument does not fit; nothing was sent.
            UnavailableError: While iterating: the server was not reached in time.

        Server effect: none. It looks at all jobs of the state, 128 a call, and reads the rows of those that fit.
        Cancellation: each step is a checkpoint.
        Delivery: jobs that others move meanwhile may make it miss another one, or answer one twice.
        """
        walk = find_walk(self.keys, state, filters, lane=lane, limit=limit, reverse=reverse)
        return FoundJobs(self, walk, State(state), _as_it_is)

    async def waits(self, *, lanes: int = 100) -> Waits:
        """Tell how many jobs are in each state and lane, and for how long the first has waited.

        Args:
            lanes: About how many lanes are read, 1 to 256; `Waits.cursor` says where the others begin.

        Raises:
            ValueError: Not 1 to 256 lanes.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        Delivery: two reads, one after another.
        """
        return await drive(self, waits_walk(self.keys, lanes))

    async def workers(self) -> list[WorkerInfo]:
        """List the workers that are alive, by name, and what they run. Each says so every 10 seconds.

        Returns:
            Those that were heard of within 30 seconds. One that stopped in good order is gone at once, one that was killed
            after that time.

        Raises:
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        return await drive(self, workers_walk(self.keys))

    async def age(self) -> tuple[str, float] | None:
        """Answer the job next in turn and for how many seconds it has been ready; None when none is.

        Cancellation: a checkpoint.
        """
        return next_in_turn(await self.wire.run(age(self.keys, self._call)))

    # --- events -----------------------------------------------------------------------------

    def events(
        self,
        since: Since = None,
        *,
        follow: bool = True,
        job: str | None = None,
        kinds: Iterable[str] | None = None,
    ) -> EventStream:
        """Answer what happens in the queue, to be iterated over: `async for event in queue.events(): ...`.

        The queue's setting `events` says what is kept: failures unless told otherwise.

        Args:
            since: From where: an event's `id`, to go on behind it; "0", for all that are kept; an aware datetime, for those
                from then on. None: from when it is first iterated over, or entered by `async with`.
            follow: Wait for what happens next. False: end where the stream ended at the first look.
            job: Events of this job only.
            kinds: Events of these kinds only, such as `["dead", "failed"]`.

        Returns:
            An asynchronous iterator of `Event`, and of `Gap` where events may be missing. While it waits it has a connection
            of its own, which costs the server one command in ten seconds.

        Raises:
            TypeError, ValueError: An argument does not fit, or there is nothing to wait for; nothing was sent.

        Server effect: none.
        Cancellation: see `EventStream`: nothing is lost.
        Delivery: each event once and in order, through reconnects. What the stream's bound has taken away meanwhile is told by
            a `Gap`. After a failover that lost the latest events, what is kept is told again, behind a `Gap`.
        """
        return EventStream(self, new_reader(self.keys, since=since, follow=follow, job=job, kinds=kinds), follow=follow)

    async def history(self, id: str) -> list[Event]:
        """Read what is kept of one job's events, the oldest first: a walk over the stream, some hundred events a step.

        With the setting `events="all"` that is its life, as far as it is kept; else, its failures.

        Raises:
            ValueError: Not an id.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        return await drive(self, history_walk(self.keys, check_id(id)))

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

    async def drain(self, *, scheduled: bool = False, progress: Callable[[int], Awaitable[None]] | None = None) -> int:
        """Remove the jobs that are ready, in lanes or not, as `remove` does. What runs goes on.

        Args:
            scheduled: Also what is scheduled: jobs with a delay, and those that wait for their next attempt.
            progress: Awaited after each round with the number of jobs that have been removed.

        Returns:
            How many were removed.

        Raises:
            TypeError: `progress` cannot be called; nothing was sent.
            UnavailableError: The server was not reached in time; rounds before it have removed their jobs.

        Server effect: round by round, up to 128 jobs at once: rows, logs and places go; dedup keys are freed; waiters are
            told. Left as they are: jobs that run, the dead, results, parents that wait, recurring schedules, and all
            settings. A parent hears that its child was removed, and goes on by its policy. The queue is not paused: what
            is enqueued meanwhile stays.
        Cancellation: a checkpoint; what was removed is gone. Call again to go on.
        """
        return await drive(self, drain_walk(self.keys, scheduled=scheduled), progress)

    async def trim(
        self,
        *,
        dead_max: int | None = None,
        dead_age: float | dt.timedelta | None = None,
        done_max: int | None = None,
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> int:
        """Drop the dead and the results that are too old or too many, now; workers do so every few seconds.

        Args:
            dead_max: How many dead are left, the last ones. None: the queue's setting, of which none goes within a day of
                its death; one that is given here knows no such grace.
            dead_age: For how long the dead are kept: seconds or a timedelta. None: the queue's setting.
            done_max: How many results are left, those that would go last. None: the queue's setting.
            progress: Awaited after each round with the number of jobs that have been dropped.

        Returns:
            How many were dropped.

        Raises:
            TypeError, ValueError: A limit does not fit, or `progress` cannot be called; nothing was sent.
            UnavailableError: The server was not reached in time; what was dropped before is gone.

        Server effect: up to 128 jobs at once, rows and logs; those whose time was not over are counted as `trimmed`, and
            told. The settings stay as they are.
        Cancellation: a checkpoint; what was dropped is gone. Call again to go on.
        """
        return await drive(
            self, trim_walk(self.keys, dead_max=dead_max, dead_age=dead_age, done_max=done_max), progress
        )

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
