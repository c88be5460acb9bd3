"""Children of a running job: spawned under its token, waited for by suspending, and follow-ups that come with its end."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import FAR, Flows
from echomq.conformance.items import DAY_MS, YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.conformance.scheduling import Schedules
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.protocol.words import pack_words
from echomq.transitions import (
    SPAWNER,
    CancelRequest,
    Completion,
    Delivery,
    ForeignNode,
    LocalNode,
    Suspension,
    pack_nodes,
)
from echomq.transitions.nodes import Node, spell_nodes


@scenario("only who holds a job spawns its children: a zombie's never come", 1, 31)
def fenced(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    b.expect("spawned", f.spawn(parent, "0"), ["admitted"])
    b.expect("its parent", (b.row(parent.id)["children"], f.children(parent.id).keys()), ("1", {"0"}))
    child = b.take()
    b.expect("a child", b.row(child.id)["parent"], f"{parent.id}  0")
    b.expire(parent.id)
    b.worker.plain("reap")
    b.refuses("reaped", "EMQSTALE pending", f.spawn, parent, "1")
    again = b.take()
    b.refuses("claimed by another", "EMQSTALE active", f.spawn, parent, "1")
    b.expect("the new one may", f.spawn(again, "1"), ["admitted"])
    b.server.zrem(b.keys.active, again.id)
    b.refuses("torn", "EMQSTALE torn", f.spawn, again, "2")
    b.server.zadd(b.keys.active, {again.id: b.clock() + DAY_MS})
    b.refuses(
        "gone",
        "EMQGONE",
        b.worker.bare,
        "spawn",
        NewJob().id,
        1,
        "n",
        *spell_nodes([LocalNode(job=NewJob(), parent=0, name="0")]),
    )


@scenario("a name that a job has spawned before is answered with that child, and how it ended, and adds nothing", 31)
def known(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "open", "done")
    f.spawn(parent, "gone", policy=Policy.DETACH)
    ids = {name: text.split(" ")[0] for name, text in f.children(parent.id).items()}
    jobs = f.claim(*ids.values())
    f.complete(jobs[ids["done"]])
    b.settle("release", parent)
    again = b.take()
    rows = len(list(b.look().rows()))
    below = (
        LocalNode(job=NewJob(), parent=SPAWNER, name="open", kids=True),
        LocalNode(job=NewJob(), parent=1, name="x"),
    )
    with b.unchanged():
        b.expect("known", f.spawn(again, *below), [f"known {ids['open']}", "skipped"])
        b.expect(
            "ended", f.spawn(again, "done", "gone"), [f"known {ids['done']} completed", f"known {ids['gone']} detached"]
        )
    b.expect("the rest of a call comes", f.spawn(again, "done", "new"), [f"known {ids['done']} completed", "admitted"])
    b.expect("one more", len(list(b.look().rows())), rows + 1)


@scenario("a call that spawns is refused as a whole: malformed, a collision, a closing queue", 31)
def refused(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    job = NewJob()
    other = f.family("0")
    for text, node in {
        "EMQKIND parent": LocalNode(job=job),
        f"EMQKIND parent {other.parent}": LocalNode(job=job, parent=other.parent, name="x"),
        "EMQKIND parent 1": LocalNode(job=job, parent=1, name="x"),
        "EMQKIND name": LocalNode(job=job, parent=SPAWNER),
        f"EMQSTATE collision {parent.id}": LocalNode(job=NewJob(id=parent.id), parent=SPAWNER, name="x"),
    }.items():
        if text == "EMQKIND parent":
            continue
        b.refuses(text, text, f.spawn, parent, node)
    twice = LocalNode(job=NewJob(), parent=SPAWNER, name="x")
    b.refuses("a name twice", "EMQKIND name x", f.spawn, parent, LocalNode(job=job, parent=SPAWNER, name="x"), twice)
    b.refuses("none", "EMQKIND spawn: it has no nodes", f.spawn, parent)
    b.refuses("too many", "EMQKIND node 257", f.spawn, parent, *(str(n) for n in range(257)))
    b.server.hset(b.keys.meta, "closing", 1)
    b.refuses("closing", "EMQSTATE closing", f.spawn, parent, "0")
    b.server.hdel(b.keys.meta, "closing")
    b.expect("no parent by that", "children" in b.row(parent.id), False)
    b.expect("resent", (f.spawn(parent, "0"), [v.code for v in b.worker.resend("spawn")]), (["admitted"], ["admitted"]))


@scenario("trees, children of other queues and taken dedup keys are spawned as a flow has them", 22, 31)
def trees(b: Bench) -> None:
    f = Flows(b)
    b.set_lane("a", weight="2")
    holder = b.add(dedup="k", delay_ms=YEAR_MS)
    parent = f.running()
    away, later = NewJob(), NewJob(lane="a", delay_ms=YEAR_MS)
    nodes: list[Node] = [
        LocalNode(job=NewJob(lane="a"), parent=SPAWNER, name="m", kids=True),
        LocalNode(job=later, parent=1, name="l"),
        f.abroad(away, parent.id, number=SPAWNER, name="f"),
        LocalNode(job=NewJob(dedup="k"), parent=SPAWNER, name="d", policy=Policy.IGNORE),
    ]
    b.expect("spawned", f.spawn(parent, *nodes), ["admitted"] * 3 + [f"duplicate {holder}"])
    b.expect("ended", (f.ended(parent.id), b.state(parent.id)), ({"d": "duplicate"}, "active"))
    b.expect("delivered", (f.pump(), f.far.row(away.id)["parent"]), ([f"add:{away.id}"], f"{parent.id} proof f"))
    b.expect("suspended", f.suspend(parent), ["waiting"])
    f.complete(f.far.take(), b=f.far)
    b.due(later.id)
    f.complete(b.take()), f.complete(b.take())
    f.pump()
    b.expect("all", (b.take().id, set(f.ended(parent.id))), (parent.id, {"m", "f", "d"}))


@scenario("a detached child is nobody's: it ends alone, and its spawner too", 31)
def detached(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0", policy=Policy.DETACH)
    child = b.take()
    b.expect("no parent", "parent" in b.row(child.id), False)
    with b.unchanged():
        told = Delivery("tell", parent.id, child.id, "0", b"completed 1 1 \n")
        b.expect("what it is told changes nothing", b.on("flow_deliver", told), ["again"])
    b.expect("ends", f.complete(parent), ["ok"])
    b.expect("no word", (f.owed(), b.state(child.id)), ([], "active"))
    b.expect("the child ends", f.complete(child), ["ok"])


@scenario("a job suspends until its children have ended; its lease and slot are free, its budget as it was", 31)
def suspends(b: Bench) -> None:
    f = Flows(b)
    b.configure(limit="1")
    parent = f.running(max_stalls=0)
    b.settle("checkpoint", parent, 3)
    b.settle("snooze", parent, 5)
    b.due(parent.id)
    parent = b.take()
    f.spawn(parent, "0")
    b.server.delete(b.keys.wake)
    b.expect("suspended", f.suspend(parent), ["waiting"])
    row = b.row(parent.id)
    b.expect("given back", [name for name in ("holder", "unfit_since") if name in row], [])
    b.expect("kept", (row["step"], row["attempts"], "failures" in row, "stalls" in row), ("3", "2", False, False))
    b.expect("where", (b.look().zset("active"), b.score("waiting", parent.id) is not None), ({}, True))
    b.expect("the slot rings", b.tokens(), 1)
    b.refuses("twice", "EMQSTALE waiting", f.suspend, parent)
    b.refuses("by nobody", "EMQGONE", b.on, "suspend", Suspension(NewJob().id, 1, "n"))
    f.complete(b.take())
    again = b.take()
    b.expect("a new attempt", (again.id, again.token), (parent.id, 3))
    b.expect("it ends", f.complete(again), ["ok"])


@scenario("suspending with no open child makes ready at once; with a failed one that buries, buries", 31)
def nothing_open(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    b.expect("without any", (f.suspend(parent), b.tokens() > 0), (["pending"], True))
    parent = b.take()
    f.spawn(parent, "0")
    f.complete(b.take())
    b.expect("all ended", f.suspend(parent), ["pending"])
    parent = b.take()
    f.spawn(parent, "1", "2")
    dead = b.take()
    f.die(dead)
    b.expect("broken", (f.suspend(parent), b.state(parent.id)), (["dead"], "dead"))
    b.expect("its sweep", f.owed(), [f"sweep:{parent.id}"])
    b.expect("together", f.suspend(*[f.running() for _ in range(0)]), [])
    f.pump()


@scenario("a failure that runs its parent does so once, and not each time that it waits again", 31)
def runs_once(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "bad", "worse", "open", policy=Policy.RUN_PARENT)
    bad, worse, rest = b.worker.claim(9).jobs
    b.expect("suspended", f.suspend(parent), ["waiting"])
    f.die(bad)
    b.expect("it runs", (b.state(parent.id), b.row(parent.id)["seen"]), ("pending", "1"))
    parent = b.take()
    b.expect("and waits", f.suspend(parent), ["waiting"])
    f.die(worse)
    b.expect("runs again for another", (b.state(parent.id), b.row(parent.id)["seen"]), ("pending", "2"))
    parent = b.take()
    b.expect("and waits", f.suspend(parent), ["waiting"])
    f.complete(rest)
    b.expect("for the last", b.state(parent.id), "pending")


@scenario("who suspends and was asked to stop is cancelled, its open children too", 31)
def cancelled(b: Bench) -> None:
    f = Flows(b)
    parent = f.running(result_ttl_ms=YEAR_MS)
    f.spawn(parent, "0")
    child = next(text.split(" ")[0] for text in f.children(parent.id).values())
    b.on("cancel", CancelRequest(parent.id, "why"))
    b.expect("cancelled", (f.suspend(parent), b.state(parent.id)), (["cancelled why"], "done"))
    b.expect("its child", (f.pump(), b.state(child)), ([f"sweep:{parent.id}"], ""))
    plain = f.running()
    b.on("cancel", CancelRequest(plain.id, "why"))
    b.expect("one that is not kept", (f.suspend(plain), b.state(plain.id)), (["cancelled why"], ""))


@scenario("a parent does not complete before its children have ended, and runs on", 31)
def open_children(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0", "1")
    b.refuses("two open", "EMQSTATE children 2", f.complete, parent)
    follow = pack_nodes([LocalNode(job=NewJob())])
    b.refuses("nor do its follow-ups come", "EMQSTATE children 2", f.complete, parent, follow=follow)
    first, second = b.worker.claim(9).jobs
    f.complete(first)
    b.refuses("one open", "EMQSTATE children 1", f.complete, parent)
    f.complete(second)
    b.expect("none open", (f.complete(parent), f.owed()), (["ok"], []))
    parent = f.running(result_ttl_ms=YEAR_MS)
    f.spawn(parent, "0", "1")
    first, second = b.worker.claim(9).jobs
    f.die(first)
    b.expect("broken", (f.complete(parent), b.state(parent.id)), (["dead"], "dead"))
    f.pump()
    b.expect("the other", b.row(second.id)["cancel"], f"parent dead: {parent.id}")


@scenario("a parent that runs for a failure may complete at once: what is open is told to stop", 31)
def early(b: Bench) -> None:
    f = Flows(b)
    parent = f.running(result_ttl_ms=YEAR_MS)
    f.spawn(parent, "bad", "run", "wait", policy=Policy.RUN_PARENT)
    bad, run = b.worker.claim(2).jobs
    f.die(bad)
    wait = f.children(parent.id)["wait"].split(" ")[0]
    b.expect("completed", (f.complete(parent), b.state(parent.id), f.owed()), (["ok"], "done", [f"sweep:{parent.id}"]))
    b.expect("swept", f.pump(), [f"sweep:{parent.id}"])
    b.expect("told", (b.state(wait), b.row(run.id)["cancel"]), ("", f"parent ended: {parent.id}"))
    b.expect(
        "the one that runs ends",
        (b.settle("release", run), b.state(run.id)),
        (f"cancelled parent ended: {parent.id}", ""),
    )


@scenario("a late holder's completion of a parent hangs on its children, too", 21, 31)
def late_holder(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0")
    child = b.take()
    b.expire(parent.id)
    b.worker.plain("reap")
    b.refuses("open", "EMQSTATE children 1", f.complete, parent)
    f.complete(child)
    follow = NewJob()
    b.expect(
        "now", (f.complete(parent, follow=pack_nodes([LocalNode(job=follow)])), b.state(follow.id)), (["ok"], "pending")
    )


@scenario("follow-ups come with the completion, or not at all: a zombie's never come", 1, 31)
def follow_ups(b: Bench) -> None:
    f = Flows(b)
    job = f.running()
    here, later, away = NewJob(lane="new"), NewJob(delay_ms=YEAR_MS), NewJob()
    f.far.client()
    nodes: list[Node] = [LocalNode(job=here), LocalNode(job=later), f.abroad(away)]
    follow = pack_nodes(nodes)
    stale = Completion(job.id, job.token + 1, job.nonce, b"", follow)
    b.refuses("a zombie's", "EMQSTALE active", b.on, "complete", stale, driver=b.worker)
    b.refuses(
        "one that is gone", "EMQGONE", b.on, "complete", Completion(NewJob().id, 1, "n", b"", follow), driver=b.worker
    )
    b.server.delete(b.keys.wake)
    b.expect("accepted", f.complete(job, follow=follow), ["ok"])
    b.expect("they come", (b.state(here.id), b.state(later.id), f.owed()), ("pending", "schedule", [f"add:{away.id}"]))
    row = b.row(here.id)
    b.expect("as jobs of their own", ("parent" in row, row["by"], row["lane"]), (False, b.worker.tag, "new"))
    b.expect("rung", b.tokens() >= 2, True)
    b.expect("sent", (f.pump(), "parent" in f.far.row(away.id)), ([f"add:{away.id}"], False))
    with b.unchanged():
        b.expect("resent", [v.code for v in b.worker.resend("complete")], ["ok"])
    b.expect("once more", f.complete(job, follow=follow), ["EMQGONE"])
    b.expect("its lane", b.lanes_of(b.worker.claim(9)), "n")


@scenario("the first follow-up of a queue comes also when the call's first items have none", 31)
def later_item(b: Bench) -> None:
    f = Flows(b)
    b.add(), b.add()
    first, second = b.worker.claim(2).jobs
    follow = NewJob()
    items = [
        Completion(first.id, first.token, first.nonce, b""),
        Completion(second.id, second.token, second.nonce, b"", pack_nodes([LocalNode(job=follow)])),
    ]
    b.expect("both", (b.on("complete", *items, driver=b.worker), b.state(follow.id)), (["ok", "ok"], "pending"))
    b.expect("meta", b.look().hash("meta").get("flows"), "1")
    b.expect("nothing is owed", f.owed(), [])


@scenario("a completion with follow-ups that are malformed, or are there, is refused, and the job runs on", 31)
def follow_refused(b: Bench) -> None:
    f = Flows(b)
    job = f.running()
    there = b.add()
    for text, follow in {
        "EMQKIND name": pack_nodes([LocalNode(job=NewJob(), kids=True), LocalNode(job=NewJob(), parent=1)]),
        "EMQKIND parent 0": pack_nodes([LocalNode(job=NewJob(), parent=SPAWNER, name="x")]),
        "EMQKIND node 1": pack_words(["x"]),
        f"EMQSTATE collision {there}": pack_nodes([LocalNode(job=NewJob(id=there))]),
        "EMQKIND follow: its nodes are malformed": b"\0\0\0\t x",
    }.items():
        b.refuses(text, text, f.complete, job, follow=follow)
    b.expect("it runs on", b.state(job.id), "active")
    b.expect("none, after all", f.complete(job), ["ok"])


@scenario(
    "a follow-up whose dedup key is taken stays out, and the completion stands; one's own key is free for the next",
    22,
    31,
)
def follow_duplicate(b: Bench) -> None:
    f = Flows(b)
    b.add(dedup="k", delay_ms=YEAR_MS)
    job = f.running()
    twin, other = NewJob(dedup="k"), NewJob()
    b.expect("completed", f.complete(job, follow=pack_nodes([LocalNode(job=twin), LocalNode(job=other)])), ["ok"])
    b.expect("the other came", (b.state(twin.id), b.state(other.id)), ("", "pending"))
    parent = NewJob()
    below = [LocalNode(job=parent, kids=True), LocalNode(job=NewJob(), parent=1, name="0")]
    b.expect("a tree", (f.complete(b.take(), follow=pack_nodes(below)), b.state(parent.id)), (["ok"], "waiting"))
    b.expect("its child", f.complete(b.take()), ["ok"])
    b.expect("its turn", b.take().id, parent.id)


@scenario("a claim says when the outbox owes something, and wakes for what it will owe", 12)
def owed(b: Bench) -> None:
    f = Flows(b)
    b.expect("nothing", b.worker.claim(1).owed, False)
    job = NewJob()
    f.far.client()
    f.add(ForeignNode(queue=FAR, id=job.id, nodes=[LocalNode(job=job)]))
    reply = b.worker.claim(1, cap_ms=60_000)
    b.expect("owed", (reply.owed, reply.due), (True, False))
    f.later(f"add:{job.id}", 500)
    reply = b.worker.claim(1, cap_ms=60_000)
    b.expect("not yet", (reply.owed, 0 < reply.next_ms <= 500), (False, True))
    f.take()
    f.later(f"add:{job.id}", 0)
    s = Schedules(b)
    s.put()
    s.comes()
    reply = b.worker.claim(1)
    b.expect("both", (reply.owed, reply.due), (True, True))
