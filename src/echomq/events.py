"""What happens in a queue, as it happens, and what has happened: `async for event in queue.events(since=...)`."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Final, Self, final

import anyio
import anyio.lowlevel

from echomq._events import Event, EventReader, Gap, Since
from echomq.errors import UnavailableError
from echomq.transitions import Call

if TYPE_CHECKING:
    from types import TracebackType

    from echomq._queue_base import QueueBase
    from echomq.wire.tail import Tail

__all__ = ["Event", "EventStream", "Gap", "Since"]

NOT_OFTENER: Final = 0.05
"""Seconds between two looks at the end of a busy stream: some dozen events then come by one call instead of by one each."""
TRY_AGAIN: Final = 1.0
"""Seconds between two tries while the server is away, beside the time that each takes."""


@final
class EventStream:
    """A queue's events, one after the other. Made by `Queue.events`; iterate over it in one task.

    It may be left at any moment: its connection is closed with its last reference, or by `async with`, or `close()`.
    """

    def __init__(self, owner: QueueBase, reader: EventReader, *, follow: bool) -> None:
        self._owner = owner
        self._reader = reader
        self._follow = follow
        self._found: deque[Event | Gap] = deque()
        self._given = reader.position
        self._tail: Tail | None = None
        self._begun = False
        self._closed = False
        self._looked = -math.inf

    @property
    def position(self) -> str:
        """Up to where it has been iterated: `since=position` goes on there. "$" before it has begun, without `since`.

        With `job` or `kinds` it comes further than the last event's id: others were passed meanwhile.
        """
        return self._given if self._found else self._reader.position

    async def __aenter__(self) -> Self:
        """Begin: without `since`, what happens from here on is told.

        Raises:
            UnavailableError: The server was not reached in time.
        """
        if not self._begun:
            await self._look()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        await anyio.lowlevel.cancel_shielded_checkpoint()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event | Gap:
        """Wait for the next one.

        Raises:
            UnavailableError: The server was not reached in time, at the first look; or ever, when it does not follow. It
                may be iterated over on.
            PermissionDeniedError: The ACL user may not read the stream.

        Cancellation: a checkpoint; nothing is lost.
        """
        if self._found:
            await anyio.lowlevel.checkpoint()
        while not self._found:
            if self._closed or (self._begun and not self._follow and self._reader.done):
                self.close()
                raise StopAsyncIteration
            await self._wait()
            await self._look()
        event = self._found.popleft()
        self._given = event.id if isinstance(event, Event) else event.after
        return event

    def close(self) -> None:
        """End it, and close its connection without waiting for the server."""
        self._closed = True
        if self._tail is not None:
            self._tail.close()
            self._tail = None

    async def _wait(self) -> None:
        """Wait until the stream is worth a look: at its end, until it has grown."""
        if self._reader.behind:
            return
        if self._tail is None:
            self._tail = self._owner.wire.tail(self._owner.keys)
        await self._tail.wait(self._owner.keys.events, self._reader.position)
        await anyio.sleep_until(self._looked + NOT_OFTENER)

    async def _look(self) -> None:
        wire = self._owner.wire
        try:
            page = await wire.run(self._reader.ask(Call(wire.tag)))
        except UnavailableError:
            if not self._follow or not self._begun:
                raise
            # It was there, and will be again: then what has been missed meanwhile is read, or told.
            await anyio.sleep(TRY_AGAIN)
            return
        self._begun = True
        self._looked = anyio.current_time()
        self._found.extend(self._reader.take(page))
