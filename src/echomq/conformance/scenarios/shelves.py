"""The shelves: what is kept is bounded by age and number, by whoever puts something there."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import DAY_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, NewTime


def _complete(b: Bench, *ttls: int) -> list[str]:
    """Have jobs end one by one that keep their results for so long."""
    ids = []
    for ttl in ttls:
        ids.append(b.add(result_ttl_ms=ttl))
        b.settle("complete", b.take())
    return ids


def _bury(b: Bench, count: int) -> list[str]:
    """Have jobs die one by one."""
    ids = []
    for _ in range(count):
        ids.append(b.add())
        b.bury(ids[-1])
    return ids


@scenario("too many results: those that would go soonest go, counted and told, though their time is not over", 35)
def done_max(b: Bench) -> None:
    b.configure(done_max="2")
    ids = _complete(b, 80_000, 90_000)
    b.expect("as many as may be", list(b.look().zset("done")), ids)
    (third,) = _complete(b, 85_000)
    b.expect("the soonest went", list(b.look().zset("done")), [third, ids[1]])
    b.expect("counted", b.count("trimmed"), 1)
    b.expect("its row", b.state(ids[0]), "")


@scenario("whoever keeps a result takes two others off that are over, and no more", 35)
def done_two(b: Bench) -> None:
    ids = _complete(b, *(80_000 + n for n in range(5)))
    for n, id in enumerate(ids):
        b.rescore("done", id, 1000 + n)
    (last,) = _complete(b, 90_000)
    b.expect("two went", list(b.look().zset("done")), [*ids[2:], last])
    b.expect("not counted: their time was over", b.count("trimmed"), 0)
    two = [b.add(result_ttl_ms=90_000) for _ in range(2)]
    b.on("cancel", *(CancelRequest(id, "no") for id in two))
    b.expect("two for each", set(b.look().zset("done")), {last, *two})


@scenario("whatever verb keeps a result takes others off", 35)
def done_by_all(b: Bench) -> None:
    b.configure(done_max="1", events="all")
    for verb in ("complete", "end", "fail", "release", "snooze", "rate_limited", "reap", "claim", "cancel", "promote"):
        (old,) = _complete(b, 60_000)
        id = b.add(result_ttl_ms=90_000)
        if verb in {"cancel", "promote"}:
            b.on("reschedule", NewTime(id, "+60000"))
            b.server.hset(b.keys.job(id), "cancel", "why")
            b.due(id)
            b.on("cancel", CancelRequest(id, "why")) if verb == "cancel" else b.worker.plain("promote")
        else:
            claimed = b.take()
            if verb not in {"complete", "end"}:
                b.on("cancel", CancelRequest(id, "why"))
            if verb in {"reap", "claim"}:
                b.expire(id)
                b.worker.plain("reap") if verb == "reap" else b.worker.claim(1)
            else:
                b.settle(verb, claimed)
                b.worker.plain("resume")
        b.expect(verb, (b.state(old), b.state(id)), ("", "done"))


@scenario("a smaller bound is reached in steps, two by each that is kept, or at once by trim", 35)
def done_steps(b: Bench) -> None:
    ids = _complete(b, *(80_000 + n for n in range(8)))
    b.configure(done_max="2")
    more = _complete(b, 90_000)
    b.expect("two went", list(b.look().zset("done")), [*ids[2:], *more])
    b.expect("trim", (b.worker.plain("trim", bound=3), b.worker.plain("trim")), (3, 2))
    b.expect("left", list(b.look().zset("done")), [ids[-1], *more])


@scenario("too many dead: the oldest go, but none that died within a day", 35)
def dead_max(b: Bench) -> None:
    ids = _bury(b, 3)
    b.configure(dead_max="2")
    for n, id in enumerate(ids):
        b.rescore("dead", id, b.clock() - 2 * DAY_MS + n)
    _bury(b, 1)
    b.expect("two went", next(iter(b.look().zset("dead"))), ids[2])
    young = _bury(b, 2)
    b.expect("the next old one", b.state(ids[2]), "")
    b.expect("and none of the young", b.look().zset("dead").keys() >= set(young), True)
    b.expect("more than may be", len(b.look().zset("dead")), 3)
    b.expect("counted", b.count("trimmed"), 3)
    events = [dict(zip(w[::2], w[1::2], strict=True)) for _, w in b.look().items("events")]
    b.expect("told", [it["job"] for it in events if it["event"] == "trimmed"], ids)


@scenario("the dead that are too old go, however few they are; the setting says how old that is", 35)
def dead_age(b: Bench) -> None:
    ids = _bury(b, 3)
    for days, id in zip((91, 50, 20), ids, strict=True):
        b.rescore("dead", id, b.clock() - days * DAY_MS)
    _bury(b, 1)
    b.expect("90 days, by default", [b.state(id) for id in ids], ["", "dead", "dead"])
    b.configure(dead_age=str(30 * DAY_MS))
    b.expect("30 days", (b.worker.plain("trim"), [b.state(id) for id in ids]), (1, ["", "", "dead"]))
    b.configure(dead_age="")
    b.expect("unset again", b.worker.plain("trim"), 0)


@scenario("trim keeps to limits that it is given: a number of dead is then kept to, however young they are", 35)
def trim_wanted(b: Bench) -> None:
    b.configure(dead_max="1", done_max="9")
    ids, kept = _bury(b, 4), _complete(b, *(80_000 + n for n in range(4)))
    b.expect("by the settings", b.worker.plain("trim"), 0)
    b.expect("of results", b.worker.plain("trim", done_max=3), 1)
    b.expect("the soonest to go", list(b.look().zset("done")), kept[1:])
    b.expect("of the dead", b.worker.plain("trim", dead_max=2), 2)
    b.expect("the oldest", list(b.look().zset("dead")), ids[2:])
    b.rescore("dead", ids[2], b.clock() - 50_000)
    b.expect("by age", (b.worker.plain("trim", dead_age_ms=60_000), b.worker.plain("trim", dead_age_ms=40_000)), (0, 1))
    b.expect("none at all", b.worker.plain("trim", done_max=0, dead_max=0), 4)
    b.expect("counted", b.count("trimmed"), 8)
    b.expect("the settings stay", (b.look().hash("meta")["dead_max"], b.look().hash("meta")["done_max"]), ("1", "9"))
    for bad in (("-1", "", ""), ("", "x", ""), ("", "", "0.5"), ("", "", "3162240000001")):
        b.refuses(str(bad), "EMQKIND trim", b.worker.bare, "trim", 10, *bad)


@scenario("a job that died just a day or just too long ago goes")
def dead_edges(b: Bench) -> None:
    for age, most in ((DAY_MS, "1"), (90 * DAY_MS, "")):
        b.configure(dead_max=most)
        for _ in range(50):
            first, second = _bury(b, 2)
            moment = b.clock()
            b.rescore("dead", first, moment - age)
            b.expect("one went", (b.worker.plain("trim"), b.state(first)), (1, ""))
            b.on("remove", second)
            if b.clock() == moment:
                break


@scenario("whoever buries takes two off, a claim that reaps too, and one that meets deadlines", 35)
def dead_two(b: Bench) -> None:
    def old(count: int) -> list[str]:
        ids = _bury(b, count)
        for n, id in enumerate(ids):
            b.rescore("dead", id, b.clock() - 100 * DAY_MS + n)
        return ids

    ids = old(4)
    late = b.add(deadline="1")
    b.worker.claim(1)
    b.expect("by a deadline", ([b.state(id) for id in ids], b.state(late)), (["", "", "dead", "dead"], "dead"))
    stalled = b.add(max_stalls=0)
    b.take()
    b.expire(stalled)
    b.worker.plain("reap")
    b.expect("by reap", [id for id in ids if b.state(id)], [])


@scenario("a queue may be told how many results and dead it keeps; numbers out of range are refused")
def settings(b: Bench) -> None:
    b.expect("unset", b.worker.bare("read_settings")[7:10], [b"", b"", b""])
    for name, most in (("dead_max", 1_000_000_000), ("done_max", 1_000_000_000), ("dead_age", 3_162_240_000_000)):
        for bad in ("0", "-1", "x", "1.5", str(most + 1)):
            b.refuses(f"{name} {bad}", f"EMQKIND {name} {bad}", b.producer.plain, "configure", settings={name: bad})
        for good in ("1", str(most)):
            b.expect(name, b.producer.plain("configure", settings={name: good}), True)
            b.expect("again", b.producer.plain("configure", settings={name: good}), False)
            b.expect("kept", b.look().hash("meta")[name], good)
        b.expect("only if unset", b.producer.plain("configure", settings={name: "5"}, only_unset=True), False)
        b.expect("read", str(most).encode() in b.worker.bare("read_settings")[7:], True)
        b.expect("cleared", b.producer.plain("configure", settings={name: ""}), True)
        b.expect("meta", name in b.look().hash("meta"), False)
        b.expect("set as it is not", b.producer.plain("configure", settings={name: "5"}, only_unset=True), True)
        b.configure(**{name: ""})


@scenario("a log that goes with its job goes with its job from the shelf, and a freed key is not freed again", 35)
def trims_all(b: Bench) -> None:
    id = b.add(dedup="k", result_ttl_ms=60_000)
    job = b.take()
    b.settle("log", job)
    b.settle("complete", job)
    other = NewJob(dedup="k")
    b.on("enqueue", other)
    b.rescore("done", id, 1000)
    b.expect("trim", b.worker.plain("trim"), 1)
    b.expect("keys of the job", [suffix for suffix in b.look().entries if id in suffix], [])
    b.expect("the other's key", b.look().entries["dedup:k"].value, other.id)
