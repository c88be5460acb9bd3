"""Home: the event loop that opened a client, in which alone it may be used.

Theory of operation
    A client's tasks, events and sockets belong to one event loop. Touched from another loop, or from a thread beside
    it, they hang or tear, and the owner's calls with them: so each public entry asks first, and refuses with one clear
    `RuntimeError`. Every call pays for it, so it must be cheap: a quarter of a microsecond. anyio's `current_token`
    takes five, and asyncio's `get_running_loop` asks the kernel for the process id before Python 3.12.

    On asyncio the owner's thread runs one loop at a time, so the thread and a loop that runs say enough. Either library
    may also run inside of the other (a notebook's loop calls `trio.run`), which the other library's own mark tells. How
    it stood at the opening is remembered: for the owner it is always the same, also in trio's guest mode.

If you change this
    A callback of the loop's own (`call_soon`, a verdict's `done`) is at home. A finalizer runs anywhere, and must not
    come here: it has what it wants done `soon`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import anyio.lowlevel
import sniffio
import trio

_FOREIGN: Final = (
    "this client belongs to the event loop that opened it, and was used from another loop or thread: open one here, or "
    "call it there (from a worker thread with anyio.from_thread.run)"
)


def is_home() -> Callable[[], bool]:
    """Answer what tells, now and later, whether it is called in the event loop that runs now."""
    token: Any = anyio.lowlevel.current_token()
    native = getattr(token, "native_token", token)  # anyio 4.11 wraps it
    return _is_trio(native) if isinstance(native, trio.lowlevel.TrioToken) else _is_asyncio(native)


def soon() -> Callable[[Callable[[], None]], None]:
    """Answer what has a function called at home, soon: from anywhere, a finalizer too. A loop that is over calls nothing."""
    token: Any = anyio.lowlevel.current_token()
    native = getattr(token, "native_token", token)
    call = native.run_sync_soon if isinstance(native, trio.lowlevel.TrioToken) else native.call_soon_threadsafe

    def hand_over(function: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # a closed loop of asyncio's; a run of trio's that has ended
            call(function)

    return hand_over


def foreign() -> RuntimeError:
    """Make the error of who is not at home."""
    return RuntimeError(_FOREIGN)


def _is_asyncio(loop: asyncio.AbstractEventLoop) -> Callable[[], bool]:
    get_ident, is_running, mark = threading.get_ident, loop.is_running, sniffio.thread_local
    thread = get_ident()
    inside = mark.name == "trio"

    def here() -> bool:
        return get_ident() == thread and is_running() and (mark.name == "trio") is inside

    return here


def _is_trio(token: trio.lowlevel.TrioToken) -> Callable[[], bool]:
    current, asyncio_loop = trio.lowlevel.current_trio_token, asyncio._get_running_loop  # noqa: SLF001 - None is an answer
    outside = asyncio_loop()

    def here() -> bool:
        try:
            return current() is token and asyncio_loop() is outside
        except RuntimeError:  # no trio in this thread
            return False

    return here
