"""Each way in which a child can end, by each policy, in its parent's queue and in another: what becomes of the parent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import attrs
import pytest
import redis

from echomq.conformance.invariants import leftovers
from echomq.conformance.snapshot import differences
from echomq.protocol.kin import Outcome, Policy
from echomq.protocol.records import NewJob
from echomq.transitions import Delivery
from tests.integration import child_endings as ends
from tests.integration.child_endings import AWAY, ERROR, HOME, Case


@attrs.frozen
class Told:
    """An ending, and what is told of it."""

    end: Callable[[Case], None]
    kind: str
    reason: str = ""
    error: bytes = b""
    token: int = 0
    places: tuple[str, ...] = (HOME, AWAY)


ENDINGS: Final = [
    Told(ends.succeeded, "completed", token=1),
    Told(ends.dead, "dead", "failed 1 of 1 times", ERROR, 1),
    Told(ends.out_of_time, "dead", "deadline: it was over before the job could be claimed"),
    Told(ends.cancelled, "cancelled", "no need"),
    Told(ends.cancelled_at_work, "cancelled", "no need", token=1),
    Told(ends.discarded, "discarded", "no use", token=1),
    Told(ends.removed, "removed"),
    Told(ends.drained, "removed"),
    # In the parent's queue the parent goes, too: a test of its own.
    Told(ends.obliterated, "removed", "its queue was obliterated", places=(AWAY,)),
    Told(ends.expired, "expired", "no worker had claimed it by then"),
    Told(ends.stalled_out, "dead", "stalled: its lease expired 1 times, max_stalls is 0", token=1),
    Told(ends.duplicated, "duplicate", "its dedup key is held by "),
    # In the parent's queue it is told in the script that ends it: there is no moment between.
    Told(ends.told_by_the_next_pump, "dead", "failed 1 of 1 times", ERROR, 1, places=(AWAY,)),
]
POLICIES: Final = (Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT)
TABLE: Final = [(told, policy, where) for told in ENDINGS for policy in POLICIES for where in told.places]


@pytest.fixture
def make(redis_client: redis.Redis) -> Iterator[Callable[[Policy, str], Case]]:
    """Make cases; what they leave is erased."""
    made = []

    def one(policy: Policy, where: str) -> Case:
        made.append(Case(redis_client, policy, where))
        return made[-1]

    yield one
    for case in made:
        for key in redis_client.scan_iter(f"{case.keys[HOME].prefix}:*", count=1000):
            redis_client.delete(key)


def nothing_is_left(case: Case) -> None:
    """End what is left by the verbs, deliver all, and look."""
    case.pump()
    for name, driver in case.drivers.items():
        rows = [id for id, _ in case.look(name).rows()]
        if rows:
            driver.items("remove", *rows)
    case.pump()
    for driver in case.drivers.values():
        assert driver.claim(1).jobs == []
    assert [line for name in case.keys for line in leftovers(case.look(name))] == []


def tell_again(case: Case, told: Told) -> None:
    """Deliver the outcome again, a failure that contradicts it, and both for a stranger: nothing changes."""
    before = {name: case.look(name) for name in case.keys}
    for kind, reason in ((told.kind, told.reason), ("dead", "another reason")):
        body = Outcome(kind, 1, told.token, reason, told.error).spell()
        for child, verdict in ((case.child, "again"), (NewJob().id, "gone")):
            assert case.home.item("flow_deliver", Delivery("tell", case.parent.id, child, "x", body)).code == verdict
    for name in case.keys:
        assert differences(before[name], case.look(name)) == []


@pytest.mark.parametrize(
    ("told", "policy", "where"), TABLE, ids=[f"{told.end.__name__}-{policy}-{where}" for told, policy, where in TABLE]
)
def test_parent_of_a_child_that_has_ended(
    make: Callable[[Policy, str], Case], told: Told, policy: Policy, where: str
) -> None:
    """Its end is told once, with kind, reason and error, and the parent is settled by the child's policy."""
    case = make(policy, where)
    told.end(case)
    if where == AWAY and told.end is not ends.told_by_the_next_pump:
        assert case.row()["state"] == "waiting"  # the ending and its delivery are two steps
    if where == AWAY:
        assert case.hand_over(case.there) == ["again" if told.end is ends.told_by_the_next_pump else "ok"]
    outcome = case.told()["x"].outcome
    assert outcome is not None
    body = b"child" if told.kind == "completed" else told.error
    assert (outcome.kind, outcome.token, outcome.body) == (told.kind, told.token, body)
    assert outcome.reason.startswith(told.reason)
    case.healthy()
    tell_again(case, told)
    if told.kind == "completed":
        waits_for_the_sibling(case, {"x": b"child", "y": b"sibling"}, {})
    elif policy is Policy.FAIL_PARENT:
        is_buried(case, told, outcome.reason)
    elif policy is Policy.IGNORE:
        waits_for_the_sibling(case, {"y": b"sibling"}, {"x": told.kind})
    else:
        runs_now(case, told.kind)
    case.healthy()
    nothing_is_left(case)


def waits_for_the_sibling(case: Case, results: dict[str, bytes], ignored: dict[str, str]) -> None:
    """The parent waits for the other child, and then runs on both, once."""
    assert case.row()["state"] == "waiting"
    assert case.outstanding() == ["y"]
    case.complete(case.home, case.claim(case.home, case.sibling.id))
    assert case.row()["state"] == "pending"
    running = case.claim(case.home, case.parent.id)
    assert (running.token, running.record.failures, running.record.stalls) == (1, 0, 0)
    assert (case.results(), case.ignored(), case.outstanding()) == (results, ignored, [])
    case.complete(case.home, running)
    assert case.row() == {}


def is_buried(case: Case, told: Told, reason: str) -> None:
    """The parent is dead and names the child; the sibling is stopped, and both come back together."""
    row = case.row()
    why = f": {reason}" if reason else ""
    assert (row["state"], row["kind"]) == ("dead", "dead")
    assert row["reason"] == f"child x ({case.child}) {told.kind}{why}"
    case.pump()
    sibling = case.look().row(case.sibling.id)
    assert (sibling["state"], sibling["reason"]) == ("dead", f"parent dead: {case.parent.id}")
    assert (case.results(), case.ignored(), case.outstanding()) == ({}, {"y": "dead"}, [])
    assert case.home.item("redrive", case.parent.id).code == "ok"
    case.pump()
    # What is in the morgue has come back; what is gone buries the parent again.
    here = case.look(case.where).row(case.child).get("state")
    assert (here, case.row()["state"]) == (("pending", "waiting") if told.kind == "dead" else (None, "dead"))


def runs_now(case: Case, kind: str) -> None:
    """The parent runs, sees what failed and what is not over, and what is not over ends with it."""
    assert case.row()["state"] == "pending"
    running = case.claim(case.home, case.parent.id)
    assert (case.results(), case.ignored(), case.outstanding()) == ({}, {"x": kind}, ["y"])
    case.complete(case.home, running)
    assert case.look().row(case.sibling.id)["state"] == "pending"  # until the walk
    case.pump()
    assert case.look().row(case.sibling.id) == {}
    assert case.look().hash("counts")["cancelled"] == str(1 + (kind == "cancelled" and case.where == HOME))


def test_parent_goes_with_its_queue(make: Callable[[Policy, str], Case]) -> None:
    """A queue that is obliterated takes parent and children along; a child elsewhere is told to stop."""
    case = make(Policy.FAIL_PARENT, AWAY)
    case.add()
    done = case.home.plain("obliterate", force=True)
    assert done.jobs == 2
    case.pump()
    assert case.look(AWAY).row(case.child) == {}
    assert case.look(AWAY).hash("counts")["cancelled"] == "1"
    case.healthy()
    assert [line for name in case.keys for line in leftovers(case.look(name))] == []
