"""Lanes: tenants, customers or kinds of work that share a queue and take turns in it (Protocol, section 6).

A lane is there as soon as a job names it, and leaves nothing behind when it is empty, but for settings that it was
given. The jobs without a lane are a lane too, the one with the empty name: `queue.lane("")`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final, Self, Unpack, final

import attrs

from echomq._items import check_count, check_cursor
from echomq._walks import drive
from echomq.clearing import drain_walk
from echomq.limits import LaneOptions, Rate, lane_name, rate_of, spell_lane
from echomq.protocol.times import to_seconds
from echomq.transitions import Call, read_lanes, set_lane

if TYPE_CHECKING:
    from echomq._queue_orders import QueueOrders
    from echomq.sweeps import CancelReport
    from echomq.transitions import LanePage as ReadPage
    from echomq.transitions import LaneState, Page
    from echomq.transitions.settings import Closed, Named

_WORDS: Final[dict[str, Callable[[LaneInfo], str]]] = {
    "paused": lambda _: "it is paused",
    "told to wait": lambda _: "a handler has closed it for a while",
    "rate": lambda lane: f"its rate is used up for now ({lane.rate})",
    "limit": lambda lane: f"as many of its jobs run as may ({lane.limit})",
}


@final
@attrs.frozen(kw_only=True)
class LaneInfo:
    """A lane at one moment: what it was told, what is in it, and whether it is served."""

    name: str
    """Its name; "" is the lane of the jobs without one."""
    weight: int
    """How many of its jobs may start in one turn."""
    limit: int | None
    """How many of its jobs may run at once; None: any number."""
    rate: Rate | None
    """How many may start in a time; None: any number."""
    paused: bool
    """Whether it is paused."""
    pending: int
    """How many of its jobs are ready."""
    active: int | None
    """How many of its jobs run; None: not known, of the jobs without a lane."""
    oldest: float | None
    """Seconds for which the job next in turn has been ready; None when none is."""
    closed: tuple[Closed, ...]
    """Why it is not served now, for programs, each reason: `paused`, `told to wait` (by a handler's `RateLimited`), `rate`,
    `limit`. That the whole queue is paused or at its limits is not among them."""
    again_in: float | None
    """Seconds until it is looked at again; None when it can be served, or when somebody has to change something."""

    @property
    def servable(self) -> bool:
        """Whether its jobs are served as soon as it is its turn."""
        return not self.closed

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not served now, for people, each reason; empty when it can be served."""
        return tuple(_WORDS[word](self) if word in _WORDS else word for word in self.closed)

    @classmethod
    def of(cls, state: LaneState) -> Self:
        """Read what the server answered."""
        limits = state.limits
        return cls(
            name=state.name,
            weight=limits.weight,
            limit=limits.limit,
            rate=rate_of(limits.rate),
            paused=limits.paused_ms > 0,
            pending=state.pending,
            active=state.active if state.name else None,
            oldest=to_seconds(state.oldest_ms) if state.pending else None,
            closed=state.closed,
            again_in=None if state.again_ms is None else to_seconds(state.again_ms),
        )


@final
@attrs.frozen(kw_only=True)
class LanePage:
    """Some of a queue's lanes."""

    lanes: tuple[LaneInfo, ...]
    """The lanes, in no order."""
    cursor: int
    """Where the next page begins; 0: this was the last."""

    @classmethod
    def of(cls, page: ReadPage) -> Self:
        """Read what the server answered."""
        return cls(lanes=tuple(map(LaneInfo.of, page.lanes)), cursor=page.cursor)


@final
class Lane:
    """One lane of a queue. Made by `Queue.lane`; costs nothing to make, keep or drop."""

    __slots__ = ("_queue", "name")

    def __init__(self, queue: QueueOrders, name: str) -> None:
        self._queue = queue
        self.name = lane_name(name)
        """Its name; "" is the lane of the jobs without one."""

    def __repr__(self) -> str:
        return f"<Lane {self.name!r} of queue {self._queue.name!r}>"

    async def info(self) -> LaneInfo:
        """Read what the lane was told, what is in it, and whether it is served. One that is not there is an empty one.

        Raises:
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        queue = self._queue
        page = await queue.wire.run(read_lanes(queue.keys, Call(queue.wire.tag), names=(self.name,)))
        return LaneInfo.of(page.lanes[0])

    async def configure(self, **settings: Unpack[LaneOptions]) -> bool:
        """Change the lane's settings; those not named stay, and None clears one.

        Args:
            settings: `weight`, `limit`, `rate`: see `LaneOptions`.

        Returns:
            Whether anything changed.

        Raises:
            TypeError, ValueError: A setting does not fit, or there is none; nothing was sent.
            JobStateError: The queue is being closed.
            UnavailableError: The server was not reached in time.

        Server effect: from the next claim on. What runs goes on, also beyond a lower limit. They outlive the lane's
            jobs: a lane that was given settings is there until they are cleared.
        Cancellation: a checkpoint; if cancelled after it was sent, they may be changed.
        """
        return await self._set(spell_lane(self.name, settings))

    async def pause(self) -> bool:
        """Let no more of its jobs be claimed, until `resume`; what runs goes on. Answers whether this call did it.

        Cancellation: a checkpoint; if cancelled after it was sent, the lane may be paused.
        """
        return await self._set({"paused": "1"})

    async def resume(self) -> bool:
        """Let its jobs be claimed again. Answers whether this call did it.

        Server effect: what a handler's `RateLimited` has closed is open again, too. If it has jobs and may be served, it
            takes its turn, and parked workers are woken.
        Cancellation: a checkpoint; if cancelled after it was sent, the lane may be resumed.
        """
        return await self._set({"paused": ""})

    async def drain(self, progress: Callable[[int], Awaitable[None]] | None = None, *, scheduled: bool = False) -> int:
        """Remove the lane's jobs that are ready, as `Queue.remove` does. What runs is left.

        Args:
            progress: Awaited after each round with the number of jobs that have been removed.
            scheduled: Also those that are scheduled.

        Returns:
            How many were removed. It goes on until the lane is empty, or as many as it had at the start are gone: it
            ends also while others enqueue.

        Raises:
            UnavailableError: The server was not reached in time; rounds before it have removed their jobs.

        Server effect: round by round, up to 128 jobs at once: rows, logs and places go; dedup keys are freed; waiters
            are told.
        Cancellation: a checkpoint; what was removed is gone.
        """
        walk = drain_walk(self._queue.keys, lane=self.name, scheduled=scheduled)
        return await drive(self._queue, walk, progress)

    async def cancel(
        self, *, reason: str = "", progress: Callable[[int], Awaitable[None]] | None = None
    ) -> CancelReport:
        """Cancel all of the lane's jobs: those that are ready or scheduled end, those that run are asked.

        See `Queue.cancel_where(lane=...)` for what it answers, raises and promises.
        """
        return await self._queue.cancel_where(lane=self.name, reason=reason, progress=progress)

    async def browse(self, state: str = "pending", *, offset: int = 0, count: int = 50, reverse: bool = False) -> Page:
        """Read a page of the lane's jobs that are `pending` or `active`, in the order of their turn.

        Raises:
            ValueError: An argument is out of range; or what runs was asked of the jobs without a lane, which is not
                known: `queue.browse("active")` has all.

        Cancellation: a checkpoint.
        Delivery: jobs that come or go between two pages shift the next: it may repeat or miss some.
        """
        check_browsed(self.name, state)
        return await self._queue.browse(state, offset=offset, count=count, reverse=reverse, lane=self.name)

    async def _set(self, settings: Named) -> bool:
        queue = self._queue
        return await queue.wire.remembered(
            queue.keys, lambda call: set_lane(queue.keys, call, lane=self.name, settings=settings), verb="set_lane"
        )


@final
class Lanes:
    """A queue's lanes that have jobs or settings: by pages, or all of them by `async for`. Answered by `Queue.lanes`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: QueueOrders) -> None:
        self._queue = queue

    async def page(self, *, cursor: int = 0, count: int = 100) -> LanePage:
        """Read some lanes.

        Args:
            cursor: 0, or the last page's `cursor`.
            count: About how many, 1 to 256. A queue with some hundred lanes may answer all of them at once.

        Raises:
            ValueError: An argument is out of range.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        Delivery: a lane that is there from the first page to the last is answered at least once; one that comes or goes
            meanwhile may be missed, and any may come twice.
        """
        check_cursor(cursor)
        check_count(count, "lanes")
        queue = self._queue
        return LanePage.of(
            await queue.wire.run(read_lanes(queue.keys, Call(queue.wire.tag), cursor=cursor, count=count))
        )

    def __aiter__(self) -> AsyncIterator[LaneInfo]:
        """Go through all lanes, page by page. What it promises of each is what `page` does."""
        return _All(self)


@final
class _All:
    """All lanes of a queue. Not an async generator: one of those must not be dropped half way."""

    __slots__ = ("_cursor", "_lanes", "_page")

    def __init__(self, lanes: Lanes) -> None:
        self._lanes = lanes
        self._page: Iterator[LaneInfo] = iter(())
        self._cursor: int | None = 0

    def __aiter__(self) -> AsyncIterator[LaneInfo]:
        return self

    async def __anext__(self) -> LaneInfo:
        while (lane := next(self._page, None)) is None:
            if self._cursor is None:
                raise StopAsyncIteration
            page = await self._lanes.page(cursor=self._cursor)
            self._page, self._cursor = iter(page.lanes), page.cursor or None
        return lane


def check_browsed(lane: str, state: str) -> None:
    """Refuse to browse what runs of the jobs without a lane.

    Raises:
        ValueError: That.
    """
    if not lane and state != "pending":
        raise ValueError(f"of the jobs without a lane those that are pending can be browsed by lane, not {state!r}")
