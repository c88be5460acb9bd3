"""`read_flow`: a page of a job's children (Protocol, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.protocol.kin import ChildRef, Outcome
from echomq.transitions.base import Call, Transition

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen
class Child:
    """A child of a job."""

    name: str
    """Its name among its parent's children."""
    ref: ChildRef
    """Where it is."""
    outcome: Outcome | None
    """How it ended; None: it is open."""


@final
@attrs.frozen
class ChildrenPage:
    """What a `read_flow` answered."""

    cursor: str
    """Where the next page begins; "0": this was the last."""
    total: int
    """How many children the job has, of all pages."""
    ended: int
    """How many of them have ended."""
    children: tuple[Child, ...]
    """The children of this page, in no order. One may be in two pages."""


def read_flow(
    keys: QueueKeys, call: Call, *, id: str, cursor: str = "0", count: int = 128, whole: bool = True
) -> Transition[ChildrenPage]:
    """Read a page of a job's children and of how they ended.

    Args:
        keys: The job's queue.
        call: Who calls.
        id: The job.
        cursor: "0" for the first page.
        count: About how many, 1 to 1,000. Fewer than 512 small ones come in one page.
        whole: Whether results and errors come with them.
    """

    def read(reply: Any) -> ChildrenPage:
        cursor, total, ended, *flat = reply
        children = tuple(
            Child(
                flat[at].decode("utf-8", "replace"),
                ChildRef.parse(flat[at + 1]),
                Outcome.parse(flat[at + 2], whole=whole) if flat[at + 2] else None,
            )
            for at in range(0, len(flat), 3)
        )
        return ChildrenPage(cursor.decode(), int(total), int(ended), children)

    return Transition("read_flow", keys, (call.client, 0, id, cursor, count, 1 if whole else 0), read)
