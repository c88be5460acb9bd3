"""Dedup keys: one live job a key, released on every ending, by whoever holds it only."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest


@scenario("a dedup key refuses a second job and names the holder, in every live state", 22)
def refuses(b: Bench) -> None:
    id = b.add(dedup="k")
    b.refuses("pending", f"duplicate {id}", b.enqueue, dedup="k")
    claimed = b.take()
    b.refuses("active", f"duplicate {id}", b.enqueue, dedup="k")
    b.expect("snooze", b.settle("snooze", claimed, 1), "ok")
    b.refuses("scheduled", f"duplicate {id}", b.enqueue, dedup="k")
    b.expect("another key", b.enqueue(dedup="other"), "admitted")


@scenario("two jobs with one dedup key in one call: the first is admitted, the second names it", 8, 22)
def same_call(b: Bench) -> None:
    first, second = NewJob(dedup="k"), NewJob(dedup="k")
    b.expect("verdicts", b.on("enqueue", first, second), ["admitted", f"duplicate {first.id}"])
    b.expect("rows", [id for id, _ in b.look().rows()], [first.id])


@scenario("a dedup key is freed by every ending: completed, dead, cancelled, discarded, removed, stalled", 22)
def endings(b: Bench) -> None:
    for how in ("complete", "fail", "end", "cancel", "remove", "reap", "kept"):
        id = b.add(dedup="k", max_stalls=0, result_ttl_ms=1000 if how == "kept" else None)
        if how == "cancel":
            b.on("cancel", CancelRequest(id, "why"))
        elif how == "remove":
            b.on("remove", id)
        elif how == "reap":
            b.take()
            b.expire(id)
            b.worker.plain("reap")
        else:
            b.settle("complete" if how == "kept" else how, b.take())
        b.expect(f"the key after {how}", "dedup:k" in b.look().entries, False)


@scenario("an ending deletes a dedup key only while it names the ended job", 22)
def not_anothers(b: Bench) -> None:
    id = b.add(dedup="k")
    b.torn = True
    b.server.set(b.keys.dedup("k"), "JOB00000000001")
    b.expect("complete", b.settle("complete", b.take()), "ok")
    b.expect("ended", b.state(id), "")
    b.expect("the key", b.look().entries["dedup:k"].value, "JOB00000000001")


@scenario("a dedup key whose row is gone, dead or done counts as free", 22)
def stale_key(b: Bench) -> None:
    b.server.set(b.keys.dedup("k"), "JOB00000000001")
    id = b.add(dedup="k")
    b.expect("the key", b.look().entries["dedup:k"].value, id)
    b.bury(id)
    b.server.set(b.keys.dedup("k"), id)
    new = b.add(dedup="k")
    b.expect("the key", b.look().entries["dedup:k"].value, new)
    kept = b.add(dedup="k2", result_ttl_ms=YEAR_MS)
    b.take()
    b.expect("complete", b.settle("complete", b.take()), "ok")
    b.server.set(b.keys.dedup("k2"), kept)
    b.expect("enqueue", b.enqueue(dedup="k2"), "admitted")


@scenario("a window outlives its job: the key stays and refuses until it runs out", 22)
def window(b: Bench) -> None:
    id = b.add(dedup="k", dedup_window_ms=YEAR_MS)
    b.expect("complete", b.settle("complete", b.take()), "ok")
    b.refuses("within the window", f"duplicate {id}", b.enqueue, dedup="k")
    b.expect("TTL", 0 < int(b.server.pttl(b.keys.dedup("k"))) <= YEAR_MS, True)
    b.server.delete(b.keys.dedup("k"))
    b.expect("after it", b.enqueue(dedup="k", dedup_window_ms=YEAR_MS), "admitted")


@scenario(
    "a window that has run out does not guard its job any more, and that job's end leaves the key's new holder alone",
    22,
)
def window_over(b: Bench) -> None:
    b.add(dedup="k", dedup_window_ms=YEAR_MS)
    b.server.delete(b.keys.dedup("k"))
    new = b.add(dedup="k")
    b.expect("complete", b.settle("complete", b.take()), "ok")
    b.expect("the key", b.look().entries["dedup:k"].value, new)


@scenario("one's own id under the dedup key is admitted, never a duplicate", 22)
def own(b: Bench) -> None:
    job = NewJob(dedup="k")
    b.expect("first", b.on("enqueue", job), ["admitted"])
    b.expect("again, as a new call", b.on("enqueue", job), ["admitted"])
    b.torn = True
    b.server.delete(b.keys.job(job.id))
    b.server.zrem(b.keys.pending, job.id)
    b.expect("its row lost", b.on("enqueue", job, driver=b.other), ["admitted"])


@scenario("an id made anew within its own window is admitted, and begins the window anew", 22)
def own_window(b: Bench) -> None:
    job = NewJob(dedup="k", dedup_window_ms=YEAR_MS)
    b.on("enqueue", job)
    b.settle("complete", b.take())
    b.expect("again", b.on("enqueue", job, driver=b.other), ["admitted"])


@scenario("redrive takes the dedup key again, or is refused and names who has it", 41, 22)
def redrive(b: Bench) -> None:
    id = b.add(dedup="k")
    b.bury(id)
    other = b.add(dedup="k")
    b.refuses("taken", f"duplicate {other}", b.on, "redrive", id)
    b.on("remove", other)
    b.expect("free", b.on("redrive", id), ["ok"])
    b.expect("the key", b.look().entries["dedup:k"].value, id)
    b.refuses("held again", f"duplicate {id}", b.enqueue, dedup="k")
    b.bury(id)
    b.server.set(b.keys.dedup("k"), "JOB00000000001")
    b.expect("a key whose job is gone", b.on("redrive", id), ["ok"])
    b.expect("the key", b.look().entries["dedup:k"].value, id)


@scenario("redrive within another job's window is refused", 41, 22)
def redrive_window(b: Bench) -> None:
    id = b.add(dedup="k")
    b.bury(id)
    other = b.add(dedup="k", dedup_window_ms=YEAR_MS)
    b.expect("complete", b.settle("complete", b.take()), "ok")
    b.refuses("within", f"duplicate {other}", b.on, "redrive", id)


@scenario("redrive within the job's own window keeps the window", 41, 22)
def redrive_own_window(b: Bench) -> None:
    id = b.add(dedup="k", dedup_window_ms=YEAR_MS)
    b.bury(id)
    b.expect("redrive", b.on("redrive", id), ["ok"])
    entry = b.look().entries["dedup:k"]
    b.expect("the key", (entry.value, entry.ttl), (id, True))


# --- the last wins ---------------------------------------------------------------------------


@scenario("replace gives the waiting job the new content, under its own id, and begins its budget anew")
def replaces(b: Bench) -> None:
    b.worker.plain("configure", settings={"events": "all"})
    old = NewJob(dedup="k", payload=b"old", max_attempts=9, timeout_ms=5, headers={"x": "y"}, task="t")
    b.on("enqueue", old)
    claimed = b.take()
    for verb in ("log", "checkpoint", "progress", "snooze"):
        b.settle(verb, claimed, 1 if verb != "snooze" else 5)
    b.due(old.id)
    b.worker.plain("promote")
    claimed = b.take()
    b.expire(old.id)
    b.worker.plain("reap")
    before = b.row(old.id)
    b.expect("before", (before["stalls"], before["attempts"], before["holder"]), ("1", "2", claimed.nonce))
    new = NewJob(dedup="k", dedup_mode="replace", payload=b"new", priority=5, max_stalls=7, result_ttl_ms=YEAR_MS)
    b.expect("verdict", b.on("enqueue", new, driver=b.other), [f"replaced {old.id}"])
    row = b.row(old.id)
    same = {name: before[name] for name in ("state", "since", "by", "dedup", "attempts", "log_bytes", "log_lines")}
    content = {"payload": "new", "priority": "5", "max_stalls": "7", "result_ttl_ms": str(YEAR_MS)}
    b.expect("row", row, same | content)
    b.expect("its place", b.look().zset("pending"), {old.id: -5})
    b.expect("no other row", b.state(new.id), "")
    b.refuses("the late holder", "EMQSTALE pending", b.settle, "complete", claimed)
    b.expect("events", b.look().items("events")[-1][1][:4], ("event", "replaced", "job", old.id))
    taken = b.take()
    b.expect("claimed", (taken.id, taken.token, taken.record.payload), (old.id, 3, b"new"))


@scenario("replace of a scheduled job leaves it where it is in time")
def replaces_scheduled(b: Bench) -> None:
    id = b.add(dedup="k", delay_ms=YEAR_MS)
    score, since = b.score("schedule", id), b.row(id)["since"]
    new = NewJob(dedup="k", dedup_mode="replace", payload=b"new", lane="a")
    b.expect("verdict", b.on("enqueue", new), [f"replaced {id}"])
    b.expect("when", (b.score("schedule", id), b.row(id)["since"], b.state(id)), (score, since, "schedule"))
    b.expect("content", (b.row(id)["payload"], b.row(id)["lane"]), ("new", "a"))
    sooner = NewJob(dedup="k", dedup_mode="replace", delay_ms=10)
    b.expect("a delay of its own", b.on("enqueue", sooner), [f"replaced {id}"])
    b.expect("does not count, nor does no lane", (b.score("schedule", id), b.row(id)["lane"]), (score, "a"))
    b.due(id)
    b.expect("promoted", [job.id for job in b.worker.claim(2).jobs], [id])


@scenario("replace moves a pending job to the new lane, and rings there; one that names none leaves it in its lane")
def replaces_lane(b: Bench) -> None:
    id = b.add(dedup="k")
    for lane, ring in (("a", ["a"]), ("b", ["a", "b"]), ("c", ["a", "b", "c"]), ("b", ["a", "b", "c"])):
        before = b.row(id)["since"]
        b.server.delete(b.keys.wake)
        b.server.hset(b.keys.job(id), "since", "1000")
        b.on("enqueue", NewJob(dedup="k", dedup_mode="replace", lane=lane))
        snap = b.look()
        b.expect("its set", [s for s in snap.entries if id in snap.zset(s)], [f"lane:{lane}:pending"])
        b.expect("row", (snap.row(id).get("lane"), snap.row(id)["since"] >= before), (lane, True))
        b.expect("ring, laned", (b.ring(), snap.hash("meta").get("laned", "0")), (ring, "1"))
        b.expect("tokens", b.tokens(), 1)
    b.server.delete(b.keys.wake)
    with_since = b.row(id)["since"]
    for same in ("b", None):
        b.on("enqueue", NewJob(dedup="k", dedup_mode="replace", lane=same))
        b.expect("the same lane", (b.row(id)["lane"], b.row(id)["since"], b.tokens()), ("b", with_since, 0))
    b.worker.plain("ring")
    b.set_lane("b", paused="1")
    b.expect("claimed", b.worker.claim(2).jobs, [])
    b.on("enqueue", NewJob(dedup="k", dedup_mode="replace", lane="a"))
    b.expect("a closed lane is left", (b.closed(), b.ring()), ({}, ["a"]))
    b.set_lane("b", paused="")


@scenario("debounce gives the new content and starts the delay again, from pending, too; the last wins")
def debounces(b: Bench) -> None:
    first = b.add(dedup="k", dedup_mode="debounce", delay_ms=20_000)
    b.server.zadd(b.keys.schedule, {first: b.clock() + 5_000})
    before = b.clock()
    second = NewJob(dedup="k", dedup_mode="debounce", delay_ms=20_000, payload=b"2")
    b.expect("verdict", b.on("enqueue", second), [f"replaced {first}"])
    b.expect("again", before + 20_000 <= (b.score("schedule", first) or 0) <= b.clock() + 20_000, True)
    for lane in (None, "a"):
        b.on("enqueue", NewJob(dedup="k", dedup_mode="replace", lane=lane))
        b.due(first)
        b.worker.plain("promote")
        b.expect("pending", b.state(first), "pending")
        b.server.hset(b.keys.job(first), "since", "1000")
        b.server.delete(b.keys.wake)
        third = NewJob(dedup="k", dedup_mode="debounce", delay_ms=20_000, payload=b"3")
        b.expect("verdict", b.on("enqueue", third), [f"replaced {first}"])
        snap = b.look()
        b.expect("place", [s for s in snap.entries if first in snap.zset(s)], ["schedule"])
        b.expect(
            "row",
            (snap.row(first)["state"], snap.row(first)["payload"], int(snap.row(first)["since"]) > 1000),
            ("schedule", "3", True),
        )
        b.expect("laned", snap.hash("meta").get("laned", "0"), "0")
        b.expect("its moment rings, its place does not", b.tokens(), 1)
    b.on("cancel", CancelRequest(first, "why"))
    b.expect("admitted then", b.enqueue(dedup="k", dedup_mode="debounce", delay_ms=20_000), "admitted")


@scenario("who replaces a job that runs is admitted and takes the key over; the old one's end leaves it alone")
def replaces_running(b: Bench) -> None:
    for mode, delay in (("replace", None), ("debounce", YEAR_MS)):
        old = b.add(dedup="k")
        claimed = b.take()
        b.refuses("rejecting", f"duplicate {old}", b.enqueue, dedup="k")
        new = b.add(dedup="k", dedup_mode=mode, delay_ms=delay)
        b.expect("the key", b.look().entries["dedup:k"].value, new)
        b.expect("complete", b.settle("complete", claimed), "ok")
        b.expect("the key", b.look().entries["dedup:k"].value, new)
        b.expect("replaced now", b.enqueue(dedup="k", dedup_mode="replace"), f"replaced {new}")
        b.on("remove", new)


@scenario("a window that has not run out refuses who would replace a job that does not wait any more", 22)
def replaces_in_window(b: Bench) -> None:
    id = b.add(dedup="k", dedup_window_ms=YEAR_MS)
    b.expect("waiting", b.enqueue(dedup="k", dedup_mode="replace", payload=b"new"), f"replaced {id}")
    entry = b.look().entries["dedup:k"]
    b.expect("the key stays", (entry.value, entry.ttl), (id, True))
    claimed = b.take()
    b.refuses("running", f"duplicate {id}", b.enqueue, dedup="k", dedup_mode="replace")
    b.settle("complete", claimed)
    b.refuses("gone", f"duplicate {id}", b.enqueue, dedup="k", dedup_mode="replace")


@scenario("who replaces a key whose job is dead, kept or gone is admitted", 22)
def replaces_ended(b: Bench) -> None:
    id = b.add(dedup="k")
    b.bury(id)
    b.server.set(b.keys.dedup("k"), id)
    b.expect("dead", b.enqueue(dedup="k", dedup_mode="replace"), "admitted")
    b.settle("complete", b.take())
    b.server.set(b.keys.dedup("k"), "JOB00000000001")
    b.expect("gone", b.enqueue(dedup="k", dedup_mode="replace"), "admitted")


@scenario("several jobs with one key in one call: the last content wins, under the first one's id", 8)
def replaces_in_one_call(b: Bench) -> None:
    jobs = [
        NewJob(dedup="k", dedup_mode="replace", payload=text, lane=lane)
        for text, lane in ((b"1", "a"), (b"2", "b"), (b"3", "a"))
    ]
    first = jobs[0].id
    b.expect("verdicts", b.on("enqueue", *jobs), ["admitted", f"replaced {first}", f"replaced {first}"])
    snap = b.look()
    b.expect("places", [s for s in snap.entries if first in snap.zset(s)], ["lane:a:pending"])
    b.expect("row, laned", (snap.row(first)["payload"], snap.hash("meta")["laned"]), ("3", "1"))
    b.expect("a resend", b.producer.resend("enqueue")[1].code, "replaced")
    b.expect("claimed", [job.id for job in b.worker.claim(5).jobs], [first])


@scenario("replacing is remembered like every call: a resend does not replace what came after it", 2)
def replace_resent(b: Bench) -> None:
    id = b.add(dedup="k")
    b.expect("first", b.enqueue(dedup="k", dedup_mode="replace", payload=b"1"), f"replaced {id}")
    b.on("enqueue", NewJob(dedup="k", dedup_mode="replace", payload=b"2"), driver=b.other)
    with b.unchanged():
        b.producer.resend("enqueue")
    b.expect("payload", b.row(id)["payload"], "2")
