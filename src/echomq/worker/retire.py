"""A worker that has done enough, or has grown too large: it claims no more, lets its handlers end, and is replaced.

Theory of operation
    Nobody waits to kill it, unlike at a shutdown, so nothing is taken from a handler that is still at work: the drain has
    no limit but those that the handlers have. A signal during it is the shutdown that it always is.

If you change this
    Many workers that began together must not leave together, so each draws limits of its own.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from typing import TYPE_CHECKING, Final, final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

EVERY: float = 5.0
"""Seconds between two looks at the memory, shortened by up to a half. A look takes some 30 microseconds."""
LEAST: Final = 0.9
"""The part of a limit that a worker may draw, at the least."""
MIB: Final = 1 << 20


def resident() -> int:
    """Tell how much memory this process has, MiB; where the system only knows the most that it ever had, that."""
    try:
        with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - a look every few seconds, and this is the cheap one
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // MIB if sys.platform == "darwin" else peak // 1024


def check_memory(most: int | None) -> None:
    """Refuse a limit that is passed already: the worker would be replaced, and again, and do nothing else.

    Raises:
        ValueError: It is.
    """
    if most is not None and (now := resident()) >= most * LEAST:
        msg = f"max_rss is {most} MiB, and the process has {now} MiB before its first job: it must be well above that"
        raise ValueError(msg)


@final
class Limits:
    """How much one worker does before it is replaced."""

    def __init__(self, max_jobs: int | None, max_rss: int | None) -> None:
        """Draw the limits of this worker: nine tenths to the whole of what may be."""
        self._jobs = None if max_jobs is None else random.randint(max_jobs - max_jobs // 10, max_jobs)
        self._rss = None if max_rss is None else max_rss * random.uniform(LEAST, 1.0)
        self.watches = self._rss is not None
        """Whether there is something to look at now and then."""

    def left(self, claimed: int) -> int | None:
        """Tell how many more jobs may be claimed; None: any number."""
        return None if self._jobs is None else self._jobs - claimed

    async def watch(self, retire: Callable[[str], None]) -> None:
        """Look at the memory now and then, until it is too much. **Cancellation**: at any moment."""
        assert self._rss is not None  # noqa: S101 - `watches`
        while (now := resident()) < self._rss:  # noqa: ASYNC110 - nobody else knows
            await anyio.sleep(EVERY * random.uniform(0.5, 1.0))
        retire(f"max_rss: {now} MiB")
