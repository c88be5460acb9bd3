"""Firing: a compare-and-set on the slot makes exactly one job a slot, whoever comes; what overlap, limits and lanes do to it."""

from __future__ import annotations

from typing import Any

from redis.exceptions import ResponseError

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scenarios.registry import scenario
from echomq.conformance.scheduling import AHEAD, PAST, Schedules, later
from echomq.protocol.ids import mint
from echomq.transitions import Firing


def _ready(b: Bench, overlap: str = "allow", **options: Any) -> Schedules:
    """Put a schedule whose slot has come."""
    s = Schedules(b)
    s.put(overlap=overlap, **options)
    s.comes()
    return s


@scenario("a slot is fired once: its job carries schedule and slot, and the next slot stands", 37)
def fires(b: Bench) -> None:
    s = _ready(b, payload=b"x", task="t", priority=3, expires="+60000", deadline="+70000")
    b.server.delete(b.keys.wake)
    before = b.clock()
    b.expect("fired", s.fire("s", PAST), ["admitted"])
    ((id, row),) = s.made()
    expected = {
        "state": "pending",
        "schedule": "s",
        "slot": str(PAST),
        "by": b.producer.tag,
        "payload": "x",
        "task": "t",
        "priority": "3",
    }
    b.expect("row", {name: row[name] for name in expected}, expected)
    b.expect("expires", before + 60_000 <= int(row["expires_ms"]) <= b.clock() + 60_000, True)
    b.expect("deadline", before + 70_000 <= int(row["deadline_ms"]) <= b.clock() + 70_000, True)
    b.expect("its place", b.score("pending", id), -3.0)
    stands = s.stands()
    b.expect("the next slot", (stands["slot"], s.found()), (str(AHEAD), {"s": float(AHEAD)}))
    b.expect(
        "noted", (stands["count"], stands["last_id"], stands["last_slot"], stands["open"]), ("1", id, str(PAST), "")
    )
    b.expect("rung for the job", b.tokens(), 1)
    b.refuses("the same slot by another", f"EMQSTALE slot {AHEAD}", Schedules(b, b.other).fire, "s", PAST)
    b.expect("jobs", len(s.made()), 1)


@scenario("eight who saw a slot come make one job of it", 37)
def fires_once(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    clients = [b.client() for _ in range(8)]
    for n in range(1, 6):
        s.comes(slot=PAST + n)
        codes = []
        for client in clients:
            with_all = Schedules(b, client)
            try:
                codes += with_all.fire("s", PAST + n, slot=PAST + n, next_slot=later(n))
            except Exception as error:  # noqa: BLE001 - the words are what is looked at
                codes.append(str(error).split()[0])
        b.expect("verdicts", codes, ["admitted", *["EMQSTALE"] * 7])
    b.expect("one a slot", [row["slot"] for _, row in s.made()], [str(PAST + n) for n in range(1, 6)])


@scenario("a fire that was sent again after its reply was lost is answered, and makes no second job", 2, 37)
def fires_again(b: Bench) -> None:
    s = _ready(b)
    for slot in (PAST, 0):
        b.expect("fired", s.fire("s", PAST, slot=slot), ["admitted"])
        job = b.take()
        b.settle("complete", job)
        with b.unchanged():
            b.expect("again", [v.code for v in b.producer.resend("schedule_fire")], ["admitted"])
    b.expect("late", s.made(), [])
    b.refuses("an older copy", "EMQSTALE call", b.producer.resend, "schedule_fire", back=2)


@scenario("whoever fires by an old definition, at another slot, or towards a slot that is over, changes nothing", 37)
def fires_stale(b: Bench) -> None:
    s = _ready(b)
    b.refuses("another slot", "EMQSTALE slot 1000", s.fire, "s", PAST, slot=PAST + 1)
    b.refuses("another definition", "EMQSTALE slot", s.fire, "s", PAST, digest="e")
    b.refuses("no schedule", "EMQGONE", s.fire, "t", PAST)
    b.refuses("a next slot that is over", "EMQSTALE next", s.fire, "s", PAST, next_slot=PAST + 1)
    for _ in range(50):
        moment = b.clock()
        b.refuses("the present millisecond", "EMQSTALE next", s.fire, "s", PAST, next_slot=moment)
        if b.clock() == moment:
            break
    s.comes(slot=later(3))
    for next_slot in (later(3), later(2)):
        b.refuses("no further", "EMQSTALE next", s.fire, "s", PAST, slot=later(3), next_slot=next_slot)
    s.comes()
    b.expect("no other slot", s.fire("s", PAST, next_slot=0), ["admitted"])
    b.expect("ended", (s.stands()["slot"], s.found()), ("0", {"s": float("inf")}))
    b.expect("nobody is told", b.worker.claim(1).due, False)


@scenario("missed slots make a job each, up to a hundred in a call, or none; the slot moves on once", 37)
def fires_missed(b: Bench) -> None:
    s = _ready(b)
    b.expect("none", s.fire("s"), [])
    b.expect("moved on", (s.stands()["slot"], s.made(), "count" in s.stands()), (str(AHEAD), [], False))
    s.comes()
    b.expect("a hundred", s.fire("s", *(PAST + n for n in range(100))), ["admitted"] * 100)
    b.expect("counted", (s.stands()["count"], s.stands()["last_slot"]), ("100", str(PAST + 99)))
    s.comes()
    b.refuses("more", "EMQKIND schedule_fire", s.fire, "s", *(PAST + n for n in range(101)))


@scenario("schedule_fire refuses what is malformed", 8)
def fires_malformed(b: Bench) -> None:
    s = _ready(b)
    head = ["s", "d", PAST, AHEAD]
    for bad in (
        ["s", "d", "x", AHEAD],
        ["s", "d", PAST, "x"],
        [*head, "id"],
        [*head, "id", 1],
        [],
        ["s", "d", "-1", AHEAD],
    ):
        b.refuses(str(bad), "EMQKIND schedule_fire", b.producer.bare, "schedule_fire", *bad)
    for bad in (["id", "x", 1], ["id", 1, "x"], ["id", -1, 1], ["id", 1, "100000000000001"]):
        b.refuses(str(bad), "EMQKIND slot", b.producer.bare, "schedule_fire", *head, *bad)
    b.expect("still there", s.stands()["slot"], str(PAST))


@scenario("an id that is taken is told, and nothing is made: the caller mints another", 48)
def fires_collision(b: Bench) -> None:
    s = _ready(b)
    taken = b.add()
    job = Firing(id=taken, slot_ms=PAST, due_ms=PAST)
    b.refuses("taken", f"EMQSTATE collision {taken}", s.fire, "s", PAST, job)
    b.expect("another", s.fire("s", PAST), ["admitted"])


@scenario("a job whose jitter puts it off waits in the schedule, and rings when it is the nearest", 12)
def fires_jitter(b: Bench) -> None:
    for lane in (None, "a"):
        s = _ready(b, lane=lane)
        due = b.clock() + 60_000
        b.server.delete(b.keys.wake)
        job = Firing(id=mint(), slot_ms=PAST, due_ms=due)
        b.expect("fired", s.fire("s", job), ["admitted"])
        b.expect("its place", (b.state(job.id), b.score("schedule", job.id)), ("schedule", float(due)))
        b.expect("rung, for the timer and for the claim that looks at the next slot", b.tokens(), 2)
        b.due(job.id)
        b.expect("runs", b.take().id, job.id)
        s.remove()


@scenario("the present millisecond is no delay")
def fires_now(b: Bench) -> None:
    s = Schedules(b)
    s.put()
    for _ in range(50):
        s.comes()
        job = Firing(id=mint(), slot_ms=PAST, due_ms=b.clock())
        s.fire("s", job)
        b.expect("ready", b.state(job.id), "pending")
        if b.row(job.id)["since"] == str(job.due_ms):
            break


@scenario("a fire always rings: whoever keeps the timer must learn of the next slot", 12)
def fires_ring(b: Bench) -> None:
    s = _ready(b)
    b.server.delete(b.keys.wake)
    s.fire("s")
    b.expect("tokens", b.tokens(), 1)
    s.comes()
    b.server.delete(b.keys.wake)
    s.fire("s", PAST, PAST + 1, PAST + 2)
    b.expect("a job each", b.tokens(), 3)


@scenario("jobs of a schedule go to their lane, the queue's first, too, and keep to its limits", 25)
def fires_laned(b: Bench) -> None:
    s = _ready(b, lane="a", priority=1)
    b.add()
    b.expect("no rota yet", b.ring(), [])
    b.expect("fired", s.fire("s", PAST, PAST + 1), ["admitted", "admitted"])
    b.expect("the rota", (sorted(b.ring()), b.look().hash("meta")["laned"]), (["", "a"], "2"))
    b.expect("scores", set(b.look().zset("lane:a:pending").values()), {-1.0})
    b.set_lane("a", limit="1")
    b.expect("claimed", sorted(b.lanes_of(b.worker.claim(9))), [".", "a"])
    b.expect("closed", list(b.closed()), ["a"])
    b.expect("laned", b.look().hash("meta")["laned"], "1")


@scenario("a job without a lane takes part in the rota of a queue with lanes", 25)
def fires_unlaned(b: Bench) -> None:
    b.on("remove", b.add(lane="a"))
    while b.ring():
        b.worker.claim(1)
    s = _ready(b)
    s.fire("s", PAST)
    b.expect("the rota", (b.ring(), len(b.worker.claim(1).jobs)), ([""], 1))


@scenario("a full queue refuses the call whole and keeps the slot; what is skipped takes no room", 37)
def fires_full(b: Bench) -> None:
    s = _ready(b, overlap="skip")
    b.configure(max_size="2")
    b.add(), b.add(lane="a")
    b.refuses("full", "EMQFULL 2", s.fire, "s", PAST)
    b.expect("the slot", s.stands()["slot"], str(PAST))
    b.take()
    b.expect("room for one", s.fire("s", PAST, PAST + 1), ["admitted", "skipped"])
    s.comes()
    b.expect("none, and none wanted", s.fire("s", PAST + 2), ["skipped"])
    s.put(digest="e")
    s.comes()
    b.refuses("two of one", "EMQFULL 2", s.fire, "s", PAST, PAST + 1, digest="e")


# --- overlap ---------------------------------------------------------------------------------


@scenario("overlap allow: a slot makes a job, whatever has become of the last one", 37)
def allows(b: Bench) -> None:
    s = _ready(b)
    for n in range(3):
        b.expect("fired", s.fire("s", PAST + n), ["admitted"])
        s.comes()
    b.expect("nothing is remembered of them", (s.stands()["open"], "skipped" in s.stands()), ("", False))


@scenario("overlap skip: while the last job waits, is put off or runs, a slot makes none, told and counted", 37)
def skips(b: Bench) -> None:
    b.configure(events="all")
    s = _ready(b, overlap="skip")
    delayed = Firing(id=mint(), slot_ms=PAST, due_ms=b.clock() + YEAR_MS)
    b.expect("put off", s.fire("s", delayed), ["admitted"])

    def skipped(what: str) -> None:
        s.comes()
        b.expect(what, s.fire("s", PAST + 1), ["skipped"])

    skipped("scheduled")
    b.due(delayed.id)
    b.worker.plain("promote")
    skipped("pending")
    job = b.take()
    skipped("active")
    stands = s.stands()
    b.expect("counted", (stands["count"], stands["skipped"], b.count("skipped")), ("1", "3", 3))
    b.expect("the last job", (stands["last_id"], stands["open"]), (delayed.id, delayed.id))
    events = [dict(zip(w[::2], w[1::2], strict=True)) for _, w in b.look().items("events")]
    told = [(it["schedule"], it["slot"]) for it in events if it["event"] == "skipped"]
    b.expect("told", told, [("s", str(PAST + 1))] * 3)
    b.settle("complete", job)
    s.comes()
    b.expect("it is over", s.fire("s", PAST + 2, PAST + 3), ["admitted", "skipped"])
    b.bury(s.made()[0][0])
    s.comes()
    b.expect("dead is over", s.fire("s", PAST + 4), ["admitted"])


@scenario("overlap queue: one job waits beside one that runs, and no other", 37)
def queues_one(b: Bench) -> None:
    s = _ready(b, overlap="queue")
    b.expect("the first, and no second", s.fire("s", PAST, PAST + 1), ["admitted", "skipped"])
    job = b.take()
    s.comes()
    b.expect("one waits", s.fire("s", PAST + 2, PAST + 3), ["admitted", "skipped"])
    s.comes()
    b.expect("no more", s.fire("s", PAST + 4), ["skipped"])
    b.settle("complete", job)
    s.comes()
    b.expect("that one waits still", s.fire("s", PAST + 5), ["skipped"])
    b.take()
    s.comes()
    b.expect("it runs", s.fire("s", PAST + 6), ["admitted"])
    b.take()
    s.comes()
    b.expect("two run", s.fire("s", PAST + 7), ["skipped"])
    b.expect("counted", (s.stands()["count"], s.stands()["skipped"]), ("3", "5"))


# --- now, whatever the slot ------------------------------------------------------------------


@scenario("run now makes a job whatever the slot, the pause and the overlap, and moves no slot", 37)
def runs_now(b: Bench) -> None:
    s = Schedules(b)
    s.put(overlap="skip", slot=later(3))
    b.expect("now", s.fire("s", 7, slot=0, next_slot=0), ["admitted"])
    s.pause()
    b.expect("again, paused, by whatever definition", s.fire("s", 8, slot=0, next_slot=0, digest=""), ["admitted"])
    stands = s.stands()
    b.expect("no slot moved", (stands["slot"], "count" in stands, "paused" in stands), (str(later(3)), False, True))
    b.expect("the jobs", [row["slot"] for _, row in s.made()], ["7", "8"])
    b.expect("the last job", (stands["last_slot"], stands["open"].split()), ("8", [id for id, _ in s.made()]))
    b.refuses("no schedule", "EMQGONE", s.fire, "t", 7, slot=0)
    s.resume(slot=later(4))
    s.comes()
    b.expect("the slot sees them", s.fire("s", PAST), ["skipped"])


@scenario("a schedule remembers its eight latest open jobs, and forgets those that are over", 25)
def remembers_open(b: Bench) -> None:
    s = Schedules(b)
    s.put(overlap="skip")
    for n in range(10):
        s.fire("s", n, slot=0)
    ids = [id for id, _ in s.made()]
    b.expect("eight", s.stands()["open"].split(), ids[2:])
    b.on("remove", *ids[3:])
    s.fire("s", 11, slot=0)
    b.expect("those that are left", s.stands()["open"].split(), [ids[2], s.made()[-1][0]])


@scenario("a fire that the server refuses in its middle makes no job and loses no slot", 37)
def fires_torn(b: Bench) -> None:
    b.configure(events="all")
    s = _ready(b, lane="a", overlap="skip")
    # The first thing that is refused is the job's place; the last one its event.
    for key in (b.keys.lane_pending("a"), b.keys.events):
        b.server.delete(key)
        b.server.set(key, "in the way")
        try:
            s.fire("s", PAST)
        except ResponseError as error:
            b.expect("refused", "WRONGTYPE" in str(error), True)
        b.server.delete(key)
        b.expect("the slot stands", (s.stands()["slot"], s.found(), s.made()), (str(PAST), {"s": float(PAST)}, []))
        b.expect("nowhere", (b.look().zset("lane:a:pending"), b.look().zset("schedule")), ({}, {}))
    b.expect("fired", s.fire("s", PAST), ["admitted"])
    b.expect("jobs", len(s.made()), 1)
    s.put(digest="e")
    s.comes()
    b.server.delete(b.keys.events)
    b.server.set(b.keys.events, "in the way")
    try:
        s.fire("s", PAST, digest="e")
    except ResponseError as error:
        b.expect("refused", "WRONGTYPE" in str(error), True)
    b.server.delete(b.keys.events)
    b.expect("laned", (b.look().hash("meta")["laned"], b.look().zset("pending")), ("1", {}))


@scenario("a template without any field makes a job, too")
def fires_bare(b: Bench) -> None:
    s = Schedules(b)
    b.producer.bare("schedule_put", "s", "d", "{}", "", "allow", AHEAD, 0, "", "", 0)
    s.comes()
    b.expect("fired", s.fire("s", PAST), ["admitted"])
    b.expect("runs", b.take().record.schedule, "s")
