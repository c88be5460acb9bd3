"""The fence: who may write on behalf of a claim (rule 2), tried on every verb that does."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import NOTES, SETTLING, make_item
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import Claimed, NewJob

FENCED = (*SETTLING, *NOTES, "suspend")


def _each(b: Bench, claimed: Claimed, expected: str, *leave_out: str) -> None:
    for verb in FENCED:
        if verb not in leave_out:
            b.refuses(verb, expected, b.settle, verb, claimed)


@scenario("a fenced write on an absent job is refused as gone")
def gone(b: Bench) -> None:
    b.add()
    _each(b, Claimed(NewJob().id, 1, "nobody.1", b.take().record), "EMQGONE")


@scenario("after a reap a stale holder renews, settles and notes nothing; only its completion is welcome", 1)
def reaped(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.expire(id)
    b.worker.plain("reap")
    _each(b, claimed, "EMQSTALE pending", "complete")
    b.expect("complete", b.settle("complete", claimed), "ok")


@scenario("complete is refused after the lease was reaped and claimed", 1)
def reclaimed(b: Bench) -> None:
    id = b.add()
    old = b.take()
    b.expire(id)
    new = b.take(b.other)
    _each(b, old, "EMQSTALE active")
    b.expect("the new holder", b.settle("complete", new, driver=b.other), "ok")


@scenario("a settled job is settled once: fail, release and snooze twice, or after each other, spend nothing more", 1)
def twice(b: Bench) -> None:
    for verb, state in (("fail", "schedule"), ("release", "pending"), ("snooze", "schedule")):
        id = b.add()
        claimed = b.take()
        b.expect("the job", claimed.id, id)
        b.settle(verb, claimed, 1)
        b.expect(verb, b.state(id), state)
        _each(b, claimed, f"EMQSTALE {state}")
        b.on("remove", id)


@scenario("an ended job takes no more writes, kept or dead", 1)
def ended(b: Bench) -> None:
    for verb, state in (("complete", "done"), ("end", "done"), ("fail", "dead")):
        id = b.add(result_ttl_ms=60_000)
        claimed = b.take()
        b.settle(verb, claimed)
        b.expect(verb, b.state(id), state)
        _each(b, claimed, f"EMQSTALE {state}")


@scenario("equal tokens with unequal nonces are told apart: a failover may hand a number out twice", 7)
def nonces(b: Bench) -> None:
    id = b.add()
    lost = b.take()
    # A replica was promoted that had not seen the first claim.
    b.server.hset(b.keys.job(id), mapping={"state": "pending", "attempts": "0"})
    b.server.hdel(b.keys.job(id), "holder")
    b.server.zrem(b.keys.active, id)
    b.server.zadd(b.keys.pending, {id: 0})
    new = b.take(b.other)
    b.expect("the same token", new.token, lost.token)
    _each(b, lost, "EMQSTALE active")
    b.expect("the rightful holder", b.settle("complete", new, driver=b.other), "ok")


@scenario("a right nonce with a wrong token is refused", 7)
def token(b: Bench) -> None:
    b.add()
    claimed = b.take()
    for wrong in (0, 2, 10):
        _each(b, Claimed(claimed.id, wrong, claimed.nonce, claimed.record), "EMQSTALE active")


@scenario("an id that is made anew after its end is another life: the old lease does not fit", 7)
def aba(b: Bench) -> None:
    id = b.add()
    old = b.take()
    b.settle("complete", old)
    b.add(id=id)
    new = b.take(b.other)
    b.expect("the same token", new.token, old.token)
    _each(b, old, "EMQSTALE active")


@scenario("a row that is active but in no set is torn: nothing is written to it", 1, 39)
def member(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.torn = True
    b.server.zrem(b.keys.active, id)
    _each(b, claimed, "EMQSTALE torn")


@scenario("the late holder may complete a job that was reaped and not claimed since", 19)
def late(b: Bench) -> None:
    id = b.add(result_ttl_ms=60_000)
    claimed = b.take()
    b.expire(id)
    b.other.plain("reap")
    b.expect("state, holder", (b.state(id), b.row(id)["holder"]), ("pending", claimed.nonce))
    b.expect("complete", b.settle("complete", claimed, 7), "ok")
    row = b.row(id)
    b.expect("row", (row["state"], row["result"], "holder" in row), ("done", "result 7", False))
    b.expect("claimed again", b.other.claim(1).jobs, [])


@scenario("a late holder with another token or nonce is refused", 19, 7)
def late_forged(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.expire(id)
    b.other.plain("reap")
    for token, nonce in ((claimed.token + 1, claimed.nonce), (claimed.token, "forged.1")):
        forged = Claimed(id, token, nonce, claimed.record)
        b.refuses("complete", "EMQSTALE pending", b.settle, "complete", forged)


@scenario("a torn row takes no late completion: state and place must both be pending", 19, 39)
def late_torn(b: Bench) -> None:
    b.torn = True
    id = b.add()
    claimed = b.take()
    b.expire(id)
    b.other.plain("reap")
    b.server.hset(b.keys.job(id), "state", "schedule")
    b.refuses("another state", "EMQSTALE schedule", b.settle, "complete", claimed)
    b.server.hset(b.keys.job(id), "state", "pending")
    b.server.zrem(b.keys.pending, id)
    b.refuses("in no set", "EMQSTALE pending", b.settle, "complete", claimed)


@scenario("a late completion is refused once anything else has happened to the job", 21)
def late_no_more(b: Bench) -> None:
    for what in ("release", "snooze", "fail", "bury"):
        id = b.add(max_stalls=0 if what == "bury" else 3)
        old = b.take()
        b.expire(id)
        b.worker.plain("reap")
        if what == "bury":
            b.expect("buried", b.state(id), "dead")
            b.refuses("dead", "EMQSTALE dead", b.settle, "complete", old)
            b.on("redrive", id)
            b.refuses("redriven", "EMQSTALE pending", b.settle, "complete", old)
        else:
            new = b.take(b.other)
            b.settle(what, new, 1, driver=b.other)
            if b.state(id) == "schedule":
                b.due(id)
                b.other.plain("promote")
            b.expect(what, (b.state(id), "holder" in b.row(id)), ("pending", False))
            b.refuses(what, "EMQSTALE pending", b.settle, "complete", old)
            b.refuses(what, "EMQSTALE pending", b.settle, "complete", new)
        b.on("remove", id)


@scenario("a completion and a renewal of one job in one flight: the renewal says gone, the completion stands", 33)
def crossing(b: Bench) -> None:
    b.add()
    claimed = b.take()
    b.expect("complete", b.settle("complete", claimed), "ok")
    b.refuses("extend", "EMQGONE", b.settle, "extend", claimed)


@scenario("the same job twice in one call: the second item reads what the first wrote", 8, 33)
def one_call(b: Bench) -> None:
    for verb, seen in (
        ("complete", ["ok", "EMQGONE"]), ("release", ["ok", "EMQSTALE pending"]), ("snooze", ["ok", "EMQSTALE schedule"]),
        ("end", ["ok", "EMQGONE"]),
    ):  # fmt: skip
        id = b.add()
        claimed = b.take()
        item = make_item(verb, claimed.id, claimed.token, claimed.nonce, 1)
        b.expect(verb, b.on(verb, item, item), seen)
        b.on("remove", id)


@scenario("a job that comes twice in a call is judged by what its first item left", 1)
def twice_in_a_call(b: Bench) -> None:
    for ttl in (None, 60_000):
        for verb, first, second in (
            ("complete", "ok", "EMQSTALE done" if ttl else "EMQGONE"),
            ("end", "ok", "EMQSTALE done" if ttl else "EMQGONE"),
            ("release", "ok", "EMQSTALE pending"),
            ("snooze", "ok", "EMQSTALE schedule"),
            ("fail", "dead", "EMQSTALE dead"),
            ("extend", "ok", "ok"),
            ("progress", "ok", "ok"),
            ("log", "ok", "ok"),
        ):
            ids = [b.add(result_ttl_ms=ttl) for _ in range(2)]
            one, two = (make_item(verb, c.id, c.token, c.nonce) for c in b.worker.claim(2).jobs)
            seen = b.on(verb, one, two, one, two, one, driver=b.worker)
            b.expect(verb, [verdict.removesuffix(" 0") for verdict in seen], [first] * 2 + [second] * 3)
            left = second == first
            b.expect("in active", [id in b.look().zset("active") for id in ids], [left] * 2)
            b.ground.end_all()


@scenario("of a call's jobs those that are in no set are refused, and no other", 1, 39)
def member_among_others(b: Bench) -> None:
    b.torn = True
    for verb in FENCED:
        for _ in range(3):
            b.add()
        claimed = b.worker.claim(3).jobs
        b.server.zrem(b.keys.active, claimed[1].id)
        items = [make_item(verb, c.id, c.token, c.nonce) for c in (*claimed, claimed[1])]
        seen = b.on(verb, *items, driver=b.worker)
        b.expect(verb, (seen[1], seen[3]), ("EMQSTALE torn",) * 2)
        b.expect("the others", [verdict.startswith("EMQ") for verdict in (seen[0], seen[2])], [False] * 2)
        b.server.delete(*(b.keys.job(c.id) for c in claimed))
        for name in ("pending", "active", "schedule", "dead"):
            b.server.zrem(getattr(b.keys, name), *(c.id for c in claimed))


@scenario("late and rightful holders complete in one call, each out of the set that it is in", 19)
def late_among_others(b: Bench) -> None:
    late = b.add()
    old = b.take()
    b.expire(late)
    b.other.plain("reap")
    b.expect("the late holder's next claim", b.other.claim(1).jobs[0].id, late)
    b.on("release", make_item("release", late, 2, f"{b.other.tag}.1"), driver=b.other)
    b.refuses("released since", "EMQSTALE pending", b.settle, "complete", old)
    again = b.take()
    b.add()
    b.expire(late)
    b.other.plain("reap")
    b.server.zadd(b.keys.pending, {late: 1})
    new = b.take()
    items = [make_item("complete", c.id, c.token, c.nonce) for c in (new, again, new, again)]
    b.expect("complete", b.on("complete", *items, driver=b.worker), ["ok", "ok", "EMQGONE", "EMQGONE"])
    b.expect("the sets", (b.look().zset("active"), b.look().zset("pending")), ({}, {}))
