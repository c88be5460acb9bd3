"""The outbox pump: what is owed is delivered, whatever one queue refuses, and nothing that it meets ends the worker."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq import App, _delivery
from echomq.job import Job
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.protocol.words import pack_words
from echomq.transitions import Call, ForeignNode, LocalNode, Node, flow_add, flow_take
from echomq.worker import outbox
from echomq.worker.entry import run_worker
from tests.worker.support import QUICK, Peek, running, until

pytestmark = pytest.mark.anyio


def add_far(peek: Peek, queue: str, task: str) -> tuple[str, str]:
    """Add a parent with a child in another queue, whose delivery nobody has begun; answer both ids."""
    parent = NewJob(task="parent", payload=b"{}", result_ttl_ms=60_000)
    child = NewJob(task=task, payload=b"{}")
    there = LocalNode(job=child, parent=f"{parent.id} {peek.keys.queue}", name="far")
    nodes: list[Node] = [
        LocalNode(job=parent, kids=True),
        ForeignNode(queue=queue, id=child.id, nodes=[there], parent=1, name="far"),
    ]
    peek.run(flow_add(peek.keys, Call("producer", 0), nodes))
    return parent.id, child.id


@pytest.fixture
def far(app: App, queue_name: str) -> str:
    """The name of another queue; both have a task."""
    name = f"{queue_name}-far"

    @app.task(queue=queue_name)
    async def parent(job: Job) -> dict[str, Any]:
        return await job.children_results()

    @app.task(queue=name)
    async def child() -> int:
        return 7

    return name


async def test_pump_delivers_what_a_producer_left(app: App, queue_name: str, far: str, peek: Peek) -> None:
    """A claim says that something is owed; the child runs, and its outcome comes back."""
    async with app, running(app):
        id, _ = add_far(peek, far, "child")
        assert await app.handle(id, queue_name).result(timeout=10) == {"far": 7}
    assert not peek.client.exists(peek.keys.outbox, peek.keys.outbox_entries)


async def test_pump_delivers_to_a_queue_that_it_does_not_serve(app: App, queue_name: str, far: str, peek: Peek) -> None:
    """The server is the same; whoever serves the other queue finds the child there."""
    there = Peek(peek.client, far)
    async with app, running(app, queues=[queue_name]):
        _, child = add_far(peek, far, "child")
        await until(lambda: there.state(child) == "pending")


async def test_pump_goes_on_where_slots_are_taken(
    app: App, queue_name: str, far: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that claims nothing looks every few seconds, at queues that ever owed something."""
    monkeypatch.setattr(outbox, "EVERY", 0.05)
    hold, begun = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def long() -> None:
        begun.set()
        await hold.wait()

    async with app, running(app, queues=[queue_name], concurrency=1):
        there = Peek(peek.client, far)
        first, child = add_far(peek, far, "child")
        await until(lambda: there.state(child) == "pending")
        await long.enqueue()
        await begun.wait()
        _, child = add_far(peek, far, "child")
        await until(lambda: there.state(child) == "pending")
        hold.set()
        await app.handle(first, queue_name).cancel()


async def test_burst_ends_when_nothing_is_owed(app: App, queue_name: str, far: str, peek: Peek) -> None:
    """It delivers what is due, and does what comes of it, before it ends."""
    id, _ = add_far(peek, far, "child")
    async with app:
        with anyio.fail_after(15):
            await run_worker(app, **QUICK, burst=True)
        assert await app.handle(id, queue_name).result(timeout=0) == {"far": 7}
    assert not peek.client.exists(peek.keys.outbox)


async def test_queue_that_refuses_keeps_no_other_back(
    app: App, queue_name: str, far: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries are put back, told of once, and delivered when it takes them again; the others went at once."""
    monkeypatch.setattr(_delivery, "AGAIN", (0.05, 0.1))
    other = QueueKeys(queue=f"{queue_name}-other")
    shut = QueueKeys(queue=far)
    peek.client.hset(shut.meta, mapping={"protocol": "99.0"})
    there, closed = Peek(peek.client, other.queue), Peek(peek.client, far)
    with capture_logs() as logs:
        async with app, running(app, queues=[queue_name]):
            behind = [add_far(peek, far, "child")[1] for _ in range(2)]
            _, child = add_far(peek, other.queue, "any")
            await until(lambda: there.state(child) == "pending")
            await anyio.sleep(0.4)
            assert [closed.state(each) for each in behind] == ["", ""]
            peek.client.delete(shut.meta)
            await until(lambda: all(closed.state(each) == "pending" for each in behind))
    told = [each for each in logs if each["event"] == "outbox_entry_put_back"]
    assert {(each["to"], "99" in each["error"]) for each in told} == {(far, True)}


@pytest.mark.parametrize("content", [b"", b"\xff", pack_words(["newer", "", "a"]), pack_words(["tell", "", "a"])])
async def test_entry_that_makes_no_sense_ends_nothing(
    app: App, queue_name: str, far: str, peek: Peek, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told of, left, and tried now and then; the worker goes on with its jobs."""
    monkeypatch.setattr(outbox, "EVERY", 0.05)
    async with app, running(app, queues=[queue_name]):
        id, _ = add_far(peek, far, "child")
        await until(lambda: Peek(peek.client, far).count("x") == 0)
        peek.client.hset(peek.keys.outbox_entries, "strange:1", content)
        peek.client.zadd(peek.keys.outbox, {"strange:1": 1})
        await anyio.sleep(0.3)
        job = await app.queue(queue_name).enqueue(b"{}", task="parent", result_ttl=60)
        assert await job.result(timeout=10) == {}
        await app.handle(id, queue_name).cancel()


async def test_queue_whose_outbox_cannot_be_read_is_left_alone(
    app: App, queue_name: str, far: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It backs off and says so once."""
    calls: list[Any] = []
    real = flow_take

    def refusing(*args: Any, **given: Any) -> Any:
        calls.append(args)
        return real(*args, **given, bound=0) if len(calls) < 4 else real(*args, **given)

    monkeypatch.setattr(_delivery, "flow_take", refusing)
    with capture_logs() as logs:
        async with app, running(app):
            id, _ = add_far(peek, far, "child")
            assert await app.handle(id, queue_name).result(timeout=10) == {"far": 7}
    told = [each for each in logs if each["event"] == "outbox_left_alone"]
    assert len(told) == 1


async def test_lost_child_is_told_to_its_parent(app: App, queue_name: str, far: str, peek: Peek) -> None:
    """A parent that has waited for long asks; what nobody knows is settled as lost."""
    there = Peek(peek.client, far)
    async with app, running(app, queues=[queue_name]):
        id, child = add_far(peek, far, "child")
        await until(lambda: there.state(child) == "pending")
        there.client.delete(there.keys.job(child))
        there.client.zrem(there.keys.pending, child)
    # Another worker, to which the queue has never owed anything.
    peek.client.zadd(peek.keys.waiting, {id: 1}, xx=True)
    async with app, running(app, queues=[queue_name]):
        await until(lambda: peek.state(id) == "dead")
    assert "lost: nobody knows it" in peek.record(id).reason


async def test_queue_that_owes_nothing_is_never_asked(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues without flows pay nothing."""
    monkeypatch.setattr(outbox, "EVERY", 0.02)
    asked: list[Any] = []
    monkeypatch.setattr(_delivery, "flow_take", partial(_keep, asked, flow_take))

    @app.task(queue=queue_name, result_ttl=60)
    async def handle() -> int:
        return 1

    async with app, running(app):
        assert await (await handle.enqueue()).result(timeout=10) == 1
        await anyio.sleep(0.2)
    assert asked == []


def _keep(calls: list[Any], build: Any, *args: Any, **given: Any) -> Any:
    calls.append(args)
    return build(*args, **given)
