"""Operators and flows: a queue that goes, trims, drains or is mended keeps what it owes to parents and children."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import FAR, Flows
from echomq.conformance.items import DAY_MS, YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.protocol.words import pack_words
from echomq.transitions import ForeignNode, LocalNode, Look, NewPayload, NewPriority, NewTime, Reassignment

NOBODY = "JOB00000000001"


@scenario("an obliterated queue tells the parents and children of other queues, and goes when that is delivered", 35)
def obliterated(b: Bench) -> None:
    f = Flows(b)
    it = f.family("here", "there", "runs", "dead", abroad=True, policy=Policy.IGNORE)
    jobs = {job.id: job for job in f.far.worker.claim(3).jobs}
    first, second, third = jobs.values()
    f.die(first, b=f.far), f.far.settle("release", second)
    f.pump()
    home = Flows(f.far)
    up = home.family("a", "b", root=NewJob(priority=-9))
    kept = home.family("k", root=NewJob(result_ttl_ms=YEAR_MS, priority=9), priority=9)
    f.complete(f.far.take(), b=f.far), f.complete(f.far.take(), b=f.far)
    b.expect("a kept parent", f.far.state(kept.parent), "done")
    beside = NewJob()
    root = NewJob()
    home.add(LocalNode(job=root, kids=True), ForeignNode(queue="proof", id=beside.id, parent=1, name="0", nodes=[
        LocalNode(job=beside, parent=f"{root.id} {FAR}", name="0")
    ]))  # fmt: skip
    f.pump()
    f.far.worker.plain("pause")
    f.far.settle("release", third)
    done = f.far.producer.plain("obliterate", bound=1000)
    owed = f.owed(f.far)
    open_ones = [id for id in it.kids.values() if id != first.id]
    b.expect("owed", owed, sorted([*(f"tell:{id}" for id in open_ones), f"sweep:{root.id}", f"sweep:{up.parent}"]))
    b.expect("left", (done.left, f.far.producer.plain("obliterate").left), (len(owed), len(owed)))
    known = sorted(s for s in f.far.look().entries if s.endswith(":children"))
    b.expect("what is known of children", known, sorted(f"job:{id}:children" for id in (up.parent, root.id)))
    b.expect("not of those that are over", f"job:{kept.parent}:children" in f.far.look().entries, False)
    f.pump()
    kinds = {name: "dead" if id == first.id else "removed" for name, id in it.kids.items()}
    b.expect("told", f.ended(it.parent), kinds)
    b.expect("why", {f.told(it.parent, n)[2] for n in it.kids if it[n] != first.id}, {"its queue was obliterated"})
    b.expect("tokens", {f.told(it.parent, n)[1] for n in it.kids}, {"0", "1"})
    b.expect("the child elsewhere", b.state(beside.id), "")
    b.expect("nothing is left", f.far.producer.plain("obliterate", last=True).left, 0)
    b.expect("gone", [s for s, e in f.far.look().entries.items() if not e.ttl], [])


@scenario("a forced obliterate does not wait for what is owed, and leaves none of it", 35)
def forced(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1", abroad=True)
    f.far.take()
    b.expect("forced", f.far.producer.plain("obliterate", force=True).left, 0)
    b.expect("owed yet", f.owed(f.far), sorted(f"tell:{id}" for id in it.kids.values()))
    f.far.producer.plain("obliterate", force=True, last=True)
    b.expect("gone", [s for s, e in f.far.look().entries.items() if not e.ttl], [])
    b.rescore("waiting", it.parent, 1000)
    f.pump()
    b.expect(
        "its parent hears that they are lost",
        (b.state(it.parent), set(f.ended(it.parent).values())),
        ("dead", {"lost"}),
    )


@scenario("what is trimmed off a shelf goes with all it knew of its children", 35)
def trimmed(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", root=NewJob(result_ttl_ms=DAY_MS))
    f.complete(b.take()), f.complete(b.take())
    b.expect("kept", (b.state(it.parent), sorted(f.children(it.parent))), ("done", ["0"]))
    dead = f.family("d")
    f.die(b.take())
    b.rescore("done", it.parent, 1000)
    b.rescore("dead", dead.parent, 1000)
    b.rescore("dead", dead["d"], 2000)
    b.producer.plain("trim", bound=100)
    b.expect("gone", [s for s in b.look().entries if s.startswith("job:")], [])
    swept = f.family("d", "open")
    f.die(b.take())
    b.rescore("dead", swept.parent, 1000)
    b.producer.plain("trim", bound=100)
    b.expect(
        "what its sweep needs stays", (b.state(swept.parent), sorted(f.children(swept.parent))), ("", ["d", "open"])
    )
    f.pump()
    b.expect("until it is over", (f.children(swept.parent), b.state(swept["open"])), ({}, "dead"))


@scenario("a parent that waits is not drained, nor put off, moved or redriven", 41)
def refusals(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0")
    b.refuses("reschedule", "EMQSTATE waiting", b.on, "reschedule", NewTime(it.parent, "+5"))
    b.refuses("reassign", "EMQSTATE waiting", b.on, "reassign", Reassignment(it.parent, "a"))
    b.refuses("redrive", "EMQSTATE waiting", b.on, "redrive", it.parent)
    b.expect("found", b.worker.plain("find", state="waiting").ids, (it.parent,))
    b.expect("its place", b.worker.plain("read_job", it.parent).score, b.score("waiting", it.parent))
    head = b.worker.plain("age").waiting
    b.expect("waits", (head.jobs, head.id, 0 <= head.ms < 60_000), (1, it.parent, True))
    changes = (b.on("update", NewPayload(it.parent, b"x")), b.on("reprioritise", NewPriority(it.parent, 3)))
    b.expect(
        "changed", (changes, b.row(it.parent)["payload"], b.row(it.parent)["priority"]), ((["ok"], ["ok"]), "x", "3")
    )
    other = f.family("1", delay_ms=YEAR_MS)
    b.expect("drained", b.producer.plain("drain"), 1)
    b.expect("the child only", (b.state(it["0"]), b.state(it.parent), b.state(other.parent)), ("", "dead", "waiting"))
    b.expect(
        "removed",
        (b.on("remove", other.parent), f.pump(), b.state(other["1"])),
        (["ok"], [f"sweep:{other.parent}"], ""),
    )


@scenario("repair finds flows sound, and lets parents that wait ask after their children", 39)
def sound(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1", delay_ms=YEAR_MS)
    root = NewJob()
    f.add(LocalNode(job=root, kids=True), LocalNode(job=NewJob(), parent=1, name="0"), hold=root.id, last=False)
    swept = f.family("d", "open", delay_ms=YEAR_MS)
    b.on("remove", swept.parent)
    ended = f.family("x", root=NewJob(result_ttl_ms=YEAR_MS))
    f.complete(b.take()), f.complete(b.take())
    ids = [id for id, _ in b.look().rows()]
    b.expect("rows", set(b.on("repair", *(Look("job", id) for id in (*ids, swept.parent, NOBODY)))), {"ok"})
    asks = [name for name in f.owed() if name.startswith("reconcile:")]
    b.expect("asks", asks, sorted(f"reconcile:{id}" for id in (it.parent, root.id)))
    b.expect("children are known", [bool(f.children(id)) for id in (it.parent, swept.parent, ended.parent)], [True] * 3)
    b.expect("held", len(b.look().items(f"job:{root.id}:held")), 2)
    f.later(asks[0], 500)
    with b.unchanged():
        b.expect("once", set(b.on("repair", *(Look("job", id) for id in ids))), {"ok"})
        b.expect("keys", b.on("repair", Look("key", "outbox"), Look("key", "outbox:entries")), ["ok", "ok"])
    f.later(asks[0], 0)
    f.pump()


@scenario("what is left of a parent without a row goes: its children's names, results, and what it held", 39)
def left_over(b: Bench) -> None:
    f = Flows(b)
    f.family("0")
    for key in (b.keys.children(NOBODY), b.keys.results(NOBODY)):
        b.server.hset(key, "0", f"{NOBODY} f ")
    b.server.rpush(b.keys.held(NOBODY), NOBODY)
    b.expect("dropped", b.on("repair", Look("job", NOBODY)), ["dropped 0"])
    b.expect("gone", [s for s in b.look().entries if NOBODY in s], [])


@scenario("keys of a wrong type beside a parent's row go, and its queue's outbox is put together again", 39)
def typed(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", delay_ms=YEAR_MS)
    b.server.set(b.keys.results(it.parent), "no hash")
    b.server.set(b.keys.held(it.parent), "no list")
    b.expect("mended", b.on("repair", Look("job", it.parent)), ["mended waiting"])
    b.expect("gone", [s for s in b.look().entries if s.endswith((":results", ":held"))], [])
    f.pump()
    root, job = NewJob(), NewJob()
    f.add(LocalNode(job=root, kids=True), f.abroad(job, root.id), f.abroad(NewJob(), root.id, name="1"))
    b.server.delete(b.keys.wake)
    b.server.zrem(b.keys.outbox, f"add:{job.id}")
    b.expect("due again", b.on("repair", Look("key", "outbox")), ["mended outbox"])
    score = b.score("outbox", f"add:{job.id}") or 0
    b.expect("now", (abs(score - b.clock()) < DAY_MS, b.count("mended")), (True, 2))
    b.server.delete(b.keys.outbox), b.server.delete(b.keys.wake)
    b.server.set(b.keys.outbox, "no zset")
    b.expect("dropped", b.on("repair", Look("key", "outbox")), ["dropped key"])
    b.expect("and again", (b.on("repair", Look("key", "outbox")), len(b.look().zset("outbox"))), (["mended outbox"], 2))
    b.expect("rung", b.tokens() > 0, True)
    f.pump()
    b.expect("delivered", f.far.state(job.id), "pending")
    plain = f.far.beside("plain")
    plain.add()
    with plain.unchanged():
        b.expect("a queue without flows", plain.on("repair", Look("key", "outbox")), ["ok"])


@scenario("a child whose row is torn is buried by repair, and its parent told; so are a torn parent's children", 39)
def buried(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1", delay_ms=YEAR_MS)
    b.server.hdel(b.keys.job(it["0"]), "state")
    b.server.zrem(b.keys.schedule, it["0"])
    b.expect("buried", b.on("repair", Look("job", it["0"])), ["buried no state"])
    b.expect(
        "its parent",
        (b.state(it.parent), f.ended(it.parent)["0"], f.pump(), b.state(it["1"])),
        ("dead", "dead", [f"sweep:{it.parent}"], "dead"),
    )
    up = f.family("0", delay_ms=YEAR_MS)
    b.server.hdel(b.keys.job(up.parent), "state")
    b.expect(
        "a parent", (b.on("repair", Look("job", up.parent)), f.owed()), (["buried no state"], [f"sweep:{up.parent}"])
    )
    f.pump()
    b.expect("its child", b.state(up["0"]), "dead")


@scenario("a wait that lost its place is found by repair, and goes on", 39)
def out_of_place(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", delay_ms=YEAR_MS)
    b.server.zrem(b.keys.waiting, it.parent)
    b.expect("mended", b.on("repair", Look("job", it.parent)), ["mended waiting"])
    b.expect("asks", f.pump(), [f"reconcile:{it.parent}"])
    b.due(it["0"])
    f.complete(b.take())
    b.expect("ready", b.state(it.parent), "pending")


@scenario("what ended on the shelf of an obliterated queue has told its end already", 35)
def told_already(b: Bench) -> None:
    f = Flows(b)
    f.family("0", abroad=True, result_ttl_ms=YEAR_MS)
    f.complete(f.far.take(), b=f.far)
    f.pump()
    f.far.worker.plain("pause")
    b.expect("nothing is owed", (f.far.producer.plain("obliterate").left, f.owed(f.far)), (0, []))
    f.far.worker.plain("resume")


@scenario("an outbox is put together again up to ten thousand entries; beyond that nobody walks it", 39)
def large_outbox(b: Bench) -> None:
    f = Flows(b)
    f.family("0")
    text = pack_words(["tell", "", NOBODY, NOBODY, "0", "completed 1 1 \n"])
    b.server.hset(b.keys.outbox_entries, mapping={f"tell:{n}": text for n in range(10_001)})
    b.expect("too many", b.on("repair", Look("key", "outbox")), ["ok"])
    b.server.hdel(b.keys.outbox_entries, "tell:0")
    b.expect("as many as may be", b.on("repair", Look("key", "outbox")), ["mended outbox"])
    b.expect("all are due", len(b.look().zset("outbox")), 10_000)
    b.server.delete(b.keys.outbox, b.keys.outbox_entries)
