"""Recurring jobs: schedules of a queue, by name (Protocol, section 5).

A schedule's definition lives on the server, and any worker of the queue fires it, so a series goes on as long as one
worker does. Of any number of workers one makes the job of a slot.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Self, Unpack, final

import attrs

from echomq._definitions import define
from echomq._items import check_count, check_offset
from echomq._options import EnqueueOptions
from echomq._schedule_steps import DefineOutcome, pause_walk, put_walk, resume_walk, run_now_walk
from echomq._walks import drive
from echomq.errors import EchoMQError
from echomq.protocol.keys import check_schedule_name
from echomq.protocol.times import from_unix_ms, unix_ms
from echomq.recurrence import Missed, Recurrence, UnreadableSpecError
from echomq.transitions import Call, read_schedules, schedule_remove
from echomq.transitions.schedules import ENDED

if TYPE_CHECKING:
    from echomq.protocol.refusals import Verdict
    from echomq.queue import Queue
    from echomq.results import JobHandle
    from echomq.tasks import JobCall
    from echomq.transitions import SchedulePage as ReadPage
    from echomq.transitions.schedules import Overlap, ScheduleState


@final
@attrs.frozen(kw_only=True)
class ScheduleInfo:
    """A recurring schedule at one moment."""

    name: str
    """Its name."""
    task: str
    """The task of its jobs; "" for a queue with one handler."""
    recurrence: Recurrence | None
    """Its slots; None when its definition cannot be read, by this version at least: see `problem`."""
    problem: str | None
    """Why its definition cannot be read; None when it can."""
    overlap: Overlap
    """What a slot does while the last one's job is not over."""
    next_run: dt.datetime | None
    """Its next slot; None when it is paused or fires no more."""
    count: int
    """How many of its slots have made a job."""
    skipped: int
    """How many made none, for overlap."""
    paused: dt.datetime | None
    """Since when it is paused; None when it is not."""
    last_job: str | None
    """The id of the latest job it made; None before."""
    last_run: dt.datetime | None
    """The slot of that job."""
    origin: str
    """Which app defined it; "" for a person, or for an app that has no name."""
    lane: str
    """The lane of its jobs; "" when none."""
    payload: bytes = attrs.field(repr=False)
    """The payload of its jobs."""

    @classmethod
    def of(cls, state: ScheduleState) -> Self:
        """Read what the server answered."""
        recurrence, problem = None, None
        try:
            recurrence = Recurrence.parse(state.spec)
        except UnreadableSpecError as error:
            problem = str(error)
        over = state.slot_ms == ENDED or (recurrence is not None and recurrence.is_over(state.count))
        return cls(
            name=state.name, task=state.task, recurrence=recurrence, problem=problem, overlap=state.overlap,
            next_run=None if over or state.paused_ms else from_unix_ms(state.slot_ms),
            count=state.count, skipped=state.skipped,
            paused=from_unix_ms(state.paused_ms) if state.paused_ms else None,
            last_job=state.last_id or None, last_run=from_unix_ms(state.last_slot_ms) if state.last_id else None,
            origin=state.origin, lane=state.lane, payload=state.payload,
        )  # fmt: skip

    def next_runs(self, count: int) -> list[dt.datetime]:
        """Answer up to so many of its next slots; none when it is paused or fires no more."""
        if self.next_run is None or self.recurrence is None or count < 1:
            return [] if self.next_run is None or count < 1 else [self.next_run]
        after = self.recurrence.upcoming(unix_ms(self.next_run), count - 1, made=self.count + 1)
        return [self.next_run, *map(from_unix_ms, after)]


@final
@attrs.frozen(kw_only=True)
class SchedulePage:
    """Some of a queue's schedules."""

    total: int
    """How many schedules the queue has."""
    schedules: tuple[ScheduleInfo, ...]
    """The schedules, next slot first; those that are paused or over come last."""

    @classmethod
    def of(cls, page: ReadPage) -> Self:
        """Read what the server answered."""
        return cls(total=page.total, schedules=tuple(map(ScheduleInfo.of, page.schedules)))


@final
class Schedules:
    """A queue's recurring schedules. Answered by `Queue.schedules`; `async for` goes through all of them."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    async def put(
        self,
        name: str,
        call: JobCall[Any] | bytes,
        *,
        every: float | dt.timedelta | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        start: dt.datetime | None = None,
        end: dt.datetime | None = None,
        limit: int | None = None,
        missed: Missed = "last",
        overlap: Overlap = "allow",
        jitter: float | dt.timedelta | None = None,
        task: str = "",
        **options: Unpack[EnqueueOptions],
    ) -> DefineOutcome:
        """Define a schedule, or change it: by its name, so that doing it again does nothing.

        Args:
            name: 1 to 128 of `A-Z a-z 0-9 . _ : -`.
            call: What each slot enqueues: a call of a task, as `task.call(...)` makes it, or a payload.
            every: Seconds or a timedelta between two slots, 0.1 s to ten years: slots at multiples of it from 1970, or
                from `start`, in UTC.
            cron: Instead: minute, hour, day of the month, month, day of the week, such as `30 2 * * MON-FRI`.
            tz: The zone of the expression's times, such as `Europe/Berlin`.
            start: An aware datetime: no slot before it.
            end: An aware datetime: no slot after it.
            limit: How many slots may make a job.
            missed: What becomes of slots that nobody fired in time, while no worker was there: `skip`, `last` (the last
                one makes a job) or `all` (of the latest 100). A slot that came less than a minute ago is in time.
            overlap: What a slot does while the last one's job is not over: `allow` (another job), `skip` (none) or
                `queue` (one, if none waits yet).
            jitter: Seconds or a timedelta, up to a day: each job may run later than its slot by up to so much.
            task: For a payload, which handler.
            options: Of its jobs: see `EnqueueOptions`; but `delay`, `at` and what is about `dedup`.

        Returns:
            `created`, `changed`, or `same`: it stood there so already, and nothing was changed.

        Raises:
            TypeError, ValueError: An argument does not fit; nothing was sent.
            JobStateError: The queue is being closed.
            OutOfMemoryError: The server's memory is full.
            UnavailableError: The server was not reached in time; `sent` says whether it may be defined.

        Server effect: the definition is written at once and wholly, and stands at its first slot after now. A changed one
            keeps its count, its pause, and a slot that has come and is not fired yet.
        Cancellation: a checkpoint; if cancelled after it was sent, it may be defined.
        Delivery: may be repeated.
        """
        recurrence = Recurrence.of(
            every=every, cron=cron, tz=tz, start=start, end=end, limit=limit, missed=missed, jitter=jitter
        )
        queue = self._queue
        definition = define(name, call, recurrence, overlap=overlap, task=task, options=options, queue=queue.name)
        return await drive(queue, put_walk(queue.keys, definition, origin=""))

    async def remove(self, name: str) -> bool:
        """Remove a schedule; the jobs it has made stay. Answers whether there was one.

        Raises:
            ValueError: A schedule cannot have that name.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint; if cancelled after it was sent, it may be removed.
        """
        keys = self._queue.keys
        verdict = await self._queue.wire.run(schedule_remove(keys, self._call, name=check_schedule_name(name)))
        return was_removed(verdict, keys.queue)

    async def pause(self, name: str) -> bool:
        """Let a schedule rest until `resume`. Answers whether this call did it.

        Raises:
            ScheduleNotFoundError: There is none of that name.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint; if cancelled after it was sent, it may be paused.
        """
        queue = self._queue
        return await drive(queue, pause_walk(queue.keys, check_schedule_name(name)))

    async def resume(self, name: str) -> bool:
        """Let a schedule go on at its next slot. Answers whether this call did it. What came meanwhile makes no job.

        Raises:
            ScheduleNotFoundError: There is none of that name.
            InvalidJobError: This version cannot read its definition.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint; if cancelled after it was sent, it may be resumed.
        """
        queue = self._queue
        return await drive(queue, resume_walk(queue.keys, check_schedule_name(name)))

    async def run_now(self, name: str) -> JobHandle[Any]:
        """Make a job of a schedule now, also of one that is paused or over, and whatever its `overlap` says.

        Its slots and its count stay as they are.

        Raises:
            ScheduleNotFoundError: There is none of that name.
            JobStateError: The queue is being closed.
            QueueFullError: As many jobs wait as the queue's `max_size` says.
            OutOfMemoryError: The server's memory is full.
            UnavailableError: The server was not reached in time; `sent` says whether the job may be there.

        Server effect: as for `Queue.enqueue`. The job carries the schedule's name, and the moment as its slot.
        Cancellation: a checkpoint; if cancelled after it was sent, the job may be there.
        """
        queue = self._queue
        id = await drive(queue, run_now_walk(queue.keys, check_schedule_name(name)))
        return queue.handle(id)

    async def get(self, name: str) -> ScheduleInfo | None:
        """Read one schedule; None when there is none of that name.

        Raises:
            ValueError: A schedule cannot have that name.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        names = [check_schedule_name(name)]
        page = await self._queue.wire.run(read_schedules(self._queue.keys, self._call, names=names))
        return next(iter(SchedulePage.of(page).schedules), None)

    async def page(self, *, offset: int = 0, count: int = 100) -> SchedulePage:
        """Read some schedules, next slot first.

        Args:
            offset: How many to skip.
            count: How many to read, 1 to 256.

        Raises:
            ValueError: An argument is out of range.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        Delivery: what is fired, defined or removed between two pages shifts the next: it may repeat or miss some.
        """
        check_count(count, "schedules")
        check_offset(offset)
        call = read_schedules(self._queue.keys, self._call, offset=offset, count=count)
        return SchedulePage.of(await self._queue.wire.run(call))

    def __aiter__(self) -> AsyncIterator[ScheduleInfo]:
        """Go through all schedules, page by page. What it promises of each is what `page` does; none comes twice."""
        return _All(self)

    @property
    def _call(self) -> Call:
        return Call(self._queue.wire.tag)


@final
class _All:
    """All schedules of a queue. Not an async generator: one of those must not be dropped half way."""

    __slots__ = ("_offset", "_page", "_schedules", "_seen")

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules
        self._page: Iterator[ScheduleInfo] = iter(())
        self._offset: int | None = 0
        self._seen: set[str] = set()

    def __aiter__(self) -> AsyncIterator[ScheduleInfo]:
        return self

    async def __anext__(self) -> ScheduleInfo:
        while True:
            for each in self._page:
                if each.name not in self._seen:
                    self._seen.add(each.name)
                    return each
            if self._offset is None:
                raise StopAsyncIteration
            page = await self._schedules.page(offset=self._offset, count=PAGE)
            self._page, self._offset = iter(page.schedules), next_offset(self._offset, page.total)


PAGE = 100
OVERLAPPING = 20
"""Schedules of a page that the next one begins with: so many may be removed meanwhile without hiding one."""


def next_offset(offset: int, total: int) -> int | None:
    """Answer where the page after that at `offset` begins; None when it was the last."""
    return offset + PAGE - OVERLAPPING if offset + PAGE < total else None


def was_removed(verdict: Verdict, queue: str) -> bool:
    """Read a verdict of `schedule_remove`.

    Raises:
        EchoMQError: It was refused.
    """
    if verdict.code == "EMQGONE":
        return False
    error: EchoMQError | None = verdict.error(queue=queue)
    if error is not None:
        raise error
    return True
