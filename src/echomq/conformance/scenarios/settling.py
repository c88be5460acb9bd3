"""Settling and notes: what each verb does for the rightful holder."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.transitions import CancelRequest, Checkpoint, Ending, Failure, LogLine, Renewal, Snoozed


@scenario("complete retires the row and its log; the event and the counter are the trace")
def completes(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.settle("log", claimed)
    b.expect("complete", b.settle("complete", claimed), "ok")
    snap = b.look()
    b.expect("keys of the job", [suffix for suffix in snap.entries if id in suffix], [])
    b.expect("completed", b.count("completed"), 1)
    b.expect("active", snap.zset("active"), {})


@scenario("a job that asked keeps its result on the done shelf until its time, with its kind and reason", 14, 34)
def keeps(b: Bench) -> None:
    b.add(result_ttl_ms=60_000)
    for verb, kind in (("complete", "completed"), ("end", "cancelled")):
        id = b.add(result_ttl_ms=60_000) if verb == "end" else next(iter(b.look().zset("pending")))
        before = b.clock()
        b.settle(verb, b.take())
        row = b.row(id)
        b.expect("kind", (row["state"], row["kind"]), ("done", kind))
        b.expect("its time", before + 60_000 <= (b.score("done", id) or 0) <= b.clock() + 60_000, True)
        b.expect("TTL", b.look().entries[f"job:{id}"].ttl, False)
        b.rescore("done", id, 1000)
        b.expect("trimmed", b.worker.plain("trim"), 1)
        b.expect("gone", b.state(id), "")


@scenario("fail spends the budget: scheduled at the client's delay while it lasts, then buried with the error")
def fails(b: Bench) -> None:
    id = b.add()
    verdict = ""
    for n in (1, 2, 3):
        claimed = b.take()
        before = b.clock()
        verdict = b.on("fail", Failure(id, claimed.token, claimed.nonce, 5000, 3, b'{"type":"E"}'))[0]
        if n < 3:
            due = int(verdict.removeprefix("retry "))
            b.expect("due", before + 5000 <= due <= b.clock() + 5000, True)
            b.expect("score", b.score("schedule", id), float(due))
            b.expect("failures", b.row(id)["failures"], str(n))
            b.due(id)
    b.expect("the last", verdict, "dead")
    row = b.row(id)
    b.expect("row", (row["state"], row["failures"], row["error"], row["kind"]), ("dead", "3", '{"type":"E"}', "dead"))
    b.expect("reason", "3" in row["reason"], True)
    b.expect("counts", (b.count("failed"), b.count("dead")), (2, 1))


@scenario("fail with a budget of nought buries at once")
def buries(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.expect("fail", b.on("fail", Failure(id, claimed.token, claimed.nonce, 0, 0, b"{}")), ["dead"])
    b.expect("state", b.state(id), "dead")


@scenario("release and snooze spend nothing", 6)
def spends_nothing(b: Bench) -> None:
    id = b.add()
    b.settle("release", b.take())
    b.settle("snooze", b.take(), 1)
    row = b.row(id)
    b.expect(
        "spent", (row["attempts"], "failures" in row, "stalls" in row, "holder" in row), ("2", False, False, False)
    )
    b.expect("due in a year", (b.score("schedule", id) or 0) > b.clock() + YEAR_MS - 60_000, True)


@scenario("release rings for the job, snooze for a moment that is sooner than any before", 12)
def rings(b: Bench) -> None:
    b.add()
    claimed = b.take()
    b.server.delete(b.keys.wake)
    b.settle("release", claimed)
    b.expect("after release", b.tokens(), 1)
    claimed = b.take()
    b.server.delete(b.keys.wake)
    b.settle("snooze", claimed, 1)
    b.expect("the schedule's first", b.tokens(), 1)
    b.add(delay_ms=100_000)
    b.expect("sooner", b.tokens(), 2)
    b.add(delay_ms=200_000)
    b.expect("later", b.tokens(), 2)
    soonest = b.clock() + 50_000
    for _ in range(2):
        b.add(at_ms=soonest)
        b.expect("the same moment twice rings once", b.tokens(), 3)


@scenario("a snooze because the job does not fit the worker notes since when, until a handler has run")
def unfit(b: Bench) -> None:
    id = b.add()
    for earlier in ("", "1700000000000"):
        claimed = b.take()
        if earlier:
            b.server.hset(b.keys.job(id), "unfit_since", earlier)
        b.expect("snooze", b.on("snooze", Snoozed(id, claimed.token, claimed.nonce, 0, unfit=True)), ["ok"])
        since = b.row(id).get("unfit_since", "0")
        b.expect("since", since == earlier if earlier else 0 <= b.clock() - int(since) < 60_000, True)
        b.worker.plain("promote")
    b.bury(id)
    b.on("redrive", id)
    b.expect("a new life", "unfit_since" in b.row(id), False)
    for verb, item in (
        ("snooze", lambda c: Snoozed(c.id, c.token, c.nonce, 0)),
        ("fail", lambda c: Failure(c.id, c.token, c.nonce, 0, 9, b"{}")),
    ):
        claimed = b.take()
        b.on("snooze", Snoozed(id, claimed.token, claimed.nonce, 0, unfit=True))
        b.worker.plain("promote")
        b.on(verb, item(b.take()))
        b.expect(f"a {verb} by a handler that ran", "unfit_since" in b.row(id), False)
        b.worker.plain("promote")


@scenario("end ends as cancelled or discarded, with a reason, and as nothing else", 40)
def ends(b: Bench) -> None:
    for kind in ("cancelled", "discarded"):
        id = b.add(result_ttl_ms=60_000)
        claimed = b.take()
        b.refuses(
            "another kind",
            "EMQKIND kind dead",
            b.on,
            "end",
            Ending(claimed.id, claimed.token, claimed.nonce, "dead", ""),
        )
        b.expect(kind, b.on("end", Ending(id, claimed.token, claimed.nonce, kind, "why not")), ["ok"])
        row = b.row(id)
        b.expect("row", (row["kind"], row["reason"]), (kind, "why not"))
        b.expect("counted", b.count(kind), 1)


@scenario("a job that kept nothing leaves nothing, whichever way it ends", 40)
def leaves_nothing(b: Bench) -> None:
    for verb in ("complete", "end"):
        id = b.add()
        claimed = b.take()
        b.settle("log", claimed)
        b.settle("progress", claimed)
        b.settle(verb, claimed)
        b.expect(verb, [suffix for suffix in b.look().entries if id in suffix], [])


@scenario("extend moves the lease from now on, also back; before a reap also a lease that has ended", 23, 29)
def extends(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    for lease in (3_600_000, 30_000):
        before = b.clock()
        b.expect("extend", b.on("extend", Renewal(id, claimed.token, claimed.nonce, lease)), ["ok"])
        b.expect("until", before + lease <= (b.score("active", id) or 0) <= b.clock() + lease, True)
    b.expect("the longest lease in use", b.look().hash("meta")["lease_max_ms"], "3600000")
    b.expire(id)
    b.expect("ended, not reaped", b.settle("extend", claimed), "ok")
    b.expect("reaped", b.worker.plain("reap"), 0)
    for bad in ("0", "-1", "nan", "604800001"):
        b.refuses(bad, "EMQKIND lease_ms", b.worker.bare, "extend", id, 1, claimed.nonce, bad)


@scenario("a delay or a budget that is no number is refused before any write", 27)
def numbers(b: Bench) -> None:
    b.add()
    c = b.take()
    for verb, name, tail in (
        ("fail", "delay_ms", ("nan", 3, "{}")), ("fail", "delay_ms", ("-1", 3, "{}")), ("fail", "max_attempts", (0, "x", "{}")),
        ("fail", "max_attempts", (0, "1000000001", "{}")), ("checkpoint", "step", ("-1", "s")), ("checkpoint", "step", ("1e300", "s")),
    ):  # fmt: skip
        b.refuses(
            f"{verb} {tail[0]}",
            f"EMQKIND {name}",
            b.worker.bare,
            verb,
            c.id,
            c.token,
            c.nonce,
            *tail,
        )
    for delay in (-1, 3_162_240_000_001):
        b.refuses(f"snooze {delay}", "EMQKIND delay_ms", b.on, "snooze", Snoozed(c.id, c.token, c.nonce, delay))


@scenario("a checkpoint's step may repeat, and never goes back; the next attempt finds it", 43)
def checkpoints(b: Bench) -> None:
    id = b.add()
    c = b.take()
    b.expect("3", b.on("checkpoint", Checkpoint(id, c.token, c.nonce, 3, b"three")), ["ok"])
    b.expect("3 again", b.on("checkpoint", Checkpoint(id, c.token, c.nonce, 3, b"three, better")), ["ok"])
    b.refuses("2", "EMQSTATE step 3", b.on, "checkpoint", Checkpoint(id, c.token, c.nonce, 2, b"two"))
    b.settle("release", c)
    again = b.take(b.other)
    b.expect("the next attempt", (again.record.step, again.record.checkpoint), (3, b"three, better"))


@scenario("progress replaces the note before")
def progress(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    b.settle("progress", claimed, 1)
    b.settle("progress", claimed, 2)
    b.expect("progress", b.row(id)["progress"], "2")


@scenario("a log keeps its newest hundred lines and 64 KiB; a line that is larger is refused", 24)
def logs(b: Bench) -> None:
    id = b.add()
    c = b.take()
    b.on("log", *(LogLine(id, c.token, c.nonce, b"%03d" % n) for n in range(105)))
    lines = b.look().items(f"job:{id}:log")
    b.expect("all that ever were", b.row(id)["log_lines"], "105")
    b.expect("lines", (len(lines), lines[0], lines[-1]), (100, "005", "104"))
    b.refuses("a large line", "EMQKIND line", b.on, "log", LogLine(id, c.token, c.nonce, b"x" * 65_537))
    b.expect("just so large", b.on("log", LogLine(id, c.token, c.nonce, b"x" * 65_536)), ["ok"])
    b.expect("alone", len(b.look().items(f"job:{id}:log")), 1)
    b.on("log", LogLine(id, c.token, c.nonce, b"y"))
    b.expect("the newest", b.look().items(f"job:{id}:log"), ("y",))


@scenario("whoever follows a job is told of its notes on the row's channel, with or without a result to wait for", 34)
def notes_told(b: Bench) -> None:
    id = b.add()
    claimed = b.take()
    follower = b.server.pubsub(ignore_subscribe_messages=True)
    follower.subscribe(b.keys.result_channel(id))
    follower.get_message(timeout=1)
    for verb in ("progress", "log"):
        b.settle(verb, claimed)
        b.expect(verb, (follower.get_message(timeout=1) or {}).get("data"), verb.encode())
    follower.close()


@scenario("a cancel request is never forgotten: fail, snooze, release, reap and claim end the job as cancelled", 17)
def cancelled(b: Bench) -> None:
    for verb in ("fail", "snooze", "release", "reap", "claim"):
        for ttl in (60_000, None):
            id = b.add(result_ttl_ms=ttl)
            claimed = b.take()
            b.expect("asked", b.on("cancel", CancelRequest(id, "enough")), [f"asked {claimed.token}"])
            if verb in {"reap", "claim"}:
                b.expire(id)
                b.expect(
                    verb,
                    b.worker.plain("reap") if verb == "reap" else b.worker.claim(1).jobs,
                    1 if verb == "reap" else [],
                )
            else:
                b.expect(verb, b.settle(verb, claimed), "cancelled enough")
            row = b.row(id)
            kept = ("done", "cancelled", "enough", None) if ttl else (None,) * 4
            b.expect(verb, (row.get("state"), row.get("kind"), row.get("reason"), row.get("cancel")), kept)
    b.expect("counted", b.count("cancelled"), 10)


@scenario("should a scheduled row carry a cancel request, promote and claim end it: such a row never becomes ready", 17)
def cancelled_scheduled(b: Bench) -> None:
    for verb in ("promote", "claim"):
        for ttl in (60_000, None):
            id = b.add(delay_ms=YEAR_MS, result_ttl_ms=ttl)
            b.server.hset(b.keys.job(id), "cancel", "enough")
            b.due(id)
            b.expect(
                verb,
                b.worker.plain("promote") if verb == "promote" else b.worker.claim(1).jobs,
                1 if verb == "promote" else [],
            )
            b.expect(verb, b.row(id).get("kind"), "cancelled" if ttl else None)


@scenario("a job that would be buried is cancelled if somebody asked for that", 17)
def cancelled_not_buried(b: Bench) -> None:
    for verb in ("fail", "reap"):
        id = b.add(max_stalls=0, result_ttl_ms=60_000)
        claimed = b.take()
        b.on("cancel", CancelRequest(id, "enough"))
        if verb == "fail":
            b.on("fail", Failure(id, claimed.token, claimed.nonce, 0, 1, b"{}"))
        else:
            b.expire(id)
            b.other.claim(1)
        b.expect(verb, b.row(id).get("kind"), "cancelled")


@scenario("complete wins over a cancel request", 17)
def complete_wins(b: Bench) -> None:
    id = b.add(result_ttl_ms=60_000)
    claimed = b.take()
    b.on("cancel", CancelRequest(id, "enough"))
    b.expect("extend", b.settle("extend", claimed), "cancel enough")
    b.expect("complete", b.settle("complete", claimed), "ok")
    b.expect("kind", b.row(id)["kind"], "completed")
