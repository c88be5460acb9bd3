"""Loggers that never raise: a log that cannot be written must not hurt the work.

How structlog is configured is the program's affair, so a processor or a stream of its own may raise at any line. There
are lines in the middle of everything: a verdict that is about to be sent, a timer that is about to be set again. So
nothing leaves the logger but Ctrl-C. What is lost is counted, and said with the next line that can be written.
"""

from __future__ import annotations

from typing import Any, final

import structlog


@final
class Logger:
    """A structlog logger by name, configured as the program says, from which no error comes out."""

    __slots__ = ("_name", "lost")

    def __init__(self, name: str) -> None:
        self._name = name
        self.lost = 0
        """Lines that could not be written and have not been told of."""

    def debug(self, event: str, **values: Any) -> None:
        """Write a line for whoever looks closely."""
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        """Write a line."""
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        """Write a line about what may need a look."""
        self._write("warning", event, values)

    def error(self, event: str, **values: Any) -> None:
        """Write a line about what needs a look."""
        self._write("error", event, values)

    def exception(self, event: str, **values: Any) -> None:
        """Write a line about the error that is being handled."""
        self._write("exception", event, values)

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        try:
            # Got anew each time: one that was used once may be bound for ever to how structlog was configured then.
            logger = structlog.get_logger(self._name)
            getattr(logger, level)(event, **values)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a configuration of the program's: SystemExit and the like too
            self.lost += 1
            return
        if self.lost:
            lost, self.lost = self.lost, 0
            try:
                logger.warning("log_lines_lost", count=lost)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - as above
                self.lost += lost


@final
class Told:
    """What was told last, by subject: an error that repeats is told when its reason changes, and not for each try."""

    __slots__ = ("_reasons",)

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def is_new(self, reason: str, about: str = "") -> bool:
        """Tell whether it is another reason than the last one about this subject, and note it."""
        if self._reasons.get(about) == reason:
            return False
        self._reasons[about] = reason
        return True

    def over(self, about: str = "") -> None:
        """Forget the subject: it is well."""
        self._reasons.pop(about, None)


def get_logger(name: str) -> Logger:
    """Answer a logger; structlog need not be configured yet."""
    return Logger(name)
