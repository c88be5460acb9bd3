"""Flows are added: parents and children in one call, all or nothing, in one queue and across queues (section 7)."""

from __future__ import annotations

from typing import Final

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.conformance.items import DAY_MS, HALF_A_YEAR_MS, YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.kin import Policy
from echomq.protocol.records import NewJob
from echomq.protocol.words import pack_words
from echomq.transitions import LocalNode
from echomq.transitions.nodes import spell_nodes


@scenario("parents and children come in one call, and a parent runs when all its children have ended")
def adds(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", "1")
    b.expect("places", [b.state(id) for id in (it.parent, it["0"], it["1"])], ["waiting", "pending", "pending"])
    row = b.row(it.parent)
    b.expect(
        "the parent", (row["children"], row["by"], "parent" in row, "hold" in row), ("1", b.producer.tag, False, False)
    )
    b.expect("when", abs(int(row["since"]) - b.clock()) < DAY_MS, True)
    b.expect("its children", f.children(it.parent), {name: f"{it[name]} f " for name in "01"})
    b.expect("a child", (b.row(it["1"])["parent"], "children" in b.row(it["1"])), (f"{it.parent}  1", False))
    b.expect("meta", b.look().hash("meta"), {"protocol": "1.0", "flows": "1"})
    b.expect("tokens", b.tokens(), 2)
    first, second = f.claim(*it.kids.values()).values()
    b.expect("one ends", (f.complete(first), b.state(it.parent)), (["ok"], "waiting"))
    b.expect("the last ends", (f.complete(second), b.state(it.parent)), (["ok"], "pending"))
    b.expect("results", f.told(it.parent, "0"), ("completed", "1", "", it["0"]))
    b.expect("nothing is owed", f.owed(), [])
    b.expect("the parent ends", f.complete(b.take()), ["ok"])
    b.expect("all is gone", [s for s in b.look().entries if s.startswith("job:")], [])


@scenario("a parent in a tree waits for its own children, and its parent for it")
def tree(b: Bench) -> None:
    f = Flows(b)
    top, middle, low, side = (NewJob() for _ in range(4))
    nodes = [
        LocalNode(job=top, kids=True),
        LocalNode(job=middle, parent=1, name="m", kids=True),
        LocalNode(job=low, parent=2, name="0"),
        LocalNode(job=side, parent=1, name="s"),
    ]
    b.expect("added", f.add(*nodes), ["admitted"] * 4)
    b.expect(
        "of the middle", (b.row(middle.id)["parent"], b.row(low.id)["parent"]), (f"{top.id}  m", f"{middle.id}  0")
    )
    jobs = f.claim(low.id, side.id)
    f.complete(*jobs.values())
    b.expect("the middle's turn", (b.state(middle.id), b.state(top.id)), ("pending", "waiting"))
    f.complete(b.take())
    b.expect("the top's turn", (b.state(top.id), f.ended(top.id)), ("pending", {"m": "completed", "s": "completed"}))


@scenario("a parent without children waits for nobody")
def childless(b: Bench) -> None:
    f = Flows(b)
    outer, inner = NewJob(), NewJob(delay_ms=YEAR_MS)
    b.expect(
        "added",
        f.add(LocalNode(job=outer, kids=True), LocalNode(job=inner, parent=1, name="0", kids=True)),
        ["admitted"] * 2,
    )
    b.expect("places", (b.state(outer.id), b.state(inner.id)), ("waiting", "schedule"))
    b.expect("no more of the delay", b.row(inner.id).get("due_ms"), None)
    alone = NewJob()
    b.expect("alone", (f.add(LocalNode(job=alone, kids=True)), b.state(alone.id)), (["admitted"], "pending"))


@scenario("what a job says of itself holds in a flow, too: priority, lane, delay, limits in time, dedup key, fields")
def options(b: Bench) -> None:
    f = Flows(b)
    parent = NewJob(
        task="sum", payload=b"[]", delay_ms=YEAR_MS, lane="a", priority=3, deadline=f"+{HALF_A_YEAR_MS}", depth=2
    )
    late = NewJob(delay_ms=YEAR_MS, expires=f"+{HALF_A_YEAR_MS}", headers={"trace": "t"})
    keyed = NewJob(dedup="k", lane="b", priority=-5, result_ttl_ms=DAY_MS)
    windowed = NewJob(dedup="w", dedup_window_ms=YEAR_MS)
    nodes = [LocalNode(job=parent, kids=True)]
    nodes += [LocalNode(job=job, parent=1, name=name) for name, job in {"l": late, "k": keyed, "w": windowed}.items()]
    b.expect("added", f.add(*nodes), ["admitted"] * 4)
    snap, now = b.look(), b.clock()
    row = snap.row(parent.id)
    b.expect(
        "the parent", [row[it] for it in ("task", "payload", "lane", "priority", "depth")], ["sum", "[]", "a", "3", "2"]
    )
    b.expect("its delay", abs(int(row["due_ms"]) - now - YEAR_MS) < DAY_MS, True)
    b.expect("its deadline", abs(int(row["deadline_ms"]) - now - HALF_A_YEAR_MS) < DAY_MS, True)
    b.expect(
        "a delay",
        (abs(snap.zset("schedule")[late.id] - now - YEAR_MS) < DAY_MS, "due_ms" in snap.row(late.id)),
        (True, False),
    )
    b.expect("an end", abs(int(snap.row(late.id)["expires_ms"]) - now - HALF_A_YEAR_MS) < DAY_MS, True)
    b.expect("a lane", (snap.row(keyed.id)["lane"], snap.zset("lane:b:pending")), ("b", {keyed.id: 5}))
    b.expect(
        "the rota", (sorted(b.ring()), snap.hash("meta")["laned"], snap.hash("meta")["rota"]), (["", "b"], "1", "1")
    )
    b.expect(
        "keys",
        [(snap.entries[f"dedup:{it}"].value, snap.entries[f"dedup:{it}"].ttl) for it in "kw"],
        [(keyed.id, False), (windowed.id, True)],
    )
    b.expect("rung", b.tokens(), 3)
    b.due(late.id)
    jobs = f.claim(late.id, keyed.id, windowed.id)
    f.complete(*jobs.values())
    b.expect("kept", (b.state(keyed.id), "dedup:k" in b.look().entries), ("done", False))
    b.expect("the parent's delay begins", (b.state(parent.id), "due_ms" in b.row(parent.id)), ("schedule", False))
    b.expect("as it was said", b.score("schedule", parent.id), float(row["due_ms"]))
    b.due(parent.id)
    b.expect("its lane", b.take().id, parent.id)


@scenario("a parent whose delay is over when its children have ended is ready at once")
def delay_over(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0", root=NewJob(delay_ms=YEAR_MS))
    b.server.hset(b.keys.job(it.parent), "due_ms", 1000)
    f.complete(b.take())
    b.expect("ready", (b.state(it.parent), "due_ms" in b.row(it.parent)), ("pending", False))
    past = f.family("0", root=NewJob(at_ms=1))
    b.expect("a moment that is over is none", "due_ms" in b.row(past.parent), False)


@scenario("a child with a delay sets the timer, and so does a parent when its delay begins", 12)
def timer(b: Bench) -> None:
    f = Flows(b)
    b.add(delay_ms=2 * YEAR_MS)
    b.server.delete(b.keys.wake)
    parent, child = NewJob(delay_ms=DAY_MS), NewJob(delay_ms=YEAR_MS)
    f.add(LocalNode(job=parent, kids=True), LocalNode(job=child, parent=1, name="0"))
    b.expect("rung for the child's time", b.tokens(), 1)
    b.due(child.id)
    claimed = b.take()
    b.server.delete(b.keys.wake)
    f.complete(claimed)
    b.expect("rung for the parent's time", (b.state(parent.id), b.tokens()), ("schedule", 1))


def _bare(b: Bench, *words: bytes | str | int, hold: str = "", entry: str = "") -> object:
    return b.producer.bare("flow_add", hold, 1, entry, *words)


AT: Final = {
    "parent": 0,
    "name": 1,
    "policy": 2,
    "kids": 3,
    "queue": 4,
    "id": 5,
    "priority": 6,
    "due": 7,
    "ends": 8,
    "dedup": 9,
    "rule": 10,
    "lane": 11,
    "count": 12,
}


@scenario("a malformed flow is refused as a whole, with the value that is wrong")
def malformed(b: Bench) -> None:
    root, child = NewJob(), NewJob(dedup="k")
    good = [
        str(word) if not isinstance(word, bytes) else word
        for node in (LocalNode(job=root, kids=True), LocalNode(job=child, parent=1, name="0"))
        for word in spell_nodes([node])
    ]
    first = len(spell_nodes([LocalNode(job=root, kids=True)]))
    wrong: list[tuple[str, str, str | int]] = [
        ("parent 0", "parent", "0"), ("parent 3", "parent", "3"), ("parent 2", "parent", "2"), ("parent 1.5", "parent", "1.5"),
        ("parent -1", "parent", "-1"), ("parent short", "parent", "short"), ("parent JOB0000000000", "parent", "JOB0000000000"),
        ("name", "name", ""), ("name nn", "name", "n" * 129), ("name a b", "name", "a\nb"),
        ("policy", "policy", ""), ("policy x", "policy", "x"), ("policy fi", "policy", "fi"),
        ("priority 2048", "priority", 2048), ("priority -2048", "priority", -2048), ("priority 1.5", "priority", "1.5"),
        ("due x", "due", "x"), ("due -1", "due", "-1"), ("ends x", "ends", "x"), ("ends 0 0", "ends", "0 0"), ("ends 1", "ends", "1"),
        ("rule replace", "rule", "replace"), ("rule -1", "rule", "-1"), ("lane {", "lane", "{"), ("lane ll", "lane", "l" * 129),
        ("node 2", "count", 99), ("node 2", "count", 65), ("node 2", "count", "x"), ("node 2", "count", -1),
    ]  # fmt: skip
    for text, field, value in wrong:
        words = [*good]
        words[first + AT[field]] = str(value)
        b.refuses(f"{field} {value}", f"EMQKIND {text}", _bare, b, *words)
        b.refuses(f"{field} {value}, sent", f"EMQKIND {text}", _bare, b, pack_words(words), entry="add:x")
    b.refuses("cut off", "EMQKIND node 2", _bare, b, *good[:-1])
    for count in range(1, 13):
        b.refuses(f"cut short after {count}", "EMQKIND node 2", _bare, b, *good[: first + count])
    b.refuses("no nodes", "EMQKIND flow_add: it has no nodes", _bare, b)
    b.refuses("no bytes", "EMQKIND flow_add: it has no nodes", _bare, b, b"", entry="add:x")
    b.refuses("not packed", "EMQKIND flow_add: its nodes are malformed", _bare, b, b"\0\0\0\\9x", entry="add:x")
    words = [*good]
    words[AT["kids"]] = "0"
    b.refuses("a parent that is none", "EMQKIND parent 1", _bare, b, *words)
    b.refuses(
        "one name twice", "EMQKIND name 0", _bare, b, *good, *spell_nodes([LocalNode(job=NewJob(), parent=1, name="0")])
    )
    many = [LocalNode(job=NewJob()) for _ in range(257)]
    b.refuses("257 nodes", "EMQKIND node 257", _bare, b, *spell_nodes(many))
    b.expect("256 nodes", set(Flows(b).add(*many[:256])), {"admitted"})
    b.expect("good", _bare(b, *good), [b"admitted"] * 2)
    names = ["n" * 128, "ä" * 64, "a b"]
    kin = [LocalNode(job=NewJob(), kids=True), *(LocalNode(job=NewJob(), parent=1, name=it) for it in names)]
    b.expect("names", Flows(b).add(*kin), ["admitted"] * 4)
    b.expect(
        "roots may share theirs",
        Flows(b).add(*(LocalNode(job=NewJob(priority=it), name="0") for it in (2047, -2047))),
        ["admitted"] * 2,
    )
    fields = NewJob(headers={"h": "v"})
    b.expect("as many fields as there are words", Flows(b).add(LocalNode(job=fields)), ["admitted"])


@scenario("an id that is there, or twice in a call, refuses the whole flow, and names the job")
def collisions(b: Bench) -> None:
    f = Flows(b)
    held = b.add()
    twin, other = NewJob(), NewJob()
    root = LocalNode(job=NewJob(), kids=True)
    there = LocalNode(job=NewJob(id=held), parent=1, name="x")
    b.refuses("there", f"EMQSTATE collision {held}", f.add, root, LocalNode(job=other, parent=1, name="0"), there)
    b.refuses(
        "twice", f"EMQSTATE collision {twin.id}", f.add, root, *(LocalNode(job=twin, parent=1, name=n) for n in "01")
    )
    b.expect("the same without", f.add(root, LocalNode(job=other, parent=1, name="0")), ["admitted"] * 2)


@scenario("a root whose dedup key is taken keeps all of its call out; of a later root, too", 22)
def duplicate_root(b: Bench) -> None:
    f = Flows(b)
    holder = b.add(dedup="k")
    root = LocalNode(job=NewJob(dedup="k"), kids=True)
    child = LocalNode(job=NewJob(), parent=1, name="0")
    b.refuses("alone", f"duplicate {holder}", f.add, LocalNode(job=NewJob(dedup="k")))
    with b.unchanged():
        b.expect("with a child", f.add(root, child), [f"duplicate {holder}", "skipped"])
        b.expect(
            "the later of two",
            f.add(LocalNode(job=NewJob()), LocalNode(job=NewJob(dedup="k"))),
            ["skipped", f"duplicate {holder}"],
        )
        b.expect("in rounds", f.add(root, child, hold=root.job.id, last=False), [f"duplicate {holder}", "skipped"])
    b.settle("complete", b.take())
    b.expect("free again", f.add(root, child), ["admitted"] * 2)


@scenario(
    "a dedup key of a job that is dead or gone is free for a flow; one that is live, or in its window, is not", 22
)
def dedup_keys(b: Bench) -> None:
    f = Flows(b)
    dead = b.add(dedup="k")
    b.bury(dead)
    b.server.set(b.keys.dedup("k"), dead)
    b.expect("of the dead", f.add(LocalNode(job=NewJob(dedup="k"))), ["admitted"])
    done = b.add(dedup="d", result_ttl_ms=YEAR_MS, priority=9)
    b.settle("complete", b.take())
    b.server.set(b.keys.dedup("d"), done)
    b.expect("of one that is kept", f.add(LocalNode(job=NewJob(dedup="d"))), ["admitted"])
    b.server.set(b.keys.dedup("g"), "JOB00000000001")
    b.expect("of nobody", f.add(LocalNode(job=NewJob(dedup="g"))), ["admitted"])
    windowed = b.add(dedup="w", dedup_window_ms=YEAR_MS, priority=9)
    b.settle("complete", b.take())
    b.refuses("in its window", f"duplicate {windowed}", f.add, LocalNode(job=NewJob(dedup="w")))
    parent = NewJob(dedup="p")
    f.add(LocalNode(job=parent, kids=True), LocalNode(job=NewJob(), parent=1, name="0"))
    b.refuses("of a parent that waits", f"duplicate {parent.id}", f.add, LocalNode(job=NewJob(dedup="p")))


@scenario(
    "a child whose dedup key is taken has ended by that, its own children are skipped, its parent's policy applies", 22
)
def duplicate_child(b: Bench) -> None:
    f = Flows(b)
    holder = b.add(dedup="k")

    def made(policy: Policy, *more: LocalNode) -> tuple[str, list[str]]:
        root = NewJob()
        nodes = [
            LocalNode(job=root, kids=True),
            LocalNode(job=NewJob(dedup="k"), parent=1, name="d", policy=policy, kids=True),
            LocalNode(job=NewJob(), parent=2, name="0", kids=True),
            LocalNode(job=NewJob(), parent=3, name="1"),
        ]
        return root.id, f.add(*nodes, *more)

    root, verdicts = made(Policy.IGNORE, LocalNode(job=NewJob(), parent=1, name="x"))
    b.expect("ignored", verdicts, ["admitted", f"duplicate {holder}", "skipped", "skipped", "admitted"])
    b.expect("it has ended", f.told(root, "d"), ("duplicate", "0", f"its dedup key is held by {holder}", ""))
    b.expect("the other is open", (b.state(root), sorted(f.children(root))), ("waiting", ["d", "x"]))
    root, _ = made(Policy.IGNORE)
    b.expect("none is open", b.state(root), "pending")
    root, _ = made(Policy.FAIL_PARENT)
    b.expect("buried", (b.state(root), b.row(root)["reason"].startswith("child d (")), ("dead", True))
    root, _ = made(Policy.RUN_PARENT, LocalNode(job=NewJob(), parent=1, name="x"))
    b.expect("runs early", b.state(root), "pending")
    first = NewJob(dedup="n")
    nodes = [LocalNode(job=NewJob(), kids=True), LocalNode(job=first, parent=1, name="0", policy=Policy.IGNORE)]
    nodes.append(LocalNode(job=NewJob(dedup="n"), parent=1, name="1", policy=Policy.IGNORE))
    b.expect("two of one call", f.add(*nodes), ["admitted", "admitted", f"duplicate {first.id}"])


@scenario("a queue that closes, or is full, takes no flow; what another queue sends comes also into a full one", 35)
def no_room(b: Bench) -> None:
    f = Flows(b)
    b.configure(max_size="5")
    b.add(lane="a"), b.add(delay_ms=YEAR_MS), b.add()
    job = NewJob()
    b.expect(
        "there is room for one, hence for all",
        f.add(LocalNode(job=NewJob(lane="a")), LocalNode(job=NewJob())),
        ["admitted"] * 2,
    )
    b.refuses("none is left", "EMQFULL 5", f.add, LocalNode(job=NewJob()))
    home = Flows(f.far)
    home.add(type(f.abroad(job))(queue="proof", id=job.id, nodes=[LocalNode(job=job)]))
    b.expect("sent", (f.pump(), b.state(job.id)), ([f"add:{job.id}"], "pending"))
    b.server.hset(b.keys.meta, "closing", 1)
    b.refuses("closing", "EMQSTATE closing", f.add, LocalNode(job=NewJob()))
    b.server.hdel(b.keys.meta, "closing")


@scenario("a resent flow_add is answered from memory, and a late copy of an older one refused", 2)
def resent(b: Bench) -> None:
    f = Flows(b)
    it = f.family("0")
    with b.unchanged():
        b.expect("again", [v.code for v in b.producer.resend("flow_add")], ["admitted"] * 2)
    f.complete(b.take()), f.complete(b.take())
    b.expect(
        "after its end", ([v.code for v in b.producer.resend("flow_add")], b.state(it.parent)), (["admitted"] * 2, "")
    )
    f.family("0")
    b.refuses("an older one", "EMQSTALE call 1", b.producer.resend, "flow_add", back=2)


@scenario("a page of a job's children says how each ended, with or without what it left")
def pages(b: Bench) -> None:
    f = Flows(b)
    it = f.family("a", "b", policy=Policy.IGNORE)
    jobs = f.claim(*it.kids.values())
    f.complete(jobs[it["a"]])
    page = b.other.plain("read_flow", id=it.parent)
    b.expect("counts", (page.cursor, page.total, page.ended), ("0", 2, 1))
    by_name = {child.name: child for child in page.children}
    b.expect(
        "who",
        {name: (c.ref.id, c.ref.policy, c.ref.queue) for name, c in by_name.items()},
        {n: (it[n], Policy.IGNORE, "") for n in "ab"},
    )
    outcome = by_name["a"].outcome
    b.expect(
        "ended",
        (outcome and outcome.kind, outcome and outcome.body, by_name["b"].outcome),
        ("completed", it["a"].encode(), None),
    )
    heads = b.other.plain("read_flow", id=it.parent, whole=False).children
    b.expect("heads", [c.outcome.body for c in heads if c.outcome], [None])
    raw = b.other.bare("read_flow", it.parent, "0", 9, 0)
    b.expect("without a body", all(b"\n" not in text for text in raw[3:]), True)
    for bad in (("x", 1), ("0", 0), ("0", 1001), ("0", "x"), ("-1", 1), ("", 1)):
        b.refuses(str(bad), "EMQKIND read_flow", b.other.bare, "read_flow", it.parent, *bad, 1)
    b.expect("nobody's", b.other.plain("read_flow", id=NewJob().id).total, 0)
    b.expect("as many as may be asked for", b.other.plain("read_flow", id=it.parent, count=1000).total, 2)
    wide = f.family(*(f"n{n}" for n in range(255)), policy=Policy.IGNORE)
    parent = f.family(*(f"x{n:03}" * 20 for n in range(200))).parent
    seen, cursor, rounds = [], "0", 0
    while rounds == 0 or (cursor != "0" and rounds < 200):
        page = b.other.plain("read_flow", id=parent, cursor=cursor, count=10)
        seen += [child.name for child in page.children]
        cursor, rounds = page.cursor, rounds + 1
        b.expect("a page is small", len(page.children) < 60, True)
    b.expect("all", (len(set(seen)), rounds > 3, b.other.plain("read_flow", id=wide.parent).total), (200, True, 255))
