"""`read_events`: a page of what happened (Protocol, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from collections.abc import Collection

    from echomq.protocol.keys import QueueKeys

NOW: Final = "$"
"""The position behind everything that has happened."""
START: Final = "0-0"
"""The position before the first event."""
PAGE: Final = 256
"""Events that are looked at in one call: it takes the server under a millisecond."""


@final
@attrs.frozen(kw_only=True)
class EventPage:
    """A page of the stream, and where the stream was when it was read."""

    position: str
    """The last event that was looked at; that of the call if there was none."""
    examined: int
    """How many were looked at; fewer than the bound: that was the end."""
    added: int
    """How many were ever added to this stream."""
    kept: int
    """How many of them it has yet."""
    first: str
    """The first of those; `START` when there is none."""
    last: str
    """The last one that was added; `START` when there is no stream."""
    born: str
    """When the queue was first configured: another word, another queue; "": it was not."""
    entries: tuple[tuple[str, dict[str, str]], ...]
    """Those that fit, by id, with their fields."""


def read_events(
    keys: QueueKeys, call: Call, *, after: str = START, bound: int = PAGE, job: str = "", kinds: Collection[str] = ()
) -> Transition[EventPage]:
    """Look at `bound` events (1 to 1,000) behind a position.

    Args:
        keys: The queue.
        call: Who calls.
        after: The id of an event, `START`, or `NOW`, which answers a position and no events.
        bound: How many to look at.
        job: Those of this job only; "": of any.
        kinds: Those of these kinds only; none named: of any.
    """

    def read(reply: Any) -> EventPage:
        position, examined, added, kept, first, last, born, *entries = reply
        return EventPage(
            position=position.decode(),
            examined=int(examined),
            added=int(added),
            kept=int(kept),
            first=first.decode(),
            last=last.decode(),
            born=born.decode(),
            entries=tuple((id.decode(), _fields(fields)) for id, fields in entries),
        )

    return Transition("read_events", keys, (call.client, 0, after, bound, job, " ".join(kinds)), read)


def _fields(flat: list[bytes]) -> dict[str, str]:
    texts = [word.decode("utf-8", "replace") for word in flat]
    return dict(zip(texts[::2], texts[1::2], strict=True))
