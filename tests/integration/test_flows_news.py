"""What operators do to jobs of flows is told to those above and below at once; what is torn or lost keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from echomq import App, Client, FlowHandle, JobCall, JobNotFoundError, Queue, ServerError, child, flow, repairs
from echomq._delivery import AGAIN, deliver_walk
from echomq._walks import drive
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import take
from echomq.protocol.newjob import NewJob
from echomq.protocol.words import pack_words
from echomq.transitions import Call, LocalNode, flow_add, flow_take, pack_nodes
from tests.integration.working import claim_one, complete, fail

pytestmark = pytest.mark.anyio


def call(queue: Queue, task: str = "t", **options: Any) -> JobCall[Any]:
    """Make a call for a queue."""
    return App().task_stub(task, queue=queue.name).options(**options).call()


@pytest.fixture
def second(client: Client, queue: Queue) -> Queue:
    """Another queue of the test's."""
    return client.queue(f"{queue.name}-b")


async def states(handle: FlowHandle[Any]) -> list[str | None]:
    """Answer where all of its jobs are, parents first."""
    return [await each.job.state() for each in handle.walk()]


# --- cancelling ------------------------------------------------------------------------------


async def test_cancel_of_a_flow_says_what_it_did(client: Client, queue: Queue, second: Queue) -> None:
    """What had not begun has ended, also in other queues and further down; what runs was asked."""
    tree = flow(call(queue), [call(queue, priority=9), *[call(queue)] * 200, flow(call(second), [call(second)] * 2)])
    handle = await client.flows.add(tree)
    running = await claim_one(client, queue)
    assert running.id == handle.children["0"].id
    report = await handle.cancel(reason="enough")
    assert (report.cancelled, report.asked) == (204, 1)
    assert (await second.counts()).pending == 0
    info = await handle.children["0"].job.info()
    assert info is not None
    assert info.record.row[b"cancel"].startswith(b"parent ended")
    with pytest.raises(JobNotFoundError):
        await handle.cancel()
    with pytest.raises(ValueError, match="reason"):
        await handle.cancel(reason="x" * 2000)


async def test_cancel_of_a_running_parent_asks_it(client: Client, queue: Queue) -> None:
    """Its children have ended; nothing else is there to be told."""
    handle = await client.flows.add(flow(call(queue), [call(queue)]))
    await complete(client, queue)
    await claim_one(client, queue)
    report = await handle.cancel()
    assert (report.cancelled, report.asked) == (0, 1)


CANCELS: dict[str, Callable[[Queue, str], Awaitable[Any]]] = {
    "cancel": lambda queue, id: queue.cancel(id),
    "handle": lambda queue, id: queue.handle(id).cancel(),
    "cancel_dedup": lambda queue, _: queue.cancel_dedup("top"),
    "remove": lambda queue, id: queue.remove([id]),
}


@pytest.mark.parametrize("how", CANCELS)
async def test_children_of_a_parent_that_ends_are_told_at_once(
    how: str, client: Client, queue: Queue, second: Queue
) -> None:
    """In its own queue and in others, by whatever verb."""
    handle = await client.flows.add(flow(call(queue, dedup="top"), [call(queue), call(second), call(queue, delay=60)]))
    await CANCELS[how](queue, handle.id)
    assert await states(handle) == [None] * 4


async def _drain(queue: Queue, _: str) -> int:
    return await queue.lane("").drain()


async def _cancel_where(queue: Queue, _: str) -> Any:
    return await queue.cancel_where(task="low")


ENDINGS = {**CANCELS, "drain": _drain, "cancel_where": _cancel_where}
ENDINGS.pop("cancel_dedup")


@pytest.mark.parametrize("how", ENDINGS)
async def test_parent_of_another_queue_is_told_at_once(how: str, client: Client, queue: Queue, second: Queue) -> None:
    """By whatever verb a child ends."""
    low = child(call(second, "low"), on_failure="ignore")
    handle = await client.flows.add(flow(call(queue), [low]))
    await ENDINGS[how](second, handle.children["0"].id)
    assert await states(handle) == ["pending", None]


async def test_redrive_of_a_parent_brings_its_children_back_at_once(
    client: Client, queue: Queue, second: Queue
) -> None:
    """Wherever they are; by the queue, and by its morgue."""
    handle = await client.flows.add(flow(call(queue), [call(queue, "a"), call(second, "b")]))
    await fail(client, queue, LookupError("no"))
    await drive(queue, deliver_walk(queue.keys))
    assert await states(handle) == ["dead"] * 3
    assert await queue.redrive([handle.id]) == [None]
    assert await states(handle) == ["waiting", "pending", "pending"]
    await fail(client, second, LookupError("no"))
    await drive(second, deliver_walk(second.keys))
    assert await states(handle) == ["dead"] * 3
    assert await queue.dead.redrive() == 2
    assert await states(handle) == ["waiting", "pending", "pending"]


# --- obliterating ----------------------------------------------------------------------------


@pytest.mark.parametrize("role", ["child", "parent"])
async def test_obliterate_tells_other_queues_first(role: str, client: Client, queue: Queue, second: Queue) -> None:
    """A parent there is settled, children there end."""
    handle = await client.flows.add(flow(call(queue), [call(second)] * 200))
    goes = second if role == "child" else queue
    await goes.pause()
    await goes.obliterate()
    assert await handle.job.state() == ("dead" if role == "child" else None)
    if role == "parent":
        assert (await second.counts()).pending == 0


async def test_obliterate_ends_flows_that_are_being_added(
    client: Client, queue: Queue, redis_client: redis.Redis
) -> None:
    """Nobody can go on with them, and nobody waits for their minute to be over."""
    root, low = NewJob(), NewJob()
    nodes = [LocalNode(job=root, kids=True), LocalNode(job=low, parent=1, name="0")]
    await client.wire.remembered(
        queue.keys, lambda call: flow_add(queue.keys, call, nodes, hold=root.id, last=False), verb="flow_add"
    )
    await queue.pause()
    assert await queue.obliterate() == 2
    assert list(redis_client.scan_iter(match=f"*{{{queue.name}}}*", count=1000)) == []


@pytest.mark.parametrize("forced", [False, True])
async def test_obliterate_does_not_forget_what_cannot_be_told(
    forced: bool,
    client: Client,
    queue: Queue,
    second: Queue,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It says so in the end, and gives it up when it is forced."""
    monkeypatch.setattr(repairs, "PATIENCE_OWING", 3)
    await client.flows.add(flow(call(queue), [call(second)]))
    await second.pause()
    redis_client.hset(queue.keys.meta, "protocol", "99")
    if forced:
        assert await second.obliterate(force=True) == 1
    else:
        with pytest.raises(ServerError, match=r"1 words for other queues cannot be delivered \(force=True"):
            await second.obliterate()
        redis_client.hdel(queue.keys.meta, "protocol")


# --- what is lost, and what is torn ----------------------------------------------------------


async def test_repair_tells_parents_of_children_that_are_lost(
    client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """Those that are there are left alone, and the parent runs by its policies."""
    low = [child(call(each), on_failure="ignore") for each in (queue, queue, second, second)]
    handle = await client.flows.add(flow(call(queue), low))
    for name, each in (("0", queue), ("2", second)):
        id = handle.children[name].id
        redis_client.delete(each.keys.job(id))
        redis_client.zrem(each.keys.pending, id)
    report = await queue.repair()
    assert (report.lost, report.unknown) == (2, ())
    assert await states(handle) == ["waiting", None, "pending", None, "pending"]
    assert (await queue.repair()).lost == 0
    await queue.cancel(handle.children["1"].id)
    await second.cancel(handle.children["3"].id)
    assert await handle.job.state() == "pending"
    assert violations(take(redis_client, queue.keys)) == []


TORN = {
    "nothing": b"",
    "cut off": b"\x00\x00",
    "one word": pack_words(["tell"]),
    "no text": pack_words([b"\xff\xfe", b"\xff"]),
    "no ids": pack_words([b"tell", b"", b"\xff", b"\xff", b"\xff", b""]),
    "no queue": pack_words([b"add", b"no such {queue}", b"x"]),
    "own queue": pack_words([b"add", b"", b"x"]),
    "no nodes": pack_words([b"add", b"elsewhere", b"\x00\x00garbage"]),
    "walk": pack_words([b"sweep", b""]),
    "unknown": pack_words([b"dance", b"", b"a", b"b", b"c", b"d"]),
}


@pytest.mark.parametrize("kind", TORN)
async def test_torn_entry_goes_and_keeps_no_other_back(
    kind: str, client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """It is counted and logged; what was taken with it is delivered."""
    await client.flows.add(flow(call(queue), [call(queue)]))
    redis_client.hset(queue.keys.outbox_entries, "tell:torn", TORN[kind])
    redis_client.zadd(queue.keys.outbox, {"tell:torn": 1})
    low = NewJob(task="t")
    root = NewJob()
    sent = pack_nodes([LocalNode(job=low, parent=f"{root.id} {queue.name}", name="0")])
    redis_client.hset(queue.keys.outbox_entries, f"add:{low.id}", pack_words([b"add", second.name, sent]))
    redis_client.zadd(queue.keys.outbox, {f"add:{low.id}": 2})
    did = await drive(queue, deliver_walk(queue.keys))
    assert (did.torn, did.entries, did.put_back) == (1, 2, 0)
    assert redis_client.hgetall(queue.keys.outbox_entries) == {}
    assert redis_client.zcard(queue.keys.outbox) == 0
    assert await second.handle(low.id).state() == "pending"


async def test_child_that_cannot_be_added_is_lost(
    client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """Its id is another job's; its parent hears of it, with the reason."""
    taken = await client.enqueue(call(second))
    handle = await client.flows.add(flow(call(queue), [call(queue)]))
    _send(redis_client, queue, second, handle.id, NewJob(id=taken.id))
    redis_client.hset(f"{queue.keys.job(handle.id)}:children", "1", f"{taken.id} f {second.name}")
    did = await drive(queue, deliver_walk(queue.keys))
    assert (did.lost, did.put_back) == (1, 0)
    info = await handle.job.info()
    assert info is not None
    assert info.record.state == "dead"
    assert info.record.reason == f"child 1 ({taken.id}) lost: it could not be added: its id is another job's"
    assert await taken.state() == "pending"


async def test_child_that_is_there_already_is_not_lost(
    client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """It was delivered so long ago that only its row says so."""
    handle = await client.flows.add(flow(call(queue), [call(second)]))
    low = handle.children["0"]
    redis_client.delete(f"{second.keys.base}delivered:add:{low.id}")
    _send(redis_client, queue, second, handle.id, NewJob(id=low.id), name="0")
    did = await drive(queue, deliver_walk(queue.keys))
    assert (did.lost, did.put_back, did.entries) == (0, 0, 1)
    assert await states(handle) == ["waiting", "pending"]


def _send(server: redis.Redis, source: Queue, target: Queue, parent: str, job: NewJob, name: str = "1") -> None:
    """Write an entry of the outbox as if a flow had."""
    sent = pack_nodes([LocalNode(job=job, parent=f"{parent} {source.name}", name=name)])
    server.hset(source.keys.outbox_entries, f"add:{job.id}", pack_words([b"add", target.name, sent]))
    server.zadd(source.keys.outbox, {f"add:{job.id}": 1})


async def test_queue_that_refuses_keeps_back_its_own_entries_alone(
    client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """They are put back for some seconds; what is for others is delivered."""
    third = client.queue(f"{queue.name}-c")
    redis_client.hset(second.keys.meta, "protocol", "99")
    handle = await client.flows.add(flow(call(queue), [call(second)] * 3 + [call(third)] * 2))
    assert await handle.job.state() == "waiting"
    assert (await third.counts()).pending == 2
    entries: Any = redis_client.zrange(queue.keys.outbox, 0, -1, withscores=True)
    seconds, _ = redis_client.time()
    assert len(entries) == 3
    for _, due in entries:
        assert seconds * 1000 < due < (seconds + AGAIN[1] + 1) * 1000
    redis_client.hdel(second.keys.meta, "protocol")
    redis_client.zadd(queue.keys.outbox, {name: 1 for name, _ in entries})
    assert (await drive(queue, deliver_walk(queue.keys))).entries == 3
    assert (await second.counts()).pending == 3


async def test_entries_that_somebody_has_taken_are_not_delivered_twice(
    client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """Several deliver at once; one that died lets them go after a while, and a repetition changes nothing."""
    _send(redis_client, queue, second, NewJob().id, job := NewJob())
    redis_client.hset(queue.keys.meta, mapping={"protocol": "1", "flows": "1"})
    taken = await client.wire.run(flow_take(queue.keys, Call(client.wire.tag)))
    assert [entry.name for entry in taken.entries] == [f"add:{job.id}"]
    assert (await drive(queue, deliver_walk(queue.keys))).entries == 0
    redis_client.zadd(queue.keys.outbox, {f"add:{job.id}": 1})
    assert (await drive(queue, deliver_walk(queue.keys))).entries == 1
    _send(redis_client, queue, second, NewJob().id, job)
    assert (await drive(queue, deliver_walk(queue.keys))).entries == 1
    assert (await second.counts()).pending == 1


async def test_verb_that_is_done_does_not_fail_with_its_delivery(
    client: Client, queue: Queue, second: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one delivers what it could not."""
    handle = await client.flows.add(flow(call(queue), [call(queue), call(second)]))

    def refused(*_: Any) -> Any:
        raise ServerError("ERR", "no")

    with monkeypatch.context() as patch:
        patch.setattr("echomq._delivery.flow_take", refused)
        assert await queue.cancel(handle.id) == "cancelled"
    assert await states(handle) == [None, "pending", "pending"]
    with pytest.raises(JobNotFoundError):
        await queue.cancel(handle.id)
    assert await queue.remove([handle.children["0"].id]) == [None]
    assert await states(handle) == [None] * 3
