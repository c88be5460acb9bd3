"""Tracebacks for people who look at a console: paths as short as they can be, colours where there are any.

The text is what the job's row keeps, so it costs no look at frames or files, and shows nothing of what variables hold.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, final

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_FRAME: Final = re.compile(r'^(?P<before>[ |]*)File "(?P<path>[^"]*)", line (?P<line>\d+)(?:, in (?P<name>.*))?$')
_LIBRARY: Final = re.compile(r".*/(?:site-packages|dist-packages|python\d\.\d+)/")
_FAILURE: Final = re.compile(r"^(?: *\| )?[\w.]+(?:: .*)?$")
_BOLD, _RED, _CYAN, _END = "\033[1m", "\033[31m", "\033[36m", "\033[0m"


def _tame(line: str) -> str:
    """Spell what a terminal would obey or hide: whoever enqueues a job may choose the text of its error."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else ascii(letter)[1:-1] for letter in line)


@final
class Readable:
    """A structlog processor for the text under `exception`."""

    def __init__(self, *, colors: bool) -> None:
        """Make it; paths are shown from where the process is now."""
        try:
            self._here = os.getcwd() + os.sep  # noqa: PTH109 - text, as in a traceback
        except OSError:  # it may be gone
            self._here = ""
        self._colors = colors

    def __call__(self, _logger: Any, _method: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Make the line's traceback readable, if it has one."""
        text = values.get("exception")
        if isinstance(text, str):
            values["exception"] = "\n".join(self._line(_tame(line)) for line in text.rstrip().split("\n"))
        return values

    def _line(self, line: str) -> str:
        frame = _FRAME.match(line)
        if frame is None:
            return self._styled(line, _RED) if _FAILURE.match(line) else line
        path, name = self._short(frame["path"]), frame["name"]
        where = self._styled(f"{path}:{frame['line']}", _CYAN)
        return f"{frame['before']}{where}" + (f" in {self._styled(name, _BOLD)}" if name else "")

    def _styled(self, text: str, style: str) -> str:
        return f"{style}{text}{_END}" if self._colors else text

    def _short(self, path: str) -> str:
        if self._here and path.startswith(self._here):
            return path[len(self._here) :]
        return _LIBRARY.sub("", path)
