"""The hard deadline of a worker process: it ends in time, whatever blocks the event loop or its end.

Theory of operation
    The event loop hears of a signal when it runs. While a handler blocks it, in Python or in a library's C code, it
    does not, and neither does a handler of `signal.signal`, which waits for the main thread's next bytecode. What is
    done at once is the write to the wakeup descriptor, by the interpreter's own handler in C. So this takes the
    descriptor over from the loop, reads it in a thread that arms a timer, and passes each byte on.

    The timer stays armed when the loop has ended: the interpreter waits at its end for each thread that is no daemon,
    and a handler may have left one that never ends.

If you change this
    Nothing but the interpreter's lock may be needed to end the process. Code that holds it for ever cannot be ended
    from within. The log may block, a pipe that nobody reads: it gets a thread and a second.
"""

from __future__ import annotations

import contextvars
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

from echomq._logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

EXIT_HARD: Final = 70
"""EX_SOFTWARE: what runs past its deadline is a fault of the handlers."""
LAST_LINE: Final = 1.0
"""Seconds that the last line of the log may take."""

_log = get_logger("echomq.worker")


@final
class Deadline:
    """Ends the process hard, from a thread."""

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def set(self, seconds: float) -> None:
        """End the process in so many seconds; an earlier word does not hold any more."""
        if self._timer is not None:
            self._timer.cancel()
        # With our context: the log's last line names the worker too.
        self._timer = threading.Timer(seconds, contextvars.copy_context().run, (_die,))
        self._timer.daemon = True
        self._timer.start()

    @property
    def armed(self) -> bool:
        """Whether the process is to end."""
        return self._timer is not None

    @contextmanager
    def set_by(
        self,
        signals: frozenset[signal.Signals],
        urgency: Callable[[Sequence[int]], int],
        seconds: Callable[[int], float],
    ) -> Iterator[None]:
        """Arm the deadline when a signal arrives, whatever the main thread does; use it in the running loop.

        Args:
            signals: The signals that are meant. Somebody else handles them.
            urgency: Answers what those that have come mean together.
            seconds: Answers how long the process has got by that, each time that it grows.
        """
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        loops = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

        def follow() -> None:
            came: list[int] = []
            while data := os.read(reader, 1024):
                for number in data:
                    if number in signals:
                        before = urgency(came)
                        came.append(number)
                        if (now := urgency(came)) > before:
                            self.set(seconds(now))
                _pass_on(loops, data)
            os.close(reader)

        thread = threading.Thread(target=contextvars.copy_context().run, args=(follow,), name="echomq-signals")
        thread.daemon = True
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(loops)
            os.close(writer)
            thread.join()


def _pass_on(descriptor: int, data: bytes) -> None:
    try:
        if descriptor >= 0:
            os.write(descriptor, data)
    except OSError:
        pass  # full: the loop is woken anyway; closed: there is no loop any more


def _die() -> None:
    def tell() -> None:
        _log.error("hard_exit", code=EXIT_HARD, hint="handlers did not end in time; their leases will expire")
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()

    try:
        last = threading.Thread(target=contextvars.copy_context().run, args=(tell,), daemon=True)
        last.start()
        last.join(LAST_LINE)
    finally:
        os._exit(EXIT_HARD)
