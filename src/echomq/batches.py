"""Batches: many jobs in the hands of one handler, each with a lease and a verdict of its own (Runtime, section 4).

::

    @app.task(queue="rows", batch=echomq.Batch(max_size=500, linger=0.2))
    async def insert(batch: echomq.JobBatch[Row]) -> None:
        await store.insert([item.value for item in batch])


    await insert.enqueue(row)  # one job an item
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Protocol, TypeVar, TypeVarTuple, final

import attrs

from echomq.job import Job
from echomq.protocol._convert import shown
from echomq.protocol.times import to_ms, to_seconds

if TYPE_CHECKING:
    from echomq._noting import Notes
    from echomq.protocol.records import JobRecord

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

MAX_SIZE: Final = 10_000
"""The most jobs that one claim may take."""
MAX_LINGER: Final = 3600.0
"""Seconds. Who would wait longer wants a schedule."""


@final
@attrs.frozen(kw_only=True)
class Batch:
    """How a task's jobs are gathered: `@app.task(batch=Batch(max_size=500, linger=0.2))`."""

    max_size: int
    """How many jobs a batch has at most, 1 to 10,000. Each takes one of the worker's `concurrency` slots."""
    linger: float = 0.0
    """How long the job next in turn may wait for others, in seconds or a timedelta, 0 to an hour. The wait is the
    server's: nobody holds a lease meanwhile. 0: a batch is what is there."""
    min_size: int | None = None
    """How many jobs need not wait for `linger` to end, 1 to `max_size`; None: a full batch."""
    by_lane: bool = False
    """Whether all jobs of a batch are of one lane, `JobBatch.lane`."""

    def __attrs_post_init__(self) -> None:
        """Check every value."""
        if type(self.max_size) is not int or not 1 <= self.max_size <= MAX_SIZE:
            raise ValueError(f"max_size is 1 to {MAX_SIZE} jobs, not {shown(self.max_size)}")
        linger = to_seconds(to_ms(self.linger))
        if linger > MAX_LINGER:
            raise ValueError(f"linger is 0 to {MAX_LINGER:g} seconds, not {shown(self.linger)}")
        object.__setattr__(self, "linger", linger)  # of a timedelta, too
        if type(self.by_lane) is not bool:
            raise ValueError(f"by_lane is True or False, not {shown(self.by_lane)}")
        if self.min_size is None:
            return
        if type(self.min_size) is not int or not 1 <= self.min_size <= self.max_size:
            raise ValueError(f"min_size is 1 to max_size ({self.max_size}), or None, not {shown(self.min_size)}")
        if linger == 0:
            raise ValueError(f"min_size is {self.min_size}, and linger is 0: nothing waits for a batch to fill")


class BatchNotes(Protocol):
    """What the worker does for a batch that it runs."""

    def is_live(self, item: BatchItem[Any]) -> bool:
        """Tell whether the handler still has the item."""

    def settle(self, item: BatchItem[Any], result: Any, error: Exception | None) -> bool:
        """Send an item's verdict."""

    def start_soon(self, item: BatchItem[Any], work: Callable[[], Awaitable[Any]]) -> bool:
        """Run work for an item in its own scope."""


@final
class BatchItem(Job, Generic[T]):
    """One job of a batch. It is a `Job`: token, attempt, progress, checkpoint and log are its own."""

    __slots__ = ("value",)

    def __init__(self, queue: str, id: str, token: int, record: JobRecord, notes: Notes, value: T) -> None:
        super().__init__(queue, id, token, record, notes)
        self.value = value
        """What was enqueued, made the `T` of the handler's `JobBatch[T]`; None for a middleware that has not called yet."""

    def nursery(self, *, on_failure: str = "fail_parent") -> NoReturn:
        """Refuse: an item has no handler of its own that could be suspended.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "job.nursery() is not for an item of a batch: the handler has others in its hands and cannot be suspended for one"
        )


@final
class JobBatch(Generic[T]):
    """What the handler of a batch task gets: iterate over it for its items.

    Each item has a lease, a token, a cancel scope and a verdict of its own. An item that the handler does not settle
    completes when the handler returns, and fails with what it raises. One that is lost, is cancelled by a person, or
    runs out of a `timeout` of its own *leaves* the batch: iteration passes over it, its work is cancelled, and the
    others do not notice. Once none is left, the handler is cancelled too. A shutdown and the task's `timeout` stop the
    handler as a whole.

    Attributes:
        queue: Where its jobs come from.
        lane: The lane of all its jobs if the task batches by lane ("": the jobs without one), else None.
        items: All of its items, also those that are settled or have left.
    """

    __slots__ = ("_notes", "items", "lane", "queue")

    def __init__(self, queue: str, lane: str | None, items: tuple[BatchItem[T], ...], notes: BatchNotes) -> None:
        self.queue = queue
        self.lane = lane
        self.items = items
        self._notes = notes

    def __repr__(self) -> str:
        return f"<JobBatch of {len(self.items)} queue={self.queue!r}>"

    def __iter__(self) -> Iterator[BatchItem[T]]:
        """Go over the items that are in the batch when their turn comes: not settled, and not left."""
        is_live = self._notes.is_live
        return (item for item in self.items if is_live(item))

    def __len__(self) -> int:
        """Tell how many items are in the batch now: not settled, and not left."""
        return sum(map(self._notes.is_live, self.items))

    def done(self, item: BatchItem[T], result: Any = None) -> bool:
        """Complete an item now: its verdict is on its way, and its slot is free.

        Args:
            item: One of the batch.
            result: Its result, kept if the job asks for it.

        Returns:
            Whether it was still in the batch. False: it has left, nothing is written for it, and `item.cancel_reason`
            says why.

        Raises:
            JobStateError: It is settled already, or work that `start_soon` began settles it.
            ValueError: It is not of this batch, or the batch is over.
        """
        return self._notes.settle(item, result, None)

    def fail(self, item: BatchItem[T], error: Exception) -> bool:
        """Fail an item now, and no other: its verdict is on its way, and its slot is free.

        Args:
            item: One of the batch.
            error: Why. `Retry`, `Snooze` and their like mean what they mean when a handler raises them.

        Returns:
            Whether it was still in the batch, as `done`.

        Raises:
            JobStateError: As `done`.
            TypeError: The error is not an exception.
            ValueError: As `done`.
        """
        if not isinstance(error, Exception):
            raise TypeError(f"an item fails with an Exception, not {shown(error)} of type {type(error).__name__}")
        return self._notes.settle(item, None, error)

    def start_soon(
        self, function: Callable[[BatchItem[T], *Ts], Awaitable[Any]], item: BatchItem[T], /, *args: *Ts
    ) -> bool:
        """Run `function(item, *args)` beside the handler, in the item's own cancel scope; once an item.

        It settles the item: what it returns is the result, and what it raises fails this item alone. It is cancelled
        when the item leaves, when the handler raises, and with the handler. The batch lasts until all such work has
        ended, also after the handler has returned.

        Returns:
            Whether the item was still in the batch; if not, nothing was begun.

        Raises:
            JobStateError: It is settled, or has work already.
            ValueError: It is not of this batch, or the batch is over.
        """
        return self._notes.start_soon(item, lambda: function(item, *args))
