"""What an ending parent owes its open children, and how a dead one is brought back with those that failed."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Delivery, Ending, LocalNode, Look, pack_nodes


@scenario("children of a cancelled parent end where they wait; one that runs is asked, with the reason", 30)
def cancelled(b: Bench) -> None:
    f = Flows(b)
    root, runs, ready, later, kept, inner, low = (NewJob() for _ in range(7))
    later, kept = NewJob(delay_ms=YEAR_MS), NewJob(result_ttl_ms=YEAR_MS)
    kin = {"runs": runs, "ready": ready, "later": later, "kept": kept}
    nodes = [LocalNode(job=root, kids=True), *(LocalNode(job=job, parent=1, name=name) for name, job in kin.items())]
    nodes += [LocalNode(job=inner, parent=1, name="inner", kids=True), LocalNode(job=low, parent=6, name="low")]
    f.add(*nodes)
    claimed = b.take()
    heard = b.server.pubsub(ignore_subscribe_messages=True)
    heard.subscribe(b.keys.base + "cancel")
    heard.get_message(timeout=1)
    b.expect("cancelled", b.on("cancel", CancelRequest(root.id, "why")), ["cancelled why"])
    b.expect("its children are known yet", sorted(f.children(root.id)), sorted([*kin, "inner"]))
    walked = f.walk(f"sweep:{root.id}")
    b.expect("did", (walked.more, walked.cancelled, walked.asked, walked.sent), (False, 4, 1, 0))
    reason = f"parent ended: {root.id}"
    b.expect("ended", [b.state(it.id) for it in (ready, later, kept, inner)], ["", "", "done", ""])
    b.expect("why", (b.row(kept.id)["kind"], b.row(kept.id)["reason"]), ("cancelled", reason))
    row = b.row(runs.id)
    b.expect("asked", (row["state"], row["cancel"], "swept" in row), ("active", reason, False))
    b.expect("told", (heard.get_message(timeout=1) or {}).get("data"), f"{runs.id} {claimed.token} {reason}".encode())
    heard.close()
    b.expect("what was known is gone", f.children(root.id), {})
    b.expect(
        "the inner one's child",
        (f.owed(), f.pump(), b.state(low.id)),
        ([f"sweep:{inner.id}"], [f"sweep:{inner.id}"], ""),
    )
    b.expect("it ends", (b.settle("release", claimed), b.state(runs.id)), (f"cancelled {reason}", ""))
    with b.unchanged():
        b.expect("no more of it", f.walk(f"sweep:{root.id}").cancelled, 0)


@scenario("who was asked to stop before keeps the first reason", 30)
def asked_before(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0")
    claimed = b.take()
    b.on("cancel", CancelRequest(claimed.id, "first"))
    b.on("cancel", CancelRequest(it.parent, "why"))
    walked = f.walk(f"sweep:{it.parent}")
    b.expect("did", (walked.asked, b.row(claimed.id)["cancel"]), (1, "first"))
    b.settle("release", claimed)


@scenario("every ending of a parent tells its open children: cancelled, removed, drained, discarded, expired, dead", 30)
def every_end(b: Bench) -> None:
    f = Flows(b)
    for how in ("cancel", "remove", "drain", "end", "expire", "fail", "deadline", "kept"):
        parent = f.running(result_ttl_ms=YEAR_MS if how == "kept" else None)
        f.spawn(parent, "0", policy=Policy.RUN_PARENT)
        child = f.children(parent.id)["0"].split(" ")[0]
        b.server.zrem(b.keys.pending, child)
        b.server.hset(b.keys.job(child), "state", "schedule")
        b.server.zadd(b.keys.schedule, {child: b.clock() + YEAR_MS})
        if how in {"drain", "expire", "deadline"}:
            b.settle("release", parent)
        if how in {"cancel", "remove"}:
            f.suspend(parent)
        match how:
            case "cancel":
                b.on("cancel", CancelRequest(parent.id, "why"))
            case "remove":
                b.expect("removed", b.on("remove", parent.id), ["ok"])
            case "drain":
                b.producer.plain("drain")
            case "end" | "kept":
                b.on("end", Ending(parent.id, parent.token, parent.nonce, "discarded", "why"), driver=b.worker)
            case "fail":
                f.die(parent)
            case "expire" | "deadline":
                b.server.hset(b.keys.job(parent.id), "deadline_ms", 1)
                b.worker.claim(1)
        b.expect(f"{how}: owed", f.owed(), [f"sweep:{parent.id}"])
        f.pump()
        died = how in {"fail", "expire", "deadline"}
        b.expect(
            f"{how}: the child", (b.state(child), b.row(child).get("kind")), ("dead", "dead") if died else ("", None)
        )
        left = died or how == "kept"
        b.expect(f"{how}: what is known", bool(f.children(parent.id)), left)
        b.on("remove", parent.id, child)
        b.expect(f"{how}: removed", [s for s in b.look().entries if s.startswith("job:")], [])


@scenario("children of a dead parent are buried with it, so that they can be brought back with it", 30, 41)
def buried(b: Bench) -> None:
    f = Flows(b)
    it = f.family("bad", "runs", "asked", "waits")
    jobs = {job.id: job for job in b.worker.claim(3).jobs}
    f.die(jobs[it["bad"]])
    reason = f"parent dead: {it.parent}"
    b.expect("redrive waits", b.on("redrive", it.parent), ["EMQSTATE sweeping"])
    b.expect("swept", f.pump(), [f"sweep:{it.parent}"])
    b.expect(
        "it waits no more",
        (b.state(it["waits"]), b.row(it["waits"])["reason"], b.row(it["waits"])["kind"]),
        ("dead", reason, "dead"),
    )
    b.expect("asked", [(b.row(it[n])["cancel"], b.row(it[n])["swept"]) for n in ("runs", "asked")], [(reason, "1")] * 2)
    b.settle("release", jobs[it["runs"]])
    row = b.row(it["runs"])
    b.expect(
        "dead, not cancelled",
        (row["state"], row["reason"], "swept" in row, "cancel" in row),
        ("dead", reason, False, False),
    )
    claimed = jobs[it["asked"]]
    ending = Ending(claimed.id, claimed.token, claimed.nonce, "cancelled", reason)
    b.expect("by its own word", (b.on("end", ending, driver=b.worker), b.state(claimed.id)), (["ok"], "dead"))
    b.expect("counted", (b.count("cancelled"), b.count("dead")), (0, 5))
    b.expect("known", f.ended(it.parent), dict.fromkeys(it.kids, "dead"))
    other = f.family("bad", "disc")
    first, second = b.worker.claim(2).jobs
    f.die(first)
    f.pump()
    b.on("end", Ending(second.id, second.token, second.nonce, "discarded", "why"), driver=b.worker)
    b.expect("one that ends otherwise does so", f.ended(other.parent), {"bad": "dead", "disc": "discarded"})


@scenario("a sweep goes on in rounds, over any number of children, and over those that have ended", 30)
def rounds(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    first = [LocalNode(job=NewJob(), parent=1, name=str(n)) for n in range(255)]
    f.add(LocalNode(job=root, kids=True), *first, hold=root.id, last=False)
    rest = [LocalNode(job=NewJob(), parent=root.id, name=str(n)) for n in range(255, 511)]
    f.add(*rest, hold=root.id, last=False)
    more = [LocalNode(job=NewJob(), parent=root.id, name=str(n)) for n in range(511, 600)]
    f.add(*more, hold=root.id)
    f.pump()
    done = [b.take() for _ in range(3)]
    f.complete(*done)
    b.on("cancel", CancelRequest(root.id, "why"))
    steps, total = 0, 0
    for walked in f.steps(f"sweep:{root.id}", bound=100):
        steps, total = steps + 1, total + walked.cancelled
        b.expect("a step", walked.cancelled <= 130, True)
        b.expect("it is owed yet", f.owed(), [f"sweep:{root.id}"] * walked.more)
    b.expect("all", (total, steps > 3, f.children(root.id), b.count("cancelled")), (597, True, {}, 598))
    b.refuses("out of range", "EMQKIND bound 0", b.other.bare, "flow_walk", "sweep:x", 0)
    b.refuses("out of range", "EMQKIND bound 1001", b.other.bare, "flow_walk", "sweep:x", 1001)
    b.expect("a thousand", f.walk("sweep:x", bound=1000).more, False)


@scenario("a sweep leaves alone what is no child any more: another job of that id, one that is over", 30)
def not_its_own(b: Bench) -> None:
    f = Flows(b)
    it = f.family("other", "gone", "mine", policy=Policy.IGNORE)
    b.server.zrem(b.keys.pending, it["other"], it["gone"])
    b.server.delete(b.keys.job(it["other"]), b.keys.job(it["gone"]))
    b.on("enqueue", NewJob(id=it["other"]))
    b.on("cancel", CancelRequest(it.parent, "why"))
    walked = f.walk(f"sweep:{it.parent}")
    b.expect("did", (walked.cancelled, walked.asked), (1, 0))
    b.expect("the other stays", (b.state(it["other"]), b.state(it["mine"])), ("pending", ""))
    dead = f.family("d", "open", priority=1)
    f.die(b.take())
    b.server.hdel(b.keys.results(dead.parent), "d")
    walked = f.walk(f"sweep:{dead.parent}")
    b.expect("one that is over", (walked.cancelled, walked.asked), (1, 0))


@scenario("word goes to children of other queues; one that was not sent yet never is", 15, 30)
def abroad(b: Bench) -> None:
    f = Flows(b)
    it = f.family("runs", "waits", "kept", abroad=True, result_ttl_ms=YEAR_MS)
    unsent = NewJob()
    claimed = f.far.take()
    f.complete(f.far.take(), b=f.far)
    b.on("cancel", CancelRequest(it.parent, "why"))
    b.expect("swept", f.walk(f"sweep:{it.parent}").sent, 3)
    b.expect("word", f.owed(), sorted(f"cancel:{id}" for id in it.kids.values()))
    verdicts = {entry.words[0].decode(): f.deliver(entry) for entry in f.take().entries}
    b.expect("verdicts", sorted(verdicts.values()), ["asked", "cancelled", "gone"])
    b.expect("asked", f.far.row(claimed.id)["cancel"], f"parent ended: {it.parent}")
    f.far.settle("release", claimed)
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(unsent, root.id, name="0"))
    b.on("cancel", CancelRequest(root.id, "why"))
    walked = f.walk(f"sweep:{root.id}")
    b.expect("never sent", (walked.cancelled, walked.sent, f"add:{unsent.id}" in f.owed()), (1, 0, False))
    taken = NewJob()
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(taken, root.id, name="0"))
    b.expect("under way", [entry.name for entry in f.take().entries if entry.kind == "add"], [f"add:{taken.id}"])
    b.on("cancel", CancelRequest(root.id, "why"))
    walked = f.walk(f"sweep:{root.id}")
    b.expect("word follows it", (walked.cancelled, walked.sent), (0, 1))
    f.pump()


@scenario("a child that has come is told of its parent's end, whoever believes that it was never sent", 15, 30)
def came_unheard(b: Bench) -> None:
    f = Flows(b)

    def came(what: str) -> None:
        b.on("cancel", CancelRequest(root.id, "why"))
        walked = f.walk(f"sweep:{root.id}")
        b.expect(f"{what}: word follows it", (walked.cancelled, walked.sent), (0, 1))
        f.pump()
        b.expect(f"{what}: it has ended", f.far.state(job.id), "")

    root, job = NewJob(), NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id))
    took = f.take()
    f.deliver(took.entries[0])
    b.other.plain("flow_done", till=took.till, done=[], later=[took.entries[0].name])
    came("its taker heard no reply, and put it back")

    root, job = NewJob(), NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id))
    f.deliver(f.take().entries[0])
    b.server.zrem(b.keys.outbox, f"add:{job.id}")
    b.on("repair", Look("key", "outbox"))
    came("the outbox was torn, and mended")

    root, job = NewJob(), NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id), hold=root.id)
    # A step of the walk that lets it go was refused after that, a pump has taken it since, and the step is taken again.
    b.rescore("outbox", f"add:{job.id}", b.clock() + 0.5)
    f.deliver(f.take().entries[0])
    f.walk(f"hold:{root.id}")
    came("a step that let it go was taken again")


@scenario("a child of another queue whose parent died is buried there; another's job is left alone", 15, 30)
def buried_abroad(b: Bench) -> None:
    f = Flows(b)
    it = f.family("bad", "waits", "runs", abroad=True)
    jobs = {job.id: job for job in f.far.worker.claim(2).jobs}
    (waits,) = it.kids.values() - jobs.keys()
    bad, runs = jobs.values()
    f.die(bad, b=f.far)
    f.pump()
    reason = f"parent dead: {it.parent}"
    b.expect("the parent", (b.state(it.parent), f.far.row(waits)["reason"]), ("dead", reason))
    b.expect("asked", (f.far.row(runs.id)["swept"], f.far.row(runs.id)["cancel"]), ("1", reason))
    with f.far.unchanged():
        mine = Delivery("cancel", runs.id, NewJob().id, "ended", b"why")
        b.expect("a stranger's word", f.far.on("flow_deliver", mine), ["gone"])
        over = Delivery("cancel", bad.id, it.parent, "dead", b"why")
        b.expect("of one that is over", f.far.on("flow_deliver", over), ["gone"])
    f.far.settle("release", runs)
    b.expect("buried", f.far.state(runs.id), "dead")
    root, unsent = NewJob(), NewJob()
    f.add(
        LocalNode(job=root, kids=True), f.abroad(unsent, root.id, name="0"), LocalNode(job=NewJob(), parent=1, name="1")
    )
    f.die(b.take())
    f.pump()
    reason = f"parent dead: {root.id}"
    b.expect("one that was on its way is buried when it comes", f.far.row(unsent.id)["reason"], reason)


@scenario("a cancelled child that was never there is marked, so that it never comes", 15)
def unborn(b: Bench) -> None:
    job = NewJob()
    gone = Delivery("cancel", job.id, NewJob().id, "ended", b"why")
    b.expect("gone", b.on("flow_deliver", gone), ["gone"])
    b.expect("marked", b.look().entries[f"delivered:add:{job.id}"].ttl, True)
    with b.unchanged():
        b.expect(
            "late",
            [
                v.code
                for v in b.other.plain("flow_receive", entry=f"add:{job.id}", nodes=pack_nodes([LocalNode(job=job)]))
            ],
            ["admitted"],
        )


@scenario("what a delivery does not know is refused, and its neighbours are not", 1)
def unknown_kind(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", policy=Policy.IGNORE)
    bad = Delivery("no", it.parent, it["0"])  # type: ignore[arg-type]
    good = Delivery("tell", it.parent, it["0"], "0", b"discarded 1 1 why\n")
    b.expect("each", b.on("flow_deliver", bad, good), ["EMQKIND kind no", "ok"])
    b.expect("ready", b.state(it.parent), "pending")
    b.on("remove", it["0"])


@scenario("children that have ended are told nothing, also when they live again by themselves", 30)
def ended_before(b: Bench) -> None:
    f = Flows(b)
    it = f.family("done", "open", abroad=True, policy=Policy.IGNORE)
    f.complete(f.far.take(), b=f.far)
    f.pump()
    b.on("cancel", CancelRequest(it.parent, "why"))
    b.expect("word to one", f.walk(f"sweep:{it.parent}").sent, 1)
    f.pump()
    here = f.family("dead", "open", policy=Policy.IGNORE)
    dead = b.take()
    f.die(dead)
    b.on("redrive", dead.id)
    b.on("cancel", CancelRequest(here.parent, "why"))
    b.expect("one is open", (f.walk(f"sweep:{here.parent}").cancelled, b.state(dead.id)), (1, "pending"))


@scenario("a job that its dead parent asked to stop is buried however it stops, so that it can be brought back", 30, 41)
def stops(b: Bench) -> None:
    f = Flows(b)
    for verb in ("release", "snooze", "rate_limited", "fail"):
        it = f.family("bad", "asked")
        bad, asked = f.claim(*it.kids.values()).values()
        f.die(bad)
        f.pump()
        word = b.settle(verb, asked, 1)
        b.expect(verb, (word, b.state(asked.id)), (f"cancelled parent dead: {it.parent}", "dead"))
        b.on("remove", it.parent, *it.kids.values())


@scenario(
    "a parent that waits is cancelled, and kept if it asked for that; shelves are trimmed by whoever fills them", 30, 35
)
def kept(b: Bench) -> None:
    f = Flows(b)
    b.configure(done_max="1")
    it = f.family("0", "1", "2", result_ttl_ms=YEAR_MS, root=NewJob(result_ttl_ms=YEAR_MS))
    b.expect(
        "cancelled", (b.on("cancel", CancelRequest(it.parent, "why")), b.state(it.parent)), (["cancelled why"], "done")
    )
    f.pump()
    b.expect("one is kept", len(b.look().zset("done")), 1)
    b.expect("the others are trimmed", (b.count("trimmed"), b.count("cancelled")), (3, 4))
    for _ in range(2):
        job = f.running(result_ttl_ms=YEAR_MS)
        b.on("cancel", CancelRequest(job.id, "why"))
        b.expect("suspends", f.suspend(job), ["cancelled why"])
    b.expect("trimmed", (b.count("trimmed"), len(b.look().zset("done"))), (5, 1))
    b.configure(done_max="")
    root, late, inner = NewJob(), NewJob(delay_ms=YEAR_MS, result_ttl_ms=YEAR_MS), NewJob(result_ttl_ms=YEAR_MS)
    nodes = [LocalNode(job=late, parent=1, name="l"), LocalNode(job=inner, parent=1, name="i", kids=True)]
    f.add(LocalNode(job=root, kids=True), *nodes, LocalNode(job=NewJob(), parent=3, name="0"))
    b.on("cancel", CancelRequest(root.id, "why"))
    f.pump()
    b.expect("whatever they waited for", [b.state(it.id) for it in (late, inner)], ["done"] * 2)


@scenario("word of a parent's end stops a child of another queue in whatever state it waits", 15, 30)
def states_abroad(b: Bench) -> None:
    f = Flows(b)
    f.far.configure(done_max="1")
    for died in (False, True):
        for ttl in (None, YEAR_MS):
            bad, ready, later, waits = (NewJob(result_ttl_ms=ttl) for _ in range(4))
            later = NewJob(result_ttl_ms=ttl, delay_ms=YEAR_MS)
            low = LocalNode(job=NewJob(delay_ms=YEAR_MS), parent=1, name="low")
            root = NewJob()
            nodes = [
                f.abroad(ready, root.id, name="ready"),
                f.abroad(later, root.id, name="later"),
                f.abroad(waits, root.id, name="waits", below=(low,)),
            ]
            f.add(LocalNode(job=root, kids=True), LocalNode(job=bad, parent=1, name="bad"), *nodes)
            f.pump()
            b.expect("states", [f.far.state(it.id) for it in (ready, later, waits)], ["pending", "schedule", "waiting"])
            if died:
                f.die(b.take())
            else:
                b.on("cancel", CancelRequest(root.id, "why"))
            f.pump()
            kinds = {f.far.row(it.id).get("kind") for it in (ready, later, waits)} - {None}
            b.expect(f"stopped {died} {ttl}", kinds, {"dead"} if died else {"cancelled"} if ttl else set())
            b.expect("and below", f.far.row(low.job.id).get("kind"), "dead" if died else None)
