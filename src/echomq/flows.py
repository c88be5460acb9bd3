"""Flows as values: parents and children, chains and groups (Protocol, section 7).

As in::

    report = echomq.flow(summarize.call(), [measure.call(path) for path in paths])
    handle = await app.flows.add(report)

A node is a call of a task (`task.call(...)`), or a `flow`, `chain` or `group` of nodes. Nothing here does I/O.

Theory of operation
    Whatever is composed comes down to trees: a parent waits for its children, each link of a chain for the link before
    it, which is its only child. So a chain of a thousand links is a tree a thousand deep: nothing here, and nothing that
    goes over trees, calls itself once a level of one.

    Jobs that wait for several others which others wait for, too, would be no trees. Then a node would name several
    parents; here each has the one that it stands under.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, final

import attrs

from echomq.protocol._convert import shown
from echomq.protocol.kin import MAX_CHILD_NAME, Policy
from echomq.tasks import JobCall

OnFailure = Literal["fail_parent", "ignore", "run_parent"]
"""What a child that does not complete does to its parent. `fail_parent`: it is buried, and its other children are told to
stop. `ignore`: the child counts as settled, and the parent can read how it failed. `run_parent`: the parent runs now."""
ON_FAILURE: Final = ("fail_parent", "ignore", "run_parent")


@final
@attrs.frozen(kw_only=True)
class FlowLimits:
    """How large a flow may be, so that a mistake is an error and not a million jobs."""

    depth: int = 8
    """Flows within flows; a chain counts as one."""
    breadth: int = 100_000
    """Children of one parent."""
    chain: int = 1_000
    """Links of one chain."""

    def __attrs_post_init__(self) -> None:
        """Check the numbers."""
        for field in attrs.fields(FlowLimits):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ValueError(f"flow limits: {field.name} is an int from 1, not {shown(value)}")


DEFAULT_LIMITS: Final = FlowLimits()


@final
@attrs.frozen(eq=False, repr=False)
class Flow:
    """A parent and its children: made by `flow`."""

    parent: JobCall[Any]
    """The job that runs on their results."""
    children: tuple[Child, ...]
    """What it waits for, each with its name."""

    def __repr__(self) -> str:
        return f"<Flow {self.parent.task!r} of {len(self.children)}>"


@final
@attrs.frozen(eq=False, repr=False)
class Chain:
    """Links, each of which waits for the one before: made by `chain`."""

    first: Node
    """What the first link waits for, or the first link."""
    links: tuple[Child, ...]
    """The others. The policy of one is about what it does to the one behind it."""

    def __repr__(self) -> str:
        return f"<Chain of {len(self.links) + 1}>"


@final
@attrs.frozen(eq=False, repr=False)
class Group:
    """Nodes beside each other: made by `group`."""

    members: tuple[Node, ...]

    def __repr__(self) -> str:
        return f"<Group of {len(self.members)}>"


@final
@attrs.frozen(eq=False, repr=False)
class Child:
    """A node with a name of its own, or a policy: made by `child`."""

    node: JobCall[Any] | Flow | Chain | Group
    """The node."""
    name: str | None
    """Its name among its parent's children; None: its place among them, from "0"."""
    policy: Policy
    """What its failure does to its parent."""

    def __repr__(self) -> str:
        return f"<Child {self.name!r} {self.node!r}>"


Node = JobCall[Any] | Flow | Chain | Group | Child
"""What flows are made of."""


def child(node: Node, *, name: str | None = None, on_failure: OnFailure = "fail_parent") -> Child:
    """Give a child a name, or a failure policy.

    Args:
        node: The child: a call, flow, chain or group.
        name: Its name among its parent's children, 1 to 128 bytes without control characters; by it the parent finds its
            result. None: its place, from "0".
        on_failure: What becomes of the parent should it not complete; see `OnFailure`.

    Raises:
        TypeError, ValueError: A value does not fit.
    """
    if isinstance(node, Child):
        raise TypeError(f"child() is given a call, flow, chain or group, not {node!r}, which is a child already")
    _check_node(node)
    if name is not None:
        check_child_name(name)
    if on_failure not in ON_FAILURE:
        raise ValueError(f"on_failure is one of {', '.join(ON_FAILURE)}, not {shown(on_failure)}")
    if name is not None and isinstance(node, Group):
        raise ValueError(f"a group's members have names of their own: {name!r} cannot name {node!r}")
    return Child(node, name, Policy(on_failure))


def flow(parent: JobCall[Any], children: Iterable[Node] | Mapping[str, Node]) -> Flow:
    """Make a parent that runs when its children have completed, on their results.

    Args:
        parent: The parent, as `task.call(...)` makes it. Its handler reads `await job.children_results()`.
        children: What it waits for: calls, flows, chains, groups, or `child(...)` of these; or the same by name. The
            members of a group are so many children. Without any it runs at once.

    Raises:
        TypeError, ValueError: A value does not fit, or two children have one name.
    """
    if not isinstance(parent, JobCall):
        raise TypeError(f"a flow's parent is one call, as task.call(...) makes it, not {shown(parent)}")
    if isinstance(children, Mapping):
        named = [_named(node, name) for name, node in children.items()]
    else:
        named = [node if isinstance(node, Child) else child(node) for node in _several(children, "a flow's children")]
    return Flow(parent, tuple(named))


def chain(*links: Node) -> Chain:
    """Make links that run one after another; each reads `await job.previous_result()`.

    Args:
        links: Calls, or `child(call, on_failure=...)`, whose policy says what its failure does to the link behind it. The
            first may be a flow, chain or group, too: the second then waits for it, or for all members.

    Raises:
        TypeError, ValueError: A value does not fit, or there is no link.
    """
    if not links:
        raise ValueError("a chain has one link at least")
    for link in links[1:]:
        call = link.node if isinstance(link, Child) else link
        if isinstance(call, (Group, Flow, Chain)):
            raise ValueError(  # noqa: TRY004 - it is a node, in the wrong place
                f"{call!r} can only begin a chain: its jobs would have to wait for the link before, each of them, and a "
                f"job waits for its own children alone. Put what comes before it under each of its jobs"
            )
    _check_node(links[0])
    return Chain(links[0], tuple(link if isinstance(link, Child) else child(link) for link in links[1:]))


def group(members: Iterable[Node]) -> Group:
    """Make nodes beside each other: children of one parent, what the second link of a chain waits for, or just jobs.

    Raises:
        TypeError, ValueError: A value does not fit, or there is none.
    """
    nodes = tuple(_several(members, "a group's members"))
    for node in nodes:
        _check_node(node)
    if not nodes:
        raise ValueError("a group has one member at least")
    return Group(nodes)


def check_child_name(name: str) -> str:
    """Answer the name if a child may have it.

    Raises:
        ValueError: Not 1 to 128 bytes of UTF-8 without control characters.
    """
    try:
        fits = 1 <= len(name.encode()) <= MAX_CHILD_NAME and not any(ord(c) < 32 or ord(c) == 127 for c in name)  # noqa: PLR2004
    except (AttributeError, UnicodeEncodeError):  # not text, or a lone surrogate
        fits = False
    if not fits:
        raise ValueError(
            f"a child's name is 1 to {MAX_CHILD_NAME} bytes of UTF-8 without control characters, not {shown(name)}"
        )
    return name


def _named(node: Node, name: str) -> Child:
    if isinstance(node, Child):
        if node.name not in (None, name):
            raise ValueError(f"a child is named twice, {name!r} and {node.name!r}")
        return child(node.node, name=name, on_failure=node.policy.value)  # type: ignore[arg-type]  # never detach
    return child(node, name=name)


def _several(nodes: Any, what: str) -> Sequence[Node]:
    if isinstance(nodes, (JobCall, Flow, Chain, Group, Child, str, bytes)) or not isinstance(nodes, Iterable):
        raise TypeError(f"{what} are several nodes, such as [task.call(...)], not {shown(nodes)}")
    return list(nodes)


def _check_node(node: object) -> None:
    if not isinstance(node, (JobCall, Flow, Chain, Group, Child)):
        raise TypeError(f"a node is a call (task.call(...)), flow, chain, group or child, not {shown(node)}")


# --- trees -----------------------------------------------------------------------------------


@final
@attrs.define(eq=False, repr=False)
class Tree:
    """A job and those it waits for."""

    call: JobCall[Any]
    """The job."""
    children: list[Branch] = attrs.field(factory=list)
    """Those it waits for."""
    depth: int = 0
    """Flows above it."""


@final
@attrs.frozen(eq=False, repr=False)
class Branch:
    """What ties a child to its parent."""

    name: str
    policy: Policy
    tree: Tree


def trees_of(node: Node, limits: FlowLimits = DEFAULT_LIMITS) -> list[Tree]:
    """Bring a node down to trees: one, or those of a group's members.

    Raises:
        ValueError: It is larger than the limits, or two children have one name.
    """
    return _trees(node, limits, 0)


def _trees(node: Node, limits: FlowLimits, depth: int) -> list[Tree]:
    # Calls itself once a flow within a flow, which is bounded, and once a group or chain that begins one.
    if depth > limits.depth:
        raise ValueError(f"a flow is {depth} flows deep, and the limit is {limits.depth} (flow_limits)")
    match node:
        case Child():
            return _trees(node.node, limits, depth)
        case JobCall():
            return [Tree(node, depth=depth)]
        case Group():
            return [tree for member in node.members for tree in _trees(member, limits, depth)]
        case Flow():
            return [
                _parent(node.parent, [(each, _trees(each, limits, depth + 1)) for each in node.children], limits, depth)
            ]
    if len(node.links) + 1 > limits.chain:
        raise ValueError(
            f"a chain of {len(node.links) + 1} links is longer than the limit of {limits.chain} (flow_limits)"
        )
    before: Node = node.first
    trees = _trees(before, limits, depth)
    for link in node.links:
        assert isinstance(link.node, JobCall)  # noqa: S101 - as `chain` has seen to
        policy = before.policy if isinstance(before, Child) else Policy.FAIL_PARENT
        trees = [_parent(link.node, [(Child(_call_of(tree), None, policy), [tree]) for tree in trees], limits, depth)]
        before = link
    return trees


def _call_of(tree: Tree) -> JobCall[Any]:
    return tree.call


def _parent(call: JobCall[Any], children: Sequence[tuple[Child, list[Tree]]], limits: FlowLimits, depth: int) -> Tree:
    parent = Tree(call, depth=depth)
    names: set[str] = set()
    for each, trees in children:
        for tree in trees:
            name = str(len(parent.children)) if each.name is None else each.name
            if name in names:
                raise ValueError(f"two children of {call.task!r} have the name {name!r}")
            names.add(name)
            parent.children.append(Branch(name, each.policy, tree))
    if len(parent.children) > limits.breadth:
        raise ValueError(
            f"{call.task!r} has {len(parent.children)} children, and the limit is {limits.breadth} (flow_limits)"
        )
    return parent
