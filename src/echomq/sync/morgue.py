"""The morgue, for programs that block. Its promises are those of `echomq.morgue`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Unpack, final

from echomq._walks import Rows
from echomq.morgue import DeadFilters, DeadJob, dead_walk, find_walk, found
from echomq.sync.driving import drive, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from echomq._walks import Walk
    from echomq.limits import Rate
    from echomq.sync.queue import Queue


@final
class Morgue:
    """A queue's dead jobs. Answered by `Queue.dead`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def find(self, **filters: Unpack[DeadFilters]) -> Iterator[DeadJob]:
        """Go through the dead jobs, the longest dead first. See `echomq.morgue.Morgue.find`."""
        return self._each(find_walk(self._queue.keys, filters))

    def redrive(
        self,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        progress: Callable[[int], None] | None = None,
        **filters: Unpack[DeadFilters],
    ) -> int:
        """Begin a new life for dead jobs. See `echomq.morgue.Morgue.redrive`."""
        walk = dead_walk(self._queue.keys, "redrive", filters, limit, rate, time.monotonic)
        return drive(self._queue.runner, self._queue.keys, walk, progress)

    def remove(
        self,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        progress: Callable[[int], None] | None = None,
        **filters: Unpack[DeadFilters],
    ) -> int:
        """Erase dead jobs. See `echomq.morgue.Morgue.remove`."""
        walk = dead_walk(self._queue.keys, "remove", filters, limit, rate, time.monotonic)
        return drive(self._queue.runner, self._queue.keys, walk, progress)

    def _each(self, walk: Walk[None]) -> Iterator[DeadJob]:
        answer = None
        while True:
            try:
                step = walk.send(answer)
            except StopIteration:
                return
            answer = perform(self._queue.runner, self._queue.keys, step, None)
            if isinstance(step, Rows):
                yield from found(answer)
