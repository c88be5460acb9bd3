"""Start a task nobody will ask about.

anyio makes a handle for each task, with a cancel scope and an event of its own. A lease has a scope already and nobody
waits for its task, so on trio the task group's nursery is used directly: measured, 8 microseconds a task instead of 35,
which is a third of what a short job costs. Should the attribute go, the public way is taken, and a test says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup


def spawner(tasks: TaskGroup) -> Callable[[Callable[[Any], Awaitable[None]], Any], object]:
    """Answer what starts a task with one argument in an open task group, as cheaply as its backend can."""
    public: Any = tasks
    nursery = getattr(tasks, "_nursery", None)
    start: Callable[[Callable[[Any], Awaitable[None]], Any], object] = (nursery or public).start_soon
    return start
