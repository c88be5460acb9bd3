"""Recurring schedules, for programs that block. The verbs and their promises are those of `echomq.schedules`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Unpack, final

from echomq._definitions import define
from echomq._items import check_count, check_offset
from echomq._options import EnqueueOptions
from echomq._schedule_steps import DefineOutcome, pause_walk, put_walk, resume_walk, run_now_walk
from echomq.protocol.keys import check_schedule_name
from echomq.recurrence import Missed, Recurrence
from echomq.schedules import PAGE, ScheduleInfo, SchedulePage, next_offset, was_removed
from echomq.sync.driving import drive
from echomq.transitions import read_schedules, schedule_remove

if TYPE_CHECKING:
    from echomq.sync.handles import JobHandle
    from echomq.sync.queue import Queue
    from echomq.tasks import JobCall
    from echomq.transitions.schedules import Overlap


@final
class Schedules:
    """A queue's recurring schedules. Answered by `Queue.schedules`; `for` goes through all of them."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def put(
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
        """Define a schedule, or change it. See `echomq.schedules.Schedules.put`."""
        recurrence = Recurrence.of(
            every=every, cron=cron, tz=tz, start=start, end=end, limit=limit, missed=missed, jitter=jitter
        )
        queue = self._queue
        definition = define(name, call, recurrence, overlap=overlap, task=task, options=options, queue=queue.name)
        return drive(queue.runner, queue.keys, put_walk(queue.keys, definition, origin=""))

    def remove(self, name: str) -> bool:
        """Remove a schedule; the jobs it has made stay. Answers whether there was one."""
        queue = self._queue
        call = schedule_remove(queue.keys, queue.runner.call(), name=check_schedule_name(name))
        return was_removed(queue.runner.run(call), queue.name)

    def pause(self, name: str) -> bool:
        """Let a schedule rest until `resume`. Answers whether this call did it."""
        queue = self._queue
        return drive(queue.runner, queue.keys, pause_walk(queue.keys, check_schedule_name(name)))

    def resume(self, name: str) -> bool:
        """Let a schedule go on at its next slot. See `echomq.schedules.Schedules.resume`."""
        queue = self._queue
        return drive(queue.runner, queue.keys, resume_walk(queue.keys, check_schedule_name(name)))

    def run_now(self, name: str) -> JobHandle[Any]:
        """Make a job of a schedule now. See `echomq.schedules.Schedules.run_now`."""
        queue = self._queue
        return queue.handle(drive(queue.runner, queue.keys, run_now_walk(queue.keys, check_schedule_name(name))))

    def get(self, name: str) -> ScheduleInfo | None:
        """Read one schedule; None when there is none of that name."""
        queue = self._queue
        page = queue.runner.run(read_schedules(queue.keys, queue.runner.call(), names=[check_schedule_name(name)]))
        return next(iter(SchedulePage.of(page).schedules), None)

    def page(self, *, offset: int = 0, count: int = 100) -> SchedulePage:
        """Read some schedules, next slot first. See `echomq.schedules.Schedules.page`."""
        check_count(count, "schedules")
        check_offset(offset)
        queue = self._queue
        return SchedulePage.of(
            queue.runner.run(read_schedules(queue.keys, queue.runner.call(), offset=offset, count=count))
        )

    def __iter__(self) -> Iterator[ScheduleInfo]:
        """Go through all schedules, page by page; none comes twice."""
        offset: int | None = 0
        seen: set[str] = set()
        while offset is not None:
            page = self.page(offset=offset, count=PAGE)
            for each in page.schedules:
                if each.name not in seen:
                    seen.add(each.name)
                    yield each
            offset = next_offset(offset, page.total)
