"""Lanes: the rota, turns and weights, what closes a lane and what opens it again, moving and draining."""

from __future__ import annotations

from echomq.conformance.bench import Bench, spell
from echomq.conformance.items import DAY_MS, YEAR_MS, make_item
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import CancelRequest, Reassignment, Renewal

CAP_MS = 60_000


def fill(b: Bench, *lanes: str, **options: object) -> list[str]:
    """Enqueue jobs, one for each lane named, in one call; answers their ids."""
    jobs = [NewJob(lane=lane or None, **options) for lane in lanes]  # type: ignore[arg-type]
    b.expect("enqueue", set(b.on("enqueue", *jobs)), {"admitted"})
    return [job.id for job in jobs]


# --- the rota --------------------------------------------------------------------------------


@scenario("a queue that never met a lane has no rota and none of its keys")
def flat(b: Bench) -> None:
    later = b.add(lane="a", delay_ms=YEAR_MS)
    b.add()
    b.expect("claimed", b.lanes_of(b.worker.claim(2)), ".")
    b.expect("keys", [s for s in b.look().entries if s in {"ring", "closed", "lanes"} or s.startswith("lane:")], [])
    b.due(later)
    b.expect("it begins when a job of a lane is ready", b.lanes_of(b.worker.claim(2)), "a")
    b.expect("rota", b.look().hash("meta")["rota"], "1")


@scenario("the first lane finds the jobs without one on the ring before it")
def first_lane(b: Bench) -> None:
    b.add()
    b.add(lane="a")
    b.expect("ring", b.ring(), ["", "a"])
    b.expect("claimed", [b.lanes_of(b.worker.claim(1)) for _ in range(2)], [".", "a"])


@scenario("a job of a lane is pending in its lane's set, and its lease stands in two sets with one score", 23)
def two_sets(b: Bench) -> None:
    id = b.add(lane="a", priority=7)
    snap = b.look()
    b.expect("pending", (snap.zset("pending"), snap.zset("lane:a:pending")), ({}, {id: -7}))
    b.expect("row", snap.row(id)["lane"], "a")
    b.expect("laned", snap.hash("meta")["laned"], "1")
    claimed = b.take(lease_ms=10_000)
    for what in ("claimed", "renewed", "claimed again"):
        if what == "renewed":
            renewal = Renewal(id, claimed.token, claimed.nonce, 20_000)
            b.expect("extend", spell(b.worker.item("extend", renewal)), "ok")
        elif what == "claimed again":
            b.expire(id)
            b.expect("again", [job.id for job in b.worker.resend("claim").jobs], [id])
        snap = b.look()
        b.expect(what, snap.zset("active"), snap.zset("lane:a:active"))
        b.expect(f"{what}: ahead", snap.zset("active")[id] > b.clock(), True)
    b.settle("complete", claimed)
    b.expect("keys", [s for s in b.look().entries if s.startswith("lane:") or s in {"ring", "closed", "lanes"}], [])
    b.expect("laned", b.look().hash("meta")["laned"], "0")


@scenario("lanes take turns, whoever claims and however many")
def turns(b: Bench) -> None:
    fill(b, "a", "a", "a", "a", "b", "b", "c", "", "")
    b.expect("one by one", [b.lanes_of(b.worker.claim(1)) for _ in range(3)], [".", "a", "b"])
    b.expect("ring", b.ring(), ["c", "", "a", "b"])
    b.expect("the rest", b.lanes_of(b.other.claim(10)), "c.abaa")
    b.expect("nothing is left", (b.ring(), b.look().hash("lanes")), ([], {}))


@scenario("a lane that is alone is served without turns; one that has joined meanwhile has the next")
def alone(b: Bench) -> None:
    fill(b, *"aaaaaa")
    b.expect("alone", b.lanes_of(b.worker.claim(3)), "aaa")
    b.add(lane="b")
    b.expect("then in turns", b.lanes_of(b.worker.claim(4)), "abaa")


@scenario("a weight of three is three jobs a turn, over claims of any size")
def weights(b: Bench) -> None:
    b.set_lane("a", weight="3")
    fill(b, *"aaaaaaaaaaaa", *"bbbbbb")
    b.expect("one by one", "".join(b.lanes_of(b.worker.claim(1)) for _ in range(8)), "aaabaaab")
    b.expect("by twos", "".join(b.lanes_of(b.worker.claim(2)) for _ in range(2)), "aaab")
    b.expect("field", b.field("a").split(" ")[:2], ["r0", "3"])
    b.expect("the credit lasts", b.lanes_of(b.worker.claim(1)), "a")
    b.expect("field", b.field("a").split(" ")[:2], ["r2", "3"])
    b.expect("all at once", b.lanes_of(b.worker.claim(10)), "aabbb")
    b.expect("settings stay", b.field("a"), "-0 3 0 0 0 0 0.000 0 0")


@scenario("a lane that comes back begins a turn anew")
def credit_gone(b: Bench) -> None:
    b.set_lane("a", weight="3")
    fill(b, "a", "b", "b", "b")
    b.expect("claimed", b.lanes_of(b.worker.claim(2)), "ab")
    fill(b, *"aaaa")
    b.expect("after b's turn", b.lanes_of(b.worker.claim(6)), "baaaba")


@scenario("the jobs without a lane are one lane, with a weight and a pause of its own and no limit")
def no_lane(b: Bench) -> None:
    b.set_lane("", weight="2")
    fill(b, "", "", "", "a", "a")
    b.expect("claimed", b.lanes_of(b.worker.claim(4)), "..a.")
    b.refuses("a limit", "EMQKIND limit", b.producer.plain, "set_lane", lane="", settings={"limit": "1"})
    b.set_lane("", limit="")
    fill(b, "")
    b.set_lane("", paused="1")
    b.expect("paused", b.lanes_of(b.worker.claim(4)), "a")


@scenario("within a lane the order is that of priority, then of minting")
def order_in_lane(b: Bench) -> None:
    ids = [b.add(lane="a", priority=priority) for priority in (0, -5, 9, 0)]
    b.expect("order", [job.id for job in b.worker.claim(4).jobs], [ids[2], ids[0], ids[3], ids[1]])


@scenario("many lanes: each has its turn, whatever the size of the pieces in which the ring is read")
def many_lanes(b: Bench) -> None:
    names = [f"{n:02}" for n in range(40)]
    fill(b, *names, *names)
    b.expect("the first", [job.record.lane for job in b.worker.claim(1).jobs], names[:1])
    b.expect("ring", b.ring(), [*names[1:], names[0]])
    b.expect("ten more", [job.record.lane for job in b.worker.claim(10).jobs], names[1:11])
    b.expect("ring", b.ring(), [*names[11:], *names[:11]])
    b.expect("more than a round", [job.record.lane for job in b.worker.claim(45).jobs], [*names[11:], *names[:16]])
    b.expect("ring", sorted(b.ring()), names[16:])
    b.expect("the rest", sorted(job.record.lane for job in b.worker.claim(100).jobs), names[16:])
    b.expect("nothing is left", (b.ring(), b.look().hash("lanes")), ([], {}))


@scenario("emptied lanes leave the ring when their turn comes, 2n + 16 a claim, which then says to ask again", 25)
def stale_lanes(b: Bench) -> None:
    ids = fill(b, *(f"{n:02}" for n in range(30)))
    id = b.add(lane="live")
    b.on("remove", *ids)
    b.expect("they stay until then", len(b.ring()), 31)
    reply = b.worker.claim(1)
    b.expect("used up", (reply.jobs, reply.next_ms, len(b.ring())), ([], 0, 31 - 18))
    b.expect("then it is served", [job.id for job in b.worker.claim(1).jobs], [id])
    b.expect("no field is left", b.look().hash("lanes"), {})


@scenario("a lane behind emptied ones is not alone while others stand further back", 25)
def not_alone(b: Bench) -> None:
    ids = fill(b, *(f"{n:02}" for n in range(15)))
    fill(b, *"aaa", *"bbb")
    b.on("remove", *ids)
    b.expect("claimed", b.lanes_of(b.worker.claim(4)), "abab")


@scenario("a lane that is filled again before its turn keeps its place on the ring")
def filled_again(b: Bench) -> None:
    first = fill(b, "a", "b", "c")[1]
    b.on("remove", first)
    fill(b, "b")
    b.expect("ring", b.ring(), ["a", "b", "c"])
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "abc")


@scenario("a claim stops before max_bytes in the middle of a turn, which goes on with the next", 24)
def bytes_of_lanes(b: Bench) -> None:
    b.set_lane("a", weight="3")
    fill(b, "a", "a", "a", "b", payload=b"x" * 1000)
    reply = b.worker.claim(10, max_bytes=2500)
    b.expect("within", (b.lanes_of(reply), reply.next_ms), ("aa", 0))
    b.expect("then", b.lanes_of(b.worker.claim(10)), "ab")


@scenario("a claim drops ids of a lane whose rows are gone or torn, and counts them", 39)
def torn_lane(b: Bench) -> None:
    b.torn = True
    ids = fill(b, "a", "a", "a", "b")
    b.server.delete(b.keys.job(ids[0]), b.keys.job(ids[1]))
    b.server.rpush(b.keys.job(ids[1]), "no hash")
    taken = [job.id for _ in range(4) for job in b.worker.claim(4).jobs]
    b.expect("claimed", sorted(taken), sorted(ids[2:]))
    b.expect("counts", (b.count("dropped"), b.count("torn")), (1, 1))
    b.expect("laned", b.look().hash("meta")["laned"], "0")
    b.expect("pending", b.look().zset("lane:a:pending"), {})


@scenario("what is dropped from other sets is not taken for a job that waited in a lane", 39)
def dropped_elsewhere(b: Bench) -> None:
    fill(b, "a", "a", "a")
    for name in ("pending", "active", "schedule"):
        b.server.zadd(getattr(b.keys, name), {f"JOB0000000000{len(name)}": 1})
        b.server.hset(b.keys.lanes, "", "r0") if name == "pending" else None
        b.server.lpush(b.keys.ring, "") if name == "pending" else None
        for _ in range(2):
            b.worker.claim(1)
        b.expect(f"dropped from {name}", len(b.look().zset(name)), 3 if name == "active" else 0)
        laned = len(b.look().zset("lane:a:pending"))
        b.expect(f"laned after {name}", b.look().hash("meta")["laned"], str(laned))
    b.expect("counted", b.count("dropped"), 3)


@scenario("a claim that meets what must be dropped says to ask again", 39)
def torn_head(b: Bench) -> None:
    b.torn = True
    ids = fill(b, "a", "a", "a")
    b.server.delete(b.keys.job(ids[0]))
    reply = b.worker.claim(1)
    b.expect("ask again", (len(reply.jobs), reply.next_ms), (1, 0))
    b.expect("dropped", b.count("dropped"), 1)
    b.expect("then", len(b.worker.claim(5).jobs), 1)
    ids = fill(b, "a", "a", "a", "b")
    b.server.delete(b.keys.job(ids[0]))
    reply = b.worker.claim(2)
    b.expect("it looks no further", (b.lanes_of(reply), reply.next_ms), ("a", 0))
    b.expect("then", b.lanes_of(b.worker.claim(5)), "ba")


@scenario("a lane that stands on the ring twice leases its jobs once, and is there once then; no other is lost")
def twice_on_the_ring(b: Bench) -> None:
    b.torn = True
    ids = fill(b, *"aaab")
    b.server.rpush(b.keys.ring, "a")
    taken = [job.id for job in b.worker.claim(3).jobs]
    b.expect("each once", (len(set(taken)), len(taken)), (3, 3))
    b.expect("ring", b.ring(), ["a"])
    b.expect("the last", set(taken) | {job.id for job in b.worker.claim(3).jobs}, set(ids))
    names = [f"{n:02}" for n in range(30)]
    fill(b, *names)
    b.server.linsert(b.keys.ring, "AFTER", "02", "00")
    b.expect("the first", [job.record.lane for job in b.worker.claim(2).jobs], ["00", "01"])
    b.expect("all others are there", sorted(b.ring()), names[2:])


@scenario("a job that stands in two lanes' sets is leased and drained in the one that its row names", 49)
def in_two_lanes(b: Bench) -> None:
    first, second, third = fill(b, "a", "b", "b")
    b.server.zadd(b.keys.lane_pending("a"), {second: -1, third: -2})
    b.server.hincrby(b.keys.meta, "laned", 2)
    b.expect("drain", b.other.plain("drain", lane="a", bound=1), 1)
    b.expect("it is left where it belongs", (b.state(third), b.count("torn")), ("pending", 1))
    taken = [job.id for _ in range(3) for job in b.worker.claim(5).jobs]
    b.expect("claimed", sorted(taken), sorted([first, second, third]))
    b.expect("torn", b.count("torn"), 2)


@scenario("a paused queue serves no lane, and keeps their order")
def paused_queue(b: Bench) -> None:
    fill(b, "a", "b")
    b.worker.plain("pause")
    b.expect("nothing", b.worker.claim(5).jobs, [])
    b.server.delete(b.keys.wake)
    b.worker.plain("resume")
    b.expect("tokens", b.tokens(), 2)
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "ab")


# --- closing and opening ---------------------------------------------------------------------


@scenario("a paused lane is not served, costs the others nothing, and is back at once when resumed, and rings", 11)
def paused_lane(b: Bench) -> None:
    b.set_lane("a", paused="1")
    fill(b, "a", "a", "b")
    b.expect("closed", (b.closed(), b.ring()), ({"a": float("inf")}, ["b"]))
    reply = b.worker.claim(5)
    b.expect("the others", b.lanes_of(reply), "b")
    reply = b.worker.claim(5, cap_ms=CAP_MS)
    b.expect("nothing before somebody acts", (reply.jobs, reply.next_ms > 1000), ([], True))
    b.expect("tokens", b.tokens(), 0)
    b.expect("resumed", b.other.plain("set_lane", lane="a", settings={"paused": ""}), True)
    b.expect("tokens", b.tokens(), 2)
    b.expect("where", (b.closed(), b.ring(), b.field("a")), ({}, ["a"], "r0"))
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "aa")


@scenario("a lane that is paused while it stands on the ring is closed when its turn comes")
def paused_later(b: Bench) -> None:
    fill(b, "a", "b")
    b.set_lane("a", paused="1")
    b.expect("ring", b.ring(), ["a", "b"])
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "b")
    b.expect("closed", b.closed(), {"a": float("inf")})
    b.expect("paused at", b.clock() - 60_000 < int(b.field("a").split(" ")[7]) <= b.clock(), True)
    at = b.field("a")
    b.set_lane("a", paused="1")
    b.expect("paused again changes nothing", b.field("a"), at)


@scenario("a lane that was emptied is not closed")
def closed_emptied(b: Bench) -> None:
    for how in ("cancel", "remove", "drain", "reassign"):
        b.set_lane("a", paused="1")
        (id,) = fill(b, "a")
        b.expect(f"closed before {how}", list(b.closed()), ["a"])
        if how == "drain":
            b.expect(how, b.other.plain("drain", lane="a"), 1)
        else:
            item = {"cancel": CancelRequest(id, "why"), "remove": id, "reassign": Reassignment(id, "b")}[how]
            b.on(how, item)
        b.expect(f"closed after {how}", b.closed(), {})
        b.expect("its settings stay", b.field("a")[:2], "-0")
        b.set_lane("a", paused="")
        b.expect("and go with the last setting", b.field("a"), "")


@scenario("a lane that was paused and emptied before its turn is neither on the ring nor closed after it")
def paused_and_emptied(b: Bench) -> None:
    ids = fill(b, "a", "b")
    b.set_lane("a", paused="1")
    b.on("remove", ids[0])
    b.expect("ring", b.ring(), ["a", "b"])
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "b")
    b.expect("where", (b.ring(), b.closed(), b.field("a")[:2]), ([], {}, "-0"))


@scenario("a lane's last job that is its last allowed one leaves it neither on the ring nor closed")
def last_allowed(b: Bench) -> None:
    b.set_lane("a", limit="1")
    fill(b, "a")
    b.expect("claimed", len(b.worker.claim(5).jobs), 1)
    b.expect("where", (b.ring(), b.closed(), b.field("a")[:2]), ([], {}, "-0"))


@scenario("settings survive an empty lane; an empty lane without settings leaves no key")
def settings_stay(b: Bench) -> None:
    b.set_lane("a", weight="3", limit="2", rate="1 1000 1")
    b.expect("a lane without jobs", b.field("a"), "-0 3 2 1 1000 1 0.000 0 0")
    fill(b, "a", "b")
    for job in b.worker.claim(5).jobs:
        b.settle("complete", job)
    b.expect("fields", list(b.look().hash("lanes")), ["a"])
    b.expect("kept", b.field("a").split(" ")[:6], ["-0", "3", "2", "1", "1000", "1"])
    b.set_lane("a", weight="", limit="", rate="")
    b.expect("fields", b.look().hash("lanes"), {})
    b.expect("nothing to clear", b.other.plain("set_lane", lane="a", settings={"weight": ""}), False)


@scenario("a setting out of range is refused, and none of the call is set")
def set_lane_refuses(b: Bench) -> None:
    b.set_lane("a", weight="2")
    for name, value in (
        ("weight", "0"), ("weight", "1001"), ("weight", "x"), ("weight", "1.5"), ("limit", "0"), ("limit", "1000001"),
        ("rate", "0 1 1"), ("rate", "1 0 1"), ("rate", "1 1 0"), ("rate", "1 86400001 1"), ("rate", "1000001 1 1"),
        ("rate", "1 1 1000001"), ("rate", "1 1"), ("rate", "1"), ("paused", "0"), ("paused", "yes"), ("colour", "red"),
    ):  # fmt: skip
        settings = {"weight": "5", name: value} if name != "weight" else {"limit": "1", name: value}
        b.refuses(f"{name} {value}", f"EMQKIND {name}", b.producer.plain, "set_lane", lane="a", settings=settings)
    for lane in ("x" * 129, "a{b", "a}b", "a\nb"):
        b.refuses(repr(lane), "EMQKIND set_lane", b.producer.plain, "set_lane", lane=lane, settings={"weight": "2"})
    b.refuses("half a setting", "EMQKIND set_lane", b.producer.bare, "set_lane", "a", "weight")
    b.refuses("the same", "False", lambda: str(b.producer.plain("set_lane", lane="a", settings={"weight": "2"})))
    for name, value in (
        ("weight", "1000"),
        ("limit", "1000000"),
        ("rate", "1000000 86400000 1000000"),
        ("weight", "1"),
    ):
        b.expect(value, b.producer.plain("set_lane", lane="a", settings={name: value}), True)
    b.server.hset(b.keys.meta, "closing", "1")
    b.refuses("closing", "EMQSTATE closing", b.producer.plain, "set_lane", lane="a", settings={"weight": "3"})
    b.server.hdel(b.keys.meta, "closing")


@scenario("the first setting of a lane begins the rota, with what waits, and makes the queue's own hash")
def first_setting(b: Bench) -> None:
    b.set_lane("a", weight="2")
    b.expect("meta", b.look().hash("meta").get("protocol", "")[:1], "1")
    b.expect("rota", (b.look().hash("meta").get("rota"), b.ring()), ("1", []))
    other = Bench(b.server)
    other.add()
    other.set_lane("a", weight="2")
    b.expect("rota", other.ring(), [""])
    other.ground.clear()


# --- moving and draining ---------------------------------------------------------------------


@scenario("reassign moves a pending job to another lane, in which it waits by its priority, and rings", 49)
def reassign_pending(b: Bench) -> None:
    fill(b, "a", "b")
    id = b.add(lane="a", priority=3)
    b.server.delete(b.keys.wake)
    b.expect("reassign", b.on("reassign", Reassignment(id, "c")), ["ok"])
    b.expect("its set", b.look().zset("lane:c:pending"), {id: -3})
    b.expect("row, laned, tokens", (b.row(id)["lane"], b.look().hash("meta")["laned"], b.tokens()), ("c", "3", 1))
    b.expect("ring", b.ring(), ["a", "b", "c"])
    b.expect("to no lane", b.on("reassign", Reassignment(id, "")), ["ok"])
    b.expect("its set", (b.look().zset("pending"), "lane" in b.row(id)), ({id: -3}, False))
    b.expect("laned", b.look().hash("meta")["laned"], "2")
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "ab.")


@scenario("reassign of the first job without a lane begins the rota", 49)
def reassign_first(b: Bench) -> None:
    ids = [b.add(), b.add()]
    b.expect("reassign", b.on("reassign", Reassignment(ids[0], "a")), ["ok"])
    b.expect("ring", b.ring(), ["", "a"])
    b.expect("claimed", [job.id for job in b.worker.claim(2).jobs], [ids[1], ids[0]])


@scenario("reassign of a scheduled or a dead job leaves it where it is; it is ready in the new lane", 49)
def reassign_elsewhere(b: Bench) -> None:
    later, dead = b.add(delay_ms=YEAR_MS, lane="a"), b.add(lane="a")
    b.bury(dead)
    score = b.score("schedule", later)
    b.expect("reassign", b.on("reassign", Reassignment(later, "b"), Reassignment(dead, "c")), ["ok", "ok"])
    b.expect("states", (b.state(later), b.state(dead)), ("schedule", "dead"))
    b.expect("when", b.score("schedule", later), score)
    b.due(later)
    b.expect("promoted", b.worker.plain("promote"), 1)
    b.on("redrive", dead)
    b.expect("claimed", b.lanes_of(b.worker.claim(5)), "bc")


@scenario("reassign refuses a running job, a kept result, an unknown id and a lane that cannot be", 49)
def reassign_refuses(b: Bench) -> None:
    id = b.add(lane="a", result_ttl_ms=YEAR_MS)
    b.refuses("the same lane", "ok", b.on, "reassign", Reassignment(id, "a"))
    for lane in ("x" * 129, "a{b", "a}b", "a\nb"):
        b.refuses(repr(lane), "EMQKIND lane", b.on, "reassign", Reassignment(id, lane))
    claimed = b.take()
    b.refuses("active", "EMQSTATE active", b.on, "reassign", Reassignment(id, "b"))
    b.settle("complete", claimed)
    b.refuses("done", "EMQSTATE done", b.on, "reassign", Reassignment(id, "b"))
    b.refuses("gone", "EMQGONE", b.on, "reassign", Reassignment(NewJob().id, "b"))
    b.expect("the longest", b.on("reassign", Reassignment(b.add(), "x" * 128)), ["ok"])


@scenario("a job that was reassigned is no late holder's any more", 21, 49)
def reassign_late(b: Bench) -> None:
    b.add(lane="a")
    claimed = b.take()
    b.expire(claimed.id)
    b.worker.plain("reap")
    b.on("reassign", Reassignment(claimed.id, "b"))
    b.refuses("late", "EMQSTALE pending", b.settle, "complete", claimed)


@scenario("the late holder of a job of a lane may complete it, while it waits in its lane", 21)
def late_in_lane(b: Bench) -> None:
    b.add(lane="a")
    claimed = b.take()
    b.expire(claimed.id)
    b.worker.plain("reap")
    b.expect("ring", b.ring(), ["a"])
    b.expect("complete", b.settle("complete", claimed), "ok")
    b.expect("laned", b.look().hash("meta")["laned"], "0")
    b.expect("gone", b.state(claimed.id), "")


@scenario("drain erases a lane's pending jobs by rounds, the next in turn first, and nothing else")
def drained(b: Bench) -> None:
    b.worker.plain("configure", settings={"events": "all"})
    ids = fill(b, "a", "a", "a", "b", "")
    kept = b.add(lane="a", priority=9, dedup="k", result_ttl_ms=YEAR_MS)
    later = b.add(lane="a", delay_ms=YEAR_MS)
    claimed = b.worker.claim(2).jobs[1]
    b.expect("running", claimed.id, kept)
    b.settle("log", claimed)
    b.settle("release", claimed)
    b.settle("release", Claimed(ids[4], 1, claimed.nonce, claimed.record))
    b.expect("two", b.other.plain("drain", lane="a", bound=2), 2)
    snap = b.look()
    b.expect("left", list(snap.zset("lane:a:pending")), ids[1:3])
    b.expect("its keys", [s for s in snap.entries if kept in s or s.startswith("dedup:")], [])
    b.expect("laned", snap.hash("meta")["laned"], "3")
    b.expect("again by the memory", b.other.resend("drain"), 2)
    b.expect("the rest", b.other.plain("drain", lane="a", bound=5), 2)
    b.expect("none", b.other.plain("drain", lane="a"), 0)
    b.expect("others", [b.state(id) for id in (*ids[3:], later)], ["pending", "pending", "schedule"])
    b.expect("without a lane", b.other.plain("drain"), 1)
    b.expect("removed", b.count("removed"), 5)
    for options in ({"bound": 0}, {"bound": 10_001}, {"lane": "a{b"}):
        b.refuses(str(options), "EMQKIND drain", b.other.plain, "drain", **options)


@scenario("drain passes by what is torn, drops it and counts it", 39)
def drain_torn(b: Bench) -> None:
    b.set_lane("a", paused="1")
    ids = fill(b, "a", "a", "a")
    b.server.delete(b.keys.job(ids[0]))
    b.server.hset(b.keys.job(ids[1]), "state", "active")
    b.server.zadd(b.keys.active, {ids[1]: b.clock() + 60_000})
    b.server.zadd(b.keys.lane_active("a"), {ids[1]: b.score("active", ids[1]) or 0})
    b.server.hset(b.keys.job(ids[1]), mapping={"attempts": 1, "holder": "n.1"})
    b.expect("drain", b.other.plain("drain", lane="a", bound=2), 2)
    b.expect("counts", (b.count("dropped"), b.count("torn"), b.count("removed")), (1, 1, 0))
    b.expect("laned", b.look().hash("meta")["laned"], "1")
    b.server.zrem(b.keys.lane_pending("a"), ids[2])
    b.server.zadd(b.keys.lane_pending("a"), {ids[2]: 0})
    b.server.delete(b.keys.job(ids[2]))
    b.expect("the last", b.other.plain("drain", lane="a"), 1)
    b.expect("nothing is closed", (b.closed(), b.look().hash("meta")["laned"]), ({}, "0"))


# --- looking ---------------------------------------------------------------------------------


@scenario("counts, browse and read_job know the jobs of lanes, age asks the lane next in turn")
def reading(b: Bench) -> None:
    first = fill(b, "a", "", "b", "b")
    b.expect("counts", b.worker.plain("counts").pending, 4)
    b.expect("ready", (b.worker.plain("age").pending.id, b.worker.plain("age").pending.jobs), (first[1], 4))
    page = b.worker.plain("browse", state="pending", lane="b", reverse=True)
    b.expect("browse", [(row.id, row.lane) for row, _ in page.jobs], [(first[3], "b"), (first[2], "b")])
    b.expect("of none", [row.id for row, _ in b.worker.plain("browse", state="pending").jobs], [first[1]])
    b.expect("score", b.worker.plain("read_job", first[0]).score, 0.0)
    b.set_lane("a", paused="1")
    claimed = b.worker.claim(2)
    b.expect("claimed", b.lanes_of(claimed), ".b")
    page = b.worker.plain("browse", state="active", lane="b")
    b.expect("running", [row.id for row, _ in page.jobs], [first[2]])
    b.expect("score", b.worker.plain("read_job", first[2]).score, b.score("active", first[2]))
    b.refuses("dead", "EMQKIND state", b.worker.plain, "browse", state="dead", lane="b")
    b.refuses("done", "EMQKIND state", b.worker.plain, "browse", state="other")
    b.expect("age", b.worker.plain("age").pending.id, first[3])
    b.on("remove", first[3])
    b.expect("closed lanes have no next", b.worker.plain("age").pending.id, None)


@scenario("age looks past fifteen emptied lanes, and no further", 25)
def age_of_emptied(b: Bench) -> None:
    for emptied in (15, 16):
        gone = fill(b, *(f"{n:02}" for n in range(emptied)))
        id = b.add(lane="live")
        b.on("remove", *gone)
        seen = b.worker.plain("age").pending
        b.expect(f"behind {emptied}", seen.id, id if emptied == 15 else None)
        b.ground.end_all()


@scenario("read_lanes lists no lane that was emptied, though it stands on the ring until its turn")
def emptied_is_not_listed(b: Bench) -> None:
    (gone,) = fill(b, "a")
    fill(b, "b")
    b.on("remove", gone)
    b.expect("on the ring", b.ring(), ["a", "b"])
    b.expect("listed", [lane.name for lane in b.worker.plain("read_lanes").lanes], ["b"])


@scenario("read_lanes says of each lane its settings, what waits and runs, why it is closed and until when")
def read_lanes(b: Bench) -> None:
    driver = b.worker
    b.expect("nothing", driver.plain("read_lanes").lanes, ())
    b.add()
    b.expect("without a rota", [(it.name, it.pending) for it in driver.plain("read_lanes").lanes], [("", 1)])
    fill(b, "a", "a", "b")
    b.set_lane("a", weight="2", limit="1", rate=f"1 {DAY_MS} 1")
    b.set_lane("p", paused="1")
    for _ in range(3):
        driver.claim(1, lease_ms=20_000)
    lanes = {it.name: it for it in driver.plain("read_lanes").lanes}
    b.expect("names", sorted(lanes), ["a", "p"])
    a = lanes["a"]
    b.expect("numbers", (a.pending, a.active, a.limits.weight, a.limits.limit), (1, 1, 2, 1))
    b.expect("rate", a.limits.rate and a.limits.rate.spell(), f"1 {DAY_MS} 1")
    b.expect("why", a.closed, ("rate", "limit"))
    b.expect("until", DAY_MS - 60_000 < (a.again_ms or 0) <= DAY_MS, True)
    b.expect("paused", (lanes["p"].closed, lanes["p"].again_ms, lanes["p"].pending), (("paused",), None, 0))
    head = driver.plain("browse", state="pending", lane="a").jobs[0][0].id
    b.server.hset(b.keys.job(head), "since", b.clock() - 60_000)
    named = driver.plain("read_lanes", names=["a", "nobody"]).lanes
    b.expect("by name", [(it.name, it.pending, it.again_ms) for it in named[1:]], [("nobody", 0, None)])
    b.expect("age", 60_000 <= named[0].oldest_ms < 120_000, True)
    b.server.hset(b.keys.job(head), "since", b.clock() + 60_000)
    b.expect("of a clock ahead", driver.plain("read_lanes", names=["a"]).lanes[0].oldest_ms, 0)
    for options in ({"count": 0}, {"count": 257}, {"cursor": -1}, {"names": ["a"] * 257}):
        b.refuses(str(options)[:30], "EMQKIND read_lanes", driver.plain, "read_lanes", **options)
    b.expect("256 names", len(driver.plain("read_lanes", names=["a"] * 256).lanes), 256)


@scenario("read_lanes reads any number of lanes by pages")
def pages(b: Bench) -> None:
    names = [f"{n:04}" + "x" * 100 for n in range(200)]
    fill(b, *names)
    seen: list[str] = []
    cursor, rounds = 0, 0
    while rounds == 0 or cursor:
        page = b.worker.plain("read_lanes", cursor=cursor, count=50)
        seen += [it.name for it in page.lanes]
        cursor, rounds = page.cursor, rounds + 1
    b.expect("all of them", sorted(set(seen)), names)
    b.on("remove", *(id for id, _ in b.look().rows()))


@scenario("one call of many items keeps the rota: what leaves and comes in it is settled at its end", 8)
def one_call(b: Bench) -> None:
    b.set_lane("a", paused="1")
    ids = fill(b, "a", "b")
    moves = [Reassignment(ids[0], "b"), Reassignment(ids[1], "a"), Reassignment(ids[0], "c"), Reassignment(ids[0], "a")]
    b.expect("reassign", b.on("reassign", *moves), ["ok"] * 4)
    b.expect("closed, ring", (list(b.closed()), b.ring()), (["a"], ["b"]))
    b.expect("laned", b.look().hash("meta")["laned"], "2")
    b.expect("nothing", b.worker.claim(2).jobs, [])
    b.set_lane("a", paused="")
    jobs = b.worker.claim(2).jobs
    b.expect("release", b.on("release", *(make_item("release", j.id, j.token, j.nonce) for j in jobs)), ["ok", "ok"])
    b.expect("ring", b.ring(), ["a"])
