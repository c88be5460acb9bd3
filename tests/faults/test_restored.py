"""An older snapshot is restored under running claims, whole or in part: nothing runs under two leases, work goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import redis

from echomq.app import App
from echomq.conformance.bench import Bench, spell
from echomq.conformance.driver import Driver, connect
from echomq.conformance.invariants import violations
from echomq.conformance.items import make_item
from echomq.conformance.snapshot import Snapshot, scan, take
from echomq.embedded import Server, open_server
from echomq.job import Job
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed
from tests.faults.support import FENCED, frozen
from tests.worker.support import Peek, running, until


@pytest.fixture
def server() -> Iterator[Server]:
    """A server that keeps snapshots only."""
    with open_server(config={"save": "3600 1000000", "dbfilename": "dump.rdb"}) as server:
        yield server


def save(server: Server) -> Path:
    """Take a snapshot and put it aside."""
    with connect(server.url) as client:
        client.save()
    kept = server.directory / "kept.rdb"
    shutil.copyfile(server.directory / "dump.rdb", kept)
    return kept


def restore(server: Server, kept: Path) -> None:
    """Have the server come back with an older snapshot."""
    server.kill()
    shutil.copyfile(kept, server.directory / "dump.rdb")
    server.start()


def again(server: redis.Redis, keys: QueueKeys, before: Driver) -> Driver:
    """Connect a client anew: its tag and its numbers go on."""
    driver = Driver(server, keys, tag=before.tag)
    driver._numbers = before._numbers
    return driver


def late(driver: Driver, verb: str, held: Claimed, pick: int = 1) -> str:
    """Write on behalf of a claim."""
    return spell(driver.item(verb, make_item(verb, held.id, held.token, held.nonce, pick)))


def assert_one_lease_each(snap: Snapshot) -> None:
    """Hold that each job has one place and, if it is leased, one holder."""
    assert violations(snap, awake=1) == []


def test_restored_snapshot_refuses_the_claims_it_does_not_know(server: Server) -> None:
    """Claims after the snapshot are lost, those before it stand; every late write of a lost one changes nothing."""
    with connect(server.url) as client:
        b = Bench(client)
        stands = b.add(priority=9)
        standing = b.take()
        ready = [b.add() for _ in FENCED]
        ended, other = b.add(priority=9), b.add(priority=9)
        ended_claim, moved = b.worker.claim(2).jobs
        assert [ended_claim.id, moved.id] == [ended, other]
        kept = save(server)
        # What the snapshot does not know: claims, an ending, a lease that went over to somebody else, a new job.
        lost = b.worker.claim(len(ready)).jobs
        assert late(b.worker, "complete", ended_claim) == "ok"
        b.expire(other)
        taken_over = b.take(b.other)
        assert (taken_over.id, taken_over.token) == (other, 2)
        unknown = b.add()
        unknown_claim = b.take(b.other)
        keys = b.keys
    restore(server, kept)
    with connect(server.url) as client:
        worker, somebody = again(client, keys, b.worker), again(client, keys, b.other)
        snap = take(client, keys)
        assert_one_lease_each(snap)
        assert set(snap.zset("active")) == {stands, ended, other}
        assert set(snap.zset("pending")) == set(ready)
        rows = frozen(client, keys)
        for verb in FENCED:
            assert late(somebody, verb, unknown_claim).startswith("EMQGONE")
            assert late(somebody, verb, taken_over) == "EMQSTALE active"
            assert [late(worker, verb, each) for each in lost] == ["EMQSTALE pending"] * len(lost)
        assert frozen(client, keys) == rows
        assert unknown not in {id for id, _ in snap.rows()}

        # Claims go on, by others and by those who lost theirs; no pair of number and nonce comes back.
        anew = [*somebody.claim(4).jobs, *worker.claim(len(ready)).jobs]
        assert {each.id for each in anew} == set(ready)
        old = {(each.id, each.token, each.nonce) for each in lost}
        assert not old & {(each.id, each.token, each.nonce) for each in anew}
        rows = frozen(client, keys)
        for verb in FENCED:
            assert [late(worker, verb, each) for each in lost] == ["EMQSTALE active"] * len(lost)
        assert frozen(client, keys) == rows
        # Who holds, by the snapshot, may write: the claim that stands, and the two whose ends were forgotten.
        for each in (standing, ended_claim, moved, *anew):
            assert late(worker, "progress", each) == "ok"
            assert late(worker, "complete", each) == "ok"
        snap = take(client, keys)
        assert violations(snap) == []
        assert not list(snap.rows())


PARTS = {
    "rows": lambda suffix: suffix.startswith("job:") and not suffix.endswith(":log"),
    "active": lambda suffix: suffix == "active",
    "pending": lambda suffix: suffix == "pending",
    "sets": lambda suffix: suffix in {"active", "pending", "schedule", "dead"},
}


@pytest.mark.parametrize("part", PARTS)
def test_partly_restored_keys_are_found_and_run_under_no_two_leases(redis_client: redis.Redis, part: str) -> None:
    """Some keys are older than others: the invariants name each torn job, and no script gives one out beside its lease."""
    b = Bench(redis_client)
    ids = [b.add(result_ttl_ms=60_000) for _ in range(8)]
    early = b.worker.claim(3).jobs
    names = [name for name in scan(b.server, f"{b.keys.base}*") if PARTS[part](name.decode()[len(b.keys.base) :])]
    older = {name: b.server.dump(name) for name in names}
    # Time goes on: of the early claims one ends, one is given back, one stands; two are new.
    assert b.settle("complete", early[0]) == "ok"
    assert b.settle("snooze", early[1], 1) == "ok"
    later = b.worker.claim(2).jobs
    leases = [early[2], *later]
    for name, value in older.items():
        assert value is not None
        b.server.restore(name, 0, value, replace=True)

    found = violations(b.look(), awake=1)
    torn = {id for id in ids if any(id in line for line in found)}
    ended, new = {early[0].id, early[1].id}, {held.id for held in later}
    assert torn == {"rows": ended | new, "active": ended | new, "pending": new, "sets": ended | new}[part], found

    # Whatever is torn: what is claimed now is held by nobody else.
    def live() -> set[str]:
        """Answer which of the claims so far could still write."""
        return {held.id for held in leases if late(b.worker, "extend", held) == "ok"}

    held_before = live()
    got = b.other.claim(20).jobs
    assert len({each.id for each in got}) == len(got)
    assert not held_before & {each.id for each in got}
    assert {each.id for each in got} >= set(ids[5:])
    # The lost ones among the earlier claims write nothing any more.
    rows = frozen(b.server, b.keys)
    for held in leases:
        if held.id not in held_before:
            assert [late(b.worker, verb, held)[:8] for verb in FENCED] == ["EMQSTALE"] * len(FENCED)
    assert frozen(b.server, b.keys) == rows
    for each in got:
        assert b.settle("complete", each, driver=b.other) == "ok"
    b.torn = True
    b.ground.clear()


@pytest.mark.anyio
@pytest.mark.slow
async def test_worker_goes_on_over_a_restored_snapshot(server: Server, queue_name: str) -> None:
    """Handlers whose claims the snapshot does not know are cancelled as lost; their jobs, and all others, are done."""
    app = App(server.url, unavailable_after=15.0)
    ended: list[tuple[str, str | None]] = []
    gate = anyio.Event()
    began: list[int] = []
    done: list[int] = []

    @app.task(queue=queue_name)
    async def work(job: Job, n: int) -> None:
        try:
            if job.attempt == 1 and not gate.is_set():
                began.append(n)
                await anyio.sleep_forever()
        finally:
            if job.cancelled:
                ended.append((job.id, job.cancel_reason))
        done.append(n)

    options: dict[str, Any] = {"lease": 1.5, "concurrency": 20}
    async with app:
        queue = app.queue(queue_name)
        await queue.pause()  # so that the snapshot has no claim
        jobs = [await work.enqueue(n) for n in range(8)]
        kept = await anyio.to_thread.run_sync(save, server)
        async with running(app, **options):
            await queue.resume()
            await until(lambda: len(began) == len(jobs))
            gate.set()
            await anyio.to_thread.run_sync(partial(restore, server, kept))
            await until(lambda: len(ended) == len(jobs), 20)
            await queue.resume()  # the snapshot is paused
            await until(lambda: len(done) == len(jobs), 20)
            with connect(server.url) as client:
                peek = Peek(client, queue_name)
                await until(peek.empty)
                assert violations(take(client, peek.keys), awake=1) == []
                assert (peek.count("completed"), peek.count("dead"), peek.count("stalled")) == (len(jobs), 0, 0)
    assert sorted(ended) == sorted((job.id, "lease_lost") for job in jobs)
    assert sorted(done) == list(range(8))
