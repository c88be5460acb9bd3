"""Burst: a worker that ends when there is nothing left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import anyio

from echomq._logs import get_logger
from echomq.errors import EchoMQError
from echomq.transitions import Call, counts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from echomq.worker.calls import QueueCalls
    from echomq.worker.outbox import OutboxPump

LOOK: float = 0.2
"""Seconds between two looks at whether the queues are empty."""

_log = get_logger("echomq.worker")


@final
class Burst:
    """Looks whether the queues are empty."""

    def __init__(
        self,
        queues: Iterable[QueueCalls],
        outbox: OutboxPump,
        *,
        idle: Callable[[], bool],
        stop: Callable[[], None],
    ) -> None:
        """Make it.

        Args:
            queues: The queues.
            outbox: Delivers what they have to tell others.
            idle: Whether the worker itself has nothing to do.
            stop: Called when that is so and the queues are empty.
        """
        self._queues = tuple(queues)
        self._outbox = outbox
        self._idle = idle
        self._stop = stop

    async def run(self) -> None:
        """Look now and then. Returns when the worker has been stopped."""
        told = False
        while True:
            await anyio.sleep(LOOK)
            if not self._idle():
                continue
            if await self._is_empty():
                # What is delivered may be work for the very queues that were empty; and so may what came meanwhile.
                if await self._outbox.is_clear() and self._idle() and await self._is_empty():
                    self._stop()
                    return
            elif not told:
                told = True
                _log.info("burst_waiting", hint="jobs are scheduled for later, run elsewhere, or are paused or limited")

    async def _is_empty(self) -> bool:
        for calls in self._queues:
            try:
                found = await calls.wire.run(counts(calls.keys, Call(calls.wire.tag)))
            except EchoMQError:
                return False
            if found.pending or found.active or found.schedule:
                return False
        return True
