"""One clock for everything a worker does later: renewals of leases, and verdicts to be tried again."""

from __future__ import annotations

import heapq
import math
from itertools import count
from typing import TYPE_CHECKING, final

import anyio

from echomq.worker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable


@final
class Timers:
    """A heap of moments and what to call then. The calls must not block or raise."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._changed = Signal()

    def at(self, moment: float, call: Callable[[], None]) -> None:
        """Call something at a moment on anyio's clock, or at once if it has passed."""
        sooner = not self._heap or moment < self._heap[0][0]
        heapq.heappush(self._heap, (moment, next(self._serial), call))
        if sooner:
            self._changed.send()

    async def run(self) -> None:
        """Run until cancelled. **Cancellation**: at any moment; what is due later is dropped."""
        while True:
            now = anyio.current_time()
            while self._heap and self._heap[0][0] <= now:
                heapq.heappop(self._heap)[2]()
            wait = self._heap[0][0] - now if self._heap else math.inf
            with anyio.move_on_after(wait):
                await self._changed.wait()
