"""Following one job live: its progress and its log, by `async for`, until it has ended."""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Generic, TypeVar, final

import anyio

from echomq._follow import NOT_OFTENER, Look, MissedLines, Progress, Reader

if TYPE_CHECKING:
    from echomq._channels import Bell
    from echomq.queue import Queue

__all__ = ["Followed", "MissedLines", "Progress"]

T = TypeVar("T")


@final
class Followed(Generic[T]):
    """What a job tells, as it comes. Made by `JobHandle.progress` and `JobHandle.logs`; iterate over it in one task.

    It may be left at any moment; what it holds (a subscription) goes with it.
    """

    def __init__(self, owner: Queue, id: str, reader: Reader[T]) -> None:
        self._owner = owner
        self._id = id
        self._reader = reader
        self._found: deque[T] = deque()
        self._bell: Bell | None = None
        self._event: anyio.Event | None = None
        self._due = True
        self._over = False
        self._looked = -math.inf
        self._again = 0.0

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        """Wait for the next one.

        Raises:
            UnavailableError: The server was not reached in time. It may be iterated over on.
            DecodeError: The row is torn, or what is there is no note of progress.

        Cancellation: a checkpoint; nothing is lost.
        """
        while not self._found:
            if self._over:
                raise StopAsyncIteration
            await self._wait()
            await self._look()
        return self._found.popleft()

    def close(self) -> None:
        """Listen no more."""
        self._over = True
        if self._bell is not None:
            self._bell.close()
            self._bell = None

    def __del__(self) -> None:
        self.close()

    async def _wait(self) -> None:
        """Wait until the row is worth a look; never for less than a tenth of a second since the last one."""
        now = anyio.current_time()
        if not self._due:
            self._event = anyio.Event()
            with anyio.move_on_after(self._looked + self._again - now):
                await self._event.wait()
            self._event = None
        await anyio.sleep_until(self._looked + NOT_OFTENER)

    async def _look(self) -> None:
        if self._bell is None:
            channel = self._owner.keys.result_channel(self._id)
            self._bell = await self._owner.channels.open_bell(channel, _ringer(self), deaf=self._reader.deaf)
        # Before the row is read: word that comes meanwhile makes it due again.
        self._due = False
        self._looked = anyio.current_time()
        try:
            job = await self._owner.job(self._id, log=self._reader.with_log)
            look = Look(self._reader, job)
        except BaseException:
            self._due = True
            raise
        self._found.extend(look.new)
        self._again = look.again
        if look.over:
            self.close()

    def _ring(self) -> None:
        self._due = True
        if self._event is not None:
            self._event.set()


def _ringer(followed: Followed[T]) -> Callable[[], None]:
    # Weak: an iterator that was dropped is garbage, though its bell still hangs somewhere.
    weak: weakref.ref[Followed[T]] = weakref.ref(followed)

    def ring() -> None:
        me = weak()
        if me is not None:
            me._ring()  # noqa: SLF001 - itself

    return ring
