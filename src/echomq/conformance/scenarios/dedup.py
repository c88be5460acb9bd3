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
