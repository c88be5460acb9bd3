"""Claim: order, bounds, leases, the keeper's timer, the bell."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS, make_item
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob

# Far above the moments of these stories, so that no slow machine lives to see one come.
CAP_MS = 60_000


@scenario("claim leases for so long from the server's now, with a token and a nonce")
def leases(b: Bench) -> None:
    id = b.add(payload=b"x" * 100)
    before = b.clock()
    claimed = b.take(lease_ms=30_000)
    after = b.clock()
    b.expect("the lease", before + 30_000 <= (b.score("active", id) or 0) <= after + 30_000, True)
    row = b.row(id)
    b.expect("token, nonce", (claimed.token, claimed.nonce), (1, f"{b.worker.tag}.1"))
    b.expect("row", (row["state"], row["attempts"], row["holder"]), ("active", "1", claimed.nonce))
    b.expect("payload", claimed.record.payload, b"x" * 100)


@scenario("claim takes at most as many as asked for; one worker may take a whole batch", 46)
def count(b: Bench) -> None:
    ids = [b.add() for _ in range(5)]
    b.expect("two", [job.id for job in b.worker.claim(2).jobs], ids[:2])
    b.expect("the rest", [job.id for job in b.other.claim(100).jobs], ids[2:])
    b.expect("none", b.worker.claim(1).jobs, [])


@scenario("a claim stops before max_bytes, but takes one job at least, and says there is more", 24)
def max_bytes(b: Bench) -> None:
    for _ in range(4):
        b.add(payload=b"x" * 1000)
    reply = b.worker.claim(10, max_bytes=2500)
    b.expect("jobs within the bytes", len(reply.jobs), 2)
    b.expect("ask again", reply.next_ms, 0)
    b.expect("one at least", len(b.worker.claim(10, max_bytes=1).jobs), 1)


@scenario("a claim out of range is refused whole", 27)
def argv(b: Bench) -> None:
    b.add()
    for name, options in {
        "count": {"count": 0}, "lease": {"lease_ms": 0}, "cap": {"cap_ms": 0}, "bytes": {"max_bytes": 0},
        "bound": {"bound": 0}, "many": {"count": 10_001}, "week": {"lease_ms": 604_800_001}, "minute": {"cap_ms": 60_001},
    }.items():  # fmt: skip
        b.refuses(name, "EMQKIND claim", b.worker.claim, **options)


@scenario("a claim without a number is refused: it would draw the same nonce each time", 7)
def unnumbered(b: Bench) -> None:
    b.add()
    driver = b.client(numbered=False)
    b.refuses("claim", "EMQKIND claim", driver.claim)


@scenario("tokens increase over claims, and no pair of token and nonce comes twice", 7)
def tokens(b: Bench) -> None:
    b.add()
    pairs = []
    for driver in (b.worker, b.other, b.worker, b.other):
        claimed = b.take(driver)
        pairs.append((claimed.token, claimed.nonce))
        b.settle("release", claimed, driver=driver)
    b.expect("tokens", [token for token, _ in pairs], [1, 2, 3, 4])
    b.expect("pairs", len(set(pairs)), 4)


@scenario("a paused queue leases nothing, but recovers leases and promotes", 45)
def paused(b: Bench) -> None:
    id = b.add()
    b.take()
    later = b.add(delay_ms=YEAR_MS)
    b.worker.plain("pause")
    b.expire(id)
    b.due(later)
    reply = b.worker.claim(10)
    b.expect("jobs", reply.jobs, [])
    b.expect("states", (b.state(id), b.state(later)), ("pending", "pending"))
    b.expect("not at once again", reply.next_ms > 0, True)
    b.expect("resume", b.other.plain("resume"), True)
    b.expect("tokens", b.tokens(), 2)
    b.expect("claimed", len(b.worker.claim(10).jobs), 2)


@scenario("a claim drops an id whose row is gone and counts it, never making a row", 39)
def dropped(b: Bench) -> None:
    id = b.add()
    b.server.zadd(b.keys.pending, {"JOB00000000001": -1})
    reply = b.worker.claim(2)
    b.expect("claimed", [job.id for job in reply.jobs], [id])
    b.expect("dropped", b.count("dropped"), 1)


@scenario("a claim takes no job whose row says another state", 39)
def torn(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.server.zadd(b.keys.pending, {id: 0})
    b.expect("claimed", b.other.claim(2).jobs, [])
    b.expect("torn", b.count("torn"), 1)
    b.expect("its holder", b.settle("complete", claimed), "ok")


@scenario("a claim takes no job whose token is no number", 27, 39)
def torn_token(b: Bench) -> None:
    b.torn = True
    for text in ("nan", "1e400", "-1", "1.5", "x"):
        id = b.add()
        b.server.hset(b.keys.job(id), "attempts", text)
        b.expect(text, b.worker.claim(2).jobs, [])
    b.expect("torn", b.count("torn"), 5)


@scenario("a row that cannot be read is counted as torn and left to repair; it is not met again and again", 39)
def unreadable(b: Bench) -> None:
    b.torn = True
    ids = [b.add(), b.add(), b.add(delay_ms=YEAR_MS), b.add()]
    running = b.worker.claim(1).jobs[0].id
    for id in ids[:3]:
        b.server.delete(b.keys.job(id))
        b.server.rpush(b.keys.job(id), "no hash")
    b.expire(running)
    b.due(ids[2])
    for _ in range(2):
        b.expect("claimed", [job.id for job in b.worker.claim(1).jobs if job.id != ids[3]], [])
    b.expect("the readable one", b.state(ids[3]), "active")
    b.expect("torn", b.count("torn"), 3)
    b.expect(
        "left in the sets", [id for name in ("pending", "active", "schedule") for id in b.look().zset(name)], ids[3:]
    )


@scenario("a claim of many passes the torn ones by and leases all others, in order", 39)
def torn_among_many(b: Bench) -> None:
    b.torn = True
    ids = [b.add() for _ in range(7)]
    b.server.delete(b.keys.job(ids[0]), b.keys.job(ids[2]))
    b.server.rpush(b.keys.job(ids[2]), "no hash")
    b.server.hset(b.keys.job(ids[4]), "state", "schedule")
    b.server.hset(b.keys.job(ids[6]), "attempts", "x")
    reply = b.worker.claim(10)
    b.expect("claimed", [(job.id, job.token) for job in reply.jobs], [(id, 1) for id in ids[1:6:2]])
    b.expect("active", sorted(b.look().zset("active")), ids[1:6:2])
    b.expect("pending", b.look().zset("pending"), {})
    b.expect("counts", (b.count("torn"), b.count("dropped")), (3, 1))
    settled = b.on("complete", *(make_item("complete", j.id, j.token, j.nonce) for j in reply.jobs), driver=b.worker)
    b.expect("complete", settled, ["ok"] * 3)


@scenario("ready work that a claim leaves behind rings for another worker", 12)
def chain(b: Bench) -> None:
    b.on("enqueue", *(NewJob() for _ in range(3)))
    b.server.delete(b.keys.wake)
    reply = b.worker.claim(1)
    b.expect("ask again", reply.next_ms, 0)
    b.expect("one token", b.tokens(), 1)


@scenario("a claim that finds nothing ready deletes stale tokens", 12)
def stale_tokens(b: Bench) -> None:
    id = b.add()
    b.add()
    b.on("remove", id)
    b.take()
    b.expect("a token is left", b.tokens() > 0, True)
    b.expect("nothing ready", b.worker.claim(1).jobs, [])
    b.expect("tokens", b.tokens(), 0)


@scenario("a claim that recovers more than it takes rings for the rest", 12)
def recovered(b: Bench) -> None:
    ids = [b.add() for _ in range(4)]
    b.worker.claim(4)
    for id in ids:
        b.expire(id)
    b.server.delete(b.keys.wake)
    b.expect("claimed", len(b.other.claim(1).jobs), 1)
    b.expect("tokens", b.tokens(), 3)


@scenario("one worker keeps the timer: it gets the true next, the others the cap", 13)
def keeper(b: Bench) -> None:
    now = b.clock()
    b.add(delay_ms=20_000)
    first, second = b.worker.claim(1, cap_ms=CAP_MS), b.other.claim(1, cap_ms=CAP_MS)
    b.expect("the keeper", 1 <= first.next_ms <= 20_000, True)
    b.expect("another", second.next_ms, CAP_MS)
    b.expect("kept by", b.look().hash("meta")["keeper"], b.worker.tag)
    again = b.worker.claim(1, cap_ms=CAP_MS)
    b.expect("the keeper again", 1 <= again.next_ms <= first.next_ms, True)
    until = int(b.look().hash("meta")["keeper_until"])
    b.expect("until", now < until <= b.clock() + 20_050, True)


@scenario("the keeping passes on when it has run out, and when it lies further ahead than it may", 13, 29)
def keeper_passes(b: Bench) -> None:
    b.add(delay_ms=20_000)
    b.worker.claim(1, cap_ms=CAP_MS)
    for until in (1000, b.clock() + 3_600_000):
        b.server.hset(b.keys.meta, mapping={"keeper": b.worker.tag, "keeper_until": until})
        b.expect("another takes over", b.other.claim(1, cap_ms=CAP_MS).next_ms <= 20_000, True)
        b.expect("kept by", b.look().hash("meta")["keeper"], b.other.tag)


@scenario("a claim that fills its caller gives the keeping up and rings once", 13)
def keeper_full(b: Bench) -> None:
    b.add(delay_ms=YEAR_MS)
    b.worker.claim(1, cap_ms=1000)
    b.expect("kept by", b.look().hash("meta").get("keeper"), b.worker.tag)
    b.add()
    b.server.delete(b.keys.wake)
    b.expect("claimed", len(b.worker.claim(1).jobs), 1)
    b.expect("kept by nobody", "keeper" in b.look().hash("meta"), False)
    b.expect("tokens", b.tokens(), 1)


@scenario(
    "a claim that fills its caller rings for another to take the timer, when nobody keeps it and something is near", 13
)
def nobody_keeps(b: Bench) -> None:
    for delay, tokens in ((20_000, 1), (YEAR_MS, 0)):
        later = b.add(delay_ms=delay)
        b.add()
        b.server.delete(b.keys.wake)
        b.expect("claimed", len(b.worker.claim(1, cap_ms=CAP_MS).jobs), 1)
        b.expect(f"tokens, {delay} ms ahead", b.tokens(), tokens)
        b.on("remove", later)
    b.add(delay_ms=20_000)
    b.other.claim(1, cap_ms=CAP_MS)
    b.expect("somebody keeps it", b.look().hash("meta")["keeper"], b.other.tag)
    b.add()
    b.server.delete(b.keys.wake)
    b.expect("claimed", len(b.worker.claim(1, cap_ms=CAP_MS).jobs), 1)
    b.expect("nobody else need", b.tokens(), 0)


@scenario("next is the soonest of the schedule's head and the first lease to end, capped, at least 1 ms", 13)
def next_ms(b: Bench) -> None:
    b.expect("nothing at all", b.worker.claim(1, cap_ms=700).next_ms, 700)
    later = b.add(delay_ms=YEAR_MS)
    b.expect("far ahead", b.worker.claim(1, cap_ms=700).next_ms, 700)
    b.rescore("schedule", later, b.clock() + 20_000)
    b.expect("the schedule's head", b.worker.claim(1, cap_ms=CAP_MS).next_ms <= 20_000, True)
    b.add()
    claimed = b.take(lease_ms=10_000)
    b.expect("a lease", b.worker.claim(1, cap_ms=CAP_MS).next_ms <= 10_000, True)
    b.settle("complete", claimed)


@scenario("a claim whose rounds used up their bound says to ask again, not that nothing is there", 25)
def bound(b: Bench) -> None:
    ids = [b.add(delay_ms=YEAR_MS) for _ in range(3)]
    for id in ids:
        b.due(id)
    reply = b.worker.claim(10, bound=2)
    b.expect("promoted and claimed", [job.id for job in reply.jobs], ids[:2])
    b.expect("ask again", reply.next_ms, 0)
    b.expect("the third", [job.id for job in b.worker.claim(10, bound=2).jobs], ids[2:])
