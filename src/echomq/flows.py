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

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, final, overload

import attrs

from echomq.protocol._convert import shown
from echomq.protocol.kin import MAX_CHILD_NAME, Policy
from echomq.tasks import JobCall

OnFailure = Literal["fail_parent", "ignore", "run_parent"]
"""What a child that does not complete does to its parent. `fail_parent`: it is buried, and its other children are told to
stop. `ignore`: the child counts as settled, and the parent can read how it failed. `run_parent`: the parent runs now."""
ON_FAILURE: Final = (Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT)


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
    children: tuple[Node, ...]
    """What it waits for."""

    def __repr__(self) -> str:
        return f"<Flow {self.parent.task!r} of {len(self.children)}>"


@final
@attrs.frozen(eq=False, repr=False)
class Chain:
    """Links, each of which waits for the one before: made by `chain`."""

    first: Node
    """The first link, or what the second one waits for; never a chain."""
    links: tuple[JobCall[Any] | Child, ...]
    """The others, each a call, or one with a policy, which is about what it does to the one behind it."""

    def __repr__(self) -> str:
        return f"<Chain of {len(self.links) + 1}>"


@final
@attrs.frozen(eq=False, repr=False)
class Group:
    """Nodes beside each other: made by `group`."""

    members: tuple[Node, ...]
    """The nodes."""

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
    policy = check_policy(on_failure)
    if name is not None and isinstance(node, Group):
        raise ValueError(f"a group's members have names of their own: {name!r} cannot name {node!r}")
    return Child(node, name, policy)


@overload
def flow(parent: JobCall[Any], children: Mapping[str, Node]) -> Flow: ...
@overload
def flow(parent: JobCall[Any], children: Iterable[Node]) -> Flow: ...
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
        named: Sequence[Node] = [_named(node, name) for name, node in children.items()]
    else:
        named = several(children, "a flow's children")
    made = Flow(parent, tuple(named))
    _names(parent, [one for node in made.children for one in _ones(node)])
    return made


def chain(*links: Node) -> Chain:
    """Make links that run one after another; each reads `await job.previous_result()`.

    Args:
        links: Calls, or `child(call, on_failure=...)`, whose policy says what its failure does to the link behind it. The
            first may be a flow or group, too: the second then waits for it, or for all members. Of a chain among them
            each link is one.

    Raises:
        TypeError, ValueError: A value does not fit, or there is no link.
    """
    if not links:
        raise ValueError("a chain has one link at least")
    for link in links:
        _check_node(link)
    first, *others = [part for link in links for part in _parts(link)]
    calls: list[JobCall[Any] | Child] = []
    for link in others:
        call = link.node if isinstance(link, Child) else link
        if not isinstance(call, JobCall) or not isinstance(link, (JobCall, Child)):
            raise ValueError(  # noqa: TRY004 - it is a node, in the wrong place
                f"{call!r} can only begin a chain: its jobs would have to wait for the link before, each of them, and a "
                f"job waits for its own children alone. Put what comes before it under each of its jobs"
            )
        calls.append(link)
    return Chain(first, tuple(calls))


def group(members: Iterable[Node]) -> Group:
    """Make nodes beside each other: children of one parent, what the second link of a chain waits for, or just jobs.

    Args:
        members: Calls, flows, chains, or `child(...)` of these. Of a group among them each member is one.

    Raises:
        TypeError, ValueError: A value does not fit, or there is none.
    """
    nodes = tuple(several(members, "a group's members"))
    if not nodes:
        raise ValueError("a group has one member at least")
    return Group(tuple(part for node in nodes for part in (node.members if isinstance(node, Group) else (node,))))


def check_policy(on_failure: object) -> Policy:
    """Answer a failure policy, as a caller names it.

    Raises:
        ValueError: It is none.
    """
    if on_failure not in ON_FAILURE:
        raise ValueError(f"on_failure is one of {', '.join(ON_FAILURE)}, not {shown(on_failure)}")
    return Policy(str(on_failure))


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


def several(nodes: Any, what: str) -> Sequence[Node]:
    """Answer nodes that stand for themselves.

    Raises:
        TypeError: It is one node, or not iterable, or one of them is none.
    """
    if isinstance(nodes, (JobCall, Flow, Chain, Group, Child, str, bytes)) or not isinstance(nodes, Iterable):
        raise TypeError(f"{what} are several nodes, such as [task.call(...)], not {shown(nodes)}")
    several = list(nodes)
    for node in several:
        _check_node(node)
    return several


def _parts(link: Node) -> list[Node]:
    """Take a chain apart. What it was given as a child goes with its last link."""
    node = link.node if isinstance(link, Child) else link
    if not isinstance(node, Chain):
        return [link]
    *parts, last = node.first, *node.links
    if isinstance(link, Child):
        name = last.name if isinstance(last, Child) and link.name is None else link.name
        last = Child(last.node if isinstance(last, Child) else last, name, link.policy)
    return [*parts, last]


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


@final
@attrs.frozen(eq=False, repr=False)
class _One:
    """A node that comes down to one tree, and what it was given as a child; None: nothing."""

    name: str | None
    policy: Policy | None
    node: JobCall[Any] | Flow | Chain


def _ones(node: Node) -> list[_One]:
    # Calls itself a few times: a group has no groups in it, and a chain begins with no chain.
    match node:
        case Child():
            return [
                _One(one.name if node.name is None else node.name, one.policy or node.policy, one.node)
                for one in _ones(node.node)
            ]
        case Group():
            return [one for member in node.members for one in _ones(member)]
        case Chain(links=()):
            return _ones(node.first)
        case Chain(links=[*_, Child() as last]):
            return [_One(last.name, last.policy, node)]
    return [_One(None, None, node)]


def _names(parent: JobCall[Any], children: Sequence[_One]) -> list[str]:
    names = [str(place) if one.name is None else one.name for place, one in enumerate(children)]
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"two children of {parent.task!r} have the name {twice!r}")
    return names


def trees_of(node: Node, limits: FlowLimits = DEFAULT_LIMITS) -> list[Tree]:
    """Bring a node down to trees: one, or those of a group's members.

    Raises:
        TypeError: It is no node.
        ValueError: It is larger than the limits, or two children have one name.
    """
    _check_node(node)
    return [_tree(one.node, limits, 0) for one in _ones(node)]


def _tree(node: JobCall[Any] | Flow | Chain, limits: FlowLimits, depth: int) -> Tree:
    # Calls itself once a flow within a flow, or within what begins a chain, which is bounded.
    if depth > limits.depth:
        raise ValueError(f"a flow is more than {limits.depth} flows deep, which is the limit (flow_limits)")
    if isinstance(node, JobCall):
        return Tree(node, depth=depth)
    if isinstance(node, Flow):
        ones = [one for each in node.children for one in _ones(each)]
        return _parent(node.parent, [(one, _tree(one.node, limits, depth + 1)) for one in ones], limits, depth)
    if len(node.links) + 1 > limits.chain:
        raise ValueError(
            f"a chain of {len(node.links) + 1} links is longer than the limit of {limits.chain} (flow_limits)"
        )
    first = _ones(node.first)
    below = depth if len(first) == 1 and isinstance(first[0].node, JobCall) else depth + 1
    waited = [(one, _tree(one.node, limits, below)) for one in first]
    tree = waited[0][1]
    for link in node.links:
        (one,) = _ones(link)
        assert isinstance(one.node, JobCall)  # noqa: S101 - as `chain` has seen to
        tree = _parent(one.node, waited, limits, depth)
        waited = [(one, tree)]
    return tree


def _parent(call: JobCall[Any], children: Sequence[tuple[_One, Tree]], limits: FlowLimits, depth: int) -> Tree:
    if len(children) > limits.breadth:
        raise ValueError(f"{call.task!r} has {len(children)} children, and the limit is {limits.breadth} (flow_limits)")
    names = _names(call, [one for one, _ in children])
    branches = [
        Branch(name, one.policy or Policy.FAIL_PARENT, tree) for name, (one, tree) in zip(names, children, strict=True)
    ]
    return Tree(call, branches, depth)
