"""Lanes, for programs that block. The verbs and their promises are those of `echomq.lanes`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Unpack, final

from echomq._items import check_count, check_cursor
from echomq.clearing import drain_walk
from echomq.lanes import LaneInfo, LanePage, check_browsed
from echomq.limits import LaneOptions, lane_name, spell_lane
from echomq.sync.driving import drive
from echomq.transitions import read_lanes, set_lane

if TYPE_CHECKING:
    from echomq.sweeps import CancelReport
    from echomq.sync.queue import Queue
    from echomq.transitions import Page
    from echomq.transitions.settings import Named


@final
class Lane:
    """One lane of a queue. Made by `Queue.lane`."""

    __slots__ = ("_queue", "name")

    def __init__(self, queue: Queue, name: str) -> None:
        self._queue = queue
        self.name = lane_name(name)
        """Its name; "" is the lane of the jobs without one."""

    def __repr__(self) -> str:
        return f"<sync.Lane {self.name!r} of queue {self._queue.name!r}>"

    def info(self) -> LaneInfo:
        """Read what the lane was told, what is in it, and whether it is served. See `echomq.Lane.info`."""
        queue = self._queue
        page = queue.runner.run(read_lanes(queue.keys, queue.runner.call(), names=(self.name,)))
        return LaneInfo.of(page.lanes[0])

    def configure(self, **settings: Unpack[LaneOptions]) -> bool:
        """Change the lane's settings; those not named stay, and None clears one. See `echomq.Lane.configure`."""
        return self._set(spell_lane(self.name, settings))

    def pause(self) -> bool:
        """Let no more of its jobs be claimed, until `resume`. Answers whether this call did it."""
        return self._set({"paused": "1"})

    def resume(self) -> bool:
        """Let its jobs be claimed again. Answers whether this call did it."""
        return self._set({"paused": ""})

    def drain(self, progress: Callable[[int], None] | None = None, *, scheduled: bool = False) -> int:
        """Remove the lane's jobs that are ready, or scheduled, too. See `echomq.Lane.drain`."""
        queue = self._queue
        return drive(queue.runner, queue.keys, drain_walk(queue.keys, lane=self.name, scheduled=scheduled), progress)

    def cancel(self, *, reason: str = "", progress: Callable[[int], None] | None = None) -> CancelReport:
        """Cancel all of the lane's jobs. See `echomq.Lane.cancel`."""
        return self._queue.cancel_where(lane=self.name, reason=reason, progress=progress)

    def browse(self, state: str = "pending", *, offset: int = 0, count: int = 50, reverse: bool = False) -> Page:
        """Read a page of the lane's jobs that are `pending` or `active`. See `echomq.Lane.browse`."""
        check_browsed(self.name, state)
        return self._queue.browse(state, offset=offset, count=count, reverse=reverse, lane=self.name)

    def _set(self, settings: Named) -> bool:
        queue = self._queue
        return queue.runner.remembered(
            queue.keys, "set_lane", lambda call: set_lane(queue.keys, call, lane=self.name, settings=settings)
        )


@final
class Lanes:
    """A queue's lanes that have jobs or settings: by pages, or all of them by `for`. Answered by `Queue.lanes`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def page(self, *, cursor: int = 0, count: int = 100) -> LanePage:
        """Read some lanes. See `echomq.lanes.Lanes.page`."""
        check_cursor(cursor)
        check_count(count, "lanes")
        queue = self._queue
        return LanePage.of(queue.runner.run(read_lanes(queue.keys, queue.runner.call(), cursor=cursor, count=count)))

    def __iter__(self) -> Iterator[LaneInfo]:
        """Go through all lanes, page by page."""
        page = self.page()
        yield from page.lanes
        while page.cursor:
            page = self.page(cursor=page.cursor)
            yield from page.lanes
