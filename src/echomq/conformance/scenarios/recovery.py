"""Recovery: what is torn is found, and mended or buried; and a queue that goes, goes whole."""

from __future__ import annotations

from collections.abc import Callable

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob
from echomq.transitions import Look

NOBODY = "JOB00000000001"


def _ended_and_running(b: Bench, lane: str | None = None) -> dict[str, str]:
    """Make a dead, a kept and a running job, by the state's name, while nobody else waits for a turn."""
    ids = {}
    for state in ("dead", "done", "active"):
        ids[state] = b.add(lane=lane, result_ttl_ms=60_000)
        claimed = b.take()
        b.expect("its own turn", claimed.id, ids[state])
        if state != "active":
            b.settle("fail" if state == "dead" else "complete", claimed)
    return ids


def _waiting(b: Bench, lane: str | None = None) -> dict[str, str]:
    """Make a pending and a scheduled job, by the state's name."""
    return {"pending": b.add(lane=lane, priority=2), "schedule": b.add(lane=lane, delay_ms=YEAR_MS)}


def _one_in_each(b: Bench, lane: str | None = None) -> dict[str, str]:
    return _ended_and_running(b, lane) | _waiting(b, lane)


def _place(state: str, lane: str | None) -> str:
    return f"lane:{lane}:pending" if lane and state == "pending" else state


def _key(b: Bench, suffix: str) -> str:
    return b.keys.base + suffix


@scenario("repair finds a sound queue sound, whatever is looked at, and changes nothing", 39)
def sound(b: Bench) -> None:
    lanes = (None, "a", "b")
    ids = [id for lane in lanes for id in _ended_and_running(b, lane).values()]
    for lane in lanes:
        ids += _waiting(b, lane).values()
        b.add(lane=lane, dedup=f"k {lane}")
        b.add(lane=lane, dedup=f"w {lane}", dedup_window_ms=YEAR_MS)
    b.settle("log", b.take())
    b.set_lane("b", paused="1")
    b.set_lane("c", weight="2")
    b.server.delete(b.keys.dedup("w a"))  # its window has ended, and the job lives on
    with b.unchanged():
        everything = [Look("job", id) for id, _ in b.look().rows()]
        everything += [Look("job", id, "a") for id in ids]
        everything += [Look("dedup", s.removeprefix("dedup:")) for s in b.look().entries if s.startswith("dedup:")]
        everything += [Look("lane", name) for name in ("a", "b", "c", "nobody", "")]
        everything += [Look("job", NOBODY), Look("job", NOBODY, "a"), Look("dedup", "nobody")]
        b.expect("verdicts", set(b.on("repair", *everything)), {"ok"})


@scenario("repair of a queue that has no lanes makes none", 39)
def sound_without_lanes(b: Bench) -> None:
    id = b.add()
    with b.unchanged():
        looks = [Look("job", id), Look("job", id, "a"), Look("lane", ""), Look("lane", "a")]
        b.expect("verdicts", b.on("repair", *looks), ["ok"] * 4)


@scenario("a job that is in no set goes back to where its row says: lease over, time come, or death of now", 39)
def out_of_its_set(b: Bench) -> None:
    for lane in (None, "a", None):  # the third time there is a rota
        ids = _one_in_each(b, lane)
        b.server.delete(b.keys.wake)
        before = b.clock()
        for state, id in ids.items():
            b.server.zrem(_key(b, _place(state, lane)), id)
            if lane and state == "pending":
                b.server.hincrby(b.keys.meta, "laned", -1)
            b.expect(state, b.on("repair", Look("job", id)), [f"mended {state}"])
            score = b.look().zset(_place(state, lane))[id]
            if state == "pending":
                b.expect("its turn", score, -2.0)
            else:
                ahead = 60_000 if state == "done" else 0
                b.expect("its moment", before + ahead <= score <= b.clock() + ahead, True)
        b.expect("rung for what is ready, and what is due", b.tokens(), 2)
        b.expect("the count", b.on("repair", Look("lane", "")), ["ok"])
        b.expect("its lane's lease", ids["active"] in b.look().zset("lane:a:active"), bool(lane))
        run = [b.take(b.other).id for _ in range(3)]
        b.expect("runs again", set(run), {ids["pending"], ids["schedule"], ids["active"]})
    b.expect("counted", b.count("mended"), 15)
    b.expect("told", [w[1] for _, w in b.look().items("events")].count("mended"), 15)


@scenario("a job that stands in a wrong set, too, leaves it, in lanes as well", 39)
def in_a_wrong_set(b: Bench) -> None:
    ids = _one_in_each(b, "a")
    others = (
        "pending",
        "active",
        "schedule",
        "dead",
        "done",
        "waiting",
        "lane:a:pending",
        "lane:a:active",
        "lane:b:pending",
        "lane:b:active",
    )
    for state, id in ids.items():
        right = {_place(state, "a")} | ({"lane:a:active"} if state == "active" else set())
        for wrong in others:
            if wrong in right:
                continue
            b.server.zadd(_key(b, wrong), {id: b.clock() + YEAR_MS})
            hint = wrong.split(":")[1] if wrong.startswith("lane:b") else ""
            if wrong.endswith(":pending"):
                b.server.hincrby(b.keys.meta, "laned", 1)
            b.expect(f"{state} in {wrong}", b.on("repair", Look("job", id, hint)), [f"mended {state}"])
            b.expect("left it", id in b.look().zset(wrong), False)
        with b.unchanged():
            b.expect("sound", b.on("repair", Look("job", id, "b")), ["ok"])
    b.expect("laned", b.look().hash("meta")["laned"], "1")


@scenario("an id without a row is dropped from wherever it is, its log and its lease with it, and counted", 39)
def without_a_row(b: Bench) -> None:
    b.add(lane="a")
    for where in (
        "pending",
        "active",
        "schedule",
        "dead",
        "done",
        "waiting",
        "lane:a:pending",
        "lane:a:active",
        "job:log",
    ):
        if where == "job:log":
            b.server.rpush(b.keys.log(NOBODY), "a line")
        else:
            b.server.zadd(_key(b, where), {NOBODY: b.clock() + YEAR_MS})
        if where == "lane:a:pending":
            b.server.hincrby(b.keys.meta, "laned", 1)
        lane = "a" if where.startswith("lane") else ""
        b.expect(where, b.on("repair", Look("job", NOBODY, lane)), [f"dropped {0 if where == 'job:log' else 1}"])
        b.expect(
            "nothing of it",
            [s for s, it in b.look().entries.items() if NOBODY in s or (it.kind == "zset" and NOBODY in it.value)],
            [],
        )
    b.expect("counted", b.count("dropped"), 9)
    b.expect("laned", b.look().hash("meta")["laned"], "1")


@scenario("a row that cannot be read is no row: it goes, and its places with it", 39)
def unreadable(b: Bench) -> None:
    id = b.add()
    b.server.delete(b.keys.job(id))
    b.server.set(b.keys.job(id), "no hash")
    b.expect("dropped", b.on("repair", Look("job", id)), ["dropped 1"])
    b.expect("gone", [s for s in b.look().entries if id in s], [])
    b.server.set(b.keys.job(id), "no hash")
    b.expect("without a place", b.on("repair", Look("job", id)), ["dropped 0"])


@scenario("a row that does not say where it belongs is buried with a reason, out of every set and claim", 39)
def stateless(b: Bench) -> None:
    for lane in (None, "a"):
        for more in ((), ("by",)):
            id = b.add(lane=lane)
            c = b.take()
            b.settle("log", c)
            b.server.hset(b.keys.job(id), "cancel", "why")
            b.server.hdel(b.keys.job(id), "state", *more)
            b.expect("verdict", b.on("repair", Look("job", id)), ["buried no state"])
            row = b.row(id)
            b.expect("row", (row["state"], row["kind"], row["reason"][:5]), ("dead", "dead", "torn:"))
            b.expect("whoever looked stands for who had made it", row["by"], b.producer.tag)
            b.expect("of the claim", {"holder", "cancel"} & row.keys(), set())
            snap = b.look()
            b.expect("places", [s for s, it in snap.entries.items() if it.kind == "zset" and id in it.value], ["dead"])
            b.expect("since", 0 <= b.clock() - int(snap.zset("dead")[id]) < 60_000, True)
            with b.unchanged():
                b.expect("sound", b.on("repair", Look("job", id)), ["ok"])
            b.on("redrive", id)
            b.expect("redriven", b.take().token, 2)
    b.expect("counted", b.count("dead"), 4)


@scenario("a lease in the lane that differs from the queue's is set right, and one without a job goes", 23, 39)
def leases(b: Bench) -> None:
    id = b.add(lane="a")
    b.take()
    lease = b.score("active", id)
    tears: tuple[Callable[[], object], ...] = (
        lambda: b.server.zadd(b.keys.lane_active("a"), {id: 5}),
        lambda: b.server.zrem(b.keys.lane_active("a"), id),
        lambda: b.server.zadd(b.keys.lane_active("b"), {id: 5}),
    )
    for tear in tears:
        tear()
        b.expect("mended", b.on("repair", Look("job", id, "b")), ["mended active"])
        b.expect("leases", (b.look().zset("lane:a:active"), b.look().zset("lane:b:active")), ({id: lease}, {}))


@scenario("the key of a job that lives is taken again, unless another has it or its window has ended", 22, 39)
def keys_taken_again(b: Bench) -> None:
    for state, options in (("pending", {}), ("schedule", {"delay_ms": YEAR_MS}), ("active", {"priority": 9})):
        id = b.add(dedup=state, **options)
        if state == "active":
            b.expect("claimed", b.take().id, id)
        b.server.delete(b.keys.dedup(state))
        b.expect(state, b.on("repair", Look("job", id)), [f"mended {state}"])
        b.refuses("held", "duplicate", b.enqueue, dedup=state)
        b.server.set(b.keys.dedup(state), NOBODY)
        with b.unchanged():
            b.expect("another's", b.on("repair", Look("job", id)), ["ok"])
        b.server.set(b.keys.dedup(state), id)
    dead = b.add(dedup="dead", priority=99)
    b.bury(dead)
    with b.unchanged():
        b.expect("dead", b.on("repair", Look("job", dead)), ["ok"])


@scenario("a key that names no living job of its own goes, but for a window's", 22, 39)
def keys_dropped(b: Bench) -> None:
    dead, other = b.add(dedup="k"), ""
    b.bury(dead)
    other = b.add(dedup="other")
    for id in (NOBODY, dead, other):
        b.server.set(b.keys.dedup("k"), id)
        b.expect("dropped", b.on("repair", Look("dedup", "k")), ["dropped key"])
        b.expect("gone", "dedup:k" in b.look().entries, False)
        b.server.set(b.keys.dedup("k"), id, ex=1000)
        with b.unchanged():
            b.expect("a window's", b.on("repair", Look("dedup", "k")), ["ok"])
        b.server.delete(b.keys.dedup("k"))
    b.server.set(b.keys.dedup("k"), other)
    b.server.delete(b.keys.job(other))
    b.server.set(b.keys.job(other), "no hash")
    b.expect("unreadable", b.on("repair", Look("dedup", "k"), Look("job", other)), ["dropped key", "dropped 1"])
    b.server.delete(b.keys.dedup("other"))
    b.expect("counted", b.count("mended"), 4)
    for state, options in (("pending", {}), ("schedule", {"delay_ms": YEAR_MS})):
        b.add(dedup=state, **options)
        with b.unchanged():
            b.expect("held", b.on("repair", Look("dedup", state)), ["ok"])
    b.take()
    with b.unchanged():
        b.expect("held by one that runs", b.on("repair", Look("dedup", "pending")), ["ok"])


@scenario("repair refuses what it does not know, and mends the neighbours", 8)
def refuses(b: Bench) -> None:
    id = b.add()
    b.server.zrem(b.keys.pending, id)
    looks = [Look("all", "x"), Look("lane", "a{b"), Look("job", id, "a{b")]  # type: ignore[arg-type]
    b.expect("verdicts", b.on("repair", *looks), ["EMQKIND all x", "EMQKIND lane a{b", "mended pending"])
    b.refuses("half an item", "EMQKIND malformed", b.producer.bare, "repair", "job", id)


@scenario("an unknown job, a lane's and a mended one are told apart by the whole call's verdicts", 33)
def verdicts_in_order(b: Bench) -> None:
    job = NewJob()
    b.on("enqueue", job)
    b.server.zrem(b.keys.pending, job.id)
    b.expect(
        "in order",
        b.on("repair", Look("job", NOBODY), Look("job", job.id), Look("dedup", "k")),
        ["ok", "mended pending", "ok"],
    )
