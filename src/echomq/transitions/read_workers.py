"""`read_workers`: who is alive and what they run (Protocol, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class WorkerPage:
    """Some of a queue's workers."""

    now_ms: int
    """The server's clock when it was read, Unix ms."""
    examined: int
    """How many were looked at; fewer than asked for: these were the last."""
    workers: tuple[tuple[str, dict[bytes, bytes]], ...]
    """Each client's tag, and what its worker said; those heard of last first."""


def read_workers(keys: QueueKeys, call: Call, *, offset: int = 0, count: int = 128) -> Transition[WorkerPage]:
    """Read `count` workers (1 to 256) from `offset` on.

    One that beats meanwhile comes first, and shifts the others: a page may repeat some of the last, and misses none.
    """

    def read(reply: Any) -> WorkerPage:
        now, examined, *workers = reply
        pairs = [(tag.decode(), iter(flat)) for tag, flat in workers]
        return WorkerPage(
            now_ms=int(now),
            examined=int(examined),
            workers=tuple((tag, dict(zip(flat, flat, strict=True))) for tag, flat in pairs),
        )

    return Transition("read_workers", keys, (call.client, 0, offset, count), read)
