"""When the other side says when: a server's `Retry-After`.

Theory of operation
    An HTTP library's error tells it in one of a few ways, none of which this module imports: an attribute `retry_after`
    of the error, or the headers of its response. What cannot be read, whatever it is, is as good as not there; the
    default takes its place.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq.backoff.delays import Exponential
from echomq.backoff.policy import Backoff, check_policy, to_cap
from echomq.protocol.failures import leaves_of

if TYPE_CHECKING:
    from random import Random

_SECONDS: Final = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?")
_LONGEST_DATE: Final = 64
"""Characters; the standard's three forms have 33 at most."""


@final
@attrs.frozen
class RetryAfter:
    """As long as the server said: `RetryAfter(Exponential(), cap=600)`.

    An error says it by an attribute `retry_after`, or by the header `Retry-After` of its `response.headers` (as
    requests, httpx and their like have them) or of its own `headers` (as urllib and aiohttp have): a number of seconds or
    an HTTP date; an attribute may also be a timedelta. A date is counted from the `Date` header of the same response, so
    that no two machines' clocks are compared; only without one from this machine's clock. Of several errors in a group
    the longest word counts.
    """

    default: Backoff = attrs.field(factory=Exponential, validator=check_policy)
    """For errors that say nothing, or nothing that can be read."""
    cap: float = attrs.field(default=3600.0, converter=to_cap, kw_only=True)
    """Seconds, or a timedelta: the longest that a server is believed."""
    clock: Callable[[], float] = attrs.field(default=time.time, kw_only=True, repr=False)
    """Tells the time, Unix seconds, for dates of responses without a `Date`."""

    def __call__(self, failures: int, error: BaseException, rng: Random, /) -> float | None:
        """Answer the delay, in seconds; None if the default says so."""
        told = [seconds for leaf in leaves_of(error) if (seconds := self._told_by(leaf)) is not None]
        return min(max(told), self.cap) if told else self.default(failures, error, rng)

    def _told_by(self, error: BaseException) -> float | None:
        for value, headers in _words(error):
            try:
                seconds = self._read(value, headers)
            except Exception:  # noqa: BLE001, S112 - somebody else's object: unreadable is absent, by definition
                continue
            if seconds is not None:
                return seconds
        return None

    def _read(self, value: Any, headers: Any) -> float | None:
        """Answer the seconds that a value stands for; None if it is no such value."""
        if isinstance(value, dt.timedelta):
            value = value.total_seconds()
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value) if 0 <= value < math.inf else None
        text = _text(value)
        if text is None:
            return None
        if _SECONDS.fullmatch(text):
            return float(text)
        then, sent = _unix(text), _unix(_text(_header(headers, "Date")))
        return None if then is None else max(0.0, then - (self.clock() if sent is None else sent))


def _words(error: BaseException) -> Iterator[tuple[Any, Any]]:
    """Go over what may be the server's word, and the headers beside it."""
    response = _attribute(error, "response")
    headers = _attribute(response, "headers")
    yield _attribute(error, "retry_after"), headers
    for each in (headers, _attribute(error, "headers")):
        yield _header(each, "Retry-After"), each


def _attribute(instance: Any, name: str) -> Any:
    try:
        return getattr(instance, name, None)
    except Exception:  # noqa: BLE001 - a property of somebody else's
        return None


def _header(headers: Any, name: str) -> Any:
    """Answer a header of a mapping that knows no case, or of one that does; None if there is none."""
    try:
        value = headers.get(name)
        if value is not None:
            return value
        return next((value for key, value in headers.items() if (_text(key) or "").lower() == name.lower()), None)
    except Exception:  # noqa: BLE001 - no mapping, or somebody else's
        return None


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    return value.strip() if isinstance(value, str) else None


def _unix(text: str | None) -> float | None:
    if text is None or len(text) > _LONGEST_DATE:
        return None
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return (date if date.tzinfo is not None else date.replace(tzinfo=dt.UTC)).timestamp()
