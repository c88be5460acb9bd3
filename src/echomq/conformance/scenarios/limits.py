"""Limits of lanes and of the queue: slots, rates to the ms, closing by a handler, capacity, and what they ring."""

from __future__ import annotations

from collections.abc import Callable

from echomq.conformance.bench import Bench
from echomq.conformance.items import DAY_MS, YEAR_MS, make_item
from echomq.conformance.scenarios.lanes import CAP_MS, fill
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import CancelRequest, Closing, Reassignment

# --- slots of a lane -------------------------------------------------------------------------


@scenario("a lane's limit is how many of its jobs run; the others are served meanwhile", 23)
def limit(b: Bench) -> None:
    b.set_lane("a", limit="2")
    fill(b, *"aaaa", *"bb")
    reply = b.worker.claim(10, lease_ms=10_000)
    b.expect("claimed", b.lanes_of(reply), "abab")
    b.expect("closed until a lease ends", b.closed(), {"a": reply.now_ms + 10_000})
    b.expect("where", (b.ring(), b.field("a")[:2]), ([], "c0"))
    b.expect("no more", b.other.claim(10).jobs, [])


def _late(b: Bench, claimed: Claimed) -> None:
    b.expire(claimed.id)
    b.worker.plain("reap")
    b.settle("complete", claimed)


def _asked(verb: str) -> Callable[[Bench, Claimed], None]:
    def run(b: Bench, claimed: Claimed) -> None:
        b.on("cancel", CancelRequest(claimed.id, "why"))
        b.settle(verb, claimed)

    return run


def _lost(b: Bench, claimed: Claimed) -> None:
    b.expire(claimed.id)
    b.worker.plain("reap")


def _settle(verb: str, pick: int = 0) -> Callable[[Bench, Claimed], None]:
    def run(b: Bench, claimed: Claimed) -> None:
        b.settle(verb, claimed, pick)

    return run


FREEING: dict[str, Callable[[Bench, Claimed], None]] = {
    **{verb: _settle(verb) for verb in ("complete", "release", "end", "snooze", "fail")},
    "retry": _settle("fail", 1),
    "lost": _lost,
    "late": _late,
    **{f"{verb} of one asked to cancel": _asked(verb) for verb in ("fail", "release", "snooze")},
}


@scenario("whatever ends a claim frees its slot, puts the lane back on the ring and rings", 8, 11, 23)
def freed(b: Bench) -> None:
    b.set_lane("a", limit="1")
    for how, free in FREEING.items():
        for keep in (None, YEAR_MS):
            fill(b, "a", result_ttl_ms=keep, max_stalls=0 if how == "lost" and keep else None)
            claimed = b.take()
            fill(b, "a")
            b.expect(f"{how}: full", (list(b.closed()), b.other.claim(1).jobs), (["a"], []))
            b.expect(f"{how}: tokens", b.tokens(), 0)
            free(b, claimed)
            b.expect(f"{how}: where", (b.ring(), b.closed(), b.look().zset("lane:a:active")), (["a"], {}, {}))
            b.expect(f"{how}: rings", b.tokens() > 0, True)
            b.ground.end_all()
            b.server.delete(b.keys.wake)


@scenario("a rate-limited job frees its slot, too, and its lane waits for what the handler said", 23)
def freed_by_rate_limited(b: Bench) -> None:
    b.set_lane("a", limit="1")
    fill(b, "a", "a")
    claimed = b.take()
    b.expect("back", b.settle("rate_limited", claimed, 1), "ok")
    b.expect("slots", b.look().zset("lane:a:active"), {})
    b.expect("closed", b.clock() < b.closed()["a"] <= b.clock() + DAY_MS, True)


@scenario("a lease that ended frees its slot at the next claim, and the limit holds", 23)
def expired(b: Bench) -> None:
    b.set_lane("a", limit="1")
    first, second = fill(b, "a", "a")
    claimed = b.take()
    b.expire(first)
    b.expect("claimed", [job.id for job in b.other.claim(5).jobs], [first])
    b.expect("the old holder", b.settle("complete", claimed), "EMQSTALE active")
    b.expect("running", list(b.look().zset("lane:a:active")), [first])
    b.expect("waiting", list(b.look().zset("lane:a:pending")), [second])


@scenario("a full lane reaps its own leases that are over, even when the claim's bound went to others", 23)
def reaps_its_own(b: Bench) -> None:
    b.set_lane("a", limit="1")
    first, second, other = fill(b, "a", "a", "b")
    b.worker.claim(2)
    b.rescore("active", other, 900)
    b.server.zadd(b.keys.lane_active("b"), {other: 900})
    b.expire(first)
    b.server.zadd(b.keys.closed, {"a": 1000})
    reply = b.other.claim(5, bound=1)
    b.expect("claimed", [job.id for job in reply.jobs], [other, first])
    b.expect("stalled", b.count("stalled"), 2)
    b.expect("waiting", (b.state(second), list(b.closed())), ("pending", ["a"]))


@scenario("a lane that is not full leaves its leases to the bounded rounds", 25)
def not_full(b: Bench) -> None:
    b.set_lane("a", limit="3")
    b.set_lane("b", weight="2")
    ids = fill(b, *"aabb", *"ab")
    b.worker.claim(4)
    running = list(b.look().zset("active"))
    for id in running:
        b.expire(id)
    reply = b.other.claim(6, bound=1)
    b.expect("one was reaped", (b.count("stalled"), len(reply.jobs)), (1, 3))
    b.expect("nothing is lost", len(ids), 6)


@scenario("a lane's lease whose row is gone, or that is another's, does not hold its slot", 23)
def torn_slots(b: Bench) -> None:
    b.torn = True
    b.set_lane("a", limit="3")
    fill(b, *"aaaa", "b")
    jobs = b.worker.claim(4).jobs
    ids = [job.id for job in jobs if job.record.lane == "a"]
    other = next(job.id for job in jobs if job.record.lane == "b")
    b.expect("running", (len(ids), list(b.closed())), (3, ["a"]))
    b.server.delete(b.keys.job(ids[0]))
    b.server.zrem(b.keys.active, ids[0])
    b.server.zadd(b.keys.lane_active("a"), {ids[0]: 1000, ids[1]: 1000})
    b.server.zadd(b.keys.closed, {"a": 1000})
    reply = b.other.claim(5)
    b.expect("one slot", len(reply.jobs), 1)
    b.expect("the row is gone", b.count("dropped"), 1)
    snap = b.look()
    b.expect("the other lease is as in `active`", snap.zset("lane:a:active")[ids[1]], snap.zset("active")[ids[1]])
    fill(b, "a")
    b.server.zrem(b.keys.lane_active("a"), ids[1])
    b.server.zadd(b.keys.lane_active("a"), {other: 1000})
    b.expire(other)
    b.server.zadd(b.keys.active, {other: b.clock() + 60_000})
    b.server.hset(b.keys.job(other), "lane", "b")
    b.server.zadd(b.keys.lane_active("a"), {other: 1000})
    b.server.zrem(b.keys.active, other)
    b.server.zadd(b.keys.closed, {"a": 1000})
    b.expect("another slot", len(b.other.claim(5).jobs), 1)
    b.expect("torn", b.count("torn"), 1)
    b.expect("it is left alone", b.state(other), "active")
    waits = fill(b, "a", "a")[0]
    b.server.zrem(b.keys.lane_active("a"), next(iter(b.look().zset("lane:a:active"))))
    b.server.zadd(b.keys.lane_active("a"), {waits: 1000})
    b.server.zadd(b.keys.closed, {"a": 1000})
    b.expect("a job that does not run holds none", len(b.other.claim(5).jobs), 1)
    b.expect("torn", b.count("torn"), 2)


@scenario("a lane's lease whose row cannot be read stops no claim, and does not hold its slot", 23, 39)
def unreadable_slot(b: Bench) -> None:
    b.torn = True
    b.set_lane("a", limit="1")
    first, second, third = fill(b, *"aab")
    b.take()
    b.expire(first)
    b.server.delete(b.keys.job(first))
    b.server.rpush(b.keys.job(first), "no hash")
    b.server.zadd(b.keys.closed, {"a": 1000})
    b.expect("claimed", sorted(job.id for _ in range(2) for job in b.other.claim(5).jobs), [second, third])
    b.expect("the lane's leases", list(b.look().zset("lane:a:active")), [second])


@scenario("a job at the head whose row cannot be read stops no claim for a batch, and no look at lanes", 39)
def unreadable_head(b: Bench) -> None:
    b.torn = True
    for by_lane in (False, True):
        first, second = fill(b, *"aa")
        b.server.delete(b.keys.job(first))
        b.server.rpush(b.keys.job(first), "no hash")
        b.expect("looking", b.worker.plain("read_lanes", names=["a"]).lanes[0].oldest_ms, 0)
        jobs = [
            job.id for _ in range(2) for job in b.worker.claim(5, min_size=3, linger_ms=60_000, by_lane=by_lane).jobs
        ]
        b.expect("claimed", jobs, [second])


@scenario("a limit that is lowered lets running jobs end; one that is raised or cleared serves at once and rings")
def limit_changes(b: Bench) -> None:
    fill(b, *"aaaaaa")
    jobs = b.worker.claim(3).jobs
    b.set_lane("a", limit="1")
    b.expect("closed at its turn", (b.worker.claim(1).jobs, list(b.closed())), ([], ["a"]))
    for job in jobs[:2]:
        b.settle("complete", job)
        b.expect("still full", b.worker.claim(1).jobs, [])
    b.settle("complete", jobs[2])
    b.expect("one", len(b.worker.claim(5).jobs), 1)
    b.server.delete(b.keys.wake)
    b.set_lane("a", limit="2")
    b.expect("tokens", b.tokens(), 1)
    b.expect("one more", len(b.worker.claim(5).jobs), 1)
    for burst in (3, 2, 3, 2):  # there and back: nothing is won by it
        b.set_lane("a", rate=f"1 {DAY_MS} {burst}")
    b.expect("no more", b.worker.claim(5).jobs, [])
    b.set_lane("a", limit="")
    b.expect("the last", len(b.worker.claim(5).jobs), 1)


@scenario(
    "a batch into a limited lane rings for as many as may start, and a lane that runs over takes no other's ring", 12
)
def tokens(b: Bench) -> None:
    b.set_lane("a", limit="3")
    b.server.delete(b.keys.wake)
    fill(b, *"aaaaa")
    b.expect("tokens", b.tokens(), 3)
    b.worker.claim(2)
    b.set_lane("a", limit="1")
    b.server.delete(b.keys.wake)
    fill(b, "a", "b")
    b.expect("the other lane's", b.tokens(), 1)
    b.set_lane("a", limit="3")
    b.server.delete(b.keys.wake)
    fill(b, *"aaaaa")
    b.expect("what is left of its slots", b.tokens(), 1)


@scenario("a lane closes when a lease of its own is the soonest, and says so to whoever sleeps longer", 12, 13)
def closing_rings(b: Bench) -> None:
    b.set_lane("a", limit="1")
    fill(b, "a")
    b.take(lease_ms=20_000)
    b.server.delete(b.keys.wake)
    fill(b, "a")
    b.expect("a nearer moment", b.tokens(), 1)
    fill(b, "a")
    b.expect("not nearer", b.tokens(), 1)
    b.expect("next", b.other.claim(1, cap_ms=CAP_MS).next_ms <= 20_000, True)


# --- rates -----------------------------------------------------------------------------------


@scenario("a rate is exact to the ms: what may start, and when the next may")
def rate(b: Bench) -> None:
    for text, starts, spent, again in (
        ("10 1000 1", 1, 100, 75),  # one in 100 ms; looked at again when the slack of 50 has half filled
        ("10 1000 5", 5, 500, 125),  # five at once, then one in 100 ms
        ("500 1000 1", 26, 52, 27),  # what a slack of 50 ms holds
        ("1 1000 1", 1, 1000, 975),
        ("2 3000 2", 2, 3000, 1525),
    ):
        b.set_lane("a", rate="")
        b.set_lane("a", rate=text)
        fill(b, *"a" * 30)
        reply = b.worker.claim(40, cap_ms=CAP_MS)
        b.expect(f"{text}: starts", len(reply.jobs), starts)
        b.expect(f"{text}: tat", float(b.field("a").split(" ")[6]), reply.now_ms + spent)
        b.expect(f"{text}: closed until", b.closed(), {"a": reply.now_ms + again})
        b.expect(f"{text}: next", reply.next_ms, again)
        b.ground.end_all()


@scenario(
    "a rate counts from the start that was due, not from the last: what was not used in time is lost beyond the burst"
)
def rate_over_time(b: Bench) -> None:
    b.set_lane("a", rate="1 10000 5")
    fill(b, *"a" * 12)
    for ahead, starts in ((25_000, 2), (39_000, 1), (1_000, 4), (-100_000, 5)):
        b.moments("a", tat=b.clock() + ahead)
        reply = b.worker.claim(10)
        b.expect(f"starts, {ahead} ms ahead", len(reply.jobs), starts)
        b.set_lane("a", weight=str(starts))  # touches the lane
        b.server.zadd(b.keys.closed, {"a": 1000}, xx=True)


@scenario("a lane whose rate is used up is closed, and served again when its moment has come", 11)
def rate_opens(b: Bench) -> None:
    b.set_lane("a", rate="1 20000 1")
    fill(b, "a", "a", "b", "b")
    b.expect("the others go on", b.lanes_of(b.worker.claim(10)), "abb")
    b.expect("not before", b.worker.claim(10).jobs, [])
    b.moments("a", tat=b.clock() + 20)  # within the slack, and a few have gathered
    b.server.zadd(b.keys.closed, {"a": 1000})
    b.expect("looked at", b.lanes_of(b.worker.claim(10)), "a")


@scenario("a clock that stepped back closes nothing for longer than its rule allows", 29)
def clock_back(b: Bench) -> None:
    b.set_lane("a", rate="1 10000 5")
    fill(b, "a")
    b.moments("a", tat=b.clock() + 10**9)
    reply = b.worker.claim(1)
    b.expect("a rate", b.closed(), {"a": reply.now_ms + 10_025})
    b.server.zadd(b.keys.closed, {"a": b.clock() + 10**9})
    b.moments("a", tat=0)
    b.server.delete(b.keys.wake)
    b.expect("nothing yet", b.worker.claim(1).jobs, [])
    b.expect("pulled in", (b.closed(), b.tokens()), ({}, 1))
    b.expect("served", len(b.worker.claim(1).jobs), 1)
    fill(b, "a")
    b.moments("a", till=b.clock() + 10**10)
    reply = b.worker.claim(1)
    b.expect("a handler's closing", b.closed(), {"a": reply.now_ms + DAY_MS})
    b.server.zadd(b.keys.closed, {"a": b.clock() + 10**10})
    reply = b.worker.claim(1)
    b.expect("is pulled in", b.clock() + DAY_MS - 60_000 < b.closed()["a"] <= reply.now_ms + DAY_MS, True)


@scenario("a lease further ahead than any in use is pulled in, in its lane, too", 29)
def lease_ahead(b: Bench) -> None:
    b.set_lane("a", limit="1")
    (id,) = fill(b, "a")
    b.take(lease_ms=10_000)
    far = b.clock() + 10**9
    b.rescore("active", id, far)
    b.server.zadd(b.keys.lane_active("a"), {id: far})
    b.other.claim(1)
    snap = b.look()
    b.expect("pulled in", snap.zset("active")[id] <= b.clock() + 10_000, True)
    b.expect("the same", snap.zset("active"), snap.zset("lane:a:active"))


@scenario("a lease too far ahead whose row cannot be read stops no claim", 29, 39)
def lease_ahead_torn(b: Bench) -> None:
    b.torn = True
    (id,) = fill(b, "a")
    b.take(lease_ms=10_000)
    fill(b, "b")
    b.rescore("active", id, b.clock() + 10**9)
    b.server.delete(b.keys.job(id))
    b.server.rpush(b.keys.job(id), "no hash")
    b.expect("claimed", b.lanes_of(b.other.claim(1)), "b")
    b.expect("pulled in", (b.score("active", id) or 0) <= b.clock() + 600_000, True)


@scenario("another rate goes on from where the last one stood; after none, it begins anew")
def rate_changes(b: Bench) -> None:
    b.set_lane("a", rate=f"1 {DAY_MS} 1")
    fill(b, "a", "a", "a")
    b.expect("one", len(b.worker.claim(5).jobs), 1)
    b.expect("the same", b.producer.plain("set_lane", lane="a", settings={"rate": f"1 {DAY_MS} 1"}), False)
    b.expect("none", b.worker.claim(5).jobs, [])
    b.set_lane("a", rate=f"1 {DAY_MS} 1", weight="2")
    b.expect("none, whatever else is set", b.worker.claim(5).jobs, [])
    b.moments("a", tat=b.clock() + DAY_MS)
    before = b.look().hash("lanes")["a"].split(" ")[-3]
    b.set_lane("a", rate=f"1 {DAY_MS} 1", weight="3")
    b.expect("where it stood", b.look().hash("lanes")["a"].split(" ")[-3], f"{before}.000")
    b.set_lane("a", rate=f"1 {DAY_MS} 2")
    b.expect("one more", len(b.worker.claim(5).jobs), 1)
    b.set_lane("a", rate="")
    b.set_lane("a", rate=f"1 {DAY_MS} 1")
    b.expect("anew", len(b.worker.claim(5).jobs), 1)


# --- a handler's word ------------------------------------------------------------------------


@scenario("rate_limited gives the job back, spending nothing, and closes its lane until then")
def told_lane(b: Bench) -> None:
    fill(b, "a", "b")
    claimed = b.take()
    now = b.clock()
    item = Closing(claimed.id, claimed.token, claimed.nonce, 20_000, "lane")
    b.expect("verdict", b.on("rate_limited", item, driver=b.worker), ["ok"])
    row = b.row(claimed.id)
    b.expect(
        "row", (row["state"], row.get("failures"), row.get("stalls"), "holder" in row), ("pending", None, None, False)
    )
    b.expect("closed until", now + 20_000 <= b.closed()["a"] <= b.clock() + 20_000, True)
    b.refuses("its holder", "EMQSTALE pending", b.settle, "complete", claimed)
    b.expect("the others", b.lanes_of(b.worker.claim(5)), "b")
    b.expect("next", 0 < b.worker.claim(5, cap_ms=CAP_MS).next_ms <= 20_000, True)
    b.moments("a", till=1000)
    b.server.zadd(b.keys.closed, {"a": 1000})
    b.expect("then", b.lanes_of(b.worker.claim(5)), "a")
    b.expect("no field", b.look().hash("lanes"), {})


@scenario("rate_limited closes the lane of the jobs without one, and begins the rota for it")
def told_no_lane(b: Bench) -> None:
    b.add()
    b.add()
    claimed = b.take()
    b.expect("verdict", b.settle("rate_limited", claimed, 1), "ok")
    b.expect("where", (list(b.closed()), b.ring(), b.worker.claim(5).jobs), ([""], [], []))
    b.expect("the rota", b.look().hash("meta")["rota"], "1")


@scenario("the latest moment counts, whoever named it; resuming the lane lifts it")
def told_twice(b: Bench) -> None:
    fill(b, "a", "a")
    first, second = b.worker.claim(2).jobs
    items = [Closing(job.id, job.token, job.nonce, after, "lane") for job, after in ((first, 50_000), (second, 20_000))]
    b.expect("verdicts", b.on("rate_limited", *items, driver=b.worker), ["ok", "ok"])
    b.expect("closed until", b.clock() + 40_000 < b.closed()["a"], True)
    b.set_lane("a", paused="")
    b.expect("lifted", b.lanes_of(b.worker.claim(5)), "aa")


@scenario("a handler's closing does not outlive the last job of its lane, unless the lane has settings")
def told_and_gone(b: Bench) -> None:
    fill(b, "a")
    claimed = b.take()
    b.settle("rate_limited", claimed, 1)
    b.on("remove", claimed.id)
    b.expect("no field", b.look().hash("lanes"), {})
    b.set_lane("a", weight="2")
    fill(b, "a")
    claimed = b.take()
    b.settle("rate_limited", claimed, 1)
    b.on("remove", claimed.id)
    fill(b, "a")
    b.expect("still closed", (list(b.closed()), b.worker.claim(1).jobs), (["a"], []))


@scenario(
    "rate_limited of a job that was asked to be cancelled ends it, and closes the lane for the others all the same", 17
)
def told_cancelled(b: Bench) -> None:
    fill(b, "a", "a")
    claimed = b.take()
    b.on("cancel", CancelRequest(claimed.id, "why"))
    b.expect("verdict", b.settle("rate_limited", claimed, 1), "cancelled why")
    b.expect("the others", (b.worker.claim(1).jobs, list(b.closed())), ([], ["a"]))
    b.set_lane("a", paused="")
    claimed = b.take()
    b.on("cancel", CancelRequest(claimed.id, "why"))
    b.expect("verdict", b.settle("rate_limited", claimed, 1), "cancelled why")
    b.expect("nothing is left", (b.look().hash("lanes"), b.closed()), ({}, {}))
    fill(b, "a", result_ttl_ms=YEAR_MS)
    claimed = b.take()
    b.on("cancel", CancelRequest(claimed.id, "why"))
    b.expect("kept", (b.settle("rate_limited", claimed, 1), b.state(claimed.id)), ("cancelled why", "done"))


@scenario("rate_limited closes the whole queue, if so said")
def told_queue(b: Bench) -> None:
    b.add()
    b.add()
    claimed = b.take()
    b.server.delete(b.keys.wake)
    item = Closing(claimed.id, claimed.token, claimed.nonce, 20_000, "queue")
    b.expect("verdict", b.on("rate_limited", item, driver=b.worker), ["ok"])
    b.expect("nobody is rung for", b.tokens(), 0)
    reply = b.other.claim(5, cap_ms=CAP_MS)
    b.expect("nothing", (reply.jobs, 10_000 < reply.next_ms <= 20_000), ([], True))
    b.expect("without a rota", "rota" in b.look().hash("meta"), False)
    b.expect("settings", b.worker.plain("read_settings").limits.until_ms > b.clock(), True)
    b.moments(None, till=1000)
    b.expect("then", len(b.other.claim(5).jobs), 2)


@scenario("resuming a queue opens what a handler's word has closed, and leaves its limits", 12)
def told_queue_resumed(b: Bench) -> None:
    for limit in ("", "5"):
        b.configure(limit=limit)
        b.on("enqueue", NewJob(), NewJob())
        held = b.take()
        b.on("rate_limited", Closing(held.id, held.token, held.nonce, 60_000, "queue"), driver=b.worker)
        b.expect("closed", b.other.claim(5).jobs, [])
        b.server.delete(b.keys.wake)
        b.expect("resumed", b.worker.plain("resume"), True)
        b.expect("again", b.worker.plain("resume"), False)
        b.expect("its limit", b.worker.plain("read_settings").limits.limit, int(limit) if limit else None)
        b.expect("tokens", b.tokens(), 4)
        b.expect("claimed", len(b.other.claim(5).jobs), 2)
        b.ground.end_all()


@scenario("rate_limited refuses a moment or a scope that cannot be")
def told_refuses(b: Bench) -> None:
    fill(b, "a")
    claimed = b.take()
    for after, scope in ((0, "lane"), (DAY_MS + 1, "lane"), (1000, "world"), (1000, "")):
        item = Closing(claimed.id, claimed.token, claimed.nonce, after, scope)  # type: ignore[arg-type]
        b.refuses(f"{after} {scope}", "EMQKIND", b.on, "rate_limited", item, driver=b.worker)
    item = Closing(claimed.id, claimed.token, claimed.nonce, DAY_MS, "lane")
    b.expect("a day", b.on("rate_limited", item, driver=b.worker), ["ok"])
    b.refuses("twice", "EMQSTALE pending", b.on, "rate_limited", item, driver=b.other)
    b.refuses("gone", "EMQGONE", b.on, "rate_limited", Closing(NewJob().id, 1, "n.1", 1000, "lane"))


# --- the queue's own -------------------------------------------------------------------------


@scenario("a queue's limit is how many jobs run, in all lanes and without", 23)
def queue_limit(b: Bench) -> None:
    b.configure(limit="2")
    fill(b, "a", "b", "")
    reply = b.worker.claim(5, lease_ms=20_000, cap_ms=CAP_MS)
    b.expect("claimed", (b.lanes_of(reply), reply.next_ms), (".a", 20_000))
    b.expect("full", b.other.claim(5).jobs, [])
    b.server.delete(b.keys.wake)
    fill(b, "c")
    b.expect("full: nobody is rung for", b.tokens(), 0)
    b.settle("complete", reply.jobs[0])
    b.expect("a slot rings, whoever freed it", b.tokens(), 1)
    reply = b.other.claim(5)
    b.expect("the next in turn", b.lanes_of(reply), "b")
    b.expect("nothing is said to be left", reply.next_ms > 0, True)


@scenario("a queue without lanes keeps its limit, too, and frees by every verb", 23)
def flat_limit(b: Bench) -> None:
    b.configure(limit="1")
    for verb in ("complete", "fail", "release", "snooze", "end"):
        b.add()
        claimed = b.take()
        b.add()
        b.expect(f"{verb}: full", (b.other.claim(5).jobs, b.tokens()), ([], 0))
        b.settle(verb, claimed)
        b.expect(f"{verb}: rings", b.tokens() > 0, True)
        b.expect(f"{verb}: one", len(b.other.claim(5).jobs), 1)
        b.ground.end_all()
        b.configure(limit="")
        b.configure(limit="1")


@scenario("a bulk into a queue with a limit rings for as many as may start, and no more than wait", 12)
def queue_tokens(b: Bench) -> None:
    b.configure(limit="3")
    b.add()
    b.take()
    b.server.delete(b.keys.wake)
    b.on("enqueue", *(NewJob() for _ in range(5)))
    b.expect("tokens", b.tokens(), 2)
    b.server.delete(b.keys.wake)
    b.on("enqueue", NewJob())
    b.expect("one", b.tokens(), 1)
    b.on("remove", *b.look().zset("pending"))
    b.server.delete(b.keys.wake)
    b.settle("complete", b.worker.resend("claim").jobs[0])
    b.expect("a slot that nobody waits for rings for nobody", b.tokens(), 0)


@scenario("a slot rings only where slots are what jobs wait for", 12)
def no_slots(b: Bench) -> None:
    b.configure(rate=f"1 {DAY_MS} 5")
    b.add()
    b.add()
    claimed = b.take()
    before = b.tokens()
    b.settle("complete", claimed)
    b.expect("tokens", b.tokens(), before)


@scenario("a queue that runs over its limit still rings for a nearer moment", 12, 13)
def over_limit(b: Bench) -> None:
    b.on("enqueue", *(NewJob() for _ in range(3)))
    b.worker.claim(3)
    b.configure(limit="1")
    b.server.delete(b.keys.wake)
    b.add(delay_ms=20_000)
    b.expect("tokens", b.tokens(), 1)


@scenario("a raised limit, a cleared rate, a lifted capacity ring for what waits", 12)
def configure_rings(b: Bench) -> None:
    b.configure(limit="1", rate=f"1 {DAY_MS} 1")
    b.on("enqueue", *(NewJob() for _ in range(4)))
    b.expect("one", len(b.worker.claim(5).jobs), 1)
    b.expect("none", (b.worker.claim(5).jobs, b.tokens()), ([], 0))
    b.configure(limit="3")
    b.expect("the rate holds", b.tokens(), 0)
    b.configure(rate="")
    b.expect("two may start", b.tokens(), 2)
    b.expect("two", len(b.worker.claim(5).jobs), 2)
    b.configure(limit="")
    b.expect("the last", len(b.worker.claim(5).jobs), 1)


@scenario("a queue's rate is exact, over all lanes; its workers are told when to come back")
def queue_rate(b: Bench) -> None:
    b.configure(rate="10 1000 2")
    fill(b, "a", "b", "", "a")
    reply = b.worker.claim(1, cap_ms=CAP_MS)
    b.expect("one", (len(reply.jobs), reply.next_ms), (1, 0))
    b.configure(rate="")
    b.configure(rate="1 20000 2")
    reply = b.worker.claim(5, cap_ms=CAP_MS)
    b.expect("two", (len(reply.jobs), reply.next_ms), (2, 20_025))
    b.expect("tokens", b.tokens(), 0)
    fill(b, "c")
    b.expect("nobody is rung for", b.tokens(), 0)
    b.expect("others have the cap", b.other.claim(5, cap_ms=CAP_MS).next_ms, CAP_MS)
    b.moments(None, tat=b.clock() + 10_000)
    b.expect("one more", len(b.worker.claim(5).jobs), 1)
    b.moments(None, tat=b.clock() + 10**9)
    b.expect("a clock that stepped back", 10_000 < b.worker.claim(5, cap_ms=CAP_MS).next_ms <= 20_025, True)


@scenario("claims count as starts what they take, not what they ask for")
def queue_rate_spent(b: Bench) -> None:
    b.configure(rate=f"1 {DAY_MS} 3")
    b.add()
    b.expect("one", len(b.worker.claim(3).jobs), 1)
    b.expect("none", len(b.worker.claim(3).jobs), 0)
    b.on("enqueue", *(NewJob() for _ in range(5)))
    b.expect("two", len(b.worker.claim(5).jobs), 2)


@scenario("max_size refuses what would wait beyond it, counting the call's own, lanes and the schedule", 8)
def capacity(b: Bench) -> None:
    b.configure(max_size="4")
    b.add(delay_ms=YEAR_MS)
    b.add(lane="a")
    jobs = [NewJob(), NewJob(lane="b"), NewJob(), NewJob(delay_ms=YEAR_MS)]
    b.expect("verdicts", b.on("enqueue", *jobs), ["admitted", "admitted", "EMQFULL 4", "EMQFULL 4"])
    b.refuses("full", "EMQFULL 4", b.enqueue, dedup="k")
    b.expect("no key", "dedup:k" in b.look().entries, False)
    b.expect("a resend", b.on("enqueue", jobs[0]), ["admitted"])
    b.take()
    b.expect("running jobs do not count", b.enqueue(dedup="k", delay_ms=YEAR_MS), "admitted")
    new = NewJob(dedup="k", dedup_mode="replace", lane="c")
    b.expect("replacing is no growth", b.on("enqueue", new)[0].split(" ")[0], "replaced")
    b.configure(max_size="")
    b.expect("lifted", b.enqueue(), "admitted")


@scenario("configure refuses what is no setting, and sets nothing of the call")
def configure_refuses(b: Bench) -> None:
    b.configure(limit="5", rate="1 1000 1", max_size="10", events="all")
    for name, value in (
        ("limit", "0"), ("limit", "1000001"), ("limit", "x"), ("rate", "1 1"), ("rate", "0 1 1"), ("max_size", "0"),
        ("max_size", "1000000000001"), ("max_size", "1.5"), ("events", "some"), ("weight", "1"), ("paused", "1"),
    ):  # fmt: skip
        settings = {"limit": "7", "max_size": "20", name: value}
        b.refuses(f"{name} {value}", f"EMQKIND {name}", b.producer.plain, "configure", settings=settings)
    b.refuses("half a setting", "EMQKIND configure", b.producer.bare, "configure", 0, "limit")
    for name, value in (("limit", "1000000"), ("max_size", "1000000000000"), ("max_size", "1"), ("limit", "1")):
        b.expect(value, b.producer.plain("configure", settings={name: value}), True)
    b.expect("the same", b.producer.plain("configure", settings={"limit": "1", "max_size": "1"}), False)
    b.server.hset(b.keys.meta, "closing", "1")
    b.refuses("closing", "EMQSTATE closing", b.producer.plain, "configure", settings={"limit": "3"})
    b.server.hdel(b.keys.meta, "closing")
    b.configure(limit="", rate="", max_size="", events="")
    b.expect("cleared", b.look().hash("meta").keys() & {"limits", "max_size", "events"}, set())


@scenario("a program's settings do not overrule an operator's: only_unset leaves what is set")
def only_unset(b: Bench) -> None:
    program = {"limit": "5", "rate": "1 1000 1", "max_size": "10", "events": "all"}
    b.configure(limit="2")
    b.expect("the rest", b.worker.plain("configure", settings=program, only_unset=True), True)
    seen = b.worker.plain("read_settings")
    b.expect("settings", (seen.limits.limit, seen.max_size, seen.events), (2, 10, "all"))
    b.expect("rate", seen.limits.rate and seen.limits.rate.spell(), "1 1000 1")
    other = {"limit": "6", "rate": "2 1000 1", "max_size": "11", "events": "none"}
    b.expect("all set", b.worker.plain("configure", settings=other, only_unset=True), False)
    b.expect("as before", b.worker.plain("read_settings").limits, seen.limits)


@scenario("read_settings answers what the queue was told, and its defaults")
def read_settings(b: Bench) -> None:
    seen = b.worker.plain("read_settings")
    b.expect("defaults", (seen.events, seen.max_size, seen.paused_ms, seen.limits.limit), ("failures", None, 0, None))
    b.worker.plain("pause")
    b.configure(max_size="7", limit="3")
    seen = b.worker.plain("read_settings")
    b.expect("set", (seen.max_size, seen.limits.limit, 0 < seen.paused_ms <= seen.now_ms), (7, 3, True))


# --- batches ---------------------------------------------------------------------------------


@scenario("a claim takes nothing while fewer than min_size are ready and the oldest has waited less than linger")
def lingers(b: Bench) -> None:
    for lane in (None, "a"):
        ids = [b.add(lane=lane), b.add(lane=lane)]
        reply = b.worker.claim(5, min_size=3, linger_ms=20_000, cap_ms=CAP_MS)
        b.expect("too few", (reply.jobs, 10_000 < reply.next_ms <= 20_000), ([], True))
        b.expect("no lease meanwhile", [b.state(id) for id in ids], ["pending", "pending"])
        b.expect("nobody is rung for", b.tokens(), 0)
        b.expect("a smaller claim takes them", len(b.worker.claim(1, min_size=2, linger_ms=20_000).jobs), 1)
        b.add(lane=lane)
        b.expect("long enough", len(b.worker.claim(5, min_size=3, linger_ms=0).jobs), 2)
        more = [b.add(lane=lane), b.add(lane=lane)]
        b.server.hset(b.keys.job(more[0]), "since", b.clock() - 20_000)
        b.expect("the head has waited", len(b.worker.claim(5, min_size=3, linger_ms=20_000).jobs), 2)
        b.on("enqueue", *(NewJob(lane=lane) for _ in range(3)))
        b.expect("enough", len(b.worker.claim(5, min_size=3, linger_ms=20_000).jobs), 3)
        b.expect("none at all", b.worker.claim(5, min_size=3, linger_ms=20_000, cap_ms=CAP_MS).jobs, [])
        far = b.add(lane=lane)
        b.server.hset(b.keys.job(far), "since", b.clock() + 10**9)
        reply = b.worker.claim(5, min_size=3, linger_ms=20_000, cap_ms=CAP_MS)
        b.expect("a clock that stepped back", (reply.jobs, reply.next_ms <= 20_000), ([], True))
        b.server.hset(b.keys.job(far), "since", 1000)
        b.expect("then", len(b.worker.claim(5, min_size=3, linger_ms=20_000).jobs), 1)


@scenario("the jobs of several lanes make one batch")
def batch_of_lanes(b: Bench) -> None:
    fill(b, "a", "b")
    b.expect("too few", b.worker.claim(5, min_size=3, linger_ms=20_000).jobs, [])
    fill(b, "c")
    b.expect("enough", b.lanes_of(b.worker.claim(5, min_size=3, linger_ms=20_000)), "abc")


@scenario("a claim by lane takes the jobs of one lane, and a turn is one batch")
def by_lane(b: Bench) -> None:
    b.set_lane("b", weight="2")
    fill(b, *"aaaaa", *"bbbbb", "")
    seen = [b.lanes_of(b.worker.claim(2, by_lane=True)) for _ in range(8)]
    b.expect("batches", seen, ["aa", "bb", "bb", ".", "aa", "b", "a", ""])


@scenario("by lane, each waits for its own batch; one that does not have it yet leaves the ring until it is old enough")
def by_lane_lingers(b: Bench) -> None:
    options = {"min_size": 3, "linger_ms": 20_000, "by_lane": True, "cap_ms": CAP_MS}
    now = b.clock()
    fill(b, "a", "a", "b", "b", "b")
    reply = b.worker.claim(5, **options)
    b.expect("b has enough", b.lanes_of(reply), "bbb")
    b.expect("a is closed", now + 20_000 <= b.closed()["a"] <= b.clock() + 20_000, True)
    reply = b.worker.claim(5, **options)
    b.expect("next", (reply.jobs, 10_000 < reply.next_ms <= 20_000), ([], True))
    b.expect("still", list(b.closed()), ["a"])
    fill(b, "a")
    b.expect("one more", b.lanes_of(b.worker.claim(5, **options)), "aaa")
    fill(b, "a")
    b.worker.claim(5, **options)
    head = next(iter(b.look().zset("lane:a:pending")))
    b.server.hset(b.keys.job(head), "since", b.clock() - 20_000)
    b.server.zadd(b.keys.closed, {"a": b.clock()})
    b.expect("old enough", b.lanes_of(b.worker.claim(5, **options)), "a")


@scenario("a lane that waits for its batch no longer does so when somebody claims who does not")
def by_lane_mixed(b: Bench) -> None:
    fill(b, "a", "a")
    b.expect("waits", b.worker.claim(5, min_size=3, linger_ms=20_000, by_lane=True).jobs, [])
    b.expect("not yet", b.other.claim(5).jobs, [])
    b.expect("then", b.lanes_of(b.other.claim(5)), "aa")


@scenario("a batch by lane is no larger than its lane's limit and rate let it be")
def by_lane_limits(b: Bench) -> None:
    b.set_lane("a", limit="2")
    b.set_lane("b", rate=f"1 {DAY_MS} 3")
    fill(b, *"aaaa", *"bbbb")
    b.expect("batches", [b.lanes_of(b.worker.claim(5, by_lane=True)) for _ in range(3)], ["aa", "bbb", ""])


@scenario("by lane, nothing waits for more jobs than its limit lets start; other settings change nothing in that")
def by_lane_limit_is_a_batch(b: Bench) -> None:
    b.set_lane("a", limit="2")
    b.set_lane("b", weight="2")
    fill(b, *"aaa", "b")
    options = {"min_size": 4, "linger_ms": 60_000, "by_lane": True}
    b.expect("batches", [b.lanes_of(b.worker.claim(5, **options)) for _ in range(3)], ["aa", "", ""])
    b.expect("waits", b.closed().keys() >= {"b"}, True)


@scenario("jobs of a lane that was closed on the ring make no batch ripe, nor do more than its limit lets start")
def ripe_without_closed(b: Bench) -> None:
    for settings in ({"paused": "1"}, {"limit": "1"}):
        fill(b, *"aaaaaa", "b")
        b.set_lane("a", **settings)
        reply = b.worker.claim(9, min_size=4, linger_ms=60_000, cap_ms=CAP_MS)
        b.expect("waits", (reply.jobs, 30_000 < reply.next_ms <= 60_000), ([], True))
        b.expect("taken then", len(b.worker.claim(9).jobs), 1 + ("limit" in settings))
        b.set_lane("a", **dict.fromkeys(settings, ""))
        b.ground.end_all()


# --- the timer -------------------------------------------------------------------------------


@scenario("the soonest closed lane is among what `next` counts, for the keeper of the timer", 13)
def next_closed(b: Bench) -> None:
    b.set_lane("a", rate="1 20000 1")
    fill(b, "a", "a")
    b.worker.claim(1)
    first, second = b.worker.claim(1, cap_ms=CAP_MS), b.other.claim(1, cap_ms=CAP_MS)
    b.expect("the keeper", 15_000 < first.next_ms <= 20_000, True)
    b.expect("another", second.next_ms, CAP_MS)


@scenario("closed lanes are looked at again by bounded rounds, in the order of their moments", 11, 25)
def reopened(b: Bench) -> None:
    for name in "abc":
        b.set_lane(name, rate="1 20000 1")
    fill(b, *"aabbcc")
    b.worker.claim(3)
    b.worker.claim(1)
    b.expect("closed", sorted(b.closed()), ["a", "b", "c"])
    for name, moment in (("c", 1000), ("a", 2000), ("b", 3000)):
        b.moments(name, tat=0)
        b.server.zadd(b.keys.closed, {name: moment})
    b.expect("two", b.worker.plain("promote", bound=2), 2)
    b.expect("where", (b.ring(), list(b.closed())), (["c", "a"], ["b"]))
    b.expect("tokens", b.tokens(), 2)
    reply = b.worker.claim(5, bound=1)
    b.expect("the third, and there may be more", (b.lanes_of(reply), reply.next_ms), ("cab", 0))


@scenario("the bell rings for work in lanes, and not for lanes that are closed", 12)
def bell(b: Bench) -> None:
    b.expect("nothing", b.worker.plain("ring"), False)
    b.set_lane("a", paused="1")
    fill(b, "a")
    b.expect("closed", (b.worker.plain("ring"), b.tokens()), (False, 0))
    fill(b, "b")
    b.server.delete(b.keys.wake)
    b.expect("work", (b.worker.plain("ring"), b.tokens()), (True, 1))


@scenario("one call that settles many frees every slot that it ends", 8)
def many_at_once(b: Bench) -> None:
    b.set_lane("a", limit="3")
    fill(b, *"aaaaaa")
    jobs = b.worker.claim(5).jobs
    b.server.delete(b.keys.wake)
    items = [make_item("complete", job.id, job.token, job.nonce) for job in jobs]
    b.expect("complete", b.on("complete", *items, *items[:1], driver=b.worker), ["ok", "ok", "ok", "EMQGONE"])
    b.expect("slots, tokens", (b.look().zset("lane:a:active"), b.tokens()), ({}, 3))
    b.expect("three more", len(b.worker.claim(5).jobs), 3)


@scenario("a job that goes to a lane with no room waits there, and rings for nobody", 49)
def reassign_to_full(b: Bench) -> None:
    b.set_lane("a", limit="1")
    fill(b, "a")
    b.take()
    id = b.add(lane="b")
    b.server.delete(b.keys.wake)
    b.on("reassign", Reassignment(id, "a"))
    b.expect("closed", list(b.closed()), ["a"])
    b.expect("nothing", b.other.claim(5).jobs, [])
