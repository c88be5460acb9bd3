"""Enqueue: what is admitted, what is refused, and in which order it is served."""

from __future__ import annotations

from echomq.conformance.bench import Bench, UnexpectedError, spell
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.ids import encode
from echomq.protocol.records import NewJob
from echomq.transitions import ALL_VERBS, load


def _plain() -> list[bytes | str | int]:
    """Spell an item of enqueue: id, priority, due, ends, dedup, rule, lane, fields."""
    return [NewJob().id, 0, 0, "", "", 0, "", 1, "payload", "x"]


@scenario("enqueue writes the row and places it in pending, with one wake token a job")
def admits(b: Bench) -> None:
    jobs = [NewJob(payload=b"x", priority=n) for n in (0, 3, -2047)]
    b.expect("verdicts", b.on("enqueue", *jobs), ["admitted"] * 3)
    snap = b.look()
    b.expect("pending", snap.zset("pending"), {jobs[1].id: -3.0, jobs[0].id: 0.0, jobs[2].id: 2047.0})
    b.expect("tokens", b.tokens(), 3)
    b.expect("meta", set(snap.hash("meta")), {"protocol"})
    b.expect("by", snap.row(jobs[0].id)["by"], b.producer.tag)


@scenario("enqueue with a delay or a moment ahead goes to the schedule, by the server's clock")
def delays(b: Bench) -> None:
    before = b.clock()
    late, past, far = b.add(delay_ms=60_000), b.add(at_ms=1), b.add(at_ms=99_999_999_999_999)
    after = b.clock()
    due = b.score("schedule", late) or 0
    b.expect("due is a delay from the server's now", before + 60_000 <= due <= after + 60_000, True)
    b.expect("a moment past", b.state(past), "pending")
    b.expect("a far moment, exact", b.score("schedule", far), 99_999_999_999_999.0)


@scenario("the server refuses numbers that are none, out of range or not whole, before any write", 8, 27)
def numbers(b: Bench) -> None:
    b.add()
    for at, name, bad in (
        (1, "priority", "nan"), (1, "priority", "2048"), (1, "priority", "-2048"), (1, "priority", "1.5"), (1, "priority", "x"),
        (2, "due", "+-1"), (2, "due", "+inf"), (2, "due", "+3162240000001"), (2, "due", ""), (2, "due", "+"),
        (2, "due", "-1"), (2, "due", "100000000000001"), (2, "due", "nan"), (2, "due", "+1.5"),
        (3, "ends", "0 0"), (3, "ends", "5"), (3, "ends", "1 2 3"), (3, "ends", "1 x"), (3, "ends", "x 1"), (3, "ends", "+nan 1"),
        (5, "rule", "-1"), (5, "rule", "0.5"), (5, "rule", "1e300"), (5, "rule", "last"), (6, "lane", "a{b"), (6, "lane", "x" * 129),
    ):  # fmt: skip
        item = _plain()
        item[at] = bad
        b.refuses(f"{name} {bad}", f"EMQKIND {name} {bad}", b.producer.bare, "enqueue", *item)


@scenario("one bad item fails none of its neighbours", 8)
def neighbours(b: Bench) -> None:
    good = _plain()
    bad = [NewJob().id, "nan", *good[2:]]
    last = _plain()
    seen = [text.decode() for text in b.producer.bare("enqueue", *good, *bad, *last)]
    b.expect("verdicts", seen, ["admitted", "EMQKIND priority nan", "admitted"])
    b.expect("rows", sorted(id for id, _ in b.look().rows()), sorted([str(good[0]), str(last[0])]))


@scenario("a malformed call is refused whole, its good items too", 8)
def malformed(b: Bench) -> None:
    good = _plain()
    for tail in (
        [NewJob().id, 0, 0, "", "", 0, "", 2, "payload", "x"],
        [NewJob().id, 0],
        [NewJob().id, 0, 0, "", "", 0, "", "many"],
    ):
        b.refuses(f"tail of {len(tail)}", "EMQKIND malformed", b.producer.bare, "enqueue", *good, *tail)
    b.refuses("257 items", "EMQKIND malformed", b.producer.items, "enqueue", *(NewJob() for _ in range(257)))
    b.expect("256 items", len(b.on("enqueue", *(NewJob() for _ in range(256)))), 256)
    for verb in (
        "complete",
        "extend",
        "fail",
        "release",
        "snooze",
        "end",
        "rate_limited",
        "progress",
        "checkpoint",
        "log",
    ):
        b.refuses(verb, "EMQKIND malformed", b.worker.bare, verb, "id", 1)
    b.refuses("reassign", "EMQKIND malformed", b.worker.bare, "reassign", "id")
    for verb in ("remove", "redrive"):
        b.refuses(verb, "EMQKIND malformed", b.worker.bare, verb, *["id"] * 257)


@scenario("an id that another client holds collides; one's own is admitted, and nothing is written twice", 48)
def collides(b: Bench) -> None:
    job = NewJob(payload=b"mine")
    b.expect("first", b.on("enqueue", job), ["admitted"])
    theirs = NewJob(id=job.id, payload=b"theirs", delay_ms=YEAR_MS)
    b.refuses("another's", "collision", b.on, "enqueue", theirs, driver=b.other)
    with b.unchanged():
        b.expect("one's own", b.on("enqueue", theirs), ["admitted"])


@scenario("among equal priorities jobs are served in the order of their ids, retries with their old place", 28)
def order(b: Bench) -> None:
    first, second, high = b.add(), b.add(), b.add(priority=1)
    b.expect("highest priority first", b.take().id, high)
    claimed = b.take()
    b.expect("then the older id", claimed.id, first)
    b.expect("released", b.settle("release", claimed), "ok")
    b.expect("its old place", [b.take().id, b.take().id], [first, second])


@scenario("ids order as their numbers do, as bytes")
def id_order(b: Bench) -> None:
    values = [0, 61, 62, 3844, 209715201620567, 274557032793636864, 2**63 - 1]
    ids = [f"JOB{encode(value)}" for value in values]
    for id in reversed(ids):
        b.add(id=id)
    b.expect("served", [job.id for job in b.worker.claim(10).jobs], ids)


@scenario("a closing queue admits nothing until it is resumed", 35)
def closing(b: Bench) -> None:
    b.add()
    b.server.hset(b.keys.meta, "closing", "1")
    b.refuses("enqueue", "EMQSTATE closing", b.enqueue)
    b.expect("resume", b.worker.plain("resume"), True)
    b.expect("enqueue", b.enqueue(), "admitted")


@scenario("only what adds work or data is refused by a full server; reads write nothing", 10)
def flags(b: Bench) -> None:
    reads = {"age", "browse", "counts", "find"}
    reads |= {"read_events", "read_flow", "read_job", "read_lanes", "read_schedules", "read_settings", "read_workers"}
    adding = {"enqueue", "checkpoint", "log", "schedule_put", "schedule_fire", "flow_add", "spawn", "update"}
    for verb in ALL_VERBS:
        script = b.producer.scripts.get(verb) or load(verb)
        expected = "#!lua flags=no-writes" if verb in reads else "#!lua" if verb in adding else "#!lua flags=allow-oom"
        b.expect(f"shebang of {verb}", script.source.partition("\n")[0], expected)


@scenario("a queue of another major version is refused whole, by every verb, as EMQVERSION", 44)
def version(b: Bench) -> None:
    id = b.add()
    b.server.hset(b.keys.meta, "protocol", "2.0")
    for verb in ALL_VERBS:
        b.refuses(verb, "EMQVERSION 2.0", b.worker.bare, verb, *[id] * 5)
    b.server.hset(b.keys.meta, "protocol", "1.7")
    b.expect("a newer minor", b.take().id, id)


@scenario("a hundred jobs of one call stand in the order in which they were given")
def batch(b: Bench) -> None:
    jobs = [NewJob() for _ in range(100)]
    verdicts = [spell(v) for v in b.producer.items("enqueue", *jobs)]
    if set(verdicts) != {"admitted"}:
        raise UnexpectedError("verdicts", "admitted", verdicts)
    b.expect("order", list(b.look().zset("pending")), [job.id for job in jobs])
    b.expect("tokens are bounded", b.tokens(), 64)


@scenario("an id that comes twice in a call is admitted once: its first item is the job", 48)
def twice_in_a_call(b: Bench) -> None:
    for dedup in (None, "k"):
        first, between = NewJob(payload=b"first", dedup=dedup), NewJob(payload=b"between")
        again = NewJob(id=first.id, payload=b"again", delay_ms=YEAR_MS)
        b.expect("verdicts", b.on("enqueue", first, between, again), ["admitted"] * 3)
        b.expect("rows", [b.row(job.id)["payload"] for job in (first, between)], ["first", "between"])
        snap = b.look()
        b.expect("places", (set(snap.zset("pending")), snap.zset("schedule")), ({first.id, between.id}, {}))
        b.on("remove", first.id, between.id)


@scenario("a call that was run in part is completed by its resend: what is there stays as it is", 48)
def partly_there(b: Bench) -> None:
    mine, theirs = NewJob(payload=b"mine"), NewJob(payload=b"theirs")
    b.on("enqueue", mine)
    b.on("enqueue", theirs, driver=b.other)
    new = [NewJob(), NewJob(delay_ms=YEAR_MS), NewJob(dedup="k")]
    changed = NewJob(id=mine.id, payload=b"changed")
    seen = b.on("enqueue", new[0], changed, new[1], NewJob(id=theirs.id), new[2])
    b.expect("verdicts", seen, ["admitted", "admitted", "admitted", "collision", "admitted"])
    b.expect("rows", [b.row(job.id)["payload"] for job in (mine, theirs)], ["mine", "theirs"])
    b.expect("states", [b.state(job.id) for job in new], ["pending", "schedule", "pending"])
    b.server.delete(b.keys.once(b.producer.tag, "enqueue"))
    before = b.look().without("once:")
    again = [spell(verdict) for verdict in b.producer.resend("enqueue")]
    b.expect("the whole again", (again, b.look().without("once:") == before), (seen, True))


@scenario("items of one call see each other's dedup keys, whatever stands between them", 8, 22)
def dedup_in_a_call(b: Bench) -> None:
    plain = [NewJob() for _ in range(3)]
    first, second, other = NewJob(dedup="k"), NewJob(dedup="k", delay_ms=YEAR_MS), NewJob(dedup="other")
    seen = b.on("enqueue", plain[0], first, plain[1], second, other, plain[2])
    b.expect("verdicts", seen, ["admitted", "admitted", "admitted", f"duplicate {first.id}", "admitted", "admitted"])
    b.expect("pending", sorted(b.look().zset("pending")), sorted(job.id for job in (*plain, first, other)))
    b.expect("no row", b.state(second.id), "")


@scenario("a call without items is answered without verdicts")
def no_items(b: Bench) -> None:
    b.expect("verdicts", b.producer.bare("enqueue"), [])


@scenario("an enqueue that the server refuses in its middle leaves nothing of that job, and fails no other", 39)
def unmade(b: Bench) -> None:
    b.torn = True
    b.server.set(b.keys.pending, "no set")
    for window in (None, YEAR_MS):
        ready, late = NewJob(dedup="k", dedup_window_ms=window), NewJob(delay_ms=YEAR_MS)
        verdicts = b.on("enqueue", ready, late)
        b.expect("refused", verdicts[0].startswith("EMQTORN"), True)
        b.expect("its neighbour", verdicts[1], "admitted")
        b.expect("its row", b.state(ready.id), "")
        b.expect("its key", "dedup:k" in b.look().entries, False)
    b.server.delete(b.keys.schedule)
    b.server.set(b.keys.schedule, "no set")
    late = NewJob(delay_ms=YEAR_MS, dedup="k")
    b.expect("refused", b.on("enqueue", late)[0].startswith("EMQTORN"), True)
    b.expect("its key", "dedup:k" in b.look().entries, False)
    b.server.rpush(b.keys.dedup("k"), "no string")
    b.expect("refused", b.on("enqueue", late)[0].startswith("EMQTORN"), True)
    b.expect("a key that is not its own", "dedup:k" in b.look().entries, True)
    b.expect("torn", b.count("torn"), 4)
