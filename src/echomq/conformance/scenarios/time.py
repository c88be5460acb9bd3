"""Time: jobs that are too late to begin or to go on, and jobs that are given another time."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import DAY_MS, YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Failure, NewTime, Release

EXPIRED = {"kind": "expired", "reason": "no worker had claimed it by then"}


def _too_late(b: Bench, id: str, field: str = "expires_ms") -> None:
    """Let a job's moment come."""
    b.server.hset(b.keys.job(id), field, b.clock() - 1)


def _chosen(row: dict[str, str], names: dict[str, str]) -> dict[str, str]:
    return {name: row.get(name, "") for name in names}


@scenario("expires and deadline are moments, or so long from admission; the row says when", 40)
def moments(b: Bench) -> None:
    before = b.clock()
    row = b.row(b.add(expires="+60000", deadline=f"+{YEAR_MS}"))
    b.expect("expires", before + 60_000 <= int(row["expires_ms"]) <= b.clock() + 60_000, True)
    b.expect("deadline", before + YEAR_MS <= int(row["deadline_ms"]) <= b.clock() + YEAR_MS, True)
    row = b.row(b.add(deadline="99999999999999"))
    b.expect("a moment", (row["deadline_ms"], "expires_ms" in row), ("99999999999999", False))
    row = b.row(b.add(expires="1"))
    b.expect("one that is over", (row["expires_ms"], "deadline_ms" in row), ("1", False))
    b.expect("neither", {"expires_ms", "deadline_ms"} & b.row(b.add()).keys(), set())


@scenario("a job that nobody has claimed in time ends as expired when its turn comes, told and counted", 40)
def expires(b: Bench) -> None:
    kept, gone = b.add(expires="+60000", result_ttl_ms=60_000, dedup="k"), b.add(expires="+60000")
    in_time = b.add(expires="+60000")
    for id in (kept, gone):
        _too_late(b, id)
    follower = b.server.pubsub(ignore_subscribe_messages=True)
    follower.subscribe(b.keys.result_channel(kept))
    follower.get_message(timeout=1)
    b.expect("claimed", [job.id for job in b.worker.claim(5).jobs], [in_time])
    b.expect("told", (follower.get_message(timeout=1) or {}).get("data"), b"expired")
    follower.close()
    b.expect("kept", (b.state(kept), _chosen(b.row(kept), EXPIRED)), ("done", EXPIRED))
    b.expect("gone", b.state(gone), "")
    b.expect("its key is free", b.enqueue(dedup="k"), "admitted")
    b.expect("counted", b.count("expired"), 2)
    events = [dict(zip(w[::2], w[1::2], strict=True)) for _, w in b.look().items("events")]
    b.expect("events by default", [it["job"] for it in events if it["event"] == "expired"], [kept, gone])


@scenario("the very moment of expires or deadline is too late")
def just_too_late(b: Bench) -> None:
    for field, state in (("expires_ms", "done"), ("deadline_ms", "dead")):
        for _ in range(20):  # until the claim falls into the very millisecond
            id = b.add(result_ttl_ms=60_000)
            moment = b.clock()
            b.server.hset(b.keys.job(id), field, moment)
            reply = b.worker.claim(1)
            b.expect("ended", (reply.jobs, b.state(id)), ([], state))
            if reply.now_ms == moment:
                break


@scenario("expires is looked at until somebody claims the job, and never again", 40)
def expires_once(b: Bench) -> None:
    id = b.add(expires="+60000")
    first = b.take()
    _too_late(b, id)
    b.on("release", Release(id, first.token, first.nonce))
    b.expect("claimed again", b.take().id, id)
    b.expire(id)
    b.expect("claimed once more", b.take(b.other).id, id)


@scenario("a delayed job whose expires comes before its time never runs", 40)
def expires_delayed(b: Bench) -> None:
    id = b.add(delay_ms=YEAR_MS, expires="1")
    b.expect("not looked at before", [*b.worker.claim(1).jobs, b.state(id)], ["schedule"])
    b.due(id)
    b.expect("claimed", b.worker.claim(1).jobs, [])
    b.expect("state", b.state(id), "")


@scenario("a claim passes the expired by, says to ask again, and loses none behind them", 25, 40)
def expired_crowd(b: Bench) -> None:
    for lane in (None, "a"):
        late = [b.add(lane=lane, expires="1") for _ in range(40)]
        live = b.add(lane=lane)
        reply, seen, claims = b.worker.claim(4), list[str](), 1
        b.expect("none at first", reply.jobs, [])
        while not seen:
            reply = b.worker.claim(4)
            seen, claims = [job.id for job in reply.jobs], claims + 1
            if not seen:
                b.expect("ask again", reply.next_ms, 0)
        b.expect("the one behind", seen, [live])
        b.expect("not all at once", claims > 5, True)
        b.expect("gone", [id for id in late if b.state(id)], [])
        b.settle("complete", reply.jobs[0])
    b.expect("laned", int(b.look().hash("meta")["laned"]), 0)


@scenario("expired jobs at the heads of many lanes are ended, a lane's turn each, and none in a lane behind them waits")
def expired_lanes(b: Bench) -> None:
    lanes = [f"lane {n}" for n in range(30)]
    b.on("enqueue", *(NewJob(lane=lane, expires="1") for lane in lanes), NewJob(lane="last"))
    seen, claims = "", 0
    while not seen and claims < 50:
        reply, claims = b.worker.claim(2), claims + 1
        seen = b.lanes_of(reply)
        if not seen:
            b.expect("ask again", reply.next_ms, 0)
    b.expect("the last lane", (seen, b.count("expired")), ("l", 30))
    b.expect("the rota", (b.ring(), b.closed(), int(b.look().hash("meta")["laned"])), ([], {}, 0))


@scenario("nothing expires while the queue is paused; a job of a paused lane expires when the lane is resumed", 40)
def expires_paused(b: Bench) -> None:
    id, laned = b.add(expires="1"), b.add(lane="a", expires="1")
    b.worker.plain("pause")
    b.worker.claim(5)
    b.expect("paused", (b.state(id), b.state(laned)), ("pending", "pending"))
    b.set_lane("a", paused="1")
    b.worker.plain("resume")
    while b.worker.claim(5).next_ms == 0:
        pass
    b.expect("resumed", (b.state(id), b.state(laned)), ("", "pending"))
    b.set_lane("a", paused="")
    b.worker.claim(5)
    b.expect("the lane, too", b.state(laned), "")


@scenario("claim buries a job whose deadline is over, whoever claimed it before; the reason says so", 40)
def deadline_at_claim(b: Bench) -> None:
    fresh, tried = b.add(deadline="+60000", dedup="k"), b.add(deadline="+60000", priority=1)
    b.settle("release", b.take())
    for id in (fresh, tried):
        _too_late(b, id, "deadline_ms")
    b.expect("claimed", b.worker.claim(5).jobs, [])
    for id in (fresh, tried):
        row = b.row(id)
        b.expect("row", (row["state"], row["kind"], row["reason"][:9]), ("dead", "dead", "deadline:"))
    b.expect("its key is free", b.enqueue(dedup="k"), "admitted")
    b.expect("counted", (b.count("dead"), b.count("expired")), (2, 0))


@scenario("a job that is past its deadline and has expired, too, is dead")
def deadline_before_expires(b: Bench) -> None:
    id = b.add(expires="1", deadline="1")
    b.worker.claim(1)
    b.expect("state", b.state(id), "dead")


@scenario("fail buries a job whose next attempt would come at its deadline or later, and no other")
def deadline_at_fail(b: Bench) -> None:
    deadline = b.clock() + DAY_MS
    for delay, state in ((0, "schedule"), (DAY_MS // 2, "schedule"), (DAY_MS, "dead"), (YEAR_MS, "dead")):
        id = b.add(deadline=str(deadline))
        c = b.take()
        verdict = b.on("fail", Failure(id, c.token, c.nonce, delay, 5, b"{}"))[0]
        b.expect(f"after {delay}", (b.state(id), verdict.split()[0]), (state, "dead" if state == "dead" else "retry"))
        row = b.row(id)
        b.expect("reason", row.get("reason", "deadline")[:8], "deadline")
        b.expect("failures", row["failures"], "1")
        if state == "schedule":
            b.on("remove", id)


@scenario("the very moment of the deadline is too late for another attempt")
def deadline_reached(b: Bench) -> None:
    for _ in range(50):
        id = b.add()
        c = b.take()
        deadline = b.clock() + DAY_MS
        b.server.hset(b.keys.job(id), "deadline_ms", deadline)
        verdict = b.on("fail", Failure(id, c.token, c.nonce, DAY_MS, 5, b"{}"))[0]
        b.expect("verdict", verdict, "dead")
        if b.row(id)["since"] == str(deadline - DAY_MS):
            break


@scenario("who asked for a job's cancellation gets that, not a death by its deadline", 17)
def deadline_cancelled(b: Bench) -> None:
    id = b.add(deadline="1", result_ttl_ms=60_000)
    b.server.hset(b.keys.job(id), "deadline_ms", b.clock() + DAY_MS)
    c = b.take()
    b.on("cancel", CancelRequest(id, "enough"))
    verdict = b.on("fail", Failure(id, c.token, c.nonce, YEAR_MS, 5, b"{}"))
    b.expect("verdict", (verdict, b.row(id)["kind"]), (["cancelled enough"], "cancelled"))


@scenario("a job that was buried for its deadline can be redriven: a new life has no old deadline", 41)
def deadline_redriven(b: Bench) -> None:
    id = b.add(deadline="1")
    b.worker.claim(1)
    b.expect("dead", b.state(id), "dead")
    b.on("redrive", id)
    b.expect("runs", b.take().id, id)


@scenario("replace takes the new job's times, and forgets the old one's")
def replaced_times(b: Bench) -> None:
    id = b.add(dedup="k", expires="+60000", deadline="+60000")
    for options, expected in (
        ({"expires": "7"}, ("7", None)), ({"deadline": "8"}, (None, "8")), ({"expires": "9", "deadline": "10"}, ("9", "10")), ({}, (None, None)),
    ):  # fmt: skip
        b.expect("replaced", b.enqueue(dedup="k", dedup_mode="replace", **options), f"replaced {id}")
        row = b.row(id)
        b.expect("times", (row.get("expires_ms"), row.get("deadline_ms")), expected)


@scenario("replace keeps the log, and counts its lines on")
def replaced_log(b: Bench) -> None:
    id = b.add(dedup="k")
    c = b.take()
    b.settle("log", c, 1)
    b.settle("release", c)
    b.enqueue(dedup="k", dedup_mode="replace")
    b.settle("log", b.take(), 2)
    row = b.row(id)
    b.expect("lines", (row["log_lines"], b.look().items(f"job:{id}:log")), ("2", ("line 1", "line 2")))


# --- another time ----------------------------------------------------------------------------


@scenario("reschedule gives waiting jobs another time, by duration or moment; what is not ahead is ready now", 12)
def reschedules(b: Bench) -> None:
    for lane in (None, "a"):
        ready, later = b.add(lane=lane, priority=2), b.add(lane=lane, delay_ms=YEAR_MS)
        before = b.clock()
        b.expect("a duration", b.on("reschedule", NewTime(ready, "+60000")), ["ok"])
        b.expect("score", before + 60_000 <= (b.score("schedule", ready) or 0) <= b.clock() + 60_000, True)
        b.expect("state", b.state(ready), "schedule")
        b.expect("a moment", b.on("reschedule", NewTime(later, "99999999999999")), ["ok"])
        b.expect("score", b.score("schedule", later), 99_999_999_999_999.0)
        b.server.delete(b.keys.wake)
        b.expect("now", b.on("reschedule", NewTime(ready, "0"), NewTime(later, "1")), ["ok", "ok"])
        where = "pending" if lane is None else f"lane:{lane}:pending"
        b.expect("places", b.look().zset(where), {ready: -2.0, later: 0.0})
        b.expect("rung for", b.tokens(), 2)
        b.expect("now again", b.on("reschedule", NewTime(ready, "+0")), ["ok"])
        b.expect("nobody more", (b.tokens(), b.look().zset("schedule")), (2, {}))
        for job in b.worker.claim(2).jobs:
            b.settle("complete", job)


@scenario("reschedule rings when a time is nearer than all others, and refuses what does not wait", 12)
def reschedule_refuses(b: Bench) -> None:
    id, other = b.add(delay_ms=YEAR_MS), b.add(delay_ms=YEAR_MS)
    b.server.delete(b.keys.wake)
    b.on("reschedule", NewTime(other, "99999999999999"))
    b.expect("a later one", b.tokens(), 0)
    b.on("reschedule", NewTime(id, "+60000"))
    b.expect("a nearer one", b.tokens(), 1)
    b.on("reschedule", NewTime(id, "0"))
    claimed = b.take()
    b.refuses("active", "EMQSTATE active", b.on, "reschedule", NewTime(id, "0"))
    b.settle("fail", claimed)
    b.refuses("dead", "EMQSTATE dead", b.on, "reschedule", NewTime(id, "0"))
    b.refuses("gone", "EMQGONE", b.on, "reschedule", NewTime(NewJob().id, "0"))
    for bad in ("-1", "+-1", "x", "", "+3162240000001", "100000000000001", "nan"):
        b.refuses(bad, "EMQKIND due", b.on, "reschedule", NewTime(other, bad))


@scenario("a reschedule that is sent again is answered, and an overtaken one refused", 2)
def reschedule_again(b: Bench) -> None:
    id = b.add()
    b.on("reschedule", NewTime(id, f"+{YEAR_MS}"))
    with b.unchanged():
        b.expect("again", [v.code for v in b.producer.resend("reschedule")], ["ok"])
    b.on("reschedule", NewTime(id, "0"))
    b.refuses("overtaken", "EMQSTALE call", b.producer.resend, "reschedule", back=2)


@scenario("whoever was reaped and rescheduled is not completed by its late holder", 21)
def reschedule_holder(b: Bench) -> None:
    for due in ("0", f"+{YEAR_MS}"):
        id = b.add()
        late = b.take()
        b.expire(id)
        b.worker.plain("reap")
        b.on("reschedule", NewTime(id, due))
        b.on("reschedule", NewTime(id, "0"))
        b.refuses("late", "EMQSTALE pending", lambda late=late: b.settle("complete", late))
        b.on("remove", id)


@scenario("cancel finds a job by its dedup key, and says so when nobody holds it", 17)
def cancel_by_key(b: Bench) -> None:
    id = b.add(dedup="k")
    b.expect("by key", b.on("cancel", CancelRequest("", "no", dedup="k")), ["cancelled no"])
    b.expect("gone", b.state(id), "")
    b.refuses("nobody", "EMQGONE", b.on, "cancel", CancelRequest("", "no", dedup="k"))
    running = b.add(dedup="k")
    c = b.take()
    other = b.add()
    b.expect("running", b.on("cancel", CancelRequest(other, "no", dedup="k")), [f"asked {c.token}"])
    b.expect("the key goes before the id", (b.row(running)["cancel"], b.state(other)), ("no", "pending"))
    b.expect("reused at once", (b.settle("release", c), b.enqueue(dedup="k")), ("cancelled no", "admitted"))
