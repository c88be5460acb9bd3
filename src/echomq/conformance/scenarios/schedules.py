"""Recurring schedules: defined once, fired once a slot by whoever comes first, and never swallowed by a deploy."""

from __future__ import annotations

from collections.abc import Callable

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.conformance.scheduling import AHEAD, PAST, Schedules, later
from echomq.protocol.ids import mint
from echomq.transitions import CancelRequest, Completion, Firing

# --- definitions -----------------------------------------------------------------------------


@scenario("the same definition again changes nothing, not even its slot, but whose it is; another one does", 37)
def put(b: Bench) -> None:
    s = Schedules(b)
    b.expect("first", s.put(slot=AHEAD, payload=b"x", task="t", origin="app", priority=3, lane="a"), "created")
    expected = {
        "digest": "d",
        "spec": "{}",
        "origin": "app",
        "overlap": "allow",
        "priority": "3",
        "ends": "",
        "lane": "a",
    }
    stands = s.stands()
    b.expect("definition", {name: stands.get(name) for name in expected}, expected)
    b.expect(
        "template",
        {name: stands[f"f:{name}"] for name in ("payload", "task", "priority")},
        {"payload": "x", "task": "t", "priority": "3"},
    )
    b.expect("slot", (stands["slot"], s.found()), (str(AHEAD), {"s": float(AHEAD)}))
    b.expect(
        "meta",
        b.look().hash("meta"),
        {"protocol": "1.0", "schedules": "1"} | {k: v for k, v in b.look().hash("meta").items() if k == "events"},
    )
    with b.unchanged():
        b.expect("again", s.put(slot=later(5), payload=b"y", origin="app"), "same")
        b.expect("by hand", s.put(slot=later(5), payload=b"y"), "same")
    b.expect("by another program", s.put(slot=later(5), payload=b"y", origin="other"), "same")
    b.expect("which owns it", (s.stands()["origin"], s.stands()["slot"]), ("other", str(AHEAD)))
    b.expect("another", s.put(slot=later(1), digest="e", payload=b"y", overlap="skip"), "changed")
    stands = s.stands()
    b.expect("its slot", (stands["slot"], s.found()), (str(later(1)), {"s": float(later(1))}))
    b.expect("nothing of the old one", ("f:task" in stands, stands["lane"], stands["overlap"]), (False, "", "skip"))
    b.expect("back", s.put(slot=later(2), payload=b"x"), "changed")


@scenario("a first slot that is not ahead is stale, and says what time it is", 37)
def put_stale(b: Bench) -> None:
    s = Schedules(b)
    with b.unchanged():
        b.expect("long ago", s.put(slot=PAST), "stale")
        for _ in range(20):
            reply = b.producer.bare("schedule_put", "s", "d", "{}", "", "allow", moment := b.clock(), 0, "", "", 0)
            b.expect("just now", reply[0], b"stale")
            if reply[1] == moment:
                break
    before = b.clock()
    reply = b.producer.bare("schedule_put", "s", "d", "{}", "", "allow", PAST, 0, "", "", 0)
    b.expect("the server's clock", before <= reply[1] <= b.clock(), True)
    b.expect("ended is no slot", s.put(slot=0), "created")
    b.expect("found by nobody", s.found(), {"s": float("inf")})


@scenario("a slot that has come and is not fired yet is fired by the new definition: no deploy swallows one", 37)
def put_during_slot(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    s.comes()
    b.expect("changed", s.put(digest="e", slot=later(1)), "changed")
    b.expect("it stands where it stood", (s.stands()["slot"], s.found()), (str(PAST), {"s": float(PAST)}))
    b.refuses("by the old one", "EMQSTALE slot", s.fire, "s", PAST)
    b.expect("by the new one", s.fire("s", PAST, digest="e"), ["admitted"])
    b.expect("and one that lies ahead is not kept", s.put(digest="f", slot=later(2)), "changed")
    b.expect("slot", s.stands()["slot"], str(later(2)))


@scenario("the slot of the present millisecond has come")
def put_just_now(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    for n in range(50):
        moment = b.clock()
        s.comes(slot=moment)
        reply = b.producer.bare("schedule_put", "s", f"d {n}", "{}", "", "allow", AHEAD, 0, "", "", 0)
        b.expect("kept", s.stands()["slot"], str(moment))
        if reply[1] == moment:
            break


@scenario("a changed definition keeps count, last job and pause, and moves no paused slot's job", 37)
def put_keeps(b: Bench) -> None:
    s = Schedules(b)
    s.put(overlap="skip")
    s.comes()
    s.fire("s", PAST, PAST)
    before = s.stands()
    s.comes()
    s.pause()
    b.expect("changed", s.put(digest="e", slot=later(1), overlap="queue"), "changed")
    stands = s.stands()
    for name in ("count", "skipped", "last_id", "last_slot", "open"):
        b.expect(name, stands[name], before[name])
    b.expect(
        "paused, at the new slot",
        ("paused" in stands, stands["slot"], s.found()),
        (True, str(later(1)), {"s": float("inf")}),
    )
    b.expect("the same again, paused", s.put(digest="e", slot=later(2)), "same")


@scenario("a definition that was torn from its slot is put there again by whoever defines it", 37, 39)
def put_torn(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    b.server.zrem(b.keys.schedules, "s")
    b.expect("not the same", s.put(slot=later(1)), "changed")
    b.expect("found", s.found(), {"s": float(later(1))})


@scenario("schedule_put refuses what is malformed, and all of it while the queue closes", 8, 35)
def put_refuses(b: Bench) -> None:
    s = Schedules(b)
    good: list[str | int] = ["s", "d", "{}", "", "allow", AHEAD, 0, "", "", 0]
    for at, name, bad in (
        (0, "schedule_put", ""), (0, "schedule_put", "a b"), (0, "schedule_put", "a{b"), (0, "schedule_put", "x" * 129),
        (5, "schedule_put", "-1"), (5, "schedule_put", "x"), (5, "schedule_put", "100000000000001"),
        (9, "schedule_put", "65"), (9, "schedule_put", "1"), (9, "schedule_put", "x"), (9, "schedule_put", "-1"),
        (4, "overlap", ""), (4, "overlap", "twice"), (6, "priority", "2048"), (6, "priority", "-2048"), (6, "priority", "0.5"),
        (7, "ends", "5"), (7, "ends", "0 0"), (7, "ends", "x 1"), (8, "lane", "a{b"), (8, "lane", "x" * 129),
    ):  # fmt: skip
        item = list(good)
        item[at] = bad
        b.refuses(f"{name} {bad[:9]}", f"EMQKIND {name}", b.producer.bare, "schedule_put", *item)
    b.refuses("half a field", "EMQKIND schedule_put", b.producer.bare, "schedule_put", *good[:-1], 1, "payload")
    b.refuses("nothing", "EMQKIND schedule_put", b.producer.bare, "schedule_put")
    for overlap in ("allow", "skip", "queue"):
        b.expect(overlap, s.put(overlap, overlap=overlap), "created")
    b.expect("long, with all letters", s.put("aZ09._-" * 18 + "xy", priority=-2047, lane="x" * 128), "created")
    b.expect(
        "64 fields",
        b.producer.bare("schedule_put", "f", *good[1:-1], 64, *(f"n{n}" for n in range(128)))[0],
        b"created",
    )
    b.expect("priority", s.put("p", priority=2047, expires="+5", deadline="+6"), "created")
    b.server.hset(b.keys.meta, "closing", "1")
    b.refuses("closing", "EMQSTATE closing", s.put, "t")
    b.refuses("closing, the same", "EMQSTATE closing", s.put, "allow")


# --- pause and remove ------------------------------------------------------------------------


@scenario("a paused schedule keeps its slot and is found by nobody; it goes on at a slot that is ahead", 37)
def pauses(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    s.comes()
    b.expect("pause", (s.pause(), s.found(), s.stands()["slot"]), ("ok", {"s": float("inf")}, str(PAST)))
    b.expect("since", 0 <= b.clock() - int(s.stands()["paused"]) < 60_000, True)
    with b.unchanged():
        b.expect("again", s.pause(), "same")
    b.expect("nobody is told", b.worker.claim(1).due, False)
    b.server.zadd(b.keys.schedules, {"s": PAST})
    b.expect("one that was only half put to rest", (s.pause(), s.found()), ("ok", {"s": float("inf")}))
    b.refuses("fired", "EMQSTALE slot paused", s.fire, "s", PAST)
    b.refuses("at a slot that is over", "EMQSTALE 1", s.resume, slot=PAST)
    b.refuses("by another definition", "EMQSTALE 1", s.resume, digest="e")
    b.refuses("at no slot", "EMQKIND slot", b.producer.bare, "schedule_pause", "s", 0, "d", "x")
    b.server.delete(b.keys.wake)
    b.expect("on", (s.resume(slot=later(1)), s.found(), "paused" in s.stands()), ("ok", {"s": float(later(1))}, False))
    b.expect("rung, for no slot is nearer", b.tokens(), 1)
    with b.unchanged():
        b.expect("on again", s.resume(slot=later(2)), "same")
    for verb in (s.pause, s.resume):
        b.refuses("gone", "EMQGONE", verb, "t")


@scenario("a paused schedule does not go on at the present millisecond's slot; one that ended may stay ended")
def pauses_edges(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    s.pause()
    for _ in range(50):
        moment = b.clock()
        with b.unchanged():
            answer = s.resume(slot=moment)
        b.expect("just now", answer.split()[0], "EMQSTALE")
        if answer == f"EMQSTALE {moment}":
            break
    b.expect("ended", (s.resume(slot=0), s.found()), ("ok", {"s": float("inf")}))
    b.expect("one that has ended rests, too", (s.pause(), "paused" in s.stands()), ("ok", True))


@scenario("remove takes the definition and leaves its jobs; the last one takes the queue's mark along", 37)
def removes(b: Bench) -> None:
    s = Schedules(b)
    for name in ("s", "t"):
        s.put(name)
    s.comes()
    s.fire("s", PAST)
    b.expect("remove", (s.remove(), s.found(), s.stands()), ("ok", {"t": float(AHEAD)}, {}))
    b.expect("marked", "schedules" in b.look().hash("meta"), True)
    b.expect("its jobs", len(s.made()), 1)
    b.refuses("again", "EMQGONE", s.remove)
    b.expect("the last", (s.remove("t"), "schedules" in b.look().hash("meta")), ("ok", False))
    b.expect("anew", s.put(slot=later(1)), "created")
    b.expect("its count, too", s.stands().get("count"), None)


@scenario("half a schedule is removed by its name", 39)
def removes_half(b: Bench) -> None:
    s = Schedules(b)
    tears: tuple[Callable[[], object], ...] = (
        lambda: b.server.zrem(b.keys.schedules, "s"),
        lambda: b.server.delete(b.keys.schedule_of("s")),
    )
    for tear in tears:
        s.put()
        tear()
        b.expect("remove", (s.remove(), s.found(), s.stands()), ("ok", {}, {}))


# --- who is told -----------------------------------------------------------------------------


@scenario("a claim tells of a slot that has come, and sets its timer to one that lies ahead", 13, 37)
def told(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    reply = b.worker.claim(1, cap_ms=60_000)
    b.expect("far ahead", (reply.due, reply.next_ms), (False, 60_000))
    s.comes(slot=b.clock() + 30_000)
    reply = b.worker.claim(1, cap_ms=60_000)
    b.expect("near", (reply.due, 29_000 < reply.next_ms <= 30_000), (False, True))
    b.expect("not the keeper", b.other.claim(1, cap_ms=60_000).next_ms, 60_000)
    s.comes()
    reply = b.worker.claim(1, cap_ms=60_000)
    b.expect("come", (reply.due, reply.next_ms), (True, 60_000))
    b.expect("everybody is told", b.other.claim(1).due, True)
    s.fire("s", PAST)
    b.expect("no more", b.worker.claim(1).due, False)


@scenario("the slot of the present millisecond is due")
def told_just_now(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    for _ in range(50):
        moment = b.clock()
        s.comes(slot=moment)
        reply = b.worker.claim(1)
        b.expect("due", reply.due, True)
        if reply.now_ms == moment:
            break


@scenario("whoever puts a schedule whose slot is nearer than all others rings; a later one does not", 12)
def rings(b: Bench) -> None:
    s = Schedules(b)
    for slot, tokens in ((later(5), 1), (later(6), 1), (later(4), 2), (later(4), 2)):
        s.put(f"s{slot}.{tokens}", slot=slot)
        b.expect(f"tokens at {slot}", b.tokens(), tokens)
    s.put("ended", slot=0)
    b.expect("one that never comes", b.tokens(), 2)
    b.server.delete(b.keys.wake)
    s.pause(f"s{later(4)}.1")
    b.expect("one that rests", b.tokens(), 0)


@scenario("a queue that closes fires nothing, and nobody is told", 35)
def told_closing(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    s.comes()
    b.server.hset(b.keys.meta, "closing", "1")
    b.expect("told", b.worker.claim(1).due, False)
    b.refuses("fired", "EMQSTATE closing", s.fire, "s", PAST)
    b.worker.plain("resume")
    b.expect("resumed", (b.worker.claim(1).due, s.fire("s", PAST)), (True, ["admitted"]))


# --- reads -----------------------------------------------------------------------------------


@scenario("schedules are read by their next slot, by name, or those that are due; those that rest come last")
def reads(b: Bench) -> None:
    s = Schedules(b)
    for n, name in enumerate("abcd"):
        s.put(name, slot=later(4 - n), task=name)
    s.pause("d")
    s.comes("a")

    def names(**options: object) -> str:
        page = b.worker.plain("read_schedules", **options)
        b.expect("the clock", 0 <= b.clock() - page.now_ms < 60_000, True)
        b.expect("of how many", page.total, 4)
        return "".join(it.name for it in page.schedules)

    with b.unchanged():
        b.expect("by slot", names(), "acbd")
        b.expect("a page", names(offset=1, count=2), "cb")
        b.expect("due", names(due=True), "a")
        b.expect("by name", names(names=("b", "nobody", "a")), "ba")
        (it,) = b.worker.plain("read_schedules", names=("b",)).schedules
        b.expect("one", (it.task, it.slot_ms, it.digest, it.overlap), ("b", later(3), "d", "allow"))
    for bad in ((-1, 1, 0), (0, 0, 0), (0, 257, 0), ("x", 1, 0), (0, 1, 0, *("n",) * 257)):
        b.refuses(str(bad[:3]), "EMQKIND", b.worker.bare, "read_schedules", *bad)
    b.expect("256 names", names(names=("a",) * 256), "a" * 256)
    b.expect("256 at once", names(count=256), "acbd")


# --- the jobs of a schedule go their way like all others -------------------------------------


@scenario("a job of a schedule is claimed, completed and cancelled like any other, and knows its slot", 37)
def lives(b: Bench) -> None:
    s = Schedules(b)
    s.put(lane="a", result_ttl_ms=60_000)
    s.comes()
    s.fire("s", PAST, PAST + 1, Firing(id=mint(), slot_ms=PAST + 2, due_ms=b.clock() + YEAR_MS))
    first, second = b.worker.claim(5).jobs
    b.expect("its slot", (first.record.schedule, first.record.slot_ms, second.record.slot_ms), ("s", PAST, PAST + 1))
    b.on("complete", Completion(first.id, first.token, first.nonce, b"done"), driver=b.worker)
    b.expect("kept", (b.state(first.id), b.row(first.id)["slot"]), ("done", str(PAST)))
    later_on = next(id for id, row in s.made() if row["state"] == "schedule")
    b.expect("cancelled", b.on("cancel", CancelRequest(later_on, "no")), ["cancelled no"])
