"""A server that refuses a command in the middle of a flow's script costs an error: no half a flow, no endless wait."""

from __future__ import annotations

import pytest

from echomq.conformance.driver import Driver
from echomq.conformance.invariants import leftovers, violations
from echomq.conformance.invariants_kin import kin_violations
from echomq.conformance.pumping import pump
from echomq.conformance.snapshot import SETS, Snapshot, take
from echomq.protocol.keys import QueueKeys
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.transitions import (
    SPAWNER,
    CancelRequest,
    Completion,
    Delivery,
    Failure,
    ForeignNode,
    LocalNode,
    Look,
    Suspension,
    pack_nodes,
)
from echomq.transitions.nodes import Node
from tests.lua.rights import COMMANDS, EXPIRE, Ground

OF_FLOWS = (*COMMANDS, "hsetnx", "hlen", "hexists", "rpush", "lpop", "zrange", "zcard", "hscan", "publish", "get")
FAR = "far"
SOON = "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', '(+inf', 'BYSCORE')) do redis.call('ZADD', KEYS[1], 1, id) end"


def tree(root: NewJob, lane: str | None = "a") -> list[Node]:
    """A parent, children of this queue and of another, a grandchild, dedup keys, a delay, a lane."""
    middle, away = NewJob(lane=lane), NewJob()
    return [
        LocalNode(job=root, kids=True),
        LocalNode(job=middle, parent=1, name="m", kids=True),
        LocalNode(job=NewJob(dedup="k"), parent=2, name="0"),
        LocalNode(job=NewJob(delay_ms=60_000, dedup="w", dedup_window_ms=60_000), parent=1, name="1"),
        ForeignNode(queue=FAR, id=away.id, parent=1, name="f", nodes=[LocalNode(job=away, parent=f"{root.id} rights", name="f")]),
    ]  # fmt: skip


def far(ground: Ground) -> Driver:
    """Make a client of the other queue, who may do all."""
    return Driver(ground.admin, QueueKeys(queue=FAR))


def look(ground: Ground) -> dict[str, Snapshot]:
    """Look at both queues."""
    return {"rights": take(ground.admin, ground.keys), FAR: take(ground.admin, QueueKeys(queue=FAR))}


def repair(ground: Ground) -> None:
    """Bring rows and sets together, as an operator does after such a thing."""
    snap = take(ground.admin, ground.keys)
    ids = {id for name in SETS for id in snap.zset(name)} | {id for id, _ in snap.rows()}
    ground.able.items("repair", *(Look("job", id) for id in sorted(ids)), Look("key", "outbox"))


def finish(ground: Ground) -> set[str]:
    """Let all time pass, deliver all that is owed, complete whatever comes; answer the ids that completed."""
    done: set[str] = set()
    drivers = {"rights": ground.able, FAR: far(ground)}
    for turn in range(24):
        if turn % 8 == 0:
            repair(ground)
        for driver in drivers.values():
            for name in ("active", "schedule", "waiting"):
                ground.admin.execute_command("EVAL", EXPIRE, 1, getattr(driver.keys, name))
            ground.admin.execute_command("EVAL", SOON, 1, driver.keys.outbox)
            jobs = driver.claim(100).jobs
            verdicts = (
                driver.items("complete", *(Completion(c.id, c.token, c.nonce, b"") for c in jobs)) if jobs else []
            )
            done |= {job.id for job, verdict in zip(jobs, verdicts, strict=True) if verdict.code == "ok"}
        pump(drivers)
    return done


def assert_nothing_left(ground: Ground) -> None:
    """Hold that nothing remains but the queues' own keys."""
    for snap in look(ground).values():
        assert leftovers(snap.without("once:")) == []


@pytest.mark.parametrize("rounds", [False, True])
@pytest.mark.parametrize("command", OF_FLOWS)
def test_flow_add_without_a_right_adds_all_or_nothing(ground: Ground, command: str, rounds: bool) -> None:
    """A flow that was refused in its middle leaves no part of itself; one that was admitted runs to its end."""
    ground.able.plain("configure", settings={"events": "none"})
    root = NewJob()
    nodes = tree(root)
    before = take(ground.admin, ground.keys)
    limited = ground.lacking(command)
    verdicts: list[str] = []
    hold = root.id if rounds else ""
    ground.attempt(lambda: verdicts.extend(v.code for v in limited.plain("flow_add", nodes, hold=hold)))
    if verdicts:
        assert verdicts == ["admitted"] * 5
    snap = take(ground.admin, ground.keys)
    if not any(True for _ in snap.rows()):
        left = snap.without("once:").entries.keys() - before.entries.keys() - {"lanes", "ring"}
        assert left - {"meta"} == set()
        assert not verdicts
    finish(ground)
    assert_nothing_left(ground)


@pytest.mark.parametrize("command", OF_FLOWS)
def test_spawn_without_a_right_spawns_all_or_nothing(ground: Ground, command: str) -> None:
    """What a job was told has come is there; after a refusal it may spawn the same names again."""
    ground.able.items("enqueue", NewJob(), NewJob())
    parent, other = ground.able.claim(2).jobs
    ground.able.plain("spawn", other.id, other.token, other.nonce, [LocalNode(job=NewJob(), parent=SPAWNER, name="0")])
    limited = ground.lacking(command)
    nodes = [
        LocalNode(job=NewJob(), parent=SPAWNER, name=name, policy=policy)
        for name, policy in (("0", Policy.IGNORE), ("d", Policy.DETACH))
    ]
    told: list[str] = []
    ground.attempt(
        lambda: told.extend(v.code for v in limited.plain("spawn", parent.id, parent.token, parent.nonce, nodes))
    )
    snap = take(ground.admin, ground.keys)
    there = [id for id in (node.job.id for node in nodes) if snap.row(id)]
    known = set(snap.hash(f"job:{parent.id}:children"))
    assert (len(there), known) in ((0, set()), (2, {"0", "d"}))
    again = [LocalNode(job=NewJob(), parent=SPAWNER, name=node.name, policy=node.policy) for node in nodes]
    seen = {v.code for v in ground.able.plain("spawn", parent.id, parent.token, parent.nonce, again)}
    assert seen == ({"known"} if there else {"admitted"})
    finish(ground)
    assert_nothing_left(ground)


@pytest.mark.parametrize("how", ["complete", "fail", "cancel", "remove", "end"])
@pytest.mark.parametrize("command", OF_FLOWS)
def test_endings_without_a_right_settle_every_parent(ground: Ground, command: str, how: str) -> None:
    """Whatever is refused while a child ends: its parent hears of it, then or later, and nobody waits for ever."""
    root = NewJob()
    kids = [NewJob(), NewJob()]
    nodes = [LocalNode(job=kid, parent=1, name=str(n), policy=Policy.IGNORE) for n, kid in enumerate(kids)]
    ground.able.plain("flow_add", [LocalNode(job=root, kids=True), *nodes])
    jobs = ground.able.claim(2).jobs if how in {"complete", "fail", "end"} else []
    limited = ground.lacking(command)
    if how == "cancel":
        ground.attempt(lambda: limited.items("cancel", *(CancelRequest(kid.id, "why") for kid in kids)))
    elif how == "remove":
        ground.attempt(lambda: limited.items("remove", *(kid.id for kid in kids)))
    elif how == "fail":
        ground.attempt(lambda: limited.items("fail", *(Failure(c.id, c.token, c.nonce, 0, 0, b"{}") for c in jobs)))
    else:
        ground.attempt(lambda: limited.items("complete", *(Completion(c.id, c.token, c.nonce, b"") for c in jobs)))
    assert root.id in finish(ground)
    dead = list(take(ground.admin, ground.keys).zset("dead"))
    if dead:
        ground.able.items("remove", *dead)
    assert_nothing_left(ground)


@pytest.mark.parametrize("command", OF_FLOWS)
def test_suspend_and_follow_ups_without_a_right_lose_no_job(ground: Ground, command: str) -> None:
    """A job that suspends, or completes with follow-ups, is where it was or where it should be; follow-ups come once."""
    ground.able.items("enqueue", NewJob(), NewJob())
    parent, other = ground.able.claim(2).jobs
    ground.able.plain(
        "spawn", parent.id, parent.token, parent.nonce, [LocalNode(job=NewJob(), parent=SPAWNER, name="0")]
    )
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.items("suspend", Suspension(parent.id, parent.token, parent.nonce)))
    follow = NewJob()
    item = Completion(other.id, other.token, other.nonce, b"", pack_nodes([LocalNode(job=follow)]))
    ground.attempt(lambda: limited.items("complete", item))
    there = bool(ground.admin.exists(ground.keys.job(follow.id)))
    done = finish(ground)
    assert parent.id in done
    assert (follow.id in done) is there
    assert_nothing_left(ground)


@pytest.mark.parametrize("command", OF_FLOWS)
def test_the_outbox_without_a_right_loses_no_word(ground: Ground, command: str) -> None:
    """What could not be taken, delivered or struck off is there for the next."""
    root, away = NewJob(), NewJob()
    node = ForeignNode(
        queue=FAR, id=away.id, parent=1, name="0", nodes=[LocalNode(job=away, parent=f"{root.id} rights", name="0")]
    )
    ground.able.plain("flow_add", [LocalNode(job=root, kids=True), node])
    pump({"rights": ground.able, FAR: far(ground)})
    job = far(ground).claim(1).jobs[0]
    far(ground).items("complete", Completion(job.id, job.token, job.nonce, b""))
    entry = far(ground).plain("flow_take").entries[0]
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.items("flow_deliver", Delivery.of(entry)))
    ground.attempt(lambda: pump({"rights": limited}))
    assert root.id in finish(ground)
    assert_nothing_left(ground)


@pytest.mark.parametrize("walk", ["sweep", "revive", "hold", "taken back", "reconcile"])
@pytest.mark.parametrize("command", OF_FLOWS)
def test_walks_without_a_right_go_on_later(ground: Ground, command: str, walk: str) -> None:
    """A step that was refused is taken again, and nothing of the flow is left out."""
    root = NewJob()
    kids = [NewJob() for _ in range(3)]
    nodes = [LocalNode(job=root, kids=True), *(LocalNode(job=kid, parent=1, name=str(n)) for n, kid in enumerate(kids))]
    held = walk in {"hold", "taken back"}
    ground.able.plain("flow_add", nodes, hold=root.id if held else "", last=walk != "taken back")
    if walk == "sweep":
        ground.able.items("cancel", CancelRequest(root.id, "why"))
    elif walk == "revive":
        job = ground.able.claim(1).jobs[0]
        ground.able.items("fail", Failure(job.id, job.token, job.nonce, 0, 0, b"{}"))
        pump({"rights": ground.able})
        ground.able.items("redrive", root.id)
    elif walk == "reconcile":
        ground.admin.execute_command("EVAL", EXPIRE, 1, ground.keys.waiting)
        ground.able.plain("flow_take")
    name = f"{'hold' if held else walk}:{root.id}"
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.plain("flow_walk", entry=name))
    done = finish(ground)
    assert (root.id in done) is (walk in {"revive", "hold", "reconcile"})
    assert_nothing_left(ground)


def test_flows_are_sound_when_nothing_is_missing(ground: Ground) -> None:
    """What these tests do breaks no invariant by itself."""
    root = NewJob()
    ground.able.plain("flow_add", tree(root))
    pump({"rights": ground.able, FAR: far(ground)})
    snaps = look(ground)
    assert [line for snap in snaps.values() for line in violations(snap)] + kin_violations(snaps) == []
    assert root.id in finish(ground)
    assert_nothing_left(ground)
