"""The rounds: leases that end, times that come, what has been kept long enough, and the bell."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob

DAY_MS = 86_400_000


@scenario("a lease that ends spends a stall, never a retry; beyond max_stalls the job is buried with a reason", 6)
def stalls(b: Bench) -> None:
    id = b.add(max_stalls=2)
    for n in (1, 2, 3):
        b.take()
        b.expire(id)
        b.expect("reaped", b.worker.plain("reap"), 1)
        b.expect("stalls", (b.row(id)["stalls"], "failures" in b.row(id)), (str(n), False))
    row = b.row(id)
    b.expect("state", row["state"], "dead")
    b.expect("reason", "stalled" in row["reason"], True)
    b.expect("counts", (b.count("stalled"), b.count("dead")), (2, 1))


@scenario("by default three stalls are survived", 6)
def default_stalls(b: Bench) -> None:
    id = b.add()
    for expected in ("pending", "pending", "pending", "dead"):
        b.take()
        b.expire(id)
        b.worker.plain("reap")
        b.expect("state", b.state(id), expected)


@scenario("an outage costs each running job one stall and no retry", 6)
def outage(b: Bench) -> None:
    ids = [b.add() for _ in range(20)]
    b.worker.claim(20)
    for id in ids:
        b.expire(id)
    jobs = b.other.claim(20).jobs
    b.expect("all run again", sorted(job.id for job in jobs), sorted(ids))
    b.expect("stalls", {b.row(id)["stalls"] for id in ids}, {"1"})
    b.expect("failures", {b.row(id).get("failures") for id in ids}, {None})


@scenario("max_stalls of nought with one attempt is at most once: a lost lease buries", 6)
def at_most_once(b: Bench) -> None:
    id = b.add(max_stalls=0)
    b.take()
    b.expire(id)
    b.expect("claimed again", b.other.claim(1).jobs, [])
    b.expect("state", b.state(id), "dead")


@scenario("reap takes only ended leases, the bound at most, the longest ended first")
def reap_bound(b: Bench) -> None:
    ids = [b.add() for _ in range(4)]
    b.worker.claim(4)
    for n, id in enumerate(ids[:3]):
        b.rescore("active", id, 3000 - n)
    b.expect("two", b.worker.plain("reap", bound=2), 2)
    b.expect("left", list(b.look().zset("active")), [ids[0], ids[3]])
    b.expect("one", b.worker.plain("reap", bound=2), 1)
    b.expect("none", b.worker.plain("reap", bound=2), 0)
    b.refuses("no bound", "EMQKIND bound", b.worker.plain, "reap", bound=0)


@scenario("a lease further ahead than any in use, after the clock stepped back, is pulled in", 29)
def lease_ahead(b: Bench) -> None:
    id = b.add()
    b.take(lease_ms=30_000)
    b.rescore("active", id, b.clock() + 3_600_000)
    b.worker.plain("reap")
    b.expect("pulled in", (b.score("active", id) or 0) <= b.clock() + 30_000, True)


@scenario("promote takes only what is due, the bound at most, the soonest first")
def promotes(b: Bench) -> None:
    ids = [b.add(delay_ms=YEAR_MS, priority=3) for _ in range(4)]
    for n, id in enumerate(ids[:3]):
        b.rescore("schedule", id, 3000 - n)
    b.expect("two", b.worker.plain("promote", bound=2), 2)
    b.expect("pending", b.look().zset("pending"), {ids[1]: -3.0, ids[2]: -3.0})
    b.expect("one", b.worker.plain("promote", bound=2), 1)
    b.expect("not due", b.worker.plain("promote", bound=2), 0)
    b.refuses("no bound", "EMQKIND bound", b.worker.plain, "promote", bound=0)


@scenario("reap and promote drop ids without a row, and leave rows of another state alone", 39)
def orphans(b: Bench) -> None:
    id = b.add()
    for verb, state in (("reap", "active"), ("promote", "schedule")):
        b.server.zadd(getattr(b.keys, state), {"JOB00000000001": 5, id: 6})
        b.expect(verb, b.worker.plain(verb), 2)
        b.expect("state", b.state(id), "pending")
    b.expect("counts", (b.count("dropped"), b.count("torn")), (2, 2))


@scenario("reap and promote work while the queue is paused, and ring nobody", 45)
def while_paused(b: Bench) -> None:
    id = b.add()
    b.take()
    later = b.add(delay_ms=YEAR_MS)
    b.worker.plain("pause")
    b.server.delete(b.keys.wake)
    b.expire(id)
    b.due(later)
    b.expect("rounds", (b.worker.plain("reap"), b.worker.plain("promote")), (1, 1))
    b.expect("tokens", b.tokens(), 0)
    b.expect("resume", (b.worker.plain("resume"), b.tokens()), (True, 2))


@scenario("ready work implies a token: enqueue, reap, promote, redrive, release and resume ring", 12)
def bell(b: Bench) -> None:
    def rings(what: str, tokens: int = 1) -> None:
        b.expect(f"tokens after {what}", b.tokens(), tokens)
        b.server.delete(b.keys.wake)

    id = b.add()
    rings("enqueue")
    b.take()
    b.server.delete(b.keys.wake)
    b.expire(id)
    b.worker.plain("reap")
    rings("reap")
    later = b.add(delay_ms=YEAR_MS)
    b.server.delete(b.keys.wake)
    b.due(later)
    b.worker.plain("promote")
    rings("promote")
    claimed = b.take()
    b.server.delete(b.keys.wake)
    b.settle("fail", claimed)
    b.on("redrive", claimed.id)
    rings("redrive")
    b.on("enqueue", *(NewJob() for _ in range(3)))
    rings("a batch", 3)
    b.worker.plain("pause")
    b.add()
    rings("enqueue while paused", 0)
    b.worker.plain("resume")
    b.expect("tokens after resume", b.tokens(), 6)


@scenario("ring pushes one token if there is ready work, and none if not", 12)
def ring(b: Bench) -> None:
    with b.unchanged():
        b.expect("nothing ready", b.worker.plain("ring"), False)
    b.add()
    b.server.delete(b.keys.wake)
    b.expect("ready", (b.worker.plain("ring"), b.tokens()), (True, 1))
    b.worker.plain("pause")
    b.server.delete(b.keys.wake)
    b.worker.plain("ring")
    b.expect("paused", b.tokens(), 0)
    b.worker.plain("resume")


@scenario("tokens never exceed 64", 12)
def most_tokens(b: Bench) -> None:
    for _ in range(3):
        b.on("enqueue", *(NewJob() for _ in range(40)))
    b.expect("tokens", b.tokens(), 64)
    b.worker.plain("ring")
    b.expect("tokens", b.tokens(), 64)


@scenario("trim drops results past their time, the bound at most, and never those before it", 14, 35)
def trims_done(b: Bench) -> None:
    ids = [b.add(result_ttl_ms=60_000) for _ in range(3)]
    for _ in ids:
        b.settle("complete", b.take())
    b.expect("none yet", b.worker.plain("trim"), 0)
    for id in ids[:2]:
        b.rescore("done", id, 1000)
    b.expect("one", b.worker.plain("trim", bound=1), 1)
    b.expect("one more", b.worker.plain("trim", bound=10), 1)
    b.expect("left", list(b.look().zset("done")), ids[2:])


@scenario("the dead go when too old, or too many but not within a day; counted, emitted, log and all", 35)
def trims_dead(b: Bench) -> None:
    ids = []
    for _ in range(4):
        ids.append(b.add())
        claimed = b.take()
        b.settle("log", claimed)
        b.settle("fail", claimed)
    b.configure(dead_max="2")
    b.expect("young, though too many", b.worker.plain("trim"), 0)
    b.configure(dead_max="")
    b.rescore("dead", ids[0], b.clock() - 91 * DAY_MS)
    b.rescore("dead", ids[1], b.clock() - 2 * DAY_MS)
    b.rescore("dead", ids[2], b.clock() - 2 * DAY_MS + 1000)
    b.expect("too old", b.worker.plain("trim"), 1)
    b.configure(dead_max="2")
    b.expect("too many by one", b.worker.plain("trim"), 1)
    b.expect("left", list(b.look().zset("dead")), ids[2:])
    b.expect("trimmed", b.count("trimmed"), 2)
    b.expect(
        "events",
        [dict(zip(w[::2], w[1::2], strict=True))["event"] for _, w in b.look().items("events")].count("trimmed"),
        2,
    )
    b.expect("keys", [s for s in b.look().entries if ids[0] in s or ids[1] in s], [])


@scenario("one trim drops no more than its bound, results and dead together", 35)
def trim_bound(b: Bench) -> None:
    done, dead = [b.add(result_ttl_ms=60_000) for _ in range(3)], [b.add() for _ in range(3)]
    for id in (*done, *dead):
        b.settle("complete" if id in done else "fail", b.take())
    for id in (*done, *dead):
        b.rescore("done" if id in done else "dead", id, 1000)
    for expected in (2, 2, 2, 0):
        b.expect("trimmed", b.worker.plain("trim", bound=2), expected)
    b.expect("of them dead", b.count("trimmed"), 3)
    for bound in ("0", "10001", "x"):
        b.refuses(bound, "EMQKIND trim", b.worker.bare, "trim", bound)
