"""What may be left behind: tasks, sockets, threads."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import anyio


def sockets() -> set[str]:
    """Name the sockets of this process."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


def tasks() -> set[int]:
    """Name the tasks of this event loop."""
    return {task.id for task in anyio.get_running_tasks()}


def threads() -> set[str]:
    """Name the threads of this process, those apart that an event loop keeps for its next blocking call."""
    idle = ("Trio thread", "AnyIO worker thread", "asyncio_")
    return {each.name for each in threading.enumerate() if not each.name.startswith(idle)}
