"""What people type: moments, rates, arguments and payloads, read into what the library takes.

A value that cannot be read is a `ValueError` that shows it; the frame makes a line and exit code 2 of it.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

import orjson

from echomq.limits import Rate

_RATE: Final = re.compile(r"([0-9]+)(?:/([0-9]+(?:\.[0-9]+)?))?")


def rate(text: str, burst: int | None = None) -> Rate:
    """Read a rate, such as `5` (a second) or `100/60` (a minute).

    Raises:
        ValueError: It is none.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        raise ValueError(f"a rate is written as 5 (a second) or 100/60 (a minute), not {text!r}")
    return Rate(int(match[1]), per=float(match[2] or 1), burst=1 if burst is None else burst)


def moment(option: str, text: str) -> dt.datetime:
    """Read a moment with an offset.

    Raises:
        ValueError: It is none, or does not say in which zone.
    """
    try:
        read = dt.datetime.fromisoformat(text)
    except ValueError:
        read = None
    if read is None or read.tzinfo is None:
        raise ValueError(f"{option} is written as 2026-10-25T02:30+02:00 or 2026-10-25T00:30Z, not {text!r}")
    return read


def seconds_or_moment(option: str, text: str | None) -> float | dt.datetime | None:
    """Read how long from now, or when.

    Raises:
        ValueError: It is neither.
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return moment(option, text)
    except ValueError:
        raise ValueError(
            f"{option} is a number of seconds, or a time such as 2026-10-25T00:30Z, not {text!r}"
        ) from None


def call_payload(args: str | None, kwargs: str | None) -> bytes:
    """Make a task's payload of its arguments, as JSON was typed for them.

    Raises:
        ValueError: It is no JSON, or not of the kind that is wanted.
    """
    call: dict[str, Any] = {}
    for what, text, kind, words in (("args", args, list, "list"), ("kwargs", kwargs, dict, "object")):
        if text is None:
            continue
        try:
            call[what] = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"--{what} is JSON, which {text!r} is not: {error}") from None
        if not isinstance(call[what], kind):
            raise ValueError(  # noqa: TRY004 - it is text that was typed
                f"--{what} is a JSON {words}, not {text}"
            )
    return orjson.dumps(call)
