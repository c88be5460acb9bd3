"""How the worker command logs: structlog, for people or for programs, to a stream that may fail."""

from __future__ import annotations

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TextIO, final

import structlog

from echomq.redaction import HIDDEN, NOTHING_HIDDEN
from echomq.worker.readable import Readable

if TYPE_CHECKING:
    from collections.abc import MutableMapping


@final
class Lines:
    """A structlog logger that writes lines and never raises: a full disk or a reader who left must not stop the work.

    What could not be written is counted, and told before the next line that can be.
    """

    def __init__(self, stream: TextIO | None, tell: str) -> None:
        """Make a logger.

        Args:
            stream: Where lines go; None: nowhere.
            tell: The line that tells of lost ones, with `%d` for how many.
        """
        self._stream = stream
        self._tell = tell
        self._lock = threading.Lock()
        self._lost = 0

    def __call__(self, *_names: Any) -> Lines:
        """Be the factory of itself: one stream, one count of lost lines."""
        return self

    def msg(self, message: str) -> None:
        """Write a line, or count it as lost."""
        if self._stream is None:
            return
        with self._lock:
            lost = self._lost
            text = f"{self._tell % lost}\n{message}\n" if lost else f"{message}\n"
            try:
                _write(self._stream, text)
            except (OSError, ValueError):  # full, or its reader has gone; closed
                self._lost += 1
            else:
                self._lost = 0

    debug = info = warning = warn = error = critical = fatal = exception = failure = err = log = msg


def _write(stream: TextIO, text: str) -> None:
    """Write past the stream's buffer, where there is one: what it cannot pass on it would keep, and fail again at exit."""
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if raw is None:
        stream.write(text)
        stream.flush()
        return
    stream.flush()
    rest = memoryview(text.encode("utf-8", "backslashreplace"))
    while rest:
        written = raw.write(rest)
        if written is None:
            raise BlockingIOError
        rest = rest[written:]


def open_missing_streams() -> None:
    """Open what a process was started without among its standard streams, as the null device.

    The next file or socket would get the free number otherwise, and be written to by whoever means standard error.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)  # for child processes too


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


@final
class Redact:
    """A processor that hides values by their names, once it knows the names: those of the app, which is imported later."""

    def __init__(self) -> None:
        self.redaction = NOTHING_HIDDEN

    def __call__(self, _logger: Any, _method: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Hide what is to be hidden in a line."""
        if self.redaction:
            for name, value in values.items():
                values[name] = HIDDEN if self.redaction.covers(name) else self.redaction.hide(value)
        return values


REDACT: Final = Redact()
"""The one of this process: a logger that was used while the app was imported is bound to it."""


def configure_logs(form: str, level: str) -> None:
    """Configure structlog for a process whose log is its standard error.

    Args:
        form: `console` for people, `json` for programs: one object a line.
        level: The least level that is shown.
    """
    stream: TextIO | None = sys.stderr
    renderer: list[Any]
    if form == "json":
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
        tell = '{"event": "log_lines_lost", "count": %d, "level": "warning"}'
    else:
        colors = _is_terminal(stream)
        # Not rich: its tracebacks take seconds, in the event loop, and show what variables hold.
        plain = structlog.dev.plain_traceback
        text = structlog.processors.format_exc_info
        renderer = [
            text,
            Readable(colors=colors),
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plain),
        ]
        tell = "[warning  ] log_lines_lost count=%d"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            REDACT,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=Lines(stream, tell),
        cache_logger_on_first_use=True,
    )
