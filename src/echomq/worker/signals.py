"""A signal: wakes whoever waits at this moment, and costs nothing when nobody does."""

from __future__ import annotations

from typing import final

import anyio


@final
class Signal:
    """Something has changed; look again. Sent for every job, waited for now and then."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def send(self) -> None:
        """Wake who waits now. Whoever waits later is not told: look before you wait, without an await in between."""
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        """Wait for the next `send`. **Cancellation**: at any moment, without effect."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
