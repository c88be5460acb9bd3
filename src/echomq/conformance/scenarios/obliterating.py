"""Obliteration: a queue closes, and goes with all that is in it, in bounded rounds; `meta` is the last of it."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.conformance.scheduling import Schedules
from echomq.protocol.records import NewJob


def _furnish(b: Bench, count: int = 3) -> None:
    """Make some of everything."""
    for lane in (None, "a", "b"):
        for verb in ("fail", "complete", "extend"):
            b.add(lane=lane, result_ttl_ms=60_000, dedup=f"{verb} {lane}")
            claimed = b.take()
            b.settle("log", claimed)
            b.settle(verb, claimed)
        for _ in range(count):
            b.add(lane=lane), b.add(lane=lane, delay_ms=YEAR_MS)
    b.add(dedup="w", dedup_window_ms=YEAR_MS)
    b.set_lane("b", paused="1")
    b.set_lane("empty", weight="2")
    Schedules(b).put("s"), Schedules(b).put("t")


@scenario("obliterate refuses a queue that is not paused, or whose jobs run, unless forced", 35)
def guarded(b: Bench) -> None:
    b.add()
    claimed = b.take()
    b.refuses("not paused", "EMQSTATE running", b.producer.plain, "obliterate")
    b.worker.plain("pause")
    b.refuses("a job runs", "EMQSTATE active 1", b.producer.plain, "obliterate")
    for bad in ([0, 0, 0], [1001, 0, 0], ["x", 0, 0], [1, 0, 0, *("n",) * 257]):
        b.refuses(str(bad[:1]), "EMQKIND obliterate", b.producer.bare, "obliterate", *bad)
    b.settle("complete", claimed)
    b.expect("now", b.producer.plain("obliterate", bound=1000).left, 0)
    b.expect("closed", "closing" in b.look().hash("meta"), True)
    b.worker.plain("resume")
    b.add()
    b.expect("forced", b.producer.plain("obliterate", force=True).jobs, 1)
    b.worker.plain("resume")


@scenario("a queue that was never there is obliterated without a trace", 35)
def never_there(b: Bench) -> None:
    for last in (False, True):
        with b.unchanged():
            done = b.producer.plain("obliterate", last=last)
            b.expect("nothing", (done.jobs, done.keys, done.left), (0, 0, 0))
    b.expect("256 names", b.producer.plain("obliterate", names=("n",) * 256).keys, 0)


@scenario("nothing is left of an obliterated queue but what goes by itself, whatever the bound", 35)
def whole(b: Bench) -> None:
    for bound in (1, 2, 7, 1000):
        _furnish(b)
        jobs = len(list(b.look().rows()))
        b.expect("jobs", b.ground.obliterate(b.other, bound), jobs)
        b.expect("left", {s: it for s, it in b.look().entries.items() if not it.ttl}, {})
        for client in (b.producer, b.worker, b.other):
            client.tag = b.client().tag  # the memory of calls has gone, too
    b.expect("used again", b.enqueue(), "admitted")


@scenario("a round takes no more than its bound, running jobs last, and says what is left", 35)
def bounded(b: Bench) -> None:
    ids = [b.add(priority=-n) for n in range(5)]
    running = b.take()
    left = 5
    while left:
        done = b.producer.plain("obliterate", bound=2, force=True)
        b.expect("jobs", done.jobs, min(2, left))
        left -= done.jobs
        b.expect("left", done.left, left)
    b.expect("none", [id for id in ids if b.state(id)], [])
    b.refuses("its holder", "EMQGONE", lambda: b.settle("complete", running))
    b.server.hset(b.keys.meta, "schedules", "1")
    for n in range(5):
        b.server.hset(b.keys.schedule_of(f"s{n}"), "slot", 0)
        b.server.zadd(b.keys.schedules, {f"s{n}": 5})
    b.expect("schedules, too", [b.producer.plain("obliterate", bound=2, force=True).left for _ in range(3)], [3, 1, 0])
    b.worker.plain("resume")
    b.expect("none is left", b.look().hash("meta").get("schedules"), None)


@scenario("leases of lanes and dedup keys go with their jobs, and whoever waits for a result is told", 34, 35)
def owed(b: Bench) -> None:
    job = NewJob(lane="a", dedup="k", result_ttl_ms=60_000)
    b.on("enqueue", job)
    b.take()
    follower = b.server.pubsub(ignore_subscribe_messages=True)
    follower.subscribe(b.keys.result_channel(job.id))
    follower.get_message(timeout=1)
    b.producer.plain("obliterate", bound=1, force=True)
    b.expect("told", (follower.get_message(timeout=1) or {}).get("data"), b"removed")
    follower.close()
    snap = b.look()
    b.expect("gone", [s for s in ("dedup:k", f"job:{job.id}", "active", "lane:a:active") if s in snap.entries], [])
    b.worker.plain("resume")


@scenario(
    "while it closes nothing begins: no job, no claim, no setting, no schedule; and resume finds the rest sound", 35
)
def interrupted(b: Bench) -> None:
    s = Schedules(b)
    lanes = [f"lane {n}" for n in range(9)]
    b.on("enqueue", *(NewJob(lane=lane) for lane in lanes for _ in range(3)))
    b.on("enqueue", *(NewJob() for _ in range(3)))
    s.put()
    b.set_lane("lane 8", paused="1")
    b.configure(max_size="30")
    b.worker.plain("pause")
    done = [b.producer.plain("obliterate", bound=4)]
    since = b.look().hash("meta")["closing"]
    b.expect("when", 0 <= b.clock() - int(since) < 60_000, True)
    while b.clock() == int(since):
        pass
    done += [b.producer.plain("obliterate", bound=4) for _ in range(3)]
    b.expect("jobs", sum(it.jobs for it in done), 16)
    closed = b.look().hash("meta")["closing"]
    b.expect("since the first", closed, since)
    b.refuses("enqueue", "EMQSTATE closing", b.enqueue)
    b.refuses("configure", "EMQSTATE closing", b.configure, limit="1")
    b.refuses("set_lane", "EMQSTATE closing", b.set_lane, "x", weight="2")
    b.refuses("schedule_put", "EMQSTATE closing", s.put, "t")
    b.server.hdel(b.keys.meta, "paused")
    b.expect("claim", b.worker.claim(9).jobs, [])
    b.worker.plain("resume")
    b.expect("closing", "closing" in b.look().hash("meta"), False)
    left = b.worker.plain("counts").pending
    b.expect("left", (left, b.look().hash("meta")["laned"]), (14, "14"))
    b.expect("room", [b.enqueue(lane=f"lane {n}") for n in range(9)], ["admitted"] * 9)
    b.set_lane("lane 8", paused="")
    seen = 0
    while (reply := b.worker.claim(5)).jobs:
        seen += len(reply.jobs)
        for job in reply.jobs:
            b.settle("complete", job)
    b.expect("all others are served", seen, 23)


@scenario("any number of lanes goes, in rounds of sixty-four, those that have only settings, too", 25, 35)
def many_lanes(b: Bench) -> None:
    for n in range(100):
        b.set_lane(f"idle {n}", weight="2")
        b.set_lane(f"lane {n}", paused="1")
    b.on("enqueue", *(NewJob(lane=f"lane {n}") for n in range(200)))
    b.expect("they stand", (len(b.ring()), len(b.closed())), (100, 100))
    before, rounds = -1, 0
    while before:
        done = b.producer.plain("obliterate", bound=1000, force=True)
        b.expect("goes on", done.left != before, True)
        b.expect("lanes of a round", before - done.left - done.jobs <= 192 or before < 0, True)
        before, rounds = done.left, rounds + 1
    b.expect("rounds", 2 < rounds < 12, True)
    b.worker.plain("resume")
    b.expect("the rota", (b.ring(), b.closed(), b.look().hash("lanes")), ([], {}, {}))


@scenario("keys that were found left over go when no job is left, and neither meta nor void by name", 35)
def left_over(b: Bench) -> None:
    b.add(), b.add()
    b.server.set(b.keys.base + "dedup:lost", "x")
    names = ["dedup:lost", "meta", "void", "nothing"]
    done = b.producer.plain("obliterate", bound=1, force=True, names=names, last=True)
    b.expect("not yet", (done.keys, done.left, "dedup:lost" in b.look().entries), (0, 1, True))
    done = b.producer.plain("obliterate", bound=5, force=True, names=names)
    b.expect("now", (done.keys, done.left, "dedup:lost" in b.look().entries), (1, 0, False))
    b.expect("meta", "closing" in b.look().hash("meta"), True)
    b.producer.plain("obliterate", force=True, last=True)
    b.expect("all", [s for s, it in b.look().entries.items() if not it.ttl], [])


@scenario("a row that cannot be read goes with the others", 39)
def unreadable(b: Bench) -> None:
    id = b.add(result_ttl_ms=60_000, dedup="k")
    b.server.delete(b.keys.job(id))
    b.server.set(b.keys.job(id), "no hash")
    done = b.producer.plain("obliterate", force=True)
    b.expect("gone", (done.jobs, done.left, b.state(id)), (1, 0, ""))
    b.server.delete(b.keys.dedup("k"))
    b.worker.plain("resume")


@scenario("keys of another type go with the others, and refuse nobody", 35, 39)
def types(b: Bench) -> None:
    for lane in ("a", "b"):
        b.add(lane=lane)
    b.take()
    names = (
        "pending",
        "active",
        "schedule",
        "dead",
        "done",
        "waiting",
        "closed",
        "schedules",
        "wake",
        "events",
        "counts",
    )
    for name in (*names, "lane:a:active", "lane:b:active", "lane:b:pending"):
        b.server.delete(b.keys.base + name)
        b.server.sadd(b.keys.base + name, "x")
    b.worker.plain("pause")
    done = b.producer.plain("obliterate", bound=9)
    b.expect("left", (done.left, b.producer.plain("obliterate").left), (0, 0))
    b.producer.plain("obliterate", last=True, names=[s for s in b.look().entries if s.startswith(("job:", "lane:"))])
    b.worker.plain("resume")
    b.expect("all", [s for s, it in b.look().entries.items() if not it.ttl and s != "meta"], [])
    b.add(lane="a")
    b.server.delete(b.keys.lane_active("a"))
    b.server.sadd(b.keys.lane_active("a"), "x")
    b.expect("a job of such a lane", b.producer.plain("obliterate", force=True).jobs, 1)
    b.worker.plain("resume")


@scenario("a lane whose job runs keeps its lease until that job goes", 23, 35)
def lane_of_a_running_job(b: Bench) -> None:
    b.set_lane("a", limit="1")
    b.add(lane="a")
    job = b.take()
    b.add()
    b.expect("one job", b.producer.plain("obliterate", bound=1, force=True).jobs, 1)
    b.expect("the lease", list(b.look().zset("lane:a:active")), [job.id])
    b.worker.plain("resume")
    b.expect("it goes on", b.settle("complete", job), "ok")


@scenario("a claim that comes after the last round makes no setting, though somebody's job was left behind", 35)
def claim_after_the_last(b: Bench) -> None:
    id = b.add(delay_ms=YEAR_MS)
    b.server.delete(b.keys.meta)
    b.expect("claimed", b.worker.claim(1).jobs, [])
    b.expect("meta", b.look().hash("meta"), {})
    b.on("remove", id)
