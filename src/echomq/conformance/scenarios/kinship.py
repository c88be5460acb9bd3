"""Each way in which a child ends settles its parent by policy, once, in the same script or by word to another queue."""

from __future__ import annotations

from typing import Any, Final

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Family, Flows
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Outcome, Policy
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Delivery, Ending, LocalNode

ENDINGS: Final = (
    "completed", "dead", "stalled", "deadline", "cancelled", "asked", "discarded", "expired", "removed", "drained", "kept",
    "obliterated", "duplicate", "lost", "late",
)  # fmt: skip
KINDS: Final = {
    "stalled": "dead", "deadline": "dead", "asked": "cancelled", "drained": "removed", "kept": "completed",
    "obliterated": "removed", "late": "completed",
}  # fmt: skip


def _end(q: Bench, id: str, how: str) -> None:
    """End a pending job of a queue, by the verbs."""
    match how:
        case "completed" | "kept":
            q.settle("complete", q.take())
        case "dead":
            q.settle("fail", q.take())
        case "stalled":
            q.take()
            q.expire(id)
            q.worker.plain("reap")
        case "deadline" | "expired":
            q.server.hset(q.keys.job(id), {"deadline": "deadline_ms", "expired": "expires_ms"}[how], 1)
            q.worker.claim(1)
        case "cancelled":
            q.on("cancel", CancelRequest(id, "why"))
        case "asked":
            claimed = q.take()
            q.on("cancel", CancelRequest(id, "why"))
            q.settle("release", claimed)
        case "discarded":
            claimed = q.take()
            q.on("end", Ending(id, claimed.token, claimed.nonce, "discarded", "why"), driver=q.worker)
        case "removed":
            q.on("remove", id)
        case "drained":
            q.producer.plain("drain")
        case "obliterated":
            q.server.hset(q.keys.meta, "paused", 1)
            q.producer.plain("obliterate")
            q.producer.plain("resume")
        case "lost":
            q.server.delete(q.keys.job(id))
            q.server.zrem(q.keys.pending, id)
        case "late":
            claimed = q.take()
            q.expire(id)
            q.worker.plain("reap")
            q.settle("complete", claimed)


def _table(b: Bench, policy: Policy, how: str, *, abroad: bool) -> None:
    """A parent with a child that ends so and one that stays open: what becomes of the parent."""
    f = Flows(b)
    options: dict[str, Any] = (
        {"max_stalls": 0} if how == "stalled" else {"result_ttl_ms": YEAR_MS} if how == "kept" else {}
    )
    root, child, other = NewJob(), NewJob(**options), NewJob(delay_ms=YEAR_MS)
    if how == "duplicate":
        (f.far if abroad else b).add(dedup="k", delay_ms=YEAR_MS)
        child = NewJob(dedup="k")
    second = LocalNode(job=other, parent=1, name="other", policy=Policy.IGNORE)
    first = (
        f.abroad(child, root.id, policy=policy) if abroad else LocalNode(job=child, parent=1, name="0", policy=policy)
    )
    f.add(LocalNode(job=root, kids=True), second, first)
    f.pump()
    if how != "duplicate":
        _end(f.far if abroad else b, child.id, how)
    if how == "lost":
        b.rescore("waiting", root.id, 1000)
    f.pump()
    kind = KINDS.get(how, how)
    what = f"{how} {policy} {'abroad' if abroad else 'here'}"
    b.expect(f"{what}: known", f.ended(root.id).get("0"), kind)
    good = kind == "completed"
    expected = "waiting" if good or policy is Policy.IGNORE else "dead" if policy is Policy.FAIL_PARENT else "pending"
    b.expect(f"{what}: the parent", b.state(root.id), expected)
    if expected == "dead":
        text = f"child 0 ({child.id}) {kind}"
        b.expect(f"{what}: reason", b.row(root.id)["reason"].startswith(text), True)
        b.expect(
            f"{what}: the other", (b.state(other.id), b.row(other.id)["reason"]), ("dead", f"parent dead: {root.id}")
        )
    elif expected == "waiting":
        b.on("remove", other.id)
        b.expect(f"{what}: the last", (b.state(root.id), f.owed()), ("pending", []))
    with b.unchanged():
        again = Delivery("tell", root.id, child.id, "0", Outcome("discarded", 1, 1, "again", b"").spell())
        b.expect(f"{what}: told again", b.on("flow_deliver", again), ["again"])
    b.on("remove", root.id, other.id)
    f.pump()
    for each in b.queues.values():
        each.ground.end_all()


@scenario("each ending of a child, by each policy, settles a parent of its own queue in the script that ends it", 30)
def here(b: Bench) -> None:
    for how in ENDINGS:
        if how != "obliterated":  # its parent goes with it
            for policy in (Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT):
                _table(b, policy, how, abroad=False)


@scenario("each ending of a child, by each policy, settles a parent of another queue by word of the outbox", 15, 30)
def abroad(b: Bench) -> None:
    for how in ENDINGS:
        for policy in (Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT):
            _table(b, policy, how, abroad=True)


def _body(f: Flows, it: Family, name: str) -> tuple[str, str, str, str]:
    return f.told(it.parent, name)


@scenario("a parent learns of each child its token, why it ended, and what it left: a result or the last error")
def bodies(b: Bench) -> None:
    f = Flows(b)
    it = f.family(*"abcde", policy=Policy.IGNORE)
    jobs = f.claim(*it.kids.values())
    f.complete(jobs[it["a"]])
    f.die(jobs[it["b"]])
    claimed = jobs[it["c"]]
    b.on("end", Ending(claimed.id, claimed.token, claimed.nonce, "discarded", "line\nbreak\r"), driver=b.worker)
    b.settle("release", jobs[it["d"]])
    b.on("cancel", CancelRequest(it["d"], "why"))
    b.expect("completed", _body(f, it, "a"), ("completed", "1", "", it["a"]))
    kind, token, reason, body = _body(f, it, "b")
    b.expect(
        "dead",
        (kind, token, reason.startswith("failed"), body),
        ("dead", "1", reason.startswith("failed"), '{"type":"E"}'),
    )
    b.expect("its reason", reason, b.row(it["b"])["reason"])
    b.expect("discarded, in one line", _body(f, it, "c"), ("discarded", "1", "line break ", ""))
    b.expect("cancelled", _body(f, it, "d"), ("cancelled", "1", "why", ""))
    f.complete(jobs[it["e"]])
    b.expect("all", (b.state(it.parent), len(f.ended(it.parent))), ("pending", 5))


@scenario("the last children of a parent may end in one call: the parent is ready, once", 8)
def together(b: Bench) -> None:
    f = Flows(b)
    it = f.family(*(str(n) for n in range(9)))
    b.expect("all", set(f.complete(*f.claim(*it.kids.values()).values())), {"ok"})
    b.expect("ready", (b.state(it.parent), len(f.ended(it.parent))), ("pending", 9))
    b.expect("once", list(b.look().zset("pending")), [it.parent])
    two = [f.family("0", "1"), f.family("0", "1")]
    b.on("remove", it.parent)
    jobs = f.claim(*(id for one in two for id in one.kids.values()))
    order = [two[0]["0"], two[1]["0"], two[1]["1"], two[0]["1"]]
    f.complete(*(jobs[id] for id in order))
    b.expect("of two parents", [b.state(one.parent) for one in two], ["pending"] * 2)
    b.expect(
        "what each left", [f.told(one.parent, n)[3] for one in two for n in "01"], [one[n] for one in two for n in "01"]
    )


@scenario("children that end in one call, some well and one not, are all counted", 8)
def mixed(b: Bench) -> None:
    f = Flows(b)
    for policy in (Policy.IGNORE, Policy.RUN_PARENT, Policy.FAIL_PARENT):
        top, well, broken, low, last = (NewJob() for _ in range(5))
        nodes = [
            LocalNode(job=top, kids=True),
            LocalNode(job=well, parent=1, name="a"),
            LocalNode(job=broken, parent=1, name="b", policy=policy),
            LocalNode(job=last, parent=1, name="c"),
        ]
        f.add(*nodes)
        jobs = f.claim(well.id, broken.id, last.id)
        f.spawn(jobs[broken.id], LocalNode(job=low, parent=0, name="0"))
        f.die(b.take())
        verdicts = f.complete(*(jobs[it.id] for it in (well, broken, last)))
        b.expect("verdicts", verdicts, ["ok", "dead", "ok"])
        expected = "dead" if policy is Policy.FAIL_PARENT else "pending"
        b.expect(f"the parent, {policy}", (b.state(top.id), sorted(f.ended(top.id))), (expected, ["a", "b", "c"]))
        f.pump()
        b.ground.end_all()


@scenario("a parent that is running learns of its children's ends, and stays where it is")
def while_running(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0", "1")
    f.spawn(parent, "2", policy=Policy.RUN_PARENT)
    first, second, third = b.worker.claim(9).jobs
    f.complete(first), f.die(second), f.die(third)
    b.expect("told", (b.state(parent.id), f.ended(parent.id)), ("active", {"0": "completed", "1": "dead", "2": "dead"}))
    row = b.row(parent.id)
    b.expect(
        "kept for later",
        (row["broken"], row["early"]),
        (f"child 1 ({second.id}) dead: {b.row(second.id)['reason']}", "1"),
    )


@scenario("the first failure buries, and a long reason is cut")
def first_failure(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0", "1")
    first, second = b.worker.claim(9).jobs
    b.on("end", Ending(first.id, first.token, first.nonce, "discarded", "x" * 600), driver=b.worker)
    f.die(second)
    expected = f"child 0 ({first.id}) discarded: {'x' * 512}"
    b.expect("the reason", (f.suspend(parent), b.row(parent.id)["reason"]), (["dead"], expected))
    b.expect("its outcome is whole", f.told(parent.id, "0")[2], "x" * 600)
    other = f.family("0")
    b.on("remove", other["0"])
    b.expect("one without a reason", b.row(other.parent)["reason"], f"child 0 ({other['0']}) removed")


@scenario("a failure goes up a tree in one call, eight parents high; the rest by the outbox", 30)
def cascade(b: Bench) -> None:
    f = Flows(b)
    jobs = [NewJob() for _ in range(12)]
    nodes = [LocalNode(job=job, parent=n or "", name="0" if n else "", kids=n < 11) for n, job in enumerate(jobs)]
    f.add(*nodes)
    f.die(b.take())
    states = [b.state(job.id) for job in jobs]
    b.expect("nine died", states, ["waiting"] * 3 + ["dead"] * 9)
    b.expect("the tenth is owed", f.owed(), [f"tell:{jobs[3].id}"])
    b.expect("as an ending of its own", f.pump(), [f"tell:{jobs[3].id}"])
    b.expect("all died", {b.state(job.id) for job in jobs}, {"dead"})
    b.expect(
        "why",
        b.row(jobs[0].id)["reason"].startswith(f"child 0 ({jobs[1].id}) dead: child 0 ({jobs[2].id}) dead: "),
        True,
    )


@scenario("a parent whose row cannot be read does not keep its child from ending; it is told later", 39)
def torn_parent(b: Bench) -> None:
    f = Flows(b)
    for how in ("complete", "fail"):
        it = f.family("0")
        b.server.set(b.keys.results(it.parent), "no hash")
        claimed = b.take()
        b.settle(how, claimed)
        b.expect("it ended", (b.state(claimed.id) in {"", "dead"}, f.owed()), (True, [f"tell:{claimed.id}"]))
        b.server.delete(b.keys.results(it.parent))
        f.pump()
        b.expect(
            "told", (b.state(it.parent), list(f.ended(it.parent))), ("pending" if how == "complete" else "dead", ["0"])
        )
        b.on("remove", it.parent)


@scenario(
    "a child that was redriven by itself makes its failure good in its parent's eyes, which stays where it is", 41
)
def upgraded(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1", policy=Policy.IGNORE)
    jobs = f.claim(*it.kids.values())
    f.die(jobs[it["0"]])
    b.expect("redriven", b.on("redrive", it["0"]), ["ok"])
    with b.unchanged():
        b.expect("still its end", f.ended(it.parent), {"0": "dead"})
    f.die(b.take())
    b.expect("a second failure is none", f.told(it.parent, "0")[1], "1")
    b.on("redrive", it["0"])
    again = b.take()
    f.complete(again)
    b.expect("made good", (f.told(it.parent, "0"), b.state(it.parent)), (("completed", "3", "", it["0"]), "waiting"))
    with b.unchanged():
        spoiled = Delivery("tell", it.parent, it["0"], "0", b"completed 1 9 \nother")
        b.expect("once", b.on("flow_deliver", spoiled), ["again"])
    f.complete(jobs[it["1"]])
    b.expect("ready", b.state(it.parent), "pending")
    dead = f.family("0")
    b.on("remove", it.parent)
    f.die(b.take())
    b.on("redrive", dead["0"])
    f.complete(b.take())
    b.expect("a dead parent", (b.state(dead.parent), f.ended(dead.parent)), ("dead", {"0": "completed"}))


@scenario("a stranger's news change nothing, though it has a child's name: its parent's id was given anew", 30)
def stranger(b: Bench) -> None:
    f = Flows(b)
    old = f.family("0", "1")
    jobs = f.claim(*old.kids.values())
    b.on("remove", old.parent)
    f.pump()
    new = f.family("0", "x", root=NewJob(id=old.parent))
    f.complete(jobs[old["0"]], jobs[old["1"]])
    b.expect("its own are open", (f.ended(new.parent), b.state(new.parent)), ({}, "waiting"))
    b.on("cancel", CancelRequest(new["x"], "why"))
    b.expect("and count", (f.ended(new.parent), b.state(new.parent)), ({"x": "cancelled"}, "dead"))
    f.pump()


@scenario("a job's replacement keeps whose child it is, and its parent", 22)
def replaced(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", dedup="k")
    b.expect("replaced", b.enqueue(dedup="k", dedup_mode="replace", payload=b"new"), f"replaced {it['0']}")
    b.expect("still its child", (b.row(it["0"])["parent"], b.row(it["0"])["payload"]), (f"{it.parent}  0", "new"))
    f.complete(b.take())
    b.expect("settled", b.state(it.parent), "pending")
    b.on("remove", it.parent)
    parent = f.running(dedup="p")
    f.spawn(parent, "0")
    b.settle("release", parent)
    for name in ("broken", "early", "seen", "depth"):
        b.server.hset(b.keys.job(parent.id), name, "1")
    b.expect("a parent", b.enqueue(dedup="p", dedup_mode="replace"), f"replaced {parent.id}")
    row = b.row(parent.id)
    b.expect("its children", [row.get(it) for it in ("children", "broken", "early", "seen", "depth")], ["1"] * 5)
