"""A dead parent's new life: its failed children are brought back before it, wherever they are (section 7)."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.transitions import Delivery, Ending, LocalNode


@scenario("redriving a dead parent brings back the children that failed it, and waits for them", 41)
def revived(b: Bench) -> None:
    f = Flows(b)
    it = f.family("bad", "good", "swept")
    jobs = {job.id: job for job in b.worker.claim(2).jobs}
    f.complete(jobs[it["good"]]), f.die(jobs[it["bad"]])
    f.pump()
    b.expect("died", [b.state(id) for id in (it.parent, it["bad"], it["swept"])], ["dead"] * 3)
    b.expect("redriven", b.on("redrive", it.parent), ["ok"])
    row = b.row(it.parent)
    b.expect("it waits", (row["state"], row["hold"], f.owed()), ("waiting", "revive", [f"revive:{it.parent}"]))
    b.expect("as new", [name for name in ("broken", "reason", "kind", "early", "seen", "swept") if name in row], [])
    walked = f.walk(f"revive:{it.parent}")
    b.expect("did", (walked.more, walked.redriven), (False, 2))
    b.expect("they run again", [b.state(it[n]) for n in ("bad", "swept")], ["pending"] * 2)
    b.expect(
        "what is known", (f.ended(it.parent), b.row(it.parent).get("hold"), f.owed()), ({"good": "completed"}, None, [])
    )
    f.complete(*f.claim(it["bad"], it["swept"]).values())
    b.expect("its turn", b.state(it.parent), "pending")
    b.expect("results", set(f.ended(it.parent).values()), {"completed"})
    b.expect("its end", (f.complete(b.take()), b.count("redriven")), (["ok"], 3))


@scenario("a redriven parent without failed children runs at once; one with children redriven before finds them", 41)
def nothing_failed(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0")
    f.complete(b.take())
    b.bury(it.parent)
    b.expect("redriven", (b.on("redrive", it.parent), f.pump()), (["ok"], [f"revive:{it.parent}"]))
    b.expect("ready", b.state(it.parent), "pending")
    b.on("remove", it.parent)
    it = f.family("0", "1")
    f.die(*f.claim(*it.kids.values()).values())
    f.pump()
    b.on("redrive", it["0"], it["1"])
    alive = b.take()
    b.on("redrive", it.parent)
    b.expect("they are alive", (f.walk(f"revive:{it.parent}").redriven, f.ended(it.parent)), (2, {}))
    f.complete(alive)
    b.expect("it waits for both", b.state(it.parent), "waiting")
    f.complete(b.take())
    b.expect("ready", b.state(it.parent), "pending")


@scenario("children of other policies are brought back if their parent's death buried them, else they stay", 41)
def other_policies(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "i", "waits", policy=Policy.IGNORE)
    f.spawn(parent, "d", policy=Policy.DETACH)
    ignored = b.take()
    f.die(ignored)
    waits, loose = (
        text.split(" ")[0]
        for name, text in sorted(f.children(parent.id).items(), reverse=True)
        if name in {"waits", "d"}
    )
    f.die(parent)
    f.pump()
    b.expect("buried", b.row(waits)["reason"], f"parent dead: {parent.id}")
    b.on("redrive", parent.id)
    walked = f.walk(f"revive:{parent.id}")
    b.expect("one comes back", (walked.redriven, b.state(waits), b.state(ignored.id)), (1, "pending", "dead"))
    b.expect("the rest is as it was", f.ended(parent.id), {"i": "dead", "d": "detached"})
    for job in b.worker.claim(9).jobs:
        b.settle("complete", job)
    b.expect("loose", (b.state(loose), b.state(parent.id)), ("", "pending"))


@scenario("an ignored child that its parent's death buried, and that is gone, is left as it ended", 41)
def ignored_and_gone(b: Bench) -> None:
    f = Flows(b)
    parent = f.running()
    f.spawn(parent, "0", policy=Policy.IGNORE)
    f.die(parent)
    f.pump()
    b.on("remove", f.children(parent.id)["0"].split(" ")[0])
    b.expect("redriven", (b.on("redrive", parent.id), f.pump()), (["ok"], [f"revive:{parent.id}"]))
    b.expect("it runs without", (b.state(parent.id), f.ended(parent.id)), ("pending", {"0": "dead"}))


@scenario(
    "a child that cannot come back buries its parent again, and is named: gone, kept as cancelled, its key taken",
    22,
    41,
)
def cannot(b: Bench) -> None:
    f = Flows(b)
    for how in ("removed", "cancelled", "key", "stranger"):
        it = f.family("0", dedup="k", result_ttl_ms=YEAR_MS) if how != "removed" else f.family("0")
        claimed = b.take()
        if how == "cancelled":
            b.on("end", Ending(claimed.id, claimed.token, claimed.nonce, "cancelled", "why"), driver=b.worker)
        else:
            f.die(claimed)
        b.expect("dead", b.state(it.parent), "dead")
        why = {"removed": "dead, and not in the morgue", "cancelled": "cancelled, and not in the morgue"}.get(how, "")
        if how == "removed":
            b.on("remove", claimed.id)
        elif how == "key":
            why = f"duplicate {b.add(dedup='k', delay_ms=YEAR_MS)}"
        elif how == "stranger":
            b.on("remove", claimed.id)
            b.on("enqueue", NewJob(id=claimed.id, delay_ms=YEAR_MS))
            why = "dead, and not in the morgue"
        b.expect(f"{how}: redriven", (b.on("redrive", it.parent), f.pump()), (["ok"], [f"revive:{it.parent}"]))
        row = b.row(it.parent)
        b.expect(
            f"{how}: why", (row["state"], row["reason"]), ("dead", f"child 0 ({claimed.id}) cannot be run again: {why}")
        )
        b.ground.end_all()
        f.pump()


@scenario("a child that ended while its parent was being brought back is no news to it before the walk is over", 41)
def meanwhile(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1")
    f.die(*f.claim(*it.kids.values()).values())
    f.pump()
    b.on("redrive", it.parent, it["0"])
    f.complete(b.take())
    b.expect("held", (b.state(it.parent), f.ended(it.parent)), ("waiting", {"0": "completed", "1": "dead"}))
    f.pump()
    b.expect("the other comes back", (b.state(it.parent), f.ended(it.parent)), ("waiting", {"0": "completed"}))
    f.complete(b.take())
    b.expect("ready", b.state(it.parent), "pending")


@scenario("a tree of dead parents comes back from the top to the bottom", 41)
def whole_tree(b: Bench) -> None:
    f = Flows(b)
    top, middle, low, side = (NewJob() for _ in range(4))
    f.add(
        LocalNode(job=top, kids=True),
        LocalNode(job=middle, parent=1, name="m", kids=True),
        LocalNode(job=low, parent=2, name="l"),
        LocalNode(job=side, parent=2, name="s"),
    )
    f.die(b.take())
    b.expect("redrive waits for the sweep", b.on("redrive", middle.id), ["EMQSTATE sweeping"])
    f.pump()
    b.on("redrive", top.id)
    b.expect("walks", f.pump(), [f"revive:{top.id}", f"revive:{middle.id}"])
    f.complete(*f.claim(low.id, side.id).values())
    f.complete(*f.claim(middle.id).values())
    b.expect("the top's turn", b.take().id, top.id)


@scenario("a walk that is over, or was overtaken, does nothing; one in rounds goes on where it stood", 41)
def walks(b: Bench) -> None:
    f = Flows(b)
    root = NewJob()
    nodes = [LocalNode(job=NewJob(), parent=1 if n < 255 else root.id, name=str(n)) for n in range(600)]
    f.add(LocalNode(job=root, kids=True), *nodes[:255], hold=root.id, last=False)
    f.add(*nodes[255:511], hold=root.id, last=False)
    f.add(*nodes[511:], hold=root.id)
    f.pump()
    f.die(*b.worker.claim(250).jobs)
    f.pump()
    b.expect("all are dead", len(b.look().zset("dead")), 601)
    b.on("redrive", root.id)
    steps, total = 0, 0
    for walked in f.steps(f"revive:{root.id}", bound=100):
        steps, total = steps + 1, total + walked.redriven
        b.expect("held yet", b.row(root.id).get("hold"), "revive" if walked.more else None)
    b.expect("all came back", (total, steps > 3, f.ended(root.id)), (600, True, {}))
    with b.unchanged():
        b.expect("over", f.walk(f"revive:{root.id}").redriven, 0)
    it = f.family("0", priority=9)
    f.die(b.take())
    b.on("redrive", it.parent)
    b.server.hdel(b.keys.job(it.parent), "hold")
    b.expect(
        "nothing for one that is not held", (f.walk(f"revive:{it.parent}").redriven, b.state(it["0"])), (0, "dead")
    )
    b.on("remove", it.parent)


@scenario("children of other queues are redriven by word, once each life: a repeated word changes nothing", 15, 41)
def abroad(b: Bench) -> None:
    f = Flows(b)
    it = f.family("bad", "swept", abroad=True)
    f.die(f.far.take(), b=f.far)
    f.pump()
    b.expect("both died", [f.far.state(id) for id in it.kids.values()], ["dead"] * 2)
    b.on("redrive", it.parent)
    walked = f.walk(f"revive:{it.parent}")
    b.expect("did", (walked.redriven, f.ended(it.parent), b.state(it.parent)), (2, {}, "waiting"))
    words = f.take().entries
    b.expect("word", sorted(entry.name for entry in words), sorted(f"redrive:{id}" for id in it.kids.values()))
    b.expect("delivered", [f.deliver(entry) for entry in words], ["alive"] * 2)
    b.expect("alive", [f.far.state(id) for id in it.kids.values()], ["pending"] * 2)
    with f.far.unchanged():
        b.expect("again", [f.deliver(entry) for entry in words], ["alive"] * 2)
    jobs = f.claim(*it.kids.values(), b=f.far)
    f.die(jobs[it["bad"]], b=f.far)
    before = f.far.look()
    again = next(entry for entry in words if entry.name.endswith(it["bad"]))
    b.expect("after its next death", (f.deliver(again), f.far.state(it["bad"])), ("alive", "dead"))
    b.expect("it is told", ("tell" in str(f.owed(f.far)), before.row(it["bad"]) == f.far.row(it["bad"])), (True, True))
    f.pump()
    b.expect("buried again", b.state(it.parent), "dead")
    for job in jobs.values():
        f.far.settle("release", job)
    f.pump()
    b.on("redrive", it.parent)
    f.pump()
    f.complete(*f.claim(*it.kids.values(), b=f.far).values(), b=f.far)
    f.pump()
    b.expect("at last", (b.state(it.parent), set(f.ended(it.parent).values())), ("pending", {"completed"}))


@scenario(
    "a child of another queue that cannot come back is lost, and buries its parent; an unsent end is not", 15, 22, 41
)
def lost_abroad(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", abroad=True)
    claimed = f.far.take()
    f.die(claimed, b=f.far)
    f.pump()
    f.far.on("remove", claimed.id)
    b.on("redrive", it.parent)
    f.pump()
    b.expect(
        "lost",
        (b.state(it.parent), b.row(it.parent)["reason"]),
        ("dead", f"child 0 ({claimed.id}) lost: nobody knows it"),
    )
    b.expect("counted", b.count("lost"), 1)
    keyed = f.family("0", abroad=True, dedup="k")
    claimed = f.far.take()
    f.die(claimed, b=f.far)
    f.pump()
    f.far.add(dedup="k", delay_ms=YEAR_MS)
    b.on("redrive", keyed.parent)
    f.pump()
    b.expect("its key is taken", (b.state(keyed.parent), f.far.state(claimed.id)), ("dead", "dead"))
    ask = Delivery("redrive", NewJob().id, it.parent, "1", b"0")
    with f.far.unchanged():
        b.expect("nobody", f.far.on("flow_deliver", ask), ["lost"])
        other = Delivery("redrive", claimed.id, it.parent, "1", b"0")
        b.expect("another's", f.far.on("flow_deliver", other), ["lost"])
    under_way = f.family("0", abroad=True)
    f.complete(f.far.take(), b=f.far)
    asks = [Delivery(kind, under_way["0"], under_way.parent, "1", b"0") for kind in ("redrive", "ask")]
    with f.far.unchanged():
        b.expect("its end is under way", f.far.on("flow_deliver", *asks), ["alive"] * 2)
    f.pump()


@scenario("a child of another queue that is a parent itself waits for its sweep before it comes back", 15, 41)
def sweeping_abroad(b: Bench) -> None:
    f = Flows(b)
    root, middle, low = NewJob(), NewJob(), NewJob()
    side = NewJob(delay_ms=YEAR_MS)
    below = (LocalNode(job=low, parent=1, name="l"), LocalNode(job=side, parent=1, name="s"))
    f.add(LocalNode(job=root, kids=True), f.abroad(middle, root.id, below=below))
    f.pump()
    f.die(f.far.take(), b=f.far)
    told = next(entry for entry in f.take(f.far).entries if entry.kind == "tell")
    f.deliver(told, f.far)
    b.expect("the root died", b.state(root.id), "dead")
    b.on("redrive", root.id)
    f.walk(f"revive:{root.id}")
    word = f.take().entries[0]
    with f.far.unchanged():
        b.expect("not yet", f.deliver(word), "EMQSTATE")
    f.far.server.zadd(f.far.keys.outbox, dict.fromkeys(f.owed(f.far), 1))
    f.pump()
    b.server.zadd(b.keys.outbox, {word.name: 1})
    f.pump()
    b.expect("now", (f.far.state(middle.id), f.far.state(low.id)), ("waiting", "pending"))


@scenario(
    "a word that comes again finds an end that was told already, and has it told once more, whatever it was", 15, 41
)
def told_again(b: Bench) -> None:
    f = Flows(b)
    for how in ("dead", "done"):
        it = f.family("0", abroad=True, result_ttl_ms=YEAR_MS)
        first = f.far.take()
        f.die(first, b=f.far)
        f.pump()
        b.on("redrive", it.parent)
        f.walk(f"revive:{it.parent}")
        word = f.take().entries[0]
        f.deliver(word)
        second = f.far.take()
        (f.die if how == "dead" else f.complete)(second, b=f.far)
        taken = f.take(f.far)
        f.far.other.plain("flow_done", till=taken.till, done=f.owed(f.far))
        b.expect(f"{how}: nothing is owed", f.owed(f.far), [])
        with f.far.unchanged():
            other = Delivery("redrive", it["0"], NewJob().id, "2", b"0")
            b.expect(f"{how}: another's word", f.far.on("flow_deliver", other), ["lost"])
        b.expect(
            f"{how}: again", (f.deliver(word), f.far.state(it["0"]), f.owed(f.far)), ("alive", how, [f"tell:{it['0']}"])
        )
        taken = f.take(f.far)
        f.far.other.plain("flow_done", till=taken.till, done=f.owed(f.far))
        ask = Delivery("ask", it["0"], it.parent, "", b"0")
        b.expect(f"{how}: asked", (f.far.on("flow_deliver", ask), f.owed(f.far)), (["alive"], [f"tell:{it['0']}"]))
        b.server.zadd(b.keys.outbox, {word.name: 1})
        f.pump()
        b.expect(f"{how}: its parent", b.state(it.parent), "dead" if how == "dead" else "pending")
        b.on("remove", it.parent)
        f.far.on("remove", it["0"])
