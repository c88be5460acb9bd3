"""How loops of the worker wait: for the first of several, and for longer after each failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random


def backoff(count: int, first: float, cap: float, random: Random) -> float:
    """Answer for how many seconds something is left alone that has failed so often in a row, from 1.

    It doubles from `first` to `cap`, shortened by up to a half, so that workers do not go in step.
    """
    return min(cap, first * 2.0 ** min(count - 1, 10)) * random.uniform(0.5, 1.0)


async def first_of(*waits: Callable[[], Awaitable[object]]) -> None:
    """Wait until one of several has come, and cancel the others. **Cancellation**: at any moment."""
    async with anyio.create_task_group() as tasks:

        async def wait(one: Callable[[], Awaitable[object]]) -> None:
            await one()
            tasks.cancel_scope.cancel()

        for one in waits:
            tasks.start_soon(wait, one)
