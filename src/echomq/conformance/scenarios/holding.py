"""Flows that are added in rounds: nothing of them runs before the last, and what nobody goes on with is taken back."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import MINUTE, Flows
from echomq.conformance.items import DAY_MS, YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, LocalNode
from echomq.transitions.nodes import Node


def _kids(parent: str | int, *names: str, **options: object) -> list[Node]:
    return [LocalNode(job=NewJob(**options), parent=parent, name=name) for name in names]  # type: ignore[arg-type]


@scenario("a flow of several rounds runs after its last, all of it, in bounded steps")
def released(b: Bench) -> None:
    f = Flows(b)
    root, middle, away = NewJob(), NewJob(lane="m", priority=4), NewJob()
    first: list[Node] = [LocalNode(job=root, kids=True), LocalNode(job=middle, parent=1, name="m", kids=True)]
    later = LocalNode(job=NewJob(delay_ms=YEAR_MS), parent=1, name="later")
    laned = LocalNode(job=NewJob(lane="a", priority=2), parent=1, name="laned")
    b.expect("first", f.add(*first, later, laned, hold=root.id, last=False), ["admitted"] * 4)
    b.expect("held", [b.state(it.id) for it in (root, middle, later.job, laned.job)], ["waiting"] * 4)
    b.expect(
        "by", (b.row(root.id)["hold"], b.row(laned.job.id)["hold"], f.owed()), (root.id, root.id, [f"hold:{root.id}"])
    )
    due = b.score("outbox", f"hold:{root.id}") or 0
    b.expect("taken back in a minute", 0 < due - b.clock() <= MINUTE, True)
    b.expect("nobody runs", b.worker.claim(9).jobs, [])
    f.later(f"hold:{root.id}", 1000)
    second = _kids(middle.id, "0", "1")
    b.expect(
        "second",
        f.add(*second, f.abroad(away, root.id, number=root.id, name="far"), hold=root.id, last=False),
        ["admitted"] * 3,
    )
    b.expect("a sign of life", (b.score("outbox", f"hold:{root.id}") or 0) - b.clock() > 1000, True)
    b.expect("nothing is sent", (b.score("outbox", f"add:{away.id}"), f.pump()), (float("inf"), []))
    b.server.delete(b.keys.wake)
    b.expect("last", f.add(*_kids(root.id, "2"), hold=root.id), ["admitted"])
    b.expect("rung for the release", b.tokens(), 1)
    b.expect("order", b.look().items(f"job:{root.id}:held")[0], root.id)
    walked = f.walk(f"hold:{root.id}", bound=3)
    b.expect("a step", (walked.more, walked.released), (True, 3))
    b.expect("rung for who may run", f.owed(), sorted([f"hold:{root.id}", f"add:{away.id}"]))
    walked = f.walk(f"hold:{root.id}", bound=100)
    b.expect("the rest", (walked.more, walked.released), (False, 5))
    b.expect("delayed", (b.state(later.job.id), "due_ms" in b.row(later.job.id)), ("schedule", False))
    b.expect("no hold", [id for id, row in b.look().rows() if "hold" in row], [])
    b.expect("laned", b.look().zset("lane:a:pending"), {laned.job.id: -2})
    b.expect("sent", f.pump(), [f"add:{away.id}"])
    f.complete(f.far.take(), b=f.far), f.pump()
    b.due(later.job.id)
    f.complete(*b.worker.claim(9).jobs)
    b.expect("the middle's lane", (b.look().zset("lane:m:pending"), b.state(root.id)), ({middle.id: -4}, "waiting"))
    f.complete(b.take())
    b.expect("the root's turn", b.take().id, root.id)


@scenario("one call may be held, too, and released by anybody's pump")
def one_round(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), *_kids(1, "0"), hold=root.id)
    b.expect("pumped", (f.pump(), b.take().record.id != root.id), ([f"hold:{root.id}"], True))
    childless = NewJob()
    f.add(LocalNode(job=childless, kids=True), hold=childless.id)
    b.expect("held", b.state(childless.id), "waiting")
    f.pump()
    b.expect("without children", b.state(childless.id), "pending")


@scenario("a flow whose last round never came is taken back, a minute after its last sign of life")
def taken_back(b: Bench) -> None:
    f = Flows(b)
    root, middle, away = NewJob(dedup="r"), NewJob(), NewJob()
    nodes: list[Node] = [LocalNode(job=root, kids=True), LocalNode(job=middle, parent=1, name="m", kids=True)]
    f.add(
        *nodes,
        *_kids(2, "0", "1", dedup_window_ms=YEAR_MS, dedup="w")[:1],
        *_kids(2, "1"),
        f.abroad(away, root.id),
        hold=root.id,
        last=False,
    )
    f.add(*_kids(root.id, "2"), hold=root.id, last=False)
    b.expect("not yet", f.pump(), [])
    f.later(f"hold:{root.id}", 0)
    walked = f.walk(f"hold:{root.id}", bound=2)
    b.expect("begun", (walked.more, walked.released), (True, 2))
    b.refuses("nobody goes on then", "EMQGONE", f.add, *_kids(middle.id, "3"), hold=root.id)
    b.refuses("by its root", f"EMQGONE {root.id}", f.add, *_kids(root.id, "3"), hold=root.id)
    b.expect("the rest", f.pump(), [f"hold:{root.id}"])
    left = [s for s in b.look().entries if s.startswith(("job:", "outbox", "dedup:r"))]
    b.expect("gone", (left, f.owed(), b.look().zset("waiting"), b.count("removed")), ([], [], {}, 5))
    b.refuses("too late", f"EMQGONE {root.id}", f.add, *_kids(root.id, "4"), hold=root.id)


@scenario("a released flow takes no further round, and a round names parents that are held, each child once")
def bad_rounds(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), *_kids(1, "0"), hold=root.id, last=False)
    other = f.family("x")
    b.refuses("another's parent", f"EMQGONE {other.parent}", f.add, *_kids(other.parent, "9"), hold=root.id)
    b.refuses("nobody", "EMQGONE JOB00000000001", f.add, *_kids("JOB00000000001", "9"), hold=root.id)
    b.refuses("a name that is there", "EMQKIND name 0", f.add, *_kids(root.id, "0"), hold=root.id)
    loose = NewJob()
    b.expect(
        "another root, and one with children",
        f.add(LocalNode(job=loose, kids=True), *_kids(1, "0"), hold=root.id, last=False),
        ["admitted"] * 2,
    )
    b.expect("last", f.add(*_kids(root.id, "1"), hold=root.id), ["admitted"])
    b.refuses("after the last", f"EMQGONE {root.id}", f.add, *_kids(root.id, "2"), hold=root.id)
    b.refuses("a root of it", f"EMQGONE {root.id}", f.add, LocalNode(job=NewJob()), hold=root.id)
    f.pump()
    b.expect("all run", b.state(loose.id), "waiting")
    b.refuses("released", f"EMQGONE {root.id}", f.add, *_kids(root.id, "2"), hold=root.id)


@scenario("what was cancelled or removed while it was held stays so, and the rest runs")
def cancelled_meanwhile(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    kids = _kids(1, "c", "r", "0")
    f.add(LocalNode(job=root, kids=True), *kids, hold=root.id, last=False)
    c, r, rest = (node.job.id for node in kids if isinstance(node, LocalNode))
    b.expect("cancelled", b.on("cancel", CancelRequest(c, "why")), ["cancelled why"])
    b.expect(
        "its parent is held, and hears",
        (f.ended(root.id), b.row(root.id)["broken"] != "", b.state(root.id)),
        ({"c": "cancelled"}, True, "waiting"),
    )
    b.expect("removed", b.on("remove", r), ["ok"])
    b.expect("another by that id", b.on("enqueue", NewJob(id=r, delay_ms=YEAR_MS)), ["admitted"])
    f.add(*_kids(root.id, "1"), hold=root.id)
    b.expect("released", f.walk(f"hold:{root.id}").released, 5)
    b.expect("the other is none of it", b.state(r), "schedule")
    b.expect(
        "the parent died of it", (b.state(root.id), f.pump(), b.state(rest)), ("dead", [f"sweep:{root.id}"], "dead")
    )


@scenario("a root that is cancelled while it is held takes its flow with it")
def root_cancelled(b: Bench) -> None:
    f = Flows(b)
    root, away = NewJob(), NewJob()
    kids = _kids(1, "0", "1")
    f.add(LocalNode(job=root, kids=True), *kids, f.abroad(away, root.id, name="f"), hold=root.id, last=False)
    b.on("cancel", CancelRequest(root.id, "why"))
    b.expect("two entries, and one unsent", len(f.owed()), 3)
    walked = f.walk(f"sweep:{root.id}")
    b.expect("swept, and never sent", (walked.cancelled, walked.sent), (3, 0))
    b.refuses("no further round", f"EMQGONE {root.id}", f.add, *_kids(root.id, "9"), hold=root.id)
    f.later(f"hold:{root.id}", 0)
    b.expect(
        "the hold ends", (f.pump(), [s for s in b.look().entries if s.startswith("job:")]), ([f"hold:{root.id}"], [])
    )


@scenario("a held job whose id is another flow's by now is left to it")
def held_by_another(b: Bench) -> None:
    f = Flows(b)
    root, other = NewJob(), NewJob()
    child = NewJob()
    f.add(LocalNode(job=root, kids=True), LocalNode(job=child, parent=1, name="0"), hold=root.id, last=False)
    b.on("remove", child.id)
    f.add(LocalNode(job=other, kids=True), LocalNode(job=child, parent=1, name="0"), hold=other.id, last=False)
    f.later(f"hold:{root.id}", 0)
    f.pump()
    b.expect("the other's", (b.state(child.id), b.row(child.id)["hold"], b.state(root.id)), ("waiting", other.id, ""))
    f.add(*_kids(other.id, "1"), hold=other.id)
    f.pump()
    b.expect("runs with it", b.state(child.id), "pending")


@scenario("parents that are held are asked nothing, however long they wait")
def patient(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), *_kids(1, "0"), hold=root.id, last=False)
    for id in b.look().zset("waiting"):
        b.rescore("waiting", id, 1000)
    names = f.pump()
    b.expect(
        "asked for nothing",
        (min(names).split(":")[0], b.state(root.id), f.ended(root.id)),
        ("reconcile", "waiting", {}),
    )
    f.later(f"hold:{root.id}", -DAY_MS)
    f.pump()


@scenario("a round in which every job's dedup key is taken adds nothing, and the flow goes on", 22)
def empty_round(b: Bench) -> None:
    f = Flows(b)
    holder = b.add(dedup="k", delay_ms=YEAR_MS)
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), *_kids(1, "0"), hold=root.id, last=False)
    node = LocalNode(job=NewJob(dedup="k"), parent=root.id, name="d", policy=Policy.IGNORE)
    b.expect("added", f.add(node, hold=root.id), [f"duplicate {holder}"])
    b.expect("released", (f.pump(), f.ended(root.id)), ([f"hold:{root.id}"], {"d": "duplicate"}))
    f.complete(b.take())
    b.expect("its turn", b.take().id, root.id)


@scenario("a step that was broken off is taken again: what it had begun with is not left out", 39)
def again(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    kids = _kids(1, "0", "1")
    f.add(LocalNode(job=root, kids=True), *kids, hold=root.id)
    first = kids[0]
    b.server.hdel(b.keys.job(first.job.id if isinstance(first, LocalNode) else ""), "hold")
    f.pump()
    b.expect(
        "both run", sorted(b.look().zset("pending")), sorted(it.job.id for it in kids if isinstance(it, LocalNode))
    )
    gone = NewJob()
    loose = LocalNode(job=NewJob(), parent=1, name="0")
    f.add(LocalNode(job=gone, kids=True), loose, hold=gone.id, last=False)
    b.server.hdel(b.keys.job(loose.job.id), "hold")
    f.later(f"hold:{gone.id}", 0)
    b.expect("what is not held is not taken back", (f.pump(), b.state(loose.job.id)), ([f"hold:{gone.id}"], "waiting"))
    b.on("remove", loose.job.id)
