"""A server that refuses a command in the middle of a script: schedules, times, shelves, repair, obliteration.

No slot is lost or fired twice, no job is lost, and whoever calls again with the right finds nothing half done.
"""

from __future__ import annotations

import pytest

from echomq.conformance.driver import Driver
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import Snapshot, take
from echomq.protocol.ids import mint
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest, Firing, Look, NewTime
from tests.lua.rights import COMMANDS, Ground, add

AHEAD, PAST = 90_000_000_000_000, 1_000
LISTS = (*COMMANDS, "xadd", "rpush", "zcard", "zrange", "publish", "llen", "get", "set", "hkeys", "pttl")


def put(driver: Driver, *, slot: int = AHEAD, digest: str = "d", lane: str | None = None, overlap: str = "skip") -> str:
    """Define the schedule `s`."""
    return str(
        driver.plain(
            "schedule_put", name="s", digest=digest, spec=b"{}", origin="", overlap=overlap, slot_ms=slot,
            job=NewJob(lane=lane, deadline="+60000000", max_stalls=100),
        ).outcome
    )  # fmt: skip


def come(ground: Ground, slot: int = PAST) -> None:
    """Let its slot come."""
    ground.admin.zadd(ground.keys.schedules, {"s": slot}, xx=True)
    ground.admin.hset(ground.keys.schedule_of("s"), "slot", slot)


def fire(driver: Driver, *slots: int) -> None:
    """Fire the slots that have come."""
    firings = [Firing(id=mint(), slot_ms=slot, due_ms=slot) for slot in slots]
    driver.plain("schedule_fire", name="s", digest="d", slot_ms=slots[0], next_ms=AHEAD, firings=firings)


def look(ground: Ground) -> Snapshot:
    """Look at all of the queue."""
    return take(ground.admin, ground.keys)


@pytest.mark.parametrize("lane", [None, "a"])
@pytest.mark.parametrize("command", LISTS)
def test_fire_without_a_right_loses_no_slot_and_fires_none_twice(
    ground: Ground, command: str, lane: str | None
) -> None:
    """Refused at any step, each slot has its job or stands still to be fired."""
    ground.able.plain("configure", settings={"events": "all"})
    put(ground.able, lane=lane, overlap="allow")
    come(ground)
    limited = ground.lacking(command)
    ground.attempt(lambda: fire(limited, PAST, PAST + 1))
    stands = int(look(ground).hash("schedule:s")["slot"])
    if stands != AHEAD:
        assert look(ground).zset("schedules") == {"s": stands}
        fire(ground.able, *range(stands, PAST + 2))
    slots = sorted(row["slot"] for _, row in look(ground).rows())
    assert slots == [str(PAST), str(PAST + 1)]
    jobs = set(dict(look(ground).rows()))
    assert ground.drain() == jobs
    # How many wait in lanes is counted at the end of a call: what was refused before is left to `repair`.
    ground.able.items("repair", Look("lane", ""))
    assert violations(look(ground)) == []


@pytest.mark.parametrize("command", LISTS)
@pytest.mark.parametrize("what", ["put", "change", "pause", "resume", "remove"])
def test_schedules_without_a_right_are_whole_after_the_next_word(ground: Ground, what: str, command: str) -> None:
    """Whoever says the same again finds no half of it in the way."""

    def say(driver: Driver) -> None:
        match what:
            case "put" | "change":
                put(driver, digest="e" if what == "change" else "d", slot=AHEAD + 1)
            case "remove":
                driver.plain("schedule_remove", name="s")
            case _:
                driver.plain("schedule_pause", name="s", paused=what == "pause", digest="d", slot_ms=AHEAD + 1)

    if what != "put":
        put(ground.able)
    if what == "resume":
        ground.able.plain("schedule_pause", name="s", paused=True)
    limited = ground.lacking(command)
    ground.attempt(lambda: say(limited))
    say(ground.able)
    snap = look(ground)
    assert violations(snap) == []
    expected = {"remove": {}, "pause": {"s": float("inf")}}.get(what, {"s": AHEAD + 1.0})
    assert snap.zset("schedules") == expected


@pytest.mark.parametrize("command", LISTS)
@pytest.mark.parametrize("due", ["0", "+60000000"])
def test_reschedule_without_a_right_loses_no_job(ground: Ground, due: str, command: str) -> None:
    """Wherever it was going."""
    ids = add(ground, 4, (None, "a"))
    ground.able.items("reschedule", *(NewTime(id, "+60000000") for id in ids[:2]))
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.items("reschedule", *(NewTime(id, due) for id in ids)))
    assert ground.drain() == set(ids)


@pytest.mark.parametrize("command", LISTS)
@pytest.mark.parametrize("end", ["expires", "deadline"])
def test_claim_without_a_right_ends_a_late_job_or_leaves_it_to_others(ground: Ground, end: str, command: str) -> None:
    """And every job behind it is done."""
    late = NewJob(result_ttl_ms=60_000_000, dedup="k", **{end: "1"})  # type: ignore[arg-type]
    ground.able.items("enqueue", late)
    ids = add(ground, 3)
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.claim(4))
    assert ground.drain() - {late.id} == set(ids)
    row = look(ground).row(late.id)
    assert row["kind"] == ("expired" if end == "expires" else "dead")
    assert late.id in look(ground).zset(row["state"])


@pytest.mark.parametrize("command", LISTS)
def test_trim_without_a_right_loses_no_row(ground: Ground, command: str) -> None:
    """What could not be dropped is dropped later."""
    ids = []
    for _ in range(3):
        job = NewJob(result_ttl_ms=60_000_000)
        ground.able.items("enqueue", job)
        ids.append(job.id)
    ground.able.items("cancel", *(CancelRequest(id, "no") for id in ids))
    ground.admin.zadd(ground.keys.done, dict.fromkeys(ids, 1000))
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.plain("trim"))
    ground.able.plain("trim")
    assert [suffix for suffix in look(ground).entries if "JOB" in suffix or suffix == "done"] == []


@pytest.mark.parametrize("command", [*LISTS, "lpos", "lrem", "hsetnx", "setnx", "hexists", "hlen"])
def test_repair_without_a_right_is_done_by_the_next(ground: Ground, command: str) -> None:
    """Every job is there, and the queue is sound."""
    ids = add(ground, 6, (None, "a"))
    keyed = NewJob(dedup="k")
    ground.able.items("enqueue", keyed)
    ground.able.claim(2)
    pending, lane = ground.keys.pending, ground.keys.lane_pending("a")
    for key in (pending, lane):
        ground.admin.zpopmin(key)
    ground.admin.delete(ground.keys.ring, ground.keys.dedup("k"))
    ground.admin.hdel(ground.keys.job(ids[-1]), "state")
    looks = [
        *(Look("job", id, "a") for id in (*ids, keyed.id)),
        Look("dedup", "k"),
        Look("lane", "a"),
        Look("lane", ""),
    ]
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.items("repair", *looks))
    ground.able.items("repair", *looks)
    assert violations(look(ground)) == []
    dead = set(look(ground).zset("dead"))
    assert dead == {ids[-1]}
    assert ground.drain() == {*ids[:-1], keyed.id}


@pytest.mark.parametrize("command", [*LISTS, "hrandfield", "lpop", "lrange", "hlen"])
def test_obliterate_without_a_right_is_done_by_the_next(ground: Ground, command: str) -> None:
    """Nothing is left in the end; and if it is called off instead, every job that is left is done."""
    add(ground, 9, (None, "a", "b"))
    put(ground.able)
    ground.able.claim(2)
    limited = ground.lacking(command)
    for _ in range(3):
        ground.attempt(lambda: limited.plain("obliterate", bound=2, force=True))
    rows = set(dict(look(ground).rows()))
    if command in {"hset", "zadd", "del", "zrem"}:
        ground.able.plain("resume")
        assert ground.drain() == rows
    while ground.able.plain("obliterate", force=True).left:
        pass
    names = sorted(look(ground).entries.keys() - {"meta"})
    ground.able.plain("obliterate", force=True, names=names)
    ground.able.plain("obliterate", force=True, last=True)
    assert [suffix for suffix, entry in look(ground).entries.items() if not entry.ttl] == []
