"""The outbox: taken by one at a time, struck off when it was delivered, put back when not; and parents that ask."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import FAR, MINUTE, Flows
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.protocol.words import pack_words
from echomq.transitions import CancelRequest, Delivery, ForeignNode, LocalNode, Look


def _sent(f: Flows, count: int, size: int = 0) -> list[str]:
    """Owe so many jobs to the other queue; answers the entries' names."""
    f.far.client()
    jobs = [NewJob(payload=b"x" * size) for _ in range(count)]
    for at in range(0, count, 4):
        some = jobs[at : at + 4]
        f.add(*(ForeignNode(queue=FAR, id=job.id, nodes=[LocalNode(job=job)]) for job in some))
    return [f"add:{job.id}" for job in jobs]


@scenario("whoever takes entries has them for half a minute; then others may", 15)
def taken(b: Bench) -> None:
    f = Flows(b)
    names = _sent(f, 3)
    first = f.take(bound=2)
    b.expect("as many as asked for", [entry.name for entry in first.entries], names[:2])
    b.expect("more at once", first.next_ms, 0)
    b.expect("for half a minute", 29_000 < (b.score("outbox", names[0]) or 0) - b.clock() <= 30_000.5, True)
    b.expect("the score is told", b.score("outbox", names[0]), float(first.till))
    second = f.take()
    b.expect("the others are another's", [entry.name for entry in second.entries], names[2:])
    b.expect("when to come again", 25_000 < second.next_ms <= 30_001, True)
    b.expect("nothing now", (f.take().entries, f.take(cap_ms=500).next_ms), ((), 500))
    f.later(names[1], 0)
    b.expect("when its time is over", [entry.name for entry in f.take().entries], [names[1]])
    f.pump()


@scenario("what was delivered is struck off, unless somebody has taken it since, or there is news under its name", 15)
def struck(b: Bench) -> None:
    f = Flows(b)
    names = _sent(f, 3)
    mine = f.take()
    while b.clock() + 30_000 < float(mine.till) + 1:
        pass
    f.later(names[1], -1)
    theirs = f.take()
    b.expect("taken by another", ([e.name for e in theirs.entries], theirs.till != mine.till), ([names[1]], True))
    b.expect("struck off", b.other.plain("flow_done", till=mine.till, done=names), 2)
    b.expect("left", f.owed(), [names[1]])
    b.expect("by whoever has it", b.other.plain("flow_done", till=theirs.till, done=names), 1)
    b.expect("empty", (f.owed(), "outbox" in b.look().entries), ([], False))
    with b.unchanged():
        b.expect("again", b.other.plain("flow_done", till=theirs.till, done=names), 0)
    it = f.family("0", abroad=True)
    f.die(f.far.take(), b=f.far)
    old = f.take(f.far)
    f.deliver(old.entries[0], f.far)
    f.far.on("redrive", it["0"])
    f.complete(f.far.take(), b=f.far)
    b.expect("news under its name", f.far.other.plain("flow_done", till=old.till, done=[old.entries[0].name]), 0)
    f.pump()
    b.expect("are told", f.ended(it.parent), {"0": "completed"})


@scenario("what could not be delivered is put back for a while, and rings when that is the soonest", 12, 15)
def put_back(b: Bench) -> None:
    f = Flows(b)
    names = _sent(f, 2)
    took = f.take()
    b.server.delete(b.keys.wake)
    done, later = names[:1], names[1:]
    b.expect("both", b.other.plain("flow_done", till=took.till, done=done, later=later, delay_ms=5000), 2)
    b.expect("later", (f.owed(), 4000 < int(b.score("outbox", names[1]) or 0) - b.clock() <= 5000), (later, True))
    b.expect("rung", b.tokens(), 1)
    b.expect("known as one that was taken", (b.score("outbox", names[1]) or 0) % 1, 0.5)
    with b.unchanged():
        b.expect("not twice", b.other.plain("flow_done", till=took.till, done=[], later=later, delay_ms=9000), 0)
    b.expect("not yet", f.take().entries, ())
    for bad in (
        ["x", 0, 0],
        ["1.5", -1, 0],
        ["1.5", 86_400_001, 0],
        ["1.5", 0, 257],
        ["1.5", 0, "x"],
        ["1.5", 0, 0, *["n"] * 257],
    ):
        b.refuses(str(bad[:3]), "EMQKIND flow_done", b.other.bare, "flow_done", *bad)
    b.expect("256 names", b.other.plain("flow_done", till="1.5", done=["n"] * 256), 0)
    f.later(names[1], 0)
    f.pump()


@scenario("entries taken together stay below a mebibyte, but for the first", 24)
def bytes_bound(b: Bench) -> None:
    f = Flows(b)
    big = _sent(f, 5, 300_000)
    b.expect("three", [entry.name for entry in f.take().entries], big[:3])
    b.expect("the rest", [entry.name for entry in f.take().entries], big[3:])
    for name in big:
        f.later(name, 0)
    f.pump()
    job = NewJob(payload=b"x" * 800_000)
    root = NewJob(payload=b"y" * 800_000)
    f.add(ForeignNode(queue=FAR, id=root.id, nodes=[LocalNode(job=root), LocalNode(job=job)]))
    b.expect("one that is larger", [e.name for e in f.take().entries], [f"add:{root.id}"])
    f.later(f"add:{root.id}", 0)
    f.pump()
    small = _sent(f, 300)
    b.expect("256 at most", len(f.take(bound=256).entries), 256)
    for name in small:
        f.later(name, 0)
    f.pump()
    for bad in ([0, 1], [257, 1], ["x", 1], [1, 0], [1, 86_400_001], [1, "x"]):
        b.refuses(str(bad), "EMQKIND flow_take", b.other.bare, "flow_take", *bad)


@scenario("a queue without flows owes nothing, and is not asked about it")
def without_flows(b: Bench) -> None:
    b.add()
    with b.unchanged():
        b.expect("take", (b.other.plain("flow_take").entries, b.other.plain("flow_take", cap_ms=77).next_ms), ((), 77))
        b.expect("done", b.other.plain("flow_done", till="1.5", done=["tell:x"]), 0)
        b.expect("walk", b.other.plain("flow_walk", entry="sweep:x").more, False)
    b.server.zadd(b.keys.waiting, {"JOB00000000001": 1})
    with b.unchanged():
        b.expect("nobody's patience ends", b.other.plain("flow_take").entries, ())
    b.server.zrem(b.keys.waiting, "JOB00000000001")


@scenario("a parent that has waited for a minute asks what became of its children: ends that were not told are", 15)
def reconciled(b: Bench) -> None:
    f = Flows(b)
    it = f.family("kept", "dead", "gone", "alive", policy=Policy.IGNORE, result_ttl_ms=YEAR_MS)
    jobs = f.claim(*it.kids.values())
    f.complete(jobs[it["kept"]]), f.die(jobs[it["dead"]]), f.complete(jobs[it["gone"]])
    b.server.delete(b.keys.results(it.parent))
    b.on("remove", it["gone"])
    b.expect("not yet", (f.take().entries, 50_000 < f.take().next_ms <= MINUTE), ((), True))
    b.rescore("waiting", it.parent, b.clock() - MINUTE - 1)
    b.expect("asks", [entry.name for entry in f.take().entries], [f"reconcile:{it.parent}"])
    b.expect("again in a minute", b.clock() - (b.score("waiting", it.parent) or 0) < 10_000, True)
    walked = f.walk(f"reconcile:{it.parent}")
    b.expect("did", (walked.more, walked.lost, walked.sent), (False, 1, 0))
    b.expect("lost", (f.told(it.parent, "gone"), b.count("lost")), (("lost", "0", "nobody knows it", ""), 1))
    b.expect("told again", f.owed(), sorted(f"tell:{it[n]}" for n in ("kept", "dead")))
    f.pump()
    b.expect("how they ended", f.ended(it.parent), {"kept": "completed", "dead": "dead", "gone": "lost"})
    b.expect(
        "what they left", (f.told(it.parent, "kept")[3], f.told(it.parent, "dead")[3]), (it["kept"], '{"type":"E"}')
    )
    b.expect("why", f.told(it.parent, "dead")[2], b.row(it["dead"])["reason"])
    f.complete(jobs[it["alive"]])
    b.expect("ready", b.state(it.parent), "pending")


@scenario("a parent that asks while nothing is wrong changes nothing; sixteen ask at a time, each once", 15)
def patient(b: Bench) -> None:
    f = Flows(b)
    families = [f.family("0", delay_ms=YEAR_MS) for _ in range(20)]
    for n, it in enumerate(families):
        b.rescore("waiting", it.parent, 1000 + n)
    first = f.take()
    b.expect("sixteen", len(first.entries), 16)
    b.rescore("waiting", families[0].parent, 1000)
    for name in f.owed():
        f.later(name, 0)
    f.take()
    b.expect("the rest, and none twice", len(f.owed()), 20)
    for it in families:
        walked = f.walk(f"reconcile:{it.parent}")
        b.expect("nothing", (walked.lost, walked.sent, b.state(it.parent)), (0, 0, "waiting"))
    b.expect("over", f.owed(), [])


@scenario("a claim says when a parent's patience ends, whoever has claimed before", 15)
def patience(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", delay_ms=YEAR_MS)
    soon = b.worker.claim(1, cap_ms=60_000)
    b.expect("nothing yet", (soon.owed, 50_000 < soon.next_ms <= 60_000), (False, True))
    b.rescore("waiting", it.parent, b.clock() - MINUTE + 10_000)
    near = b.worker.claim(1, cap_ms=60_000)
    b.expect("when", (near.owed, near.next_ms <= 10_000), (False, True))
    b.rescore("waiting", it.parent, b.clock() - MINUTE)
    b.expect("now", b.other.claim(1).owed, True)
    b.expect("it asks", [entry.name for entry in f.take().entries], [f"reconcile:{it.parent}"])
    b.expect("not again", b.other.claim(1).owed, False)
    f.pump()


@scenario("a parent whose children have all ended, and that was not told so, is ready when it asks", 15)
def settled_by_asking(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", policy=Policy.IGNORE)
    b.server.hset(b.keys.results(it.parent), "0", "completed 1 1 \n")
    b.rescore("waiting", it.parent, 1000)
    f.pump()
    b.expect("ready", b.state(it.parent), "pending")
    b.on("remove", it.parent)
    asked = f.family("0")
    b.rescore("waiting", asked.parent, 1000)
    entry = next(e for e in f.take().entries if e.name == f"reconcile:{asked.parent}")
    b.on("cancel", CancelRequest(asked.parent, "why"))
    b.expect("one that is over", (f.deliver(entry), f.ended(asked.parent)), ("walked", {}))
    f.pump()
    lost = f.family("a", "b", "c", policy=Policy.IGNORE)
    for id in lost.kids.values():
        b.server.zrem(b.keys.pending, id), b.server.delete(b.keys.job(id))
    b.rescore("waiting", lost.parent, 1000)
    f.pump()
    b.expect("all lost", (b.state(lost.parent), set(f.ended(lost.parent).values())), ("pending", {"lost"}))


@scenario(
    "a parent asks other queues about its children: alive, ended, or unknown; not about those that are unsent", 15
)
def asks_abroad(b: Bench) -> None:
    f = Flows(b)
    it = f.family("alive", "kept", "gone", "quiet", abroad=True, policy=Policy.IGNORE, result_ttl_ms=YEAR_MS)
    jobs = f.claim(*it.kids.values(), b=f.far)
    f.complete(jobs[it["kept"]], b=f.far), f.complete(jobs[it["gone"]], b=f.far), f.complete(jobs[it["quiet"]], b=f.far)
    lost = f.take(f.far)
    f.far.other.plain("flow_done", till=lost.till, done=[f"tell:{it[n]}" for n in ("kept", "gone")])
    f.far.on("remove", it["gone"], it["quiet"])
    b.rescore("waiting", it.parent, 1000)
    asked = f.take()
    walked = f.walk(asked.entries[0].name)
    b.expect("asked", (walked.sent, walked.lost, f.owed()), (4, 0, sorted(f"ask:{id}" for id in it.kids.values())))
    with b.unchanged():
        b.expect(
            "its own queue says nothing",
            b.on("flow_deliver", Delivery("ask", NewJob().id, it.parent, "", b"x")),
            ["lost"],
        )
    verdicts = {entry.words[0].decode(): f.deliver(entry) for entry in f.take().entries}
    b.expect("answers", verdicts, {it["alive"]: "alive", it["kept"]: "alive", it["gone"]: "lost", it["quiet"]: "alive"})
    b.expect("lost", f.ended(it.parent), {"gone": "lost"})
    b.expect("counted", b.count("lost"), 1)
    stranger = Delivery("ask", it["alive"], NewJob().id, "", b"x")
    with f.far.unchanged():
        b.expect("a stranger asks", f.far.on("flow_deliver", stranger), ["lost"])
        b.expect(
            "of one that runs", f.far.on("flow_deliver", Delivery("ask", it["alive"], it.parent, "", b"x")), ["alive"]
        )
    for bench in (b, f.far):
        for name in bench.look().zset("outbox"):
            bench.server.zadd(bench.keys.outbox, {name: 1})
    f.pump()
    b.expect("told again", (f.ended(it.parent)["kept"], f.ended(it.parent)["quiet"]), ("completed", "completed"))
    f.complete(jobs[it["alive"]], b=f.far)
    f.pump()
    b.expect("ready", b.state(it.parent), "pending")
    root, job = NewJob(), NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id))
    f.take()
    b.rescore("waiting", root.id, 1000)
    f.take()
    b.expect("unsent", (f.walk(f"reconcile:{root.id}").sent, f.owed()), (0, [f"add:{job.id}"]))
    f.later(f"add:{job.id}", 0)
    f.pump()


@scenario("a child of another policy that is lost buries its parent, or is ignored", 15)
def lost_policies(b: Bench) -> None:
    f = Flows(b)
    for policy, state in ((Policy.FAIL_PARENT, "dead"), (Policy.RUN_PARENT, "pending"), (Policy.IGNORE, "waiting")):
        it = f.family("0", "1", policy=policy, delay_ms=YEAR_MS)
        b.server.zrem(b.keys.schedule, it["0"]), b.server.delete(b.keys.job(it["0"]))
        b.rescore("waiting", it.parent, 1000)
        f.pump()
        b.expect(f"{policy}", (b.state(it.parent), f.ended(it.parent)["0"]), (state, "lost"))
        b.on("remove", it.parent, it["1"])
        f.pump()


@scenario("an end that waits in the outbox, of a parent's own queue, is no loss", 15)
def end_waits(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0")
    b.server.set(b.keys.results(it.parent), "no hash")
    f.complete(b.take())
    b.server.delete(b.keys.results(it.parent))
    b.rescore("waiting", it.parent, 1000)
    f.take()
    b.expect("not lost", (f.walk(f"reconcile:{it.parent}").lost, f.ended(it.parent)), (0, {}))
    f.later(f"tell:{it['0']}", 0)
    f.pump()
    b.expect("told", f.ended(it.parent), {"0": "completed"})


@scenario("an entry that nobody understands is struck off, as is one of a queue that has forgotten its flows", 39)
def torn(b: Bench) -> None:
    f = Flows(b)
    f.family("0")
    b.server.hset(b.keys.outbox_entries, "what:x", pack_words(["what", "", "x", "0"]))
    b.server.zadd(b.keys.outbox, {"what:x": 1})
    b.expect("struck", (f.walk("what:x").more, f.owed()), (False, []))
    b.expect("a moment alone", b.server.zadd(b.keys.outbox, {"tell:x": 1}), 1)
    took = f.take()
    b.expect("is taken", [(e.name, e.kind) for e in took.entries], [("tell:x", "torn")])
    b.other.plain("flow_done", till=took.till, done=["tell:x"])
    b.on("repair", Look("key", "outbox"))


@scenario("what should not be among those that wait leaves them when its patience ends, and is counted", 39)
def misplaced(b: Bench) -> None:
    f = Flows(b)
    ready = f.family("0").kids["0"]
    b.server.zadd(b.keys.waiting, {ready: 1, "JOB00000000001": 1})
    b.configure(events="failures")
    b.expect("asked", f.pump(), ["reconcile:JOB00000000001", f"reconcile:{ready}"])
    b.expect("gone", (ready in b.look().zset("waiting"), len(b.look().zset("waiting"))), (False, 1))
    b.expect("counted", (b.count("torn"), b.count("dropped"), b.state(ready)), (1, 1, "pending"))
    told = [(words[1], words[3]) for _, words in b.look().items("events")]
    b.expect("told", sorted(told), [("dropped", "JOB00000000001"), ("torn", ready)])
    overtaken = f.family("1", priority=1)
    b.rescore("waiting", overtaken.parent, 1)
    f.take()
    f.complete(b.take())
    b.expect("one that went on", (f.walk(f"reconcile:{overtaken.parent}").more, b.count("torn")), (False, 1))


@scenario("a parent asks only about children whose end it does not know, and not while word to them is unsent", 15, 41)
def asks_for_the_rest(b: Bench) -> None:
    f = Flows(b)
    it = f.family("told", "open", abroad=True, policy=Policy.IGNORE)
    f.complete(f.far.take(), b=f.far)
    f.pump()
    b.rescore("waiting", it.parent, 1000)
    f.take()
    b.expect("of the open one", f.walk(f"reconcile:{it.parent}").sent, 1)
    b.server.zadd(b.keys.outbox, dict.fromkeys(f.owed(), 1))
    f.pump()
    f.complete(f.far.take(), b=f.far)
    f.pump()
    f.complete(b.take())
    dead = f.family("0", abroad=True)
    f.die(f.far.take(), b=f.far)
    f.pump()
    b.on("redrive", dead.parent)
    f.walk(f"revive:{dead.parent}")
    b.rescore("waiting", dead.parent, 1000)
    f.take()
    b.expect("its redrive is under way", f.walk(f"reconcile:{dead.parent}").sent, 0)
    b.server.zadd(b.keys.outbox, dict.fromkeys(f.owed(), 1))
    f.pump()
    b.expect("alive", (f.far.state(dead["0"]), b.state(dead.parent)), ("pending", "waiting"))
