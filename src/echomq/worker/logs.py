"""How the worker command logs: structlog, for people or for programs."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog


def configure_logs(form: str, level: str) -> None:
    """Configure structlog for a process whose log is its standard error.

    Args:
        form: `console` for people, `json` for programs: one object a line.
        level: The least level that is shown.
    """
    renderer: list[Any]
    if form == "json":
        renderer = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        renderer = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
