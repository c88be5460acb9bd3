"""A child that a handler has enqueued and that has not been sent: its jobs, and what they have from their parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import anyio
import attrs

from echomq._flow_plan import packed, plan, segment, size_of
from echomq._options import JobOptions
from echomq.errors import InvalidJobError
from echomq.flows import Chain, Flow, Group, trees_of
from echomq.flows import Child as NamedChild
from echomq.protocol._convert import shown
from echomq.protocol.ids import mint
from echomq.tasks import JobCall
from echomq.transitions import MAX_CALL_BYTES, MAX_NODES, SPAWNER, ForeignNode

if TYPE_CHECKING:
    from echomq._flow_plan import Planned
    from echomq.children import SpawnedChild
    from echomq.protocol.newjob import NewJob
    from echomq.transitions import Node
    from echomq.worker.lease import Lease


@final
@attrs.frozen(eq=False)
class Staged:
    """A child, and all that is below it."""

    child: SpawnedChild[Any]
    """The child."""
    planned: list[Planned]
    """Its jobs, its own first."""
    lease: Lease
    """Its parent's lease."""
    size: int
    """About how many bytes it takes in a call."""
    count: int
    """How many nodes."""

    @classmethod
    def of(cls, child: SpawnedChild[Any], planned: list[Planned], lease: Lease) -> Staged:
        """Make it.

        Raises:
            ValueError: It is more than one call.
        """
        staged = cls(child, planned, lease, 0, 0)
        nodes = staged.nodes()
        size = sum(map(size_of, nodes))
        if len(nodes) > MAX_NODES or (len(nodes) > 1 and size > MAX_CALL_BYTES):
            msg = (
                f"what hangs below {planned[0].call.task!r} is {len(nodes)} jobs of {size} bytes, and goes in one call of "
                f"{MAX_NODES} jobs and {MAX_CALL_BYTES} bytes at most: let the child spawn them itself"
            )
            raise ValueError(msg)
        return attrs.evolve(staged, size=size, count=len(nodes))

    def nodes(self) -> list[Node]:
        """Make its nodes, those of the job's own queue that hang together; each parent is an id."""
        child, queue = self.child, self.lease.calls.queue
        first, *others = segment(self.planned).nodes
        if child.queue == queue:
            return [attrs.evolve(first, parent=SPAWNER, name=child.name, policy=child.policy), *others]
        parent = f"{self.lease.claimed.id} {queue}"
        there = [attrs.evolve(first, parent=parent, name=child.name, policy=child.policy), *others]
        return [
            ForeignNode(
                queue=child.queue, id=self.planned[0].job.id, nodes=packed(self.planned[0], there), parent=SPAWNER,
                name=child.name, policy=child.policy,
            )
        ]  # fmt: skip

    def renew(self, id: str) -> bool:
        """Give the job of an id another one: it is taken. Answers whether it is one of these."""
        for one in self.planned:
            if one.job.id == id:
                one.job = attrs.evolve(one.job, id=mint())
                return True
        return False


def plan_child(node: Any, lease: Lease) -> list[Planned]:
    """Plan the jobs of a child: what they do not say, they have from their parent.

    Raises:
        TypeError: It is no node.
        ValueError: It is a group, or has a dedup mode; or the flow would be too deep or too large.
    """
    if isinstance(node, Group):
        msg = f"{node!r} is several children: enqueue its members one by one"
        raise ValueError(msg)  # noqa: TRY004 - it is a node, in the wrong place
    if not isinstance(node, (JobCall, Flow, Chain, NamedChild)):
        msg = f"what is enqueued here is a task's call, such as report.call(), or a flow or chain, not {shown(node)}"
        raise TypeError(msg)
    trees = trees_of(node, lease.calls.flow_limits)
    if len(trees) != 1:
        msg = f"{node!r} is {len(trees)} children: enqueue them one by one"
        raise ValueError(msg)
    planned = plan(trees[0])
    for one in planned:
        one.job = _inherit(one, lease)
    return planned


def _inherit(one: Planned, lease: Lease) -> NewJob:
    """Make a job again, with what its parent hands down."""
    record, fields = lease.claimed.record, dict(one.call.options.fields)
    depth = record.depth + one.job.depth + 1
    if depth > lease.calls.max_depth:
        msg = f"{depth} jobs would be above this child, and max_depth is {lease.calls.max_depth}: does it spawn itself?"
        raise InvalidJobError(msg)
    fields.setdefault("lane", record.lane)
    headers = record.headers
    if headers:
        fields["headers"] = {**headers, **fields.get("headers", {})}
    deadline_ms = record.deadline_ms
    if deadline_ms is not None and not _is_earlier(fields.get("deadline"), deadline_ms, lease):
        fields["deadline"] = str(deadline_ms)
    return JobOptions({**fields, "id": one.job.id, "depth": depth}).model(one.call.task, one.call.payload)


def _is_earlier(deadline: str | None, than_ms: int, lease: Lease) -> bool:
    """Tell whether a deadline, as it is spelled, is before a moment."""
    if deadline is None:
        return False
    if not deadline.startswith("+"):
        return int(deadline) < than_ms
    return anyio.current_time() + int(deadline[1:]) / 1000 < lease.here(than_ms)
