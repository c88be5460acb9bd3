"""A parent's lives: what is left of one of them does not reach into the next, nor bring one that is over back."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, LocalNode


@scenario("a parent that is ended while it is being brought back stays ended, kept or dead, and its children stay", 41)
def ended_meanwhile(b: Bench) -> None:
    f = Flows(b)
    for bad in (False, True):
        it = f.family("0", root=NewJob(result_ttl_ms=YEAR_MS))
        if bad:
            f.die(b.take())
        else:
            f.complete(b.take())
            b.bury(it.parent)
        b.on("redrive", it.parent)
        b.expect("cancelled", b.on("cancel", CancelRequest(it.parent, "why")), ["cancelled why"])
        b.expect("held no more", (b.state(it.parent), b.row(it.parent).get("hold")), ("done", None))
        walked = f.walk(f"revive:{it.parent}")
        b.expect("over", (walked.more, walked.redriven, b.state(it.parent)), (False, 0, "done"))
        b.expect("its child", b.state(it["0"]), "dead" if bad else "")
        b.on("remove", it.parent, *[it["0"]] * bad)
    root, middle, low = NewJob(), NewJob(), NewJob()
    low_node = LocalNode(job=low, parent=2, name="l")
    f.add(LocalNode(job=root, kids=True), LocalNode(job=middle, parent=1, name="m", kids=True), low_node)
    f.complete(b.take())
    f.die(b.take())
    b.on("redrive", root.id)
    f.walk(f"revive:{root.id}")
    b.expect("both come back", [b.row(it.id)["state"] for it in (root, middle)], ["waiting"] * 2)
    b.expect("the middle is held", b.row(middle.id)["hold"], "revive")
    b.on("remove", root.id)
    f.walk(f"sweep:{root.id}")
    b.expect("the middle ends with the root", (b.state(middle.id), f.pump()), ("", [f"revive:{middle.id}"]))


@scenario("a parent that dies again while a child of it is being brought back takes that along, and it stays dead", 41)
def dies_meanwhile(b: Bench) -> None:
    f = Flows(b)
    root, middle, low, other = NewJob(), NewJob(), NewJob(), NewJob(priority=-1)
    f.add(
        LocalNode(job=root, kids=True),
        LocalNode(job=middle, parent=1, name="m", kids=True),
        LocalNode(job=low, parent=2, name="l"),
        LocalNode(job=other, parent=1, name="o"),
    )
    f.complete(b.take())
    b.bury(middle.id)
    f.walk(f"sweep:{root.id}")
    b.on("redrive", root.id)
    b.expect("both come back", (f.walk(f"revive:{root.id}").redriven, b.row(middle.id)["hold"]), (2, "revive"))
    b.bury(other.id)
    f.walk(f"sweep:{root.id}")
    b.expect(
        "died with the root",
        (b.row(middle.id)["reason"], b.row(middle.id).get("hold")),
        (f"parent dead: {root.id}", None),
    )
    f.walk(f"revive:{middle.id}")
    b.expect("it stays dead", (b.state(middle.id), f.owed()), ("dead", []))
    b.on("redrive", root.id)
    f.pump()
    f.complete(*f.claim(middle.id, other.id).values())
    b.expect("until the root lives", b.take().id, root.id)


@scenario("each step of a parent's last life that comes late, or twice, leaves its next one alone", 15, 41)
def late_word(b: Bench) -> None:
    f = Flows(b)
    it = f.family("bad", "runs", abroad=True)
    jobs = f.claim(*it.kids.values(), b=f.far)
    f.die(jobs[it["bad"]], b=f.far)
    told = f.take(f.far).entries[0]
    f.deliver(told, f.far)
    f.walk(f"sweep:{it.parent}")
    word = next(entry for entry in f.take().entries if entry.kind == "cancel")
    b.expect("redriven", b.on("redrive", it.parent), ["ok"])
    f.walk(f"revive:{it.parent}")
    redrive = next(entry for entry in f.take().entries if entry.kind == "redrive")
    b.expect("alive", (f.deliver(redrive), f.far.state(it["bad"])), ("alive", "pending"))
    b.expect("its old end is no news any more", f.owed(f.far), [])
    b.expect("the old word comes now", (f.deliver(word), f.far.row(it["runs"])["swept"]), ("asked", "1"))
    f.far.settle("release", jobs[it["runs"]])
    b.expect("it ended for a death that is over", f.far.row(it["runs"])["reason"], f"parent dead: {it.parent}")
    f.pump()
    b.expect("so it comes back", (b.state(it.parent), f.far.state(it["runs"])), ("waiting", "pending"))
    b.expect("no failure of its parent", "broken" in b.row(it.parent), False)
    f.deliver(word)
    b.expect("and once more", f.far.state(it["runs"]), "dead")
    f.pump()
    b.expect("which is made good, too", (b.state(it.parent), f.far.state(it["runs"])), ("waiting", "pending"))
    f.complete(*f.claim(*it.kids.values(), b=f.far).values(), b=f.far)
    f.pump()
    b.expect("at last", (b.state(it.parent), set(f.ended(it.parent).values())), ("pending", {"completed"}))


@scenario("a child that was asked to stop when its parent died comes back with it, whenever it stops", 41)
def asked_comes_back(b: Bench) -> None:
    f = Flows(b)
    for policy in (Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT):
        parent = f.running()
        f.spawn(parent, "0", "1", policy=policy)
        first, second = b.worker.claim(9).jobs
        f.die(parent)
        f.pump()
        b.expect(f"{policy}: asked", b.row(first.id)["swept"], "1")
        b.on("redrive", parent.id)
        b.settle("release", first)
        b.expect(f"{policy}: before the walk", (b.state(first.id), b.state(parent.id)), ("dead", "waiting"))
        f.pump()
        b.expect(f"{policy}: back", (b.state(first.id), b.state(parent.id)), ("pending", "waiting"))
        b.settle("release", second)
        b.expect(f"{policy}: after it", (b.state(second.id), b.row(parent.id).get("hold")), ("dead", "revive"))
        f.pump()
        b.expect(f"{policy}: back, too", (b.state(second.id), f.ended(parent.id)), ("pending", {}))
        f.complete(*f.claim(first.id, second.id).values())
        b.expect(f"{policy}: its turn", f.complete(b.take()), ["ok"])
    lone = f.family("0")
    b.on("cancel", CancelRequest(lone["0"], "parent dead: somebody"))
    b.expect("of another reason is a failure", b.state(lone.parent), "dead")


@scenario("a child that is a parent, and whose own sweep is not over, is waited for when its parent comes back", 41)
def sweeping_child(b: Bench) -> None:
    f = Flows(b)
    root, middle, low = NewJob(), NewJob(), NewJob(delay_ms=YEAR_MS)
    f.add(
        LocalNode(job=root, kids=True),
        LocalNode(job=middle, parent=1, name="m", kids=True),
        LocalNode(job=low, parent=2, name="l"),
        LocalNode(job=NewJob(), parent=1, name="bad"),
    )
    f.die(b.take())
    f.walk(f"sweep:{root.id}")
    b.expect("the middle died, and tells its own", (b.state(middle.id), f.owed()), ("dead", [f"sweep:{middle.id}"]))
    b.expect("redriven", b.on("redrive", root.id), ["ok"])
    walked = f.walk(f"revive:{root.id}")
    b.expect("the walk", (walked.more, walked.redriven, b.state(root.id)), (False, 2, "waiting"))
    b.expect("the middle is owed its turn", f"redrive:{middle.id}" in f.owed(), True)
    b.expect("not at once", (b.score("outbox", f"redrive:{middle.id}") or 0) > b.clock(), True)
    b.rescore("waiting", root.id, 1000)
    taken = f.take()
    b.expect("the root asks", f"reconcile:{root.id}" in [entry.name for entry in taken.entries], True)
    f.walk(f"reconcile:{root.id}")
    b.expect("and is not told of an end that is over", (f.owed(), f.ended(root.id)), (sorted(f.owed()), {}))
    b.expect("none was lost", [name for name in f.owed() if name.startswith("tell:")], [])
    f.walk(f"sweep:{middle.id}")
    f.later(f"redrive:{middle.id}", 0)
    f.pump()
    b.expect("all live", [b.state(it.id) for it in (root, middle, low)], ["waiting", "waiting", "pending"])


@scenario("a parent that a child's failure buries, and that was asked to stop, is cancelled when it completes", 17, 31)
def asked_and_broken(b: Bench) -> None:
    f = Flows(b)
    for ttl in (None, YEAR_MS):
        parent = f.running(result_ttl_ms=ttl)
        f.spawn(parent, "0", "1")
        f.die(b.take())
        b.on("cancel", CancelRequest(parent.id, "why"))
        b.expect("cancelled", (f.complete(parent), b.state(parent.id)), (["cancelled why"], "done" if ttl else ""))
        f.pump()
    parent = f.running()
    f.spawn(parent, "0")
    b.on("cancel", CancelRequest(parent.id, "why"))
    f.complete(b.take())
    b.expect("one that can complete does", f.complete(parent), ["ok"])


@scenario("a late holder's completion buries a parent that a child's failure buries", 21, 31)
def late_and_broken(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0")
    f.die(b.take())
    b.expire(parent.id)
    b.worker.plain("reap")
    b.expect("buried", (f.complete(parent), b.state(parent.id)), (["dead"], "dead"))
    b.expect("why", b.row(parent.id)["reason"].startswith("child 0 ("), True)
