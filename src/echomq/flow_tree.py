"""A flow as it is now: its jobs, where they are, and how they ended (Protocol, section 7).

Theory of operation
    A job's children are read from its own queue, with how those ended that have; of each that is shown, the row is read
    in its queue, if it is there: so a tree of several queues is several looks, one after another, and no snapshot. What is
    large is cut: of a parent's many children some are shown, and the others counted by how they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

import attrs

from echomq._walks import AT_ONCE, Ask, At, Rows, Walk, chunks
from echomq.children import by_name
from echomq.errors import DecodeError, JobNotFoundError
from echomq.protocol.kin import ChildRef, Outcome, ParentRef, Policy
from echomq.protocol.times import from_unix_ms
from echomq.transitions import Child, ChildrenPage, JobInFull, read_flow

if TYPE_CHECKING:
    import datetime as dt

    from echomq.protocol.keys import QueueKeys

OPEN: Final = "open"
"""What is counted as this has not ended."""
PAGE: Final = 256


@final
@attrs.frozen(kw_only=True)
class FlowTree:
    """A job of a flow, and what is below it."""

    id: str
    """Its id."""
    queue: str
    """Its queue."""
    name: str = ""
    """Its name among its parent's children; "" for the one at the top."""
    policy: Policy = Policy.FAIL_PARENT
    """What its failure does to its parent."""
    task: str = ""
    """Its task, if its row is there."""
    state: str
    """Where it is (`pending`, `active`, `schedule`, `waiting`, `dead`, `done`), or how it ended (`completed`, `cancelled`,
    `expired`, ...); `unknown` for one that is neither there nor known to have ended."""
    since: dt.datetime | None = None
    """Since when it is there, or when it ended."""
    attempts: int = 0
    """How often it was claimed."""
    reason: str = ""
    """Why it ended so, or what it waits for."""
    error: str = ""
    """The last line of its last error."""
    children: tuple[FlowTree, ...] = ()
    """Those of its children that are shown, in the order of their names."""
    more: Mapping[str, int] = attrs.field(factory=dict)
    """How many others it has, by how they ended; `open` for those that have not."""

    @property
    def size(self) -> int:
        """How many jobs it has, those that are only counted among them."""
        total, stack = 0, [self]
        while stack:
            node = stack.pop()
            total += 1 + sum(node.more.values())
            stack += node.children
        return total


@final
@attrs.frozen(kw_only=True)
class TreeLimits:
    """How much of a tree is read."""

    depth: int = 16
    """Levels below the top."""
    breadth: int = 50
    """Children of one parent that are shown."""
    nodes: int = 1_000
    """Jobs that are shown in all."""


def tree_walk(keys: QueueKeys, id: str, limits: TreeLimits, *, whole: bool) -> Walk[FlowTree]:
    """Read a flow from one of its jobs on.

    Args:
        keys: The job's queue.
        id: The job.
        limits: How much is read.
        whole: Whether to climb to the job at the top first, as far as rows say which that is.

    Raises:
        JobNotFoundError: There is no row of that id.
        EchoMQError: The server could not be asked.
    """
    queue = keys.queue
    job = yield from _row(queue, id)
    if job is None:
        raise JobNotFoundError(id)
    above = _parent(job) if whole else None
    climbed = 0
    while above is not None and climbed < 2 * limits.nodes:
        queue_above = above.queue or queue
        found = yield from _row(queue_above, above.id)
        if found is None:
            break
        job, queue, climbed = found, queue_above, climbed + 1
        above = _parent(job)
    return (yield from _read(keys, job, queue, limits))


@final
@attrs.define(eq=False)
class _Drawn:
    """A node in the making."""

    values: dict[str, object]
    below: list[_Drawn] = attrs.field(factory=list)
    more: Counter[str] = attrs.field(factory=Counter)


def _read(keys: QueueKeys, job: JobInFull, queue: str, limits: TreeLimits) -> Walk[FlowTree]:
    top = _Drawn(_of_row(job, queue))
    level = [(top, job, queue)]
    left = limits.nodes - 1
    order = [top]
    for depth in range(limits.depth + 1):
        below: list[tuple[_Drawn, JobInFull, str]] = []
        for drawn, parent, of_queue in level:
            if not parent.record.has_children:
                continue
            children = yield from _children(of_queue, keys, parent.record.id)
            shown = [] if depth == limits.depth else children[: min(limits.breadth, left)]
            left -= len(shown)
            drawn.more.update(OPEN if each.outcome is None else each.outcome.kind for each in children[len(shown) :])
            rows = yield from _rows(of_queue, shown)
            for each, row in zip(shown, rows, strict=True):
                there = each.ref.queue or of_queue
                node = _Drawn(_of_child(each, row, there))
                drawn.below.append(node)
                order.append(node)
                if row is not None:
                    below.append((node, row, there))
        level = below
        if not level:
            break
    return _whole(order)


def _whole(order: list[_Drawn]) -> FlowTree:
    """Make values of what was drawn, the last first: no call goes deeper for a deep tree."""
    made: dict[int, FlowTree] = {}
    for node in reversed(order):
        children = tuple(made.pop(id(below)) for below in node.below)
        made[id(node)] = FlowTree(**node.values, children=children, more=dict(node.more))  # type: ignore[arg-type]  # as made
    return made[id(order[0])]


def _children(queue: str, keys: QueueKeys, id: str) -> Walk[list[Child]]:
    there = attrs.evolve(keys, queue=queue)
    found: dict[str, Child] = {}
    cursor = "0"
    while True:
        page: ChildrenPage = yield At(
            queue,
            Ask(lambda call, cursor=cursor: read_flow(there, call, id=id, cursor=cursor, count=PAGE, whole=False)),  # type: ignore[misc]
        )
        found.update((child.name, child) for child in page.children)
        cursor = page.cursor
        if cursor == "0":
            return [found[name] for name in sorted(found, key=by_name)]


def _row(queue: str, id: str) -> Walk[JobInFull | None]:
    rows: list[JobInFull | None] = yield At(queue, Rows([id]))
    return rows[0]


def _rows(queue: str, children: list[Child]) -> Walk[list[JobInFull | None]]:
    found: dict[str, JobInFull | None] = {}
    queues: dict[str, list[ChildRef]] = {}
    for child in children:
        queues.setdefault(child.ref.queue or queue, []).append(child.ref)
    for name, refs in queues.items():
        for some in chunks(refs, AT_ONCE):
            rows: list[JobInFull | None] = yield At(name, Rows([ref.id for ref in some]))
            found.update(zip((ref.id for ref in some), rows, strict=True))
    return [found[child.ref.id] for child in children]


def _parent(job: JobInFull) -> ParentRef | None:
    try:
        return job.record.parent
    except DecodeError:
        return None


def _of_row(job: JobInFull, queue: str) -> dict[str, object]:
    record = job.record
    try:
        state = str(record.state)
        error = record.error
        values: dict[str, object] = {"since": from_unix_ms(record.since), "attempts": record.attempts}
    except DecodeError as torn:
        return {"id": record.id, "queue": queue, "task": record.task, "state": "unknown", "reason": str(torn)}
    if state == "done":
        state = record.kind or state
    return {
        **values,
        "id": record.id,
        "queue": queue,
        "task": record.task,
        "state": state,
        "reason": record.reason or record.broken,
        "error": _line(error.type, error.message) if error is not None else "",
    }


def _of_child(child: Child, row: JobInFull | None, queue: str) -> dict[str, object]:
    tie: dict[str, object] = {"name": child.name, "policy": child.ref.policy}
    if row is not None:
        return {**_of_row(row, queue), **tie}
    outcome: Outcome | None = child.outcome
    if outcome is None or outcome.kind == "detached":
        state = "unknown" if outcome is None else "detached"
        return {"id": child.ref.id, "queue": queue, "state": state, **tie}
    return {
        "id": child.ref.id,
        "queue": queue,
        "state": outcome.kind,
        "since": from_unix_ms(outcome.ended_ms),
        "attempts": outcome.token,
        "reason": outcome.reason,
        **tie,
    }


def _line(type: str, message: str) -> str:
    return f"{type}: {message}".strip().splitlines()[-1] if type or message else ""
