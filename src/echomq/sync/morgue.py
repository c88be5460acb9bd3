"""The morgue, for programs that block. Its promises are those of `echomq.morgue`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Unpack, final

from echomq.finding import JobFilters, find_walk
from echomq.morgue import DeadJob, dead_walk
from echomq.protocol.states import State
from echomq.sync.driving import drive, found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from echomq.limits import Rate
    from echomq.sync.queue import Queue


@final
class Morgue:
    """A queue's dead jobs. Answered by `Queue.dead`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def find(self, **filters: Unpack[JobFilters]) -> Iterator[DeadJob]:
        """Go through the dead jobs, the longest dead first. See `echomq.morgue.Morgue.find`."""
        walk = find_walk(self._queue.keys, State.DEAD, filters)
        return found(self._queue.runner, self._queue.keys, walk, State.DEAD, DeadJob.of)

    def redrive(
        self,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        progress: Callable[[int], None] | None = None,
        **filters: Unpack[JobFilters],
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
        **filters: Unpack[JobFilters],
    ) -> int:
        """Erase dead jobs. See `echomq.morgue.Morgue.remove`."""
        walk = dead_walk(self._queue.keys, "remove", filters, limit, rate, time.monotonic)
        return drive(self._queue.runner, self._queue.keys, walk, progress)
