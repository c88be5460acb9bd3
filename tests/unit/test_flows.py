"""Flows as values: what they are made of, what they come down to, and what is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from echomq import App, Chain, Child, Flow, FlowLimits, Group, JobCall, chain, child, flow, group
from echomq.flows import Tree, trees_of
from echomq.protocol.kin import Policy


def call(name: str, queue: str = "q", **options: Any) -> JobCall[Any]:
    """Make a call of a task of that name."""
    return App().task_stub(name, queue=queue).options(**options).call()


A, B, C, D, P = (call(name) for name in "ABCDP")
BAD: Any = 7
"""No node, no name, no policy."""
ONE: Any = A
"""One node where several are wanted."""


def drawn(tree: Tree) -> Any:
    """Draw a tree: its task, and its children by name, with the first letter of their policies."""
    if not tree.children:
        return tree.call.task
    return {tree.call.task: {f"{b.name}:{b.policy.letter}": drawn(b.tree) for b in tree.children}}


def one(node: Any, **limits: int) -> Any:
    """Draw the one tree that a node comes down to."""
    (tree,) = trees_of(node, FlowLimits(**limits))
    return drawn(tree)


# --- what there is ---------------------------------------------------------------------------


def test_children_are_named_by_their_place_or_as_they_are_told() -> None:
    """Names by place count the named ones, too; a mapping names all."""
    assert one(flow(P, [A, child(B, name="b"), C])) == {"P": {"0:f": "A", "b:f": "B", "2:f": "C"}}
    assert one(flow(P, {"x": A, "y": child(B, on_failure="ignore")})) == {"P": {"x:f": "A", "y:i": "B"}}
    assert one(flow(P, [])) == "P"


def test_flows_stand_within_flows() -> None:
    """A child may be a flow, with a name and a policy of its own."""
    tree = flow(P, [child(flow(A, [B, C]), name="left", on_failure="run_parent"), D])
    assert one(tree) == {"P": {"left:r": {"A": {"0:f": "B", "1:f": "C"}}, "1:f": "D"}}


def test_group_members_are_so_many_children_each_with_its_own_word() -> None:
    """What a member says of itself stays; what the group is told holds for the others."""
    some = group([A, child(B, name="b", on_failure="ignore")])
    assert one(flow(P, [C, some, D])) == {"P": {"0:f": "C", "1:f": "A", "b:i": "B", "3:f": "D"}}
    assert one(flow(P, [child(some, on_failure="run_parent")])) == {"P": {"0:r": "A", "b:i": "B"}}
    assert len(group([group([A, B]), C]).members) == 3
    assert [drawn(tree) for tree in trees_of(group([A, flow(P, [B])]))] == ["A", {"P": {"0:f": "B"}}]


def test_links_of_a_chain_wait_for_the_one_before() -> None:
    """The last link is at the top; the policy of each is about the one behind it."""
    assert one(chain(A)) == "A"
    assert one(chain(A, B, C)) == {"C": {"0:f": {"B": {"0:f": "A"}}}}
    assert one(chain(child(A, on_failure="ignore"), child(B, on_failure="run_parent"), C)) == {
        "C": {"0:r": {"B": {"0:i": "A"}}}
    }
    assert one(flow(P, [chain(A, child(B, name="end", on_failure="ignore"))])) == {"P": {"end:i": {"B": {"0:f": "A"}}}}
    assert one(flow(P, [child(chain(A, B), name="c", on_failure="ignore")])) == {"P": {"c:i": {"B": {"0:f": "A"}}}}


def test_chain_begins_with_what_its_second_link_waits_for() -> None:
    """All members of a group, with their policies, or a flow."""
    assert one(chain(group([A, child(B, on_failure="ignore")]), C)) == {"C": {"0:f": "A", "1:i": "B"}}
    assert one(chain(flow(A, [B]), C)) == {"C": {"0:f": {"A": {"0:f": "B"}}}}
    assert [drawn(tree) for tree in trees_of(chain(group([A, B])))] == ["A", "B"]


def test_chain_of_chains_is_one_chain() -> None:
    """However it is put together; and the word that a chain is given is its last link's."""
    whole = one(chain(A, B, C, D))
    assert one(chain(chain(A, B), C, D)) == whole
    assert one(chain(A, chain(B, C), D)) == whole
    assert one(chain(chain(chain(A), B), chain(C, D))) == whole
    assert one(chain(child(chain(A, B), on_failure="ignore"), C)) == {"C": {"0:i": {"B": {"0:f": "A"}}}}


@pytest.mark.parametrize("how", ["at once", "bit by bit"])
def test_chain_of_a_thousand_links_needs_no_stack(how: str) -> None:
    """It is as deep a tree; so is one that was put together link by link."""
    calls = [call(str(n)) for n in range(1000)]
    if how == "at once":
        made = chain(*calls)
    else:
        made = chain(calls[0])
        for each in calls[1:]:
            made = chain(made, each)
    (tree,) = trees_of(made)
    tasks = []
    while tree.children:
        tasks.append(tree.call.task)
        tree = tree.children[0].tree
    assert [*tasks, tree.call.task] == [str(n) for n in reversed(range(1000))]


def test_depth_is_told_to_each_job() -> None:
    """How many flows are above it; a chain counts as one."""
    (tree,) = trees_of(flow(P, [chain(A, B), chain(group([C, D]), A)]))
    (first, second) = (branch.tree for branch in tree.children)
    assert (tree.depth, first.depth, first.children[0].tree.depth) == (0, 1, 1)
    assert (second.depth, second.children[0].tree.depth) == (1, 2)


def test_nodes_are_values_that_show_what_they_are() -> None:
    """None can be changed, and each has a short word for itself."""
    for node, text in [
        (flow(P, [A, B]), "<Flow 'P' of 2>"), (chain(A, B), "<Chain of 2>"), (group([A]), "<Group of 1>"),
        (child(flow(P, [A]), name="x"), "<Child 'x' <Flow 'P' of 1>>"),
    ]:  # fmt: skip
        assert repr(node) == text
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            node.x = 1  # type: ignore[attr-defined]


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: flow(BAD, [A]), TypeError, "7"),
        (lambda: flow(P, ONE), TypeError, "JobCall"),
        (lambda: flow(P, BAD), TypeError, "7"),
        (lambda: flow(P, [A, BAD]), TypeError, "7"),
        (lambda: flow(P, [child(A, name="x"), child(B, name="x")]), ValueError, "'P' have the name 'x'"),
        (lambda: flow(P, [child(A, name="1"), B]), ValueError, "'P' have the name '1'"),
        (lambda: flow(P, {"x": child(A, name="y")}), ValueError, "'x' and 'y'"),
        (lambda: flow(P, {"": A}), ValueError, "''"),
        (lambda: flow(P, {"x": group([A, B])}), ValueError, "'x'"),
        (lambda: flow(P, {"x": chain(group([A, B]))}), ValueError, "the name 'x'"),
        (chain, ValueError, "one link"),
        (lambda: chain(A, BAD), TypeError, "7"),
        (lambda: chain(A, group([B, C])), ValueError, "<Group of 2> can only begin a chain"),
        (lambda: chain(A, child(flow(P, [B]))), ValueError, "<Flow 'P' of 1> can only begin a chain"),
        (lambda: chain(A, chain(group([B, C]), D)), ValueError, "<Group of 2> can only begin a chain"),
        (lambda: group([]), ValueError, "one member"),
        (lambda: group(ONE), TypeError, "JobCall"),
        (lambda: group([A, BAD]), TypeError, "7"),
        (lambda: child(child(A)), TypeError, "Child"),
        (lambda: child(BAD), TypeError, "7"),
        (lambda: child(A, name="n" * 129), ValueError, "nnn"),
        (lambda: child(A, name="a\nb"), ValueError, "'a\\\\nb'"),
        (lambda: child(A, name="\ud800"), ValueError, "ud800"),
        (lambda: child(A, name=BAD), ValueError, "7"),
        (lambda: child(A, on_failure=BAD), ValueError, "7"),
        (lambda: child(group([A]), name="x"), ValueError, "'x'"),
        (lambda: FlowLimits(depth=0), ValueError, "depth .* 0"),
        (lambda: FlowLimits(chain=True), ValueError, "chain .* True"),
        (lambda: trees_of(BAD), TypeError, "7"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_when_it_is_built(make: Any, error: type[Exception], words: str) -> None:
    """The error shows the value."""
    with pytest.raises(error, match=words):
        make()


def test_limits_are_those_of_the_app() -> None:
    """One more than each of them is refused, and says which limit it is."""
    deep = flow(P, [flow(P, [flow(P, [A])])])
    assert one(deep, depth=3)
    for node, limits, words in [
        (deep, {"depth": 2}, "2 flows deep"), (flow(P, [A, B, C]), {"breadth": 2}, "3 children, and the limit is 2"),
        (chain(A, B, C), {"chain": 2}, "3 links .* limit of 2"),
        (chain(group([A, B, C]), D), {"breadth": 2}, "3 children"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=words):
            one(node, **limits)


def test_what_alternates_without_end_is_refused_and_not_followed() -> None:
    """Chains that begin with groups of chains are as deep as they look."""
    node: Any = A
    for _ in range(2000):
        node = chain(group([node, B]), C)
    with pytest.raises(ValueError, match="8 flows deep"):
        trees_of(node)


def test_types_are_what_they_say() -> None:
    """The functions answer the classes of their names."""
    made = (type(flow(P, [A])), type(chain(A)), type(group([A])), type(child(A)))
    assert made == (Flow, Chain, Group, Child)
    assert child(A).policy is Policy.FAIL_PARENT
