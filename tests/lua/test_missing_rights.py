"""A server that refuses a command in the middle of a script costs an error, and never a job.

ACL rights hold inside scripts, too: a user may be allowed half of what one needs. Whatever is missing, each job must
afterwards still be in a set, so that it is done once the right is there.
"""

from __future__ import annotations

import attrs
import pytest
import redis

from echomq.conformance.invariants import leftovers
from echomq.conformance.snapshot import take
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import Closing, Completion, Ending, Failure, Reassignment, Release, Snoozed
from tests.lua.rights import COMMANDS, EXPIRE, LANES, Ground, add

OF_LANES = (*COMMANDS, "lrange", "ltrim", "rpush", "zcard", "zrange", "hget hmget")
SETTLING = {
    "complete": lambda c: Completion(c.id, c.token, c.nonce, b""),
    "fail": lambda c: Failure(c.id, c.token, c.nonce, 0, 3, b"{}"),
    "bury": lambda c: Failure(c.id, c.token, c.nonce, 0, 0, b"{}"),
    "release": lambda c: Release(c.id, c.token, c.nonce),
    "snooze": lambda c: Snoozed(c.id, c.token, c.nonce, 0),
    "end": lambda c: Ending(c.id, c.token, c.nonce, "discarded", ""),
    "rate_limited": lambda c: Closing(c.id, c.token, c.nonce, 60_000, "lane"),
}
ENDS = {"complete", "end"}


def make_due(ground: Ground, verb: str) -> None:
    """Give a round something to do: leases that are over, or delays."""
    if verb != "claim":
        jobs = ground.able.claim(3).jobs
        if verb == "promote":
            ground.able.items("snooze", *(Snoozed(c.id, c.token, c.nonce, 0) for c in jobs))
        ground.admin.execute_command("EVAL", EXPIRE, 1, ground.keys.active)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("verb", ["claim", "reap", "promote"])
def test_rounds_without_a_right_lose_no_job(ground: Ground, verb: str, command: str) -> None:
    """A claim, a reap or a promote that the server refuses leaves every job where it is done later."""
    ids = add(ground)
    make_due(ground, verb)
    limited = ground.lacking(command)
    for _ in range(2):
        ground.attempt(lambda: limited.claim(2) if verb == "claim" else limited.plain(verb))
    assert ground.drain() == set(ids)


@pytest.mark.parametrize("command", OF_LANES)
@pytest.mark.parametrize("verb", ["claim", "reap", "promote"])
def test_rounds_of_lanes_without_a_right_lose_no_job(ground: Ground, verb: str, command: str) -> None:
    """Lanes stay on the ring, too; one that stands there twice then is served as if it stood there once."""
    ids = add(ground, 9, LANES)
    make_due(ground, verb)
    limited = ground.lacking(command)
    for _ in range(2):
        ground.attempt(lambda: limited.claim(2) if verb == "claim" else limited.plain(verb))
    assert ground.drain() == set(ids)
    for _ in range(20):
        ground.able.claim(10)
    snap = take(ground.admin, ground.keys)
    assert leftovers(snap.without("once:")) == []
    # How many wait in lanes is counted at the end of a call: one that was refused before does not count what it moved.
    assert verb == "claim" or command == "hincrby" or int(snap.hash("meta")["laned"]) == 0


@pytest.mark.parametrize("command", OF_LANES)
@pytest.mark.parametrize("how", list(SETTLING))
def test_verdicts_of_lanes_without_a_right_lose_no_job(ground: Ground, how: str, command: str) -> None:
    """Whatever lane the job is in, and whatever is owed to it."""
    ids = add(ground, 6, LANES)
    jobs: list[Claimed] = ground.able.claim(3).jobs
    limited = ground.lacking(command)
    verb = "fail" if how == "bury" else how
    ground.attempt(lambda: limited.items(verb, *(SETTLING[how](job) for job in jobs)))
    drained = ground.drain()
    dead = {str(bytes(id), "ascii") for id in ground.admin.zrange(ground.keys.dead, 0, -1)}  # type: ignore[arg-type]
    if how in ENDS:
        assert all(id in drained or not ground.admin.exists(ground.keys.job(id)) for id in ids)
    else:
        assert drained | dead == set(ids)


@pytest.mark.parametrize("command", OF_LANES)
@pytest.mark.parametrize("verb", ["reassign", "drain", "set_lane"])
def test_orders_about_lanes_without_a_right_lose_no_job(ground: Ground, verb: str, command: str) -> None:
    """A job that is moved is in one of the two lanes; of those that are drained each has gone or is done later."""
    ids = add(ground, 6, LANES)
    limited = ground.lacking(command)
    if verb == "reassign":
        ground.attempt(lambda: limited.items(verb, *(Reassignment(id, "c") for id in ids)))
    elif verb == "drain":
        ground.attempt(lambda: limited.plain(verb, lane="a"))
    else:
        ground.attempt(lambda: limited.plain(verb, lane="a", settings={"paused": "1"}))
    drained = ground.drain()
    gone = {id for id in ids if not ground.admin.exists(ground.keys.job(id))}
    assert gone == set(ids)
    assert drained == set(ids) or verb == "drain"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("how", list(SETTLING))
def test_verdicts_without_a_right_lose_no_job(ground: Ground, how: str, command: str) -> None:
    """A verdict that the server refuses in its middle has either ended the job or left it to be done again."""
    ids = add(ground)
    jobs: list[Claimed] = ground.able.claim(3).jobs
    limited = ground.lacking(command)
    verb = "fail" if how == "bury" else how
    ground.attempt(lambda: limited.items(verb, *(SETTLING[how](job) for job in jobs)))
    drained = ground.drain()
    dead = {str(bytes(id), "ascii") for id in ground.admin.zrange(ground.keys.dead, 0, -1)}  # type: ignore[arg-type]
    if how in ENDS:
        assert all(id in drained or not ground.admin.exists(ground.keys.job(id)) for id in ids)
    else:
        assert drained | dead == set(ids)


@pytest.mark.parametrize(
    ("verb", "command"),
    [("claim", "hgetall"), *((verb, it) for verb in ("claim", "reap", "promote") for it in ("hset", "zadd", "zrem"))],
)
def test_rounds_without_a_right_say_so(ground: Ground, verb: str, command: str) -> None:
    """The whole call is refused with the server's own words, and nothing is counted as torn."""
    add(ground)
    make_due(ground, verb)
    limited = ground.lacking(command)
    with pytest.raises((redis.ResponseError, redis.exceptions.NoPermissionError), match=rf"(?i){command}|ACL|perm"):
        limited.claim(1) if verb == "claim" else limited.plain(verb)
    assert not ground.admin.hexists(ground.keys.counts, "torn")


@pytest.mark.parametrize("command", COMMANDS)
def test_claim_without_a_right_keeps_every_job_in_a_set(ground: Ground, command: str) -> None:
    """All jobs of a claim move by one command: refused at any step, each is in the old set or in the new one."""
    ids = add(ground, 5)
    limited = ground.lacking(command)
    ground.attempt(lambda: limited.claim(5))
    for id in ids:
        sets = {
            name for name in ("pending", "active") if ground.admin.zscore(getattr(ground.keys, name), id) is not None
        }
        state = str(ground.admin.hget(ground.keys.job(id), "state"), "ascii")  # type: ignore[arg-type]
        assert state in sets
    assert ground.drain() == set(ids)


@pytest.mark.parametrize("ttl", [None, 60_000])
@pytest.mark.parametrize("how", ["complete", "end"])
def test_endings_that_cannot_leave_say_so_each(ground: Ground, how: str, ttl: int | None) -> None:
    """Jobs leave `active` together; refused that, each of them is told so, and only those that were ending."""
    jobs = [NewJob(result_ttl_ms=ttl) for _ in range(3)]
    ground.able.items("enqueue", *jobs)
    first, second, third = ground.able.claim(3).jobs
    limited = ground.lacking("zrem")
    items = [SETTLING[how](c) for c in (first, attrs.evolve(second, nonce="forged.1"), third, first)]
    seen = limited.items(how, *items)
    again = "EMQSTALE" if ttl else "EMQGONE"
    assert [verdict.code for verdict in seen] == ["EMQTORN", "EMQSTALE", "EMQTORN", again]
    assert all("zrem" in verdict.detail.lower() or "perm" in verdict.detail.lower() for verdict in seen[:3:2])
    assert ground.admin.hget(ground.keys.counts, "torn") == b"2"
    assert limited.resend(how) == seen
    assert ground.drain() == {second.id}
    assert ground.admin.zcard(ground.keys.active) == 0


def test_endings_that_did_leave_are_not_told_otherwise(ground: Ground) -> None:
    """A late holder's job is in another set: that `active` must not be written does not touch its verdict."""
    late, _ = add(ground, 2)
    mine = ground.able.claim(2).jobs
    ground.admin.zadd(ground.keys.active, {late: 1})
    ground.able.plain("reap")
    ground.lacking("acl")
    others = [f"~{getattr(ground.keys, name)}" for name in ("meta", "void", "pending", "counts")]
    patterns = ["resetkeys", f"%R~{ground.keys.active}", f"~{ground.keys.job('*')}", f"~{ground.keys.once('*', '*')}"]
    ground.admin.execute_command("ACL", "SETUSER", "limited", *patterns, *others)
    limited = ground.limited()
    seen = limited.items("complete", *(Completion(c.id, c.token, c.nonce, b"") for c in mine))
    assert [verdict.code for verdict in seen] == ["ok", "EMQTORN"]
    assert ground.drain() == set()


@pytest.mark.parametrize("command", [*COMMANDS, "get", "pttl", "zrange", "llen"])
def test_enqueue_without_a_right_admits_what_it_says(ground: Ground, command: str) -> None:
    """A job that was admitted is done later; of one that was not there is neither row nor dedup key."""
    ground.able.plain("configure", settings={"events": "none"})
    first = NewJob(dedup="first")
    ground.able.items("enqueue", first)
    jobs = [NewJob(), NewJob(dedup="a"), NewJob(delay_ms=1), NewJob(), NewJob(dedup="b", delay_ms=1), NewJob()]
    limited = ground.lacking(command)
    verdicts: list[str] = []
    ground.attempt(lambda: verdicts.extend(verdict.code for verdict in limited.items("enqueue", *jobs)))
    told = dict(zip((job.id for job in jobs), verdicts, strict=False))
    there = {job.id for job in jobs if ground.admin.exists(ground.keys.job(job.id))}
    if told:
        assert there == {id for id, code in told.items() if code == "admitted"}
        assert set(told.values()) <= {"admitted", "EMQTORN"}
        held = {job.id for job in jobs if job.dedup and ground.admin.exists(ground.keys.dedup(job.dedup))}
        assert held <= there or command == "del"
    assert ground.drain() == {first.id} | there
