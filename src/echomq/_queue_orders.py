"""What an operator does with a queue as a whole, and reads of it."""

from __future__ import annotations

from typing import Unpack

from echomq._items import check_page
from echomq._queue_base import QueueBase
from echomq.lanes import Lane, Lanes
from echomq.limits import QueueOptions, QueueSettings, spell_queue
from echomq.protocol.times import to_seconds
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
            settings: `events`, `limit`, `rate`, `max_size`: see `QueueOptions`.

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
