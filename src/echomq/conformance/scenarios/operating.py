"""Operators: cancel, remove, redrive, pause, resume, configure, and the reads."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import DAY_MS, YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Failure, Head


@scenario("cancel ends what does not run, asks what runs, and refuses what has ended", 17, 50)
def cancels(b: Bench) -> None:
    pending, later = b.add(), b.add(delay_ms=YEAR_MS)
    b.expect("waiting", b.on("cancel", *(CancelRequest(id, "no") for id in (pending, later))), ["cancelled no"] * 2)
    b.refuses("gone", "EMQGONE", b.on, "cancel", CancelRequest(pending, "no"))
    running = b.add(result_ttl_ms=60_000)
    claimed = b.take()
    follower = b.server.pubsub(ignore_subscribe_messages=True)
    follower.subscribe(b.keys.cancel_channel)
    follower.get_message(timeout=1)
    b.expect("running", b.on("cancel", CancelRequest(running, "please stop")), [f"asked {claimed.token}"])
    message = follower.get_message(timeout=1) or {}
    follower.close()
    b.expect("the event names the token", message.get("data"), f"{running} {claimed.token} please stop".encode())
    b.settle("complete", claimed)
    b.refuses("done", "EMQSTATE done", b.on, "cancel", CancelRequest(running, "no"))
    dead = b.add()
    b.bury(dead)
    b.refuses("dead", "EMQSTATE dead", b.on, "cancel", CancelRequest(dead, "no"))


@scenario("who waits for a result is told of every ending, on the row's channel", 34)
def tells(b: Bench) -> None:
    follower = b.server.pubsub(ignore_subscribe_messages=True)
    for verb, kind in (
        ("complete", b"completed"),
        ("fail", b"dead"),
        ("end", b"cancelled"),
        ("cancel", b"cancelled"),
        ("remove", b"removed"),
    ):
        job = NewJob(result_ttl_ms=60_000)
        follower.subscribe(b.keys.result_channel(job.id))
        follower.get_message(timeout=1)
        b.on("enqueue", job)
        if verb == "cancel":
            b.on("cancel", CancelRequest(job.id, "no"))
        elif verb == "remove":
            b.on("remove", job.id)
        else:
            b.settle(verb, b.take())
        b.expect(verb, (follower.get_message(timeout=1) or {}).get("data"), kind)
    follower.close()


@scenario("remove erases what does not run, log and all, and refuses what runs")
def removes(b: Bench) -> None:
    pending, later, dead, done = (
        b.add(),
        b.add(delay_ms=YEAR_MS),
        b.add(priority=9),
        b.add(priority=8, result_ttl_ms=60_000),
    )
    for verb in ("fail", "complete"):
        claimed = b.take()
        b.settle("log", claimed)
        b.settle(verb, claimed)
    b.expect("states", [b.state(id) for id in (pending, later, dead, done)], ["pending", "schedule", "dead", "done"])
    b.expect("verdicts", b.on("remove", pending, later, dead, done, pending), [*["ok"] * 4, "EMQGONE"])
    b.expect("rows and logs", [suffix for suffix in b.look().entries if suffix.startswith("job:")], [])
    b.expect("removed", b.count("removed"), 4)
    running = b.add()
    b.take()
    b.refuses("running", "EMQSTATE active", b.on, "remove", running)


@scenario("redrive begins a new life: budgets and error reset, token, checkpoint and log kept", 41, 42)
def redrives(b: Bench) -> None:
    id = b.add(priority=2, expires="+60000", deadline="+60000")
    b.take()
    b.expire(id)
    claimed = b.take()
    for note in ("checkpoint", "progress", "log"):
        b.settle(note, claimed, 1)
    b.on("fail", Failure(id, claimed.token, claimed.nonce, 0, 1, b"{}"))
    b.expect("dead", (b.row(id)["failures"], b.row(id)["stalls"]), ("1", "1"))
    b.expect("redrive", b.on("redrive", id), ["ok"])
    row = b.row(id)
    for name in (
        "failures",
        "stalls",
        "error",
        "kind",
        "reason",
        "holder",
        "progress",
        "cancel",
        "deadline_ms",
        "expires_ms",
    ):
        b.expect(name, name in row, False)
    b.expect("kept", (row["attempts"], row["step"], b.look().items(f"job:{id}:log")), ("2", "1", ("line 1",)))
    b.expect("its place", b.score("pending", id), -2.0)
    b.expect("the next token", b.take().token, 3)


@scenario("redrive refuses what is not dead and says what it is", 41)
def redrive_refuses(b: Bench) -> None:
    id = b.add(result_ttl_ms=60_000)
    b.refuses("pending", "EMQSTATE pending", b.on, "redrive", id)
    claimed = b.take()
    b.refuses("active", "EMQSTATE active", b.on, "redrive", id)
    b.settle("complete", claimed)
    b.refuses("done", "EMQSTATE done", b.on, "redrive", id)
    b.refuses("absent", "EMQGONE", b.on, "redrive", NewJob().id)


@scenario("a redriven job has its whole budget of stalls and retries again", 42)
def second_life(b: Bench) -> None:
    id = b.add(max_stalls=1)
    for _ in range(2):
        for expected in ("pending", "dead"):
            b.take()
            b.expire(id)
            b.worker.plain("reap")
            b.expect("state", b.state(id), expected)
        b.on("redrive", id)
    b.expect("state", b.state(id), "pending")


@scenario("pause and resume say whether they changed anything; what runs goes on")
def pauses(b: Bench) -> None:
    b.add()
    claimed = b.take()
    b.expect("pause", (b.worker.plain("pause"), b.other.plain("pause")), (True, False))
    b.expect("complete", b.settle("complete", claimed), "ok")
    b.expect("enqueue", b.enqueue(), "admitted")
    b.expect("claim", b.worker.claim(1).jobs, [])
    b.expect("paused", b.worker.plain("counts").paused, True)
    b.expect("resume", (b.worker.plain("resume"), b.other.plain("resume")), (True, False))
    b.expect("claim", len(b.worker.claim(1).jobs), 1)


@scenario("events: failures by default, all or none when asked; another word is refused")
def events(b: Bench) -> None:
    def seen() -> list[str]:
        return [dict(zip(words[::2], words[1::2], strict=True))["event"] for _, words in b.look().items("events")]

    b.add()
    b.settle("complete", b.take())
    b.expect("success, by default", seen(), [])
    b.bury(b.add())
    b.expect("death, by default", seen(), ["dead"])
    b.worker.plain("configure", settings={"events": "all"})
    b.add()
    b.settle("complete", b.take())
    b.expect("all", seen(), ["dead", "enqueued", "claimed", "completed"])
    b.worker.plain("configure", settings={"events": "none"})
    b.bury(b.add())
    b.expect("none", len(seen()), 4)
    b.worker.plain("configure", settings={"events": "failures"})
    b.bury(b.add())
    b.expect("failures again", seen()[4:], ["dead"])
    b.refuses("another word", "EMQKIND events", b.worker.plain, "configure", settings={"events": "some"})


@scenario("a setting makes meta with the protocol's version; so does a pause", 35)
def makes_meta(b: Bench) -> None:
    b.worker.plain("configure", settings={"events": "all"})
    meta = b.look().hash("meta")
    b.expect("when it was born", abs(int(meta.pop("born")) - b.clock()) < DAY_MS, True)
    b.expect("meta", meta, {"protocol": "1.0", "events": "all"})
    b.server.delete(b.keys.meta)
    b.worker.plain("pause")
    b.expect("meta", sorted(b.look().hash("meta")), ["paused", "protocol"])
    b.worker.plain("resume")
    b.server.delete(b.keys.meta)
    b.add()
    b.expect("meta", b.look().hash("meta"), {"protocol": "1.0"})


@scenario("reads answer what is there and change nothing")
def reads(b: Bench) -> None:
    ids = [b.add(payload=b"%d" % n) for n in range(5)]
    claimed = b.take()
    b.settle("log", claimed, 1)
    with b.unchanged():
        counts = b.worker.plain("counts")
        b.expect("counts", (counts.pending, counts.active, counts.schedule, counts.dead, counts.done), (4, 1, 0, 0, 0))
        job = b.worker.plain("read_job", ids[0], with_log=True)
        b.expect("read_job", (job.record.attempts, job.log, job.score), (1, ("line 1",), b.score("active", ids[0])))
        b.expect("without its log", b.worker.plain("read_job", ids[0]).log, ())
        b.expect("absent", b.worker.plain("read_job", NewJob().id), None)
        page = b.worker.plain("browse", state="pending", offset=1, count=2)
        b.expect("browse", ([job.id for job, _ in page.jobs], page.total), (ids[2:4], 4))
        page = b.worker.plain("browse", state="pending", offset=0, count=2, reverse=True)
        b.expect("backwards", [job.id for job, _ in page.jobs], [ids[4], ids[3]])
        head = b.worker.plain("age").pending
        b.expect("age", (head.jobs, head.id, 0 <= head.ms < 60_000), (4, ids[1], True))
    for options in ({"count": 0}, {"count": 257}, {"offset": -1}):
        b.refuses(str(options), "EMQKIND offset or count", b.worker.plain, "browse", state="pending", **options)
    b.refuses("no such state", "EMQKIND state", b.worker.plain, "browse", state="asleep")


@scenario("reads of a queue that never was answer nothing, and make nothing")
def reads_nothing(b: Bench) -> None:
    with b.unchanged():
        b.expect("pending", b.worker.plain("counts").pending, 0)
        b.expect("age", b.worker.plain("age").pending, Head(0, None, 0))
        b.expect("browse", b.worker.plain("browse", state="dead").total, 0)


@scenario("age tells the first of each state, how many there are, and for how long it has been so")
def ages(b: Bench) -> None:
    running = [b.add() for _ in range(4)]
    for _ in running:
        b.take()
    later, dead, done = b.add(delay_ms=YEAR_MS), b.add(), b.add(result_ttl_ms=60_000)
    b.bury(dead)
    b.settle("complete", b.take())
    now = b.clock()
    for n, id in enumerate(running):
        b.rescore("active", id, now + 100_000 + n)
    for n, id in enumerate((running[1], running[3])):
        b.server.hset(b.keys.job(id), "since", now - 50_000 - n * 30_000)
    b.server.hset(b.keys.job(running[0]), "since", "none")
    b.rescore("dead", dead, now - 40_000)

    def seen(sample: int) -> dict[str, tuple[int, str | None, int]]:
        with b.unchanged():
            heads = b.worker.plain("age", sample=sample)
        names = ("pending", "active", "schedule", "waiting", "dead", "done")
        found = ((name, getattr(heads, name)) for name in names)
        return {name: (head.jobs, head.id, head.ms // 20_000) for name, head in found}

    b.expect("one without a moment", seen(1)["active"], (4, running[0], 0))
    b.server.hset(b.keys.job(running[0]), "since", now)
    b.expect("pending", seen(1)["pending"], (0, None, 0))
    b.expect("not asked for", seen(0)["active"], (4, None, 0))
    b.expect("of three", seen(3)["active"], (4, running[1], 2))
    b.expect("of all", (seen(4)["active"], seen(256)["active"]), ((4, running[3], 4), (4, running[3], 4)))
    b.expect("waiting", seen(0)["waiting"], (0, None, 0))
    b.expect("dead", seen(0)["dead"], (1, dead, 2))
    b.expect("kept", seen(0)["done"], (1, done, -3))
    b.due(later)
    b.rescore("schedule", later, b.clock() - 30_000)
    b.expect("overdue", seen(0)["schedule"], (1, later, 1))
    for bad in (-1, 257, "x"):
        b.refuses(str(bad), "EMQKIND age", b.worker.bare, "age", bad)
