"""Recovery of lanes and schedules: their places in the rota, their slots, and how many jobs of lanes are counted."""

from __future__ import annotations

import math
from collections.abc import Callable

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.conformance.scheduling import AHEAD, Schedules
from echomq.transitions import CancelRequest, Look


@scenario(
    "a lane with jobs that is nowhere, or twice, is put where it belongs; a closed one without jobs is nowhere", 25, 39
)
def lanes_placed(b: Bench) -> None:
    b.add(lane="a"), b.add(lane="b"), b.add()
    b.set_lane("c", paused="1", weight="2")
    paused = b.add(lane="c")
    field = b.field("c")
    tears: tuple[tuple[str, Callable[[], object], str, str], ...] = (
        ("a", lambda: b.server.lrem(b.keys.ring, 0, "a"), "a", "r"),
        ("a", lambda: b.server.rpush(b.keys.ring, "a"), "a", "r"),
        ("a", lambda: b.server.zadd(b.keys.closed, {"a": 5}), "a", "r"),
        ("a", lambda: b.server.hdel(b.keys.lanes, "a"), "a", "r"),
        ("a", lambda: b.server.hset(b.keys.lanes, "a", "c0"), "a", "r"),
        ("a", lambda: b.server.hset(b.keys.lanes, "a", "-0"), "a", "r"),
        ("", lambda: b.server.lrem(b.keys.ring, 0, ""), "", "r"),
        ("c", lambda: b.server.zrem(b.keys.closed, "c"), "c", "c"),
        ("c", lambda: b.server.rpush(b.keys.ring, "c"), "c", "c"),
        ("c", lambda: b.server.hset(b.keys.lanes, "c", "r3" + field[2:]), "c", "c"),
        ("c", lambda: b.server.hset(b.keys.lanes, "c", "-0" + field[2:]), "c", "c"),
    )
    for n, (name, tear, lane, where) in enumerate(tears):
        tear()
        b.expect(f"{n}: mended", b.on("repair", Look("lane", name)), ["mended lane"])
        b.expect("places", (b.ring().count(lane), lane in b.closed()), (1, False) if where == "r" else (0, True))
        b.expect("its field", b.field(lane), "r0" if where == "r" else "c0" + field[2:])
        with b.unchanged():
            b.expect("sound", b.on("repair", Look("lane", name)), ["ok"])
    b.server.hset(b.keys.lanes, "d", "c0")
    b.server.zadd(b.keys.closed, {"d": 5})
    b.expect("closed without jobs", b.on("repair", Look("lane", "d")), ["mended lane"])
    b.expect("nowhere", (b.field("d"), list(b.closed())), ("", ["c"]))
    b.server.rpush(b.keys.ring, "d")
    b.expect("a stranger on the ring", (b.on("repair", Look("lane", "d")), b.ring().count("d")), (["mended lane"], 0))
    b.server.hset(b.keys.lanes, "d", "r0")
    b.expect("a field alone", (b.on("repair", Look("lane", "d")), b.field("d")), (["mended lane"], ""))
    b.expect("counted", b.count("mended"), len(tears) + 3)
    b.expect("served", sorted(b.lanes_of(b.worker.claim(9))), [".", "a", "b"])
    b.on("remove", paused)


@scenario("whoever mends a lane rings for its jobs", 12, 39)
def lanes_ring(b: Bench) -> None:
    b.add(lane="a")
    b.server.delete(b.keys.wake, b.keys.ring, b.keys.lanes)
    b.on("repair", Look("lane", "a"))
    b.expect("tokens", (b.tokens(), b.ring()), (1, ["a"]))


@scenario("a queue that has forgotten its rota finds it again by any lane that has jobs", 39)
def rota_forgotten(b: Bench) -> None:
    id, plain = b.add(lane="a"), b.add()
    b.server.hdel(b.keys.meta, "rota", "laned")
    b.server.delete(b.keys.ring, b.keys.lanes)
    b.expect("mended", b.on("repair", Look("lane", "a"), Look("lane", "")), ["mended lane", "mended lane"])
    b.expect("claimed", {job.id for job in b.worker.claim(9).jobs}, {id, plain})
    other = b.add(lane="b")
    b.server.hdel(b.keys.meta, "rota")
    b.server.zrem(b.keys.lane_pending("b"), other)
    b.expect("by a job", b.on("repair", Look("job", other)), ["mended pending"])
    b.expect("rota", (b.look().hash("meta")["rota"], b.ring().count("b")), ("1", 1))
    b.expect("the count", b.on("repair", Look("lane", "")), ["mended laned"])


@scenario("how many wait in lanes is counted anew by the lane without a name, after all others", 39)
def recounts(b: Bench) -> None:
    for lane in ("a", "a", "b"):
        b.add(lane=lane)
    for wrong in ("7", "0", "-3"):
        b.server.hset(b.keys.meta, "laned", wrong)
        b.expect("mended", b.on("repair", Look("lane", "a"), Look("lane", "")), ["ok", "mended laned"])
        b.expect("counted", b.look().hash("meta")["laned"], "3")
    b.server.lrem(b.keys.ring, 0, "")
    b.add()
    b.server.hset(b.keys.meta, "laned", "7")
    b.server.lrem(b.keys.ring, 0, "")
    b.expect("both", b.on("repair", Look("lane", "")), ["mended lane"])
    b.expect("both", b.look().hash("meta")["laned"], "3")
    b.expect("mended", b.count("mended"), 5)


@scenario("a slot of the queue that a lost job held is free, and rings for whoever waits for it", 12, 23, 39)
def slot_freed(b: Bench) -> None:
    b.configure(limit="1")
    lost = b.add()
    b.take()
    b.add()
    b.server.delete(b.keys.wake, b.keys.job(lost))
    b.expect("dropped", b.on("repair", Look("job", lost)), ["dropped 1"])
    b.expect("rung", b.tokens(), 1)


@scenario("the jobs of the lane without a name that leave it close it, if it has no others", 39)
def default_lane_empties(b: Bench) -> None:
    b.add(lane="a")
    b.set_lane("", paused="1")
    id = b.add()
    b.server.hset(b.keys.job(id), "state", "schedule")
    b.server.zadd(b.keys.schedule, {id: b.clock() + YEAR_MS})
    b.expect("mended", b.on("repair", Look("job", id)), ["mended schedule"])
    b.expect("closed", b.closed(), {})


@scenario("up to ten thousand lanes are counted; beyond that nobody walks them", 25, 39)
def counts_lanes(b: Bench) -> None:
    b.add(lane="a")
    b.server.hset(b.keys.lanes, mapping={f"idle {n}": "-0 2 0 0 0 0 0 0 0" for n in range(9_999)})
    for what, expected in (("ten thousand", "mended laned"), ("one more", "ok")):
        b.server.hset(b.keys.meta, "laned", 7)
        b.expect(what, b.on("repair", Look("lane", "")), [expected])
        b.server.hset(b.keys.lanes, "one more", "-0 2 0 0 0 0 0 0 0")
    b.server.hdel(b.keys.lanes, *(f"idle {n}" for n in range(9_999)))
    b.expect("counted", b.on("repair", Look("lane", "")), ["mended laned"])


@scenario("a schedule is found by its slot again, or rests; a slot without a schedule goes", 37, 39)
def slots_mended(b: Bench) -> None:
    s, look = Schedules(b), Look("schedule", "s")
    b.refuses("unknown, and not there", "ok", b.on, "repair", look)
    s.put()
    b.refuses("sound", "ok", b.on, "repair", look)
    tears: tuple[Callable[[], object], ...] = (
        lambda: b.server.zrem(b.keys.schedules, "s"),
        lambda: b.server.zadd(b.keys.schedules, {"s": 5}),
        lambda: b.server.zadd(b.keys.schedules, {"s": "+inf"}),
        lambda: b.server.hdel(b.keys.meta, "schedules"),
    )
    for n, tear in enumerate(tears):
        tear()
        b.expect(f"{n}: mended", b.on("repair", look), ["mended slot"])
        b.expect("found", (s.found(), b.look().hash("meta")["schedules"]), ({"s": float(AHEAD)}, "1"))
    b.server.hdel(b.keys.schedule_of("s"), "slot")
    b.expect("no slot, no firing", (b.on("repair", look), s.found()), (["mended slot"], {"s": math.inf}))
    b.expect("its slot", s.stands()["slot"], "0")
    s.put("other")
    s.pause("other")
    b.server.zadd(b.keys.schedules, {"other": 5})
    b.expect("it rests", (b.on("repair", Look("schedule", "other")), s.found()["other"]), (["mended slot"], math.inf))
    b.server.delete(b.keys.schedule_of("s"))
    b.expect("dropped", (b.on("repair", look), list(s.found())), (["dropped slot"], ["other"]))
    b.expect("the other is left", b.look().hash("meta")["schedules"], "1")
    b.server.delete(b.keys.schedule_of("other"))
    b.expect("dropped", b.on("repair", Look("schedule", "other")), ["dropped slot"])
    b.expect("none is left", b.look().hash("meta").get("schedules"), None)
    b.expect("counted", (b.count("mended"), b.count("dropped")), (6, 2))


@scenario("a schedule that is put where its slot is rings, if that is the next one", 12, 37, 39)
def slots_ring(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    b.server.delete(b.keys.wake, b.keys.schedules)
    b.on("repair", Look("schedule", "s"))
    b.expect("tokens", b.tokens(), 1)


def _retype(b: Bench, name: str) -> None:
    """Put a set of another kind in a key's place: no key of a queue is one."""
    b.server.delete(b.keys.base + name)
    b.server.sadd(b.keys.base + name, "x")


@scenario("a key that every queue may have goes if it is of another type, and what stood in it is put back", 12, 39)
def types_of_own_keys(b: Bench) -> None:
    def first(look: Look) -> str:
        return b.on("repair", look)[0]

    id, plain = b.add(lane="a"), b.add()
    names = ("pending", "active", "schedule", "dead", "done", "waiting", "ring", "closed", "lanes", "schedules")
    for name in (*names, "events", "counts", "wake"):
        with b.unchanged():
            b.expect("sound", b.on("repair", Look("key", name)), ["ok"])
        _retype(b, name)
        b.expect(name, b.on("repair", Look("key", name)), ["dropped key"])
        b.expect("counted", b.count("dropped") > 0, True)
        b.expect("rung anew", b.tokens() == 64, name == "wake")
        b.on("repair", Look("job", id), Look("job", plain), Look("lane", "a"), Look("lane", ""))
    for name in ("meta", "void", "stranger"):
        b.refuses(name, f"EMQKIND key {name}", first, Look("key", name))
    b.expect("claimed", {job.id for job in b.worker.claim(9).jobs}, {id, plain})


@scenario("sets of a lane that are none go when one of its jobs, or the lane, is looked at", 12, 39)
def types_of_lanes(b: Bench) -> None:
    id = b.add(lane="a")
    for name in ("lane:a:pending", "lane:a:active"):
        _retype(b, name)
        b.expect(name, b.on("repair", Look("job", id)), ["mended pending"])
        b.expect("whole", (b.on("repair", Look("job", id)), list(b.look().zset("lane:a:pending"))), (["ok"], [id]))
    b.on("repair", Look("lane", "a"), Look("lane", ""))
    mended = b.count("mended")
    _retype(b, "lane:a:active")
    b.expect("by the lane", b.on("repair", Look("lane", "a"), Look("lane", "a")), ["mended lane", "ok"])
    b.expect("once", b.count("mended"), mended + 1)
    _retype(b, "lane:a:pending")
    b.server.rpush(b.keys.ring, "a")
    b.expect("by the lane", b.on("repair", Look("lane", "a")), ["mended lane"])
    b.expect("once", b.count("mended"), mended + 2)
    b.on("repair", Look("job", id), Look("lane", "a"), Look("lane", ""))
    b.expect("claimed", b.take().id, id)


@scenario("logs and dedup keys of another type go, and whom a key is owed holds it again; a definition is left", 39)
def types_of_pieces(b: Bench) -> None:
    id = b.add(dedup="k")
    _retype(b, f"job:{id}:log")
    b.expect("a log", b.on("repair", Look("job", id)), ["mended pending"])
    _retype(b, "dedup:k")
    b.expect("owed", b.on("repair", Look("job", id)), ["mended pending"])
    b.expect("held", b.server.get(b.keys.dedup("k")), id.encode())
    _retype(b, "dedup:x")
    mended = b.count("mended")
    b.expect("a key", b.on("repair", Look("dedup", "x"), Look("dedup", "x")), ["dropped key", "ok"])
    b.expect("counted", b.count("mended"), mended + 1)
    _retype(b, "schedule:s")
    b.refuses("a definition", "EMQKIND schedule s", lambda: b.on("repair", Look("schedule", "s"))[0])
    b.server.delete(b.keys.schedule_of("s"))


@scenario("a row that is active without a token is buried; met before, it stalls and is cancelled as token 0", 39)
def token_missing(b: Bench) -> None:
    id = b.add()
    b.take()
    b.server.hdel(b.keys.job(id), "attempts")
    b.expect("asked", b.on("cancel", CancelRequest(id, "why")), ["asked 0"])
    b.server.hdel(b.keys.job(id), "cancel")
    b.expect("buried", b.on("repair", Look("job", id)), ["buried active"])
    b.expect("redriven", b.on("redrive", id), ["ok"])
    b.take()
    b.server.hdel(b.keys.job(id), "attempts")
    b.server.zadd(b.keys.active, {id: 1})
    b.expect("stalled, and claimed", b.worker.claim(1).jobs[0].token, 1)


@scenario("a row whose token cannot be read is buried, and runs again when it is redriven", 39)
def token_unreadable(b: Bench) -> None:
    id = b.add()
    for text in ("many", "-1", "1.5"):
        b.server.hset(b.keys.job(id), "attempts", text)
        b.expect("buried", b.on("repair", Look("job", id)), ["buried pending"])
        b.expect("its token", b.row(id).get("attempts"), None)
        b.expect("redriven", b.on("redrive", id), ["ok"])
    b.expect("its token", b.take().token, 1)
    b.refuses("sound", "ok", b.on, "repair", Look("job", id))
