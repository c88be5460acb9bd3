"""Rule 6: a repeated call is answered, not run again; an overtaken one is refused."""

from __future__ import annotations

from echomq.conformance.bench import Bench, spell
from echomq.conformance.driver import Driver
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Reassignment, Transition


def _again(b: Bench, driver: Driver, verb: str, expected: list[str]) -> None:
    with b.unchanged():
        b.expect(f"{verb} again", [spell(verdict) for verdict in driver.resend(verb)], expected)


@scenario("an enqueue sent again after its job has ended does not run it twice", 2)
def enqueue_again(b: Bench) -> None:
    b.expect("enqueue", b.on("enqueue", NewJob(), NewJob(dedup="k")), ["admitted", "admitted"])
    for _ in range(2):
        b.expect("complete", b.settle("complete", b.take()), "ok")
    _again(b, b.producer, "enqueue", ["admitted", "admitted"])
    b.expect("claimed", b.worker.claim(10).jobs, [])


@scenario("every remembered verb sent again answers as before and changes nothing", 2)
def all_again(b: Bench) -> None:
    for verb in ("complete", "fail", "release", "snooze", "end", "progress", "checkpoint", "log"):
        id = b.add(result_ttl_ms=60_000)
        verdict = b.settle(verb, b.take(), 1)
        _again(b, b.worker, verb, [verdict])
        b.on("cancel", CancelRequest(id, "next"))
        b.on("remove", id)
        if b.state(id) == "active":
            b.expire(id)
            b.worker.plain("reap")
    for verb in ("cancel", "remove"):
        id = b.add()
        verdict = b.on(verb, CancelRequest(id, "why") if verb == "cancel" else id)[0]
        _again(b, b.producer, verb, [verdict])
    id = b.add()
    b.bury(id)
    b.on("redrive", id)
    _again(b, b.producer, "redrive", ["ok"])
    for verb in ("pause", "resume"):
        b.expect(verb, b.worker.plain(verb), True)
        with b.unchanged():
            b.expect(f"{verb} again", b.worker.resend(verb), True)
    b.worker.plain("configure", settings={"events": "all"})
    with b.unchanged():
        b.expect("configure again", b.worker.resend("configure"), True)


@scenario("a claim sent again answers its jobs renewed, and charges nothing", 3)
def claim_again(b: Bench) -> None:
    ids = [b.add() for _ in range(3)]
    first = b.worker.claim(2, lease_ms=30_000)
    b.rescore("active", ids[0], 1000)
    again = b.worker.resend("claim")
    b.expect("jobs", [(j.id, j.token, j.nonce) for j in again.jobs], [(j.id, j.token, j.nonce) for j in first.jobs])
    b.expect("renewed", (b.score("active", ids[0]) or 0) > b.clock() + 20_000, True)
    b.expect(
        "attempts, stalls", [(b.row(id)["attempts"], b.row(id).get("stalls")) for id in ids[:2]], [("1", None)] * 2
    )
    b.expect("the third", b.state(ids[2]), "pending")
    b.expect("payloads", [j.record.payload for j in again.jobs], [b"", b""])


@scenario("a claim sent again leaves out what others hold by now, or what has ended", 3)
def claim_again_lost(b: Bench) -> None:
    ids = [b.add() for _ in range(3)]
    first = b.worker.claim(3)
    b.settle("complete", first.jobs[0], driver=b.other)
    b.expire(ids[1])
    b.take(b.other)
    lease = b.score("active", ids[1])
    again = b.worker.resend("claim")
    b.expect("jobs", [job.id for job in again.jobs], ids[2:])
    b.expect("the other's lease", b.score("active", ids[1]), lease)
    b.expect("ask again", again.next_ms, 0)


@scenario("an empty claim sent again takes nothing, though there is work now", 3)
def claim_again_empty(b: Bench) -> None:
    b.expect("nothing", b.worker.claim(1).jobs, [])
    b.add()
    with b.unchanged():
        b.expect("again", b.worker.resend("claim").jobs, [])
    b.expect("a new call", len(b.worker.claim(1).jobs), 1)


@scenario("an old socket's late copy of a call is refused, whatever it asked for", 2)
def late_copy(b: Bench) -> None:
    for _ in range(2):
        b.add()
        b.settle("fail", b.take(), 1)
        b.worker.plain("pause")
        b.worker.plain("resume")
    for driver, verb in (
        (b.producer, "enqueue"),
        (b.worker, "claim"),
        (b.worker, "fail"),
        (b.worker, "pause"),
        (b.worker, "resume"),
    ):
        b.refuses(verb, "EMQSTALE call", driver.resend, verb, back=2)


@scenario("no remembered verb runs a call that a later one has overtaken", 2)
def all_late(b: Bench) -> None:
    for verb in ("complete", "fail", "release", "snooze", "end", "progress", "checkpoint", "log"):
        for _ in range(2):
            id = b.add()
            b.settle(verb, b.take(), 1)
            b.ground.end_all()
        b.refuses(verb, "EMQSTALE call", b.worker.resend, verb, back=2)
    ids = [b.add() for _ in range(4)]
    for id in ids[:2]:
        b.bury(id)
        b.on("redrive", id)
        b.on("cancel", CancelRequest(id, "why"))
        b.worker.plain("configure", settings={"events": "failures"})
    for id in ids[2:]:
        b.on("remove", id)
    for driver, verb in (
        (b.producer, "redrive"),
        (b.producer, "cancel"),
        (b.producer, "remove"),
        (b.worker, "configure"),
    ):
        b.refuses(verb, "EMQSTALE call", driver.resend, verb, back=2)


@scenario("what is said of lanes is remembered, and not run after a later word", 2)
def lanes_again(b: Bench) -> None:
    def say(n: int) -> None:
        id = b.add(lane="a")
        b.expect("reassign", b.on("reassign", Reassignment(id, f"b{n}")), ["ok"])
        b.expect("drain", b.producer.plain("drain", lane=f"b{n}"), 1)
        b.expect("set_lane", b.producer.plain("set_lane", lane="a", settings={"weight": f"{n}"}), True)
        b.add()
        claimed = b.take(b.producer)
        b.expect("rate_limited", b.settle("rate_limited", claimed, 1, driver=b.producer), "ok")
        b.on("remove", claimed.id)

    say(2)
    for verb in ("reassign", "drain", "set_lane", "rate_limited"):
        with b.unchanged():
            b.producer.resend(verb)
    b.expect("drain answers what it did", b.producer.resend("drain"), 1)
    b.expect("set_lane, too", b.producer.resend("set_lane"), True)
    say(3)
    for verb in ("reassign", "drain", "set_lane", "rate_limited"):
        b.refuses(verb, "EMQSTALE call", b.producer.resend, verb, back=2)


@scenario("calls of one client do not speak for another, nor those of one verb for another", 2)
def own_memory(b: Bench) -> None:
    b.add()
    b.expect("the other's first call", len(b.other.claim(1).jobs), 1)
    b.expect("one's own first call", b.worker.claim(1).jobs, [])
    b.expect("another verb's first call", b.other.plain("pause"), True)
    b.other.plain("resume")


@scenario("an unnumbered call is not remembered")
def unnumbered(b: Bench) -> None:
    driver = b.client(numbered=False)
    job = NewJob()
    b.expect("enqueue", b.on("enqueue", job, driver=driver), ["admitted"])
    b.expect("memory", [suffix for suffix in b.look().entries if suffix.startswith("once:")], [])


@scenario("an extend sent again runs again: the lease counts from the later sending", 33)
def extend_again(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.settle("extend", claimed)
    b.rescore("active", id, b.clock() + 1000)
    b.expect("again", [spell(v) for v in b.worker.resend("extend")], ["ok"])
    b.expect("renewed", (b.score("active", id) or 0) > b.clock() + 60_000, True)


@scenario("a call whose number is none is refused whole", 27)
def number(b: Bench) -> None:
    b.add()
    claimed = b.take()
    for bad in ("", "x", "-1", "1.5", "nan", "inf"):
        argv = (b.worker.tag, bad, claimed.id, claimed.token, claimed.nonce, b"")
        b.refuses(f"number {bad!r}", "EMQKIND malformed", b.worker.raw, Transition("complete", b.keys, argv, list))
