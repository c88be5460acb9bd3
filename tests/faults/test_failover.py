"""A primary dies and takes with it what its replica had not received: numbers come twice, leases do not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from echomq.conformance.bench import Bench, spell
from echomq.conformance.driver import Driver, connect
from echomq.conformance.invariants import violations
from echomq.conformance.items import make_item
from echomq.conformance.snapshot import take
from echomq.embedded import Server, open_server
from echomq.protocol.records import Claimed
from tests.faults.support import FENCED, frozen

NOWHERE = 1
"""A port that nobody listens on."""


@contextmanager
def pair(binary: Path | None) -> Iterator[tuple[Server, redis.Redis, redis.Redis]]:
    """Run a primary and its replica, in step; answer the primary's server and a client of each."""
    with (
        open_server(config={"repl-diskless-sync-delay": 0}, binary=binary) as one,
        open_server(binary=binary) as two,
        connect(one.url) as primary,
        connect(two.url) as replica,
    ):
        replica.replicaof("127.0.0.1", one.port)
        caught_up(primary, replica)
        yield one, primary, replica


def caught_up(primary: redis.Redis, replica: redis.Redis) -> None:
    """Wait until the replica has all that the primary has."""
    until = time.monotonic() + 20
    while True:
        info = replica.info("replication")
        if info["master_link_status"] == "up" and primary.wait(1, 100) == 1:
            return
        assert time.monotonic() < until, info
        time.sleep(0.02)


def fail_over(server: Server, replica: redis.Redis) -> None:
    """Kill the primary, and promote the replica, which has not heard of it for a while."""
    server.kill()
    replica.replicaof("NO", "ONE")
    assert replica.info("replication")["role"] == "master"


@pytest.mark.parametrize("earlier", [0, 3], ids=["first claim", "fourth claim"])
def test_token_handed_out_twice_admits_one_holder(binary: Path | None, earlier: int) -> None:
    """A claim that the replica has not received is forgotten; the next holder has its number, and not its nonce."""
    with pair(binary) as (server, primary, replica):
        before = Bench(primary)
        b = Driver(replica, before.keys)  # who comes after the failover
        jobs = [before.add(payload=f"{n}".encode(), result_ttl_ms=60_000) for n in range(len(FENCED))]
        for _ in range(earlier):
            for held in before.worker.claim(len(jobs)).jobs:
                before.settle("release", held)
        caught_up(primary, replica)
        replica.replicaof("127.0.0.1", NOWHERE)  # the link is cut; it keeps what it has, and still writes nothing

        first = {held.id: held for held in before.worker.claim(len(jobs)).jobs}
        assert list(first) == jobs
        fail_over(server, replica)
        assert set(take(replica, before.keys).zset("pending")) == set(jobs)
        second = {held.id: held for held in b.claim(len(jobs)).jobs}

        assert [second[id].token for id in jobs] == [first[id].token for id in jobs] == [earlier + 1] * len(jobs)
        assert not {held.nonce for held in first.values()} & {held.nonce for held in second.values()}
        a = Driver(replica, before.keys, tag=before.worker.tag)  # the first holder, connected anew
        a._numbers = before.worker._numbers
        rows = frozen(replica, before.keys)
        for verb, id in zip(FENCED, jobs, strict=True):
            lost = first[id]
            verdict = a.item(verb, make_item(verb, id, lost.token, lost.nonce, 1))
            assert (verb, spell(verdict)) == (verb, "EMQSTALE active")
            assert frozen(replica, before.keys) == rows
        # The rightful holders are not locked out: each verb does its work.
        for verb, id in zip(FENCED, jobs, strict=True):
            held = second[id]
            assert b.item(verb, make_item(verb, id, held.token, held.nonce, 1)).ok
        assert violations(take(replica, before.keys)) == []


def test_claim_of_the_lost_primary_takes_the_job_anew_when_it_is_free(binary: Path | None) -> None:
    """Nobody else has claimed meanwhile: the lost lease is refused all the same, and its worker may claim again."""
    with pair(binary) as (server, primary, replica):
        before = Bench(primary)
        job = before.add()
        caught_up(primary, replica)
        replica.replicaof("127.0.0.1", NOWHERE)
        lost = before.take()
        fail_over(server, replica)
        a = Driver(replica, before.keys, tag=before.worker.tag)
        a._numbers = before.worker._numbers
        rows = frozen(replica, before.keys)
        for verb in FENCED:
            verdict = a.item(verb, make_item(verb, job, lost.token, lost.nonce, 1))
            assert (verb, spell(verdict)) == (verb, "EMQSTALE pending")
        assert frozen(replica, before.keys) == rows
        held: Claimed = a.claim().jobs[0]
        assert (held.id, held.token) == (job, lost.token)
        assert held.nonce != lost.nonce
        assert a.item("complete", make_item("complete", job, held.token, held.nonce)).ok


def test_completion_that_was_lost_runs_the_job_again(binary: Path | None) -> None:
    """What the old primary acknowledged and the new one never heard of is back: claimed, then recovered, done once."""
    with pair(binary) as (server, primary, replica):
        before = Bench(primary)
        job = before.add()
        lease = before.take()
        caught_up(primary, replica)
        replica.replicaof("127.0.0.1", NOWHERE)
        assert before.settle("complete", lease) == "ok"
        fail_over(server, replica)
        b = Driver(replica, before.keys)
        assert b.claim().jobs == []  # its lease stands
        replica.zadd(before.keys.active, {job: 1000}, xx=True)
        again = b.claim().jobs[0]
        assert (again.id, again.token) == (job, lease.token + 1)
        # The first worker's verdict, sent once more, has nothing to say any more.
        late = Driver(replica, before.keys, tag=before.worker.tag)
        late._numbers = before.worker._numbers
        assert spell(late.item("complete", make_item("complete", job, lease.token, lease.nonce))) == "EMQSTALE active"
        assert b.item("complete", make_item("complete", job, again.token, again.nonce)).ok
        assert violations(take(replica, before.keys)) == []
