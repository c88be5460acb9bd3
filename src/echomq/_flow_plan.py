"""From trees of calls to the calls of `flow_add`: which jobs are added where, and in which order (Protocol, section 7).

Theory of operation
    A tree is cut into segments: the jobs of one queue that hang together. The root's segment is added by us, in one call or
    in rounds. Each further segment hangs below a job of another queue, and is sent by that queue's outbox: so it is packed
    into one node of the segment above, which is why it must fit one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import attrs

from echomq.flows import Branch, Tree
from echomq.middleware import passed
from echomq.protocol.ids import mint
from echomq.protocol.newjob import NewJob
from echomq.tasks import JobCall
from echomq.transitions import MAX_CALL_BYTES, MAX_NODES, ForeignNode, LocalNode, Node, pack_nodes

ROUND: Final = 64
"""Nodes of one round at most: a node costs the server two to three times what a plain job does, and must not hold it up."""
OF_A_NODE: Final = 200
"""Bytes that a node takes in a call beside its job, about."""


@final
@attrs.define(eq=False)
class Planned:
    """A job of a tree, with its id."""

    call: JobCall[Any]
    """What is enqueued, as its app's middleware has left it."""
    job: NewJob
    """The same as a job."""
    parent: Planned | None
    """Whose child it is."""
    branch: Branch | None
    """Its name there, and its policy."""
    kids: list[Planned] = attrs.field(factory=list)
    """Its children."""

    @property
    def queue(self) -> str:
        """Its queue."""
        return self.call.queue

    @property
    def begins_segment(self) -> bool:
        """Whether it is the first of its queue's segment."""
        return self.parent is None or self.parent.queue != self.queue


def plan(tree: Tree) -> list[Planned]:
    """Give each job of a tree an id and what its call says; parents before children, the root first.

    Raises:
        ValueError: A job has a dedup mode by which the last one wins: it would give its content to a job of no flow.
        InvalidJobError: A value of a job is out of range.
        BaseException: What a middleware raises.
    """
    planned: list[Planned] = []
    stack: list[tuple[Tree, Planned | None, Branch | None]] = [(tree, None, None)]
    while stack:
        each, parent, branch = stack.pop()
        call = passed(each.call)
        job = call.options.model(call.task, call.payload)
        if job.dedup_mode != "reject":
            raise ValueError(
                f"a job of a flow that meets its dedup key is a duplicate: dedup_mode {job.dedup_mode!r} of {call.task!r} is for "
                f"jobs by themselves"
            )
        one = Planned(call, attrs.evolve(job, depth=each.depth) if each.depth else job, parent, branch)
        if parent is not None:
            parent.kids.append(one)
        planned.append(one)
        stack.extend((below.tree, one, below) for below in reversed(each.children))
    return planned


def again(planned: Sequence[Planned]) -> list[Planned]:
    """Make the same plan anew, with other ids."""
    made: dict[int, Planned] = {}
    for one in planned:
        parent = None if one.parent is None else made[id(one.parent)]
        copy = made[id(one)] = Planned(one.call, attrs.evolve(one.job, id=mint()), parent, one.branch)
        if parent is not None:
            parent.kids.append(copy)
    return list(made.values())


@final
@attrs.define(eq=False)
class Segment:
    """The jobs of the root's queue that are added by us, in order, and what is sent from there."""

    nodes: list[Node]
    """The nodes; the parent of each is the id of a node before it, or `ROOT`."""
    sends: bool
    """Whether some are for other queues."""

    @property
    def is_whole(self) -> bool:
        """Whether it fits one call."""
        return len(self.nodes) <= MAX_NODES and sum(map(size_of, self.nodes)) <= MAX_CALL_BYTES

    def whole(self) -> list[Node]:
        """Answer its nodes for one call."""
        return numbered(self.nodes)

    def rounds(self) -> Iterator[list[Node]]:
        """Cut it into calls; a node that is larger than a call goes alone."""
        some: list[Node] = []
        size = 0
        for node in self.nodes:
            more = size_of(node)
            if some and (len(some) >= ROUND or size + more > MAX_CALL_BYTES):
                yield numbered(some)
                some, size = [], 0
            some.append(node)
            size += more
        yield numbered(some)


def segment(planned: Sequence[Planned]) -> Segment:
    """Cut a plan into the root's segment, which holds the others.

    Raises:
        ValueError: Another segment is more than one call.
    """
    own: dict[int, list[Node]] = {}
    heads: dict[int, int] = {}  # of each job, the job that begins its segment
    for one in planned:
        heads[id(one)] = id(one) if one.begins_segment else heads[id(one.parent)]
    members: dict[int, list[Planned]] = {}
    for one in planned:
        members.setdefault(heads[id(one)], []).append(one)
        if one.begins_segment and one.parent is not None:
            members[heads[id(one.parent)]].append(one)
    begins = [one for one in planned if one.begins_segment]
    for first in reversed(begins):  # what is below comes first
        own[id(first)] = [
            _local(one) if heads[id(one)] == id(first) else _foreign(one, own.pop(id(one)))
            for one in members[id(first)]
        ]
    root = own[id(planned[0])]
    return Segment(root, any(isinstance(node, ForeignNode) for node in root))


def _tied(one: Planned) -> dict[str, Any]:
    if one.parent is None or one.branch is None:
        return {}
    above = one.parent.job.id
    return {
        "parent": above if not one.begins_segment else f"{above} {one.parent.queue}",
        "name": one.branch.name,
        "policy": one.branch.policy,
    }


def _local(one: Planned) -> LocalNode:
    return LocalNode(job=one.job, kids=bool(one.kids), **_tied(one))


def _foreign(one: Planned, nodes: list[Node]) -> ForeignNode:
    assert one.parent is not None and one.branch is not None  # noqa: S101, PT018 - it begins a segment below another
    return ForeignNode(
        queue=one.queue,
        id=one.job.id,
        nodes=packed(one, nodes),
        parent=one.parent.job.id,
        name=one.branch.name,
        policy=one.branch.policy,
    )


def packed(first: Planned, nodes: Sequence[Node]) -> bytes:
    """Pack the jobs of another queue that come there together.

    Raises:
        ValueError: They are more than one call. A job alone may be larger, as anywhere.
    """
    words = pack_nodes(numbered(nodes))
    if len(nodes) > MAX_NODES or (len(nodes) > 1 and len(words) > MAX_CALL_BYTES):
        raise ValueError(
            f"what hangs below {first.call.task!r} in queue {first.queue!r} is {len(nodes)} jobs of {len(words)} bytes, and goes "
            f"there in one call of {MAX_NODES} jobs and {MAX_CALL_BYTES} bytes at most: let a running job spawn them (job.nursery)"
        )
    return words


def numbered(nodes: Sequence[Node]) -> list[Node]:
    """Name parents by their number in the call, where they are in it."""
    places: dict[str, int] = {}
    told: list[Node] = []
    for place, node in enumerate(nodes, 1):
        parent = places.get(node.parent, node.parent) if isinstance(node.parent, str) else node.parent
        told.append(node if parent == node.parent else attrs.evolve(node, parent=parent))
        places[id_of(node)] = place
    return told


def id_of(node: Node) -> str:
    """Answer the id of a node's job."""
    return node.job.id if isinstance(node, LocalNode) else node.id


def size_of(node: Node) -> int:
    """Tell about how many bytes a node takes in a call, never less than it does."""
    if isinstance(node, LocalNode):
        return node.job.size + OF_A_NODE + 4 * len(node.name)
    return len(node.nodes) + OF_A_NODE + 4 * len(node.name)
