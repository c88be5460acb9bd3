"""Repair: whatever was torn by hand or by an old snapshot is whole again, and nothing is left for a second look."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest
import redis

from echomq import App, Client, Queue, RepairReport, State, open_client, sync
from echomq.conformance.invariants import violations
from echomq.conformance.proxy import FaultProxy
from echomq.conformance.snapshot import scan, take
from echomq.errors import ServerError
from echomq.protocol.ids import mint
from echomq.protocol.keys import QueueKeys
from echomq.transitions import LogLine
from tests.integration.cutting import CuttingProxy
from tests.integration.working import claim_one, complete, fail, until
from tests.worker.support import TRIO, running

pytestmark = pytest.mark.anyio

Damage = Callable[[redis.Redis, QueueKeys, dict[str, str]], object]


async def prepare(client: Client, queue: Queue) -> dict[str, str]:
    """Fill a queue with a job in every place; answer their ids by place."""
    places: dict[str, str] = {}
    places["done"] = (await queue.enqueue(b"", result_ttl=600)).id
    await complete(client, queue)
    await queue.enqueue(b"", dedup="dies")
    places["dead"] = await fail(client, queue, ValueError("x"))
    for name, lane in (("active", ""), ("lane active", "a")):
        await queue.enqueue(b"", lane=lane)
        job = await claim_one(client, queue)
        places[name] = job.id
        item = LogLine(job.id, job.token, job.nonce, b"a line")
        assert (await client.wire.group(queue.keys, "log")(item)).ok
    places["pending"] = (await queue.enqueue(b"", dedup="held", priority=7)).id
    places["lane pending"] = (await queue.enqueue(b"", lane="a")).id
    places["other lane"] = (await queue.enqueue(b"", lane="Zoë & sons")).id
    places["schedule"] = (await queue.enqueue(b"", delay=600, lane="a")).id
    return places


def swap_lanes(r: redis.Redis, k: QueueKeys, p: dict[str, str]) -> None:
    """Move a job into another lane's set behind its row's back."""
    r.zrem(k.lane_pending("a"), p["lane pending"])
    r.zadd(k.lane_pending("b"), {p["lane pending"]: 0})


def retype(r: redis.Redis, key: str, kind: str = "string") -> object:
    """Put a key of another type in a key's place."""
    r.delete(key)
    return r.set(key, "x") if kind == "string" else r.rpush(key, "x")


OWN = (
    "pending",
    "active",
    "schedule",
    "dead",
    "done",
    "waiting",
    "ring",
    "closed",
    "lanes",
    "wake",
    "events",
    "counts",
)


def all_but_rows(r: redis.Redis, k: QueueKeys) -> list[bytes]:
    """Name all keys but rows, logs, and what is the queue's own."""
    return [key for key in scan(r, f"{k.base}*") if b":job:" not in key and not key.endswith((b":meta", b":events"))]


DAMAGES: dict[str, Damage] = {
    "a pending row is deleted": lambda r, k, p: r.delete(k.job(p["pending"])),
    "a lane's row is deleted": lambda r, k, p: r.delete(k.job(p["lane pending"])),
    "an active row is deleted": lambda r, k, p: r.delete(k.job(p["active"])),
    "a lane's active row is deleted": lambda r, k, p: r.delete(k.job(p["lane active"])),
    "a dead row is deleted": lambda r, k, p: r.delete(k.job(p["dead"])),
    "a scheduled row is deleted": lambda r, k, p: r.delete(k.job(p["schedule"])),
    "a kept row is deleted": lambda r, k, p: r.delete(k.job(p["done"])),
    "a pending entry is deleted": lambda r, k, p: r.zrem(k.pending, p["pending"]),
    "a lane's entry is deleted": lambda r, k, p: r.zrem(k.lane_pending("a"), p["lane pending"]),
    "an active entry is deleted": lambda r, k, p: r.zrem(k.active, p["active"]),
    "a lane's active entry is deleted": lambda r, k, p: r.zrem(k.lane_active("a"), p["lane active"]),
    "an active entry of a lane is deleted": lambda r, k, p: r.zrem(k.active, p["lane active"]),
    "a scheduled entry is deleted": lambda r, k, p: r.zrem(k.schedule, p["schedule"]),
    "a dead entry is deleted": lambda r, k, p: r.zrem(k.dead, p["dead"]),
    "a kept entry is deleted": lambda r, k, p: r.zrem(k.done, p["done"]),
    "a job is in two sets": lambda r, k, p: r.zadd(k.schedule, {p["pending"]: 5}),
    "a dead job is pending, too": lambda r, k, p: r.zadd(k.pending, {p["dead"]: 0}),
    "a job is in three sets": lambda r, k, p: [r.zadd(key, {p["active"]: 5}) for key in (k.dead, k.done)],
    "a job is in another lane's set": swap_lanes,
    "a job is in a second lane's set": lambda r, k, p: r.zadd(k.lane_pending("b"), {p["lane pending"]: 0}),
    "a lane's job is among those without": lambda r, k, p: r.zadd(k.pending, {p["lane pending"]: 0}),
    "a lane's leases have one without a row": lambda r, k, p: r.zadd(k.lane_active("a"), {mint(): 5}),
    "an unknown lane's leases have one": lambda r, k, p: r.zadd(k.lane_active("z"), {mint(): 5}),
    "the leases have one without a row": lambda r, k, p: r.zadd(k.active, {mint(): 5}),
    "the two leases differ": lambda r, k, p: r.zadd(k.lane_active("a"), {p["lane active"]: 5}),
    "a row is a string": lambda r, k, p: [r.delete(k.job(p["pending"])), r.set(k.job(p["pending"]), "x")],
    "a row's state is unknown": lambda r, k, p: r.hset(k.job(p["lane pending"]), "state", "lost"),
    "a row says another state": lambda r, k, p: r.hset(k.job(p["pending"]), "state", "schedule"),
    "a row has no state": lambda r, k, p: r.hdel(k.job(p["schedule"]), "state"),
    "a row has lost its places": lambda r, k, p: [
        r.zrem(k.pending, p["pending"]),
        r.hdel(k.job(p["pending"]), "state"),
    ],
    "a log has no row": lambda r, k, p: r.rpush(k.log(mint()), "line"),
    "a log's row is deleted": lambda r, k, p: [r.delete(k.job(p["active"])), r.zrem(k.active, p["active"])],
    "a dedup key names nobody": lambda r, k, p: r.set(k.dedup("nobody: *?"), mint()),
    "a dedup key names an ended job": lambda r, k, p: r.set(k.dedup("over"), p["done"]),
    "a dedup key names another's job": lambda r, k, p: r.set(k.dedup("stolen"), p["pending"]),
    "a dedup key is deleted": lambda r, k, p: r.delete(k.dedup("held")),
    "a lane is nowhere on the rota": lambda r, k, p: [r.lrem(k.ring, 0, "a"), r.hdel(k.lanes, "a")],
    "a lane is not on the ring": lambda r, k, p: r.lrem(k.ring, 0, "a"),
    "a lane has lost its field": lambda r, k, p: r.hdel(k.lanes, "a"),
    "a lane is on the ring twice": lambda r, k, p: r.rpush(k.ring, "a"),
    "a lane is on the ring and closed": lambda r, k, p: r.zadd(k.closed, {"a": 5}),
    "a lane without jobs is closed": lambda r, k, p: r.zadd(k.closed, {"void": 5}),
    "the ring is deleted": lambda r, k, p: r.delete(k.ring),
    "the lanes' hash is deleted": lambda r, k, p: r.delete(k.lanes),
    "a lane's set is deleted": lambda r, k, p: r.delete(k.lane_pending("a")),
    "pending is deleted": lambda r, k, p: r.delete(k.pending),
    "active is deleted": lambda r, k, p: r.delete(k.active),
    "the number of jobs in lanes is wrong": lambda r, k, p: r.hset(k.meta, "laned", 99),
    "everything but the rows is deleted": lambda r, k, p: r.delete(*all_but_rows(r, k)),
    **{f"{name} is a string": lambda r, k, p, name=name: retype(r, k.base + name) for name in OWN},  # type: ignore[misc]
    "schedules is a string": lambda r, k, p: retype(r, k.schedules),
    "all of them are strings": lambda r, k, p: [retype(r, k.base + name) for name in OWN],
    "a lane's set is a string": lambda r, k, p: retype(r, k.lane_pending("a")),
    "a lane's leases are a string": lambda r, k, p: retype(r, k.lane_active("a")),
    "an empty lane's set is a string": lambda r, k, p: retype(r, k.lane_pending("w")),
    "a log is a string": lambda r, k, p: retype(r, k.log(p["pending"])),
    "a dedup key is a list": lambda r, k, p: retype(r, k.dedup("held"), "list"),
    "nobody's dedup key is a list": lambda r, k, p: retype(r, k.dedup("nobody"), "list"),
    "an active row has lost its token": lambda r, k, p: r.hdel(k.job(p["lane active"]), "attempts"),
}


UNSEEN = (
    "a dedup key is deleted",
    "a dedup key is a list",
    "nobody's dedup key is a list",
    "a log is a string",
    "an active row has lost its token",
)
"""What the invariants do not speak of."""


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda name: name.replace(" ", "-"))
@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_repair_mends_damage(client: Client, queue: Queue, redis_client: redis.Redis, damage: str) -> None:
    """The invariants hold again, and the second look finds nothing to mend."""
    places = await prepare(client, queue)
    keys = queue.keys
    assert violations(take(redis_client, keys)) == []
    DAMAGES[damage](redis_client, keys, places)
    assert violations(take(redis_client, keys)) or damage in UNSEEN
    first = await queue.repair()
    # A look at a lane's job brings its lane back by the way, which is no count of its own.
    assert first.mended + first.buried + first.dropped > 0 or damage == "a lane is nowhere on the rota"
    assert first.unknown == ()
    assert violations(take(redis_client, keys)) == []
    second = await queue.repair()
    assert (second.mended, second.buried, second.dropped, second.unknown) == (0, 0, 0, ())
    assert second.looked > 0


async def test_repair_leaves_a_sound_queue_as_it_is(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """Byte for byte; also one that is not there."""
    assert await queue.repair() == RepairReport(looked=1, mended=0, buried=0, dropped=0, unknown=())
    assert redis_client.keys(f"{queue.keys.base}*") == []
    await prepare(client, queue)
    before = take(redis_client, queue.keys)
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    report = await queue.repair(progress)
    assert (report.mended, report.buried, report.dropped) == (0, 0, 0)
    assert told[-1] == report.looked
    assert take(redis_client, queue.keys) == before


async def test_repaired_jobs_run(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """A job whose entry was lost is claimed; one that did not say where it belongs can be redriven."""
    places = await prepare(client, queue)
    redis_client.zrem(queue.keys.lane_pending("a"), places["lane pending"])
    redis_client.hset(queue.keys.job(places["pending"]), "state", "lost")
    report = await queue.repair()
    assert (report.mended >= 1, report.buried) == (True, 1)
    dead = [job async for job in queue.dead.find(error="torn")]
    assert [job.id for job in dead] == [places["pending"]]
    assert await queue.redrive([places["pending"]]) == [None]
    assert {(await claim_one(client, queue)).id for _ in range(3)} == {
        places["pending"], places["lane pending"], places["other lane"]
    }  # fmt: skip


async def test_repair_after_an_old_snapshot_over_newer_keys(
    client: Client, queue: Queue, redis_client: redis.Redis
) -> None:
    """Some keys as they were a while ago, the others as they are: each job is in one place, and all of it runs."""
    keys = queue.keys
    await prepare(client, queue)
    old = {name: redis_client.dump(name) for name in redis_client.keys(f"{keys.base}*")}
    for n in range(30):
        await queue.enqueue(b"", lane=("", "a", "c")[n % 3])
    for _ in range(20):
        await complete(client, queue)
    for _ in range(5):
        await fail(client, queue, ValueError())
    await queue.dead.redrive(limit=2)
    for name in (keys.pending, keys.dead, keys.lane_pending("a"), keys.ring, keys.lanes, keys.active):
        redis_client.delete(name)
        if old.get(name.encode()):
            redis_client.restore(name, 0, old[name.encode()])  # type: ignore[arg-type]
    report = await queue.repair()
    assert report.mended + report.dropped > 0
    assert violations(take(redis_client, keys)) == []
    again = await queue.repair()
    assert again.mended + again.buried + again.dropped == 0
    counts = await queue.counts()
    for _ in range(counts.pending):
        await complete(client, queue)
    assert (await queue.counts()).pending == 0
    assert violations(take(redis_client, keys)) == []


async def test_repair_names_what_is_nobodys_and_leaves_it(
    client: Client, queue: Queue, redis_client: redis.Redis
) -> None:
    """Strange keys, strange members, a definition that is none, names that are no text; the rest is mended."""
    places = await prepare(client, queue)
    base = queue.keys.base
    redis_client.set(f"{base}stranger", "x")
    redis_client.set(base.encode() + b"\xff\xfe", "x")
    redis_client.zadd(queue.keys.pending, {b"garbage": 0, b"\xff": 0})
    redis_client.set(f"{base}schedule:s", "x")
    redis_client.zadd(f"{base}lane:{{x}}:pending", {"y": 0})
    redis_client.zrem(queue.keys.schedule, places["schedule"])
    report = await queue.repair()
    assert set(report.unknown) >= {"stranger", "pending: garbage", "schedule:s", "lane:{x}:pending"}
    assert report.mended == 1
    assert redis_client.get(f"{base}stranger") == b"x"


async def test_repair_and_obliterate_name_a_meta_that_is_none(queue: Queue, redis_client: redis.Redis) -> None:
    """One error, that says what to do; after it, all is mended."""
    await queue.enqueue(b"", lane="a")
    retype(redis_client, queue.keys.meta)
    for act in (queue.repair, queue.obliterate):
        with pytest.raises(ServerError, match=r":meta'.* is no hash: rename it or delete it"):
            await act()
    redis_client.delete(queue.keys.meta)
    await queue.repair()
    await queue.enqueue(b"")
    assert violations(take(redis_client, queue.keys)) == []
    retype(redis_client, queue.keys.schedule_of("s"))
    for name in (*OWN, "schedules"):
        retype(redis_client, queue.keys.base + name)
    assert await queue.obliterate(force=True) == 0
    assert redis_client.keys(f"{queue.keys.base}*") == []


async def test_repair_over_many_jobs_in_steps(queue: Queue, redis_client: redis.Redis) -> None:
    """More than a step, or a call, holds; other queues' keys are not touched."""
    other = QueueKeys(queue=f"{queue.name}.x")
    redis_client.hset(other.job(mint()), "state", "lost")
    await queue.enqueue_many([b""] * 1500, lane="a", dedup=None)
    await queue.enqueue_many([b""] * 1500)
    redis_client.delete(queue.keys.lane_pending("a"), queue.keys.pending)
    report = await queue.repair()
    assert report.mended >= 3000
    assert (await queue.counts()).pending == 3000
    assert violations(take(redis_client, queue.keys)) == []
    assert len(redis_client.keys(f"{other.base}*")) == 1


async def test_repair_while_a_worker_works(app: App, queue_name: str, redis_client: redis.Redis) -> None:
    """Nothing sound is touched: every job runs once, and nothing is counted as mended."""
    ran: list[int] = []

    @app.task(queue=queue_name, name="work")
    async def work(n: int) -> None:
        await anyio.sleep(0.002)
        ran.append(n)

    async with app:
        queue = app.queue(queue_name)
        async with running(app, concurrency=20):
            async with anyio.create_task_group() as tasks:

                async def produce() -> None:
                    for start in range(0, 600, 20):
                        await app.enqueue_many(
                            work.options(lane=f"lane {n % 5}", dedup=f"k{n}").call(n) for n in range(start, start + 20)
                        )
                        await anyio.sleep(0.005)

                tasks.start_soon(produce)
                reports = []
                while len(ran) < 300:
                    reports.append(await queue.repair())
            await until(lambda: len(ran) == 600)
        assert sorted(ran) == list(range(600))
        assert [(it.mended, it.buried, it.dropped) for it in reports if it.mended + it.buried + it.dropped] == []
        assert violations(take(redis_client, queue.keys)) == []


async def test_repair_may_be_left_half_way(queue: Queue, redis_client: redis.Redis) -> None:
    """What was mended is; another call does the rest."""
    await queue.enqueue_many([b""] * 1000)
    redis_client.delete(queue.keys.pending)
    with anyio.CancelScope() as scope:

        async def leave(_: int) -> None:
            scope.cancel()
            await anyio.sleep_forever()

        await queue.repair(leave)
    assert scope.cancelled_caught
    assert 0 < (await queue.counts()).pending < 1000
    await queue.repair()
    assert (await queue.counts()).pending == 1000


@TRIO
async def test_repair_outlives_lost_connections(proxy: FaultProxy, queue: Queue, redis_client: redis.Redis) -> None:
    """Its calls and its plain reads are sent again."""
    await queue.enqueue_many([b""] * 1500, lane="a")
    redis_client.delete(queue.keys.lane_pending("a"))
    async with open_client(proxy.url) as client:

        async def cut(_: int) -> None:
            proxy.cut()

        report = await client.queue(queue.name).repair(cut)
    assert report.looked >= 1500
    assert (await queue.counts()).pending == 1500
    assert violations(take(redis_client, queue.keys)) == []


def test_sync_repair_outlives_lost_replies(
    cutting: CuttingProxy, sync_client: sync.Client, queue_name: str, redis_client: redis.Redis
) -> None:
    """Of plain reads as of calls."""
    queue = sync_client.queue(queue_name)
    queue.enqueue_many([b""] * 300)
    redis_client.delete(queue.keys.pending)
    with sync.Client(cutting.url) as client:
        cutting.marker, cutting.cuts = b"SCAN", 2
        assert client.queue(queue_name).repair().mended == 300
    assert cutting.cuts == 0
    assert queue.counts().pending == 300


def test_sync_repair_does_the_same(sync_client: sync.Client, queue_name: str, redis_client: redis.Redis) -> None:
    """By the same walk."""
    queue = sync_client.queue(queue_name)
    queue.enqueue_many([b""] * 300, lane="a")
    (later,) = queue.enqueue_many([b""], delay=60, dedup="k")
    assert isinstance(later, sync.JobHandle)
    redis_client.delete(queue.keys.lane_pending("a"), queue.keys.job(later.id))
    told: list[int] = []
    report = queue.repair(told.append)
    assert (report.mended >= 300, report.dropped) == (True, 2)
    assert told[-1] == report.looked
    assert violations(take(redis_client, queue.keys)) == []


async def test_repair_in_a_prefix_with_points(server_url: str, queue_name: str, redis_client: redis.Redis) -> None:
    """The pattern means this prefix alone."""
    async with open_client(server_url, prefix="a.b") as client:
        queue = client.queue(queue_name)
        await queue.enqueue(b"")
        redis_client.delete(queue.keys.pending)
        assert (await queue.repair()).mended >= 1
        job = await queue.enqueue(b"")
        assert await job.state() is State.PENDING
