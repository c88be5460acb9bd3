"""`browse`: a set by pages (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.protocol.records import JobRecord, parse_row
from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class Page:
    """One page of a set."""

    now_ms: int
    """The server's clock when it was read, Unix ms."""
    total: int
    """How many jobs the set had."""
    jobs: tuple[tuple[JobRecord, float], ...]
    """The jobs in the page's order, each with its score."""


def browse(
    keys: QueueKeys, call: Call, *, state: str, offset: int = 0, count: int = 50, reverse: bool = False, lane: str = ""
) -> Transition[Page]:
    """Read one page of a state's set: `count` jobs (1 to 256) from `offset` on, in the set's order or against it.

    `pending` is the lane of the jobs without one, unless a lane is named; `active` is all, or a lane's.
    Jobs that come or go between two pages shift the next one: a page may repeat or miss some.
    """

    def read(reply: Any) -> Page:
        jobs = tuple((parse_row(id.decode(), flat), float(score)) for id, score, flat in reply[2:] if flat)
        return Page(now_ms=int(reply[0]), total=int(reply[1]), jobs=jobs)

    return Transition("browse", keys, (call.client, 0, state, offset, count, 1 if reverse else 0, lane), read)
