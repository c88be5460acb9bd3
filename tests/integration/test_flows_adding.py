"""Adding flows: in one call, in rounds, over several queues; what is answered, and what is refused."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest
import redis

from echomq import (
    App,
    Client,
    FlowHandle,
    FlowLimits,
    GroupHandle,
    JobCall,
    Queue,
    QueueFullError,
    chain,
    child,
    flow,
    group,
    open_client,
    sync,
)
from echomq._flow_plan import Planned
from echomq._flow_plan import plan as real
from echomq.conformance.invariants import violations
from echomq.conformance.proxy import FaultProxy
from echomq.conformance.snapshot import take
from echomq.flows import Tree
from tests.integration.cutting import CuttingProxy
from tests.integration.working import complete, until

pytestmark = pytest.mark.anyio


def call(queue: Queue | str, task: str = "t", **options: Any) -> JobCall[Any]:
    """Make a call for a queue."""
    name = queue if isinstance(queue, str) else queue.name
    return App().task_stub(task, queue=name).options(**options).call()


def other(client: Client, queue: Queue, mark: str = "b") -> Queue:
    """Answer another queue of the test's."""
    return client.queue(f"{queue.name}-{mark}")


async def states(handle: FlowHandle[Any]) -> dict[str, str | None]:
    """Answer where the children are."""
    return {name: await below.job.state() for name, below in handle.children.items()}


async def sizes(queue: Queue) -> tuple[int, int]:
    """Count what is pending and what waits."""
    counts = await queue.counts()
    return counts.pending, counts.waiting


# --- one queue -------------------------------------------------------------------------------


async def test_parent_waits_and_runs_when_its_children_have_completed(client: Client, queue: Queue) -> None:
    """A tree comes at once; each parent is ready after its last child."""
    handle = await client.flows.add(
        flow(call(queue, "top", result_ttl=60), {"a": flow(call(queue, "mid"), [call(queue, "low")]), "b": call(queue)})
    )
    assert isinstance(handle, FlowHandle)
    assert handle.admitted
    assert await handle.job.state() == "waiting"
    assert await states(handle) == {"a": "waiting", "b": "pending"}
    assert [each.queue for each in handle.walk()] == [queue.name] * 4
    assert [each.id for each in handle.walk()][:2] == [handle.id, handle.children["a"].id]
    for _ in range(3):
        await complete(client, queue)
    assert await handle.job.state() == "pending"
    assert await complete(client, queue, b'"done"') == handle.id
    assert await handle.result(5) == "done"
    assert await sizes(queue) == (0, 0)


async def test_each_node_keeps_its_options(client: Client, queue: Queue) -> None:
    """A delay is that of a child; a parent's begins to count when it is added."""
    handle = await client.flows.add(
        flow(
            call(queue, delay=3600, lane="slow", priority=5),
            [call(queue, delay=3600), call(queue, lane="l", priority=7, headers={"a": "b"}, max_attempts=2)],
        )
    )
    assert await states(handle) == {"0": "schedule", "1": "pending"}
    info = await handle.children["1"].job.info()
    assert info is not None
    assert (info.record.lane, info.record.priority, info.record.row[b"max_attempts"]) == ("l", 7, b"2")
    assert info.record.row[b"headers"] == b'{"a":"b"}'
    await queue.promote([handle.children["0"].id])
    for _ in range(2):
        await complete(client, queue)
    assert await handle.job.state() == "schedule"


async def test_chain_and_group_are_added_like_any_tree(client: Client, queue: Queue) -> None:
    """The first link of a chain is ready; the members of a group are so many flows."""
    last = await client.flows.add(chain(call(queue, "one"), call(queue, "two"), call(queue, "three")))
    tasks = []
    for _ in range(3):
        tasks += [record.task for record, _ in (await queue.browse("pending")).jobs]
        await complete(client, queue)
    assert tasks == ["one", "two", "three"]
    assert await last.job.state() is None
    both = await client.flows.add(group([call(queue, result_ttl=60), flow(call(queue, result_ttl=60), [call(queue)])]))
    assert isinstance(both, GroupHandle)
    assert [len(member.children) for member in both.members] == [0, 1]
    for _ in range(3):
        await complete(client, queue, b"1")
    assert await both.results(5) == [1, 1]
    assert await both.results(0) == [1, 1]


async def test_empty_flow_is_a_job(client: Client, queue: Queue) -> None:
    """A parent of no children waits for nothing."""
    handle = await client.flows.add(flow(call(queue), []))
    assert await handle.job.state() == "pending"


async def test_large_flow_comes_in_rounds_of_which_nothing_runs_before_the_last(client: Client, queue: Queue) -> None:
    """And then all of it is let go at once; progress is told."""
    told: list[int] = []
    seen: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)
        if count < 400:
            seen.append((await queue.counts()).pending)

    handle = await client.flows.add(flow(call(queue), [call(queue)] * 400), progress=progress)
    assert len(handle.children) == 400
    assert told == sorted(told)
    assert told[-1] == 401
    assert set(seen) == {0}
    assert await sizes(queue) == (400, 1)
    assert await client.wire.command("ZCARD", queue.keys.outbox, keys=queue.keys, repeat=True) == 0


async def test_long_chain_comes_in_rounds(client: Client, queue: Queue) -> None:
    """A thousand links, and the first is ready."""
    handle = await client.flows.add(chain(*[call(queue)] * 1000))
    assert await sizes(queue) == (1, 999)
    depth, at = 0, handle
    while at.children:
        depth, at = depth + 1, at.children["0"]
    assert depth == 999
    assert await at.job.state() == "pending"


# --- several queues --------------------------------------------------------------------------


async def test_children_of_other_queues_are_there_when_the_call_returns(client: Client, queue: Queue) -> None:
    """However many, and however far: no worker is needed for that."""
    second, third = other(client, queue), other(client, queue, "c")
    tree = flow(call(queue), [*[call(second)] * 300, flow(call(second), [call(third), call(queue)])])
    handle = await client.flows.add(tree)
    assert await sizes(second) == (300, 1)
    assert await sizes(third) == (1, 0)
    assert await sizes(queue) == (1, 1)
    assert await states(handle.children["300"]) == {"0": "pending", "1": "pending"}


async def test_outcome_reaches_a_parent_of_another_queue(client: Client, queue: Queue) -> None:
    """As soon as somebody delivers: an operator's verb does so for what it has ended."""
    second = other(client, queue)
    handle = await client.flows.add(flow(call(queue), [child(call(second), on_failure="ignore")]))
    assert await second.cancel(handle.children["0"].id, reason="no") == "cancelled"
    assert await handle.job.state() == "pending"


# --- duplicates and refusals -----------------------------------------------------------------


async def test_root_whose_key_is_held_adds_nothing(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """The handle is that of the job which holds it."""
    first = await client.enqueue(call(queue, dedup="k"))
    handle = await client.flows.add(flow(call(queue, dedup="k"), [call(queue)] * 400))
    assert (handle.admitted, handle.id, dict(handle.children)) == (False, first.id, {})
    assert await sizes(queue) == (1, 0)
    assert violations(take(redis_client, queue.keys)) == []


async def test_child_whose_key_is_held_has_ended(client: Client, queue: Queue) -> None:
    """By its policy; what is below it is not added, and its handle is that of the other."""
    first = await client.enqueue(call(queue, dedup="k"))
    below = flow(call(queue, dedup="k"), [call(queue)])
    handle = await client.flows.add(flow(call(queue), [child(below, on_failure="ignore"), call(queue)]))
    assert (handle.children["0"].admitted, handle.children["0"].id) == (False, first.id)
    assert dict(handle.children["0"].children) == {}
    assert await sizes(queue) == (2, 1)
    failed = await client.flows.add(flow(call(queue), [below, call(queue)]))
    assert await failed.job.state() == "dead"
    assert await states(failed) == {"0": "pending", "1": "dead"}  # the holder; and what was told to stop


async def test_full_queue_refuses_the_whole_flow(client: Client, queue: Queue) -> None:
    """Nothing is there, also of one that would come in rounds."""
    await queue.configure(max_size=1)
    await client.enqueue(call(queue))
    for count in (1, 400):
        with pytest.raises(QueueFullError):
            await client.flows.add(flow(call(queue), [call(queue)] * count))
    assert await sizes(queue) == (1, 0)


async def test_rounds_that_are_refused_are_taken_back_at_once(
    client: Client, queue: Queue, redis_client: redis.Redis
) -> None:
    """When the queue has become full between two rounds."""

    async def fill(count: int) -> None:
        if count == 64:
            await queue.configure(max_size=1)
            await client.enqueue(call(queue))

    second = other(client, queue)
    with pytest.raises(QueueFullError):
        await client.flows.add(flow(call(queue), [call(second), *[call(queue)] * 400]), progress=fill)
    assert await sizes(queue) == (1, 0)
    await second.cancel_where(task="t")
    assert await sizes(second) == (0, 0)
    assert violations(take(redis_client, queue.keys)) == []


async def test_id_that_is_taken_is_minted_again(client: Client, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another producer's job has a child's id: the flow has other ids, and its middleware is not asked twice."""
    taken = await client.enqueue(call(queue))
    app, seen = App(), []

    @app.around_enqueue
    def look(made: JobCall[Any]) -> Any:
        seen.append(made)
        yield made

    def plan(tree: Tree) -> list[Planned]:
        planned = real(tree)
        planned[1].job = attrs.evolve(planned[1].job, id=taken.id)
        return planned

    monkeypatch.setattr("echomq._flow_steps.plan", plan)
    made = app.task_stub("t", queue=queue.name).call()
    for count in (1, 400):
        handle = await client.flows.add(flow(made, [made] * count))
        assert handle.children["0"].id != taken.id
        assert len(handle.children) == count
    assert await sizes(queue) == (402, 2)
    assert len(seen) == 403


async def test_limits_are_those_of_the_app(server_url: str, queue_name: str) -> None:
    """An app may have others."""
    app = App(server_url, flow_limits=FlowLimits(breadth=2, chain=1000, depth=2))
    made = app.task_stub("t", queue=queue_name).call()
    async with app:
        with pytest.raises(ValueError, match="limit is 2"):
            await app.flows.add(flow(made, [made] * 3))
        assert await sizes(app.queue(queue_name)) == (0, 0)


# --- many, and two at once -------------------------------------------------------------------


async def test_add_many_answers_each(client: Client, queue: Queue) -> None:
    """One that is refused fails no other; a value that does not fit is found before anything is sent."""
    await queue.configure(max_size=3)
    second = other(client, queue)
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    answers = await client.flows.add_many(
        [flow(call(queue), [call(queue)] * 3), flow(call(queue), [call(queue)]), group([call(second)]), call(second)],
        progress=progress,
    )
    assert [type(answer) for answer in answers] == [FlowHandle, QueueFullError, GroupHandle, FlowHandle]
    assert told == [1, 2, 3, 4]
    before = await second.counts()
    bad: Any = [call(second), flow(call(second), [call(second, dedup="k", dedup_mode="replace")])]
    with pytest.raises(ValueError, match="dedup_mode 'replace'"):
        await client.flows.add_many(bad)
    with pytest.raises(ValueError, match="dedup_mode 'replace'"):
        await client.flows.add(group(bad))
    with pytest.raises(TypeError, match="7"):
        await client.flows.add_many([call(second), 7])  # type: ignore[list-item]
    for wrong in (None, call(second), "text", flow(call(second), [])):
        with pytest.raises(TypeError, match="flows are several nodes"):
            await client.flows.add_many(wrong)  # type: ignore[arg-type]
    assert await second.counts() == before


async def test_two_adders_at_once_of_one_key(client: Client, queue: Queue, server_url: str) -> None:
    """One of the flows is there, wholly, and the other not at all."""
    handles: list[FlowHandle[Any]] = []

    async def add(of: Client, count: int) -> None:
        handles.append(await of.flows.add(flow(call(queue, dedup="k"), [call(queue)] * count)))

    async with open_client(server_url) as second, anyio.create_task_group() as tasks:
        for at in range(6):
            tasks.start_soon(add, (client, second)[at % 2], (3, 400)[at % 2])
    (first,) = {handle.id for handle in handles}
    (added,) = (handle for handle in handles if handle.admitted)
    assert added.id == first
    assert await sizes(queue) == (len(added.children), 1)


# --- faults ----------------------------------------------------------------------------------


async def test_lost_replies_add_a_flow_once(client: Client, queue: Queue, proxy: FaultProxy) -> None:
    """The call is sent again and answered from memory; so is each round, and each delivery."""
    second = other(client, queue)
    async with open_client(proxy.url) as mine:
        await mine.flows.add(flow(call(queue), [call(queue), call(second)]))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.flows.add, flow(call(queue), [call(second), *[call(queue)] * 400]))
            for _ in range(5):
                proxy.dropping_replies = True
                before = proxy.dropped_bytes
                with anyio.move_on_after(1):
                    while proxy.dropped_bytes == before:  # noqa: ASYNC110 - the proxy's doing
                        await anyio.sleep(0.001)
                proxy.dropping_replies = False
                proxy.cut()
    assert await sizes(queue) == (401, 2)
    await until(lambda: _arrived(second, 2))


async def _arrived(queue: Queue, count: int) -> bool:
    return (await queue.counts()).pending == count


def test_sync_client_adds_once_whatever_breaks(
    sync_client: sync.Client, cutting: CuttingProxy, queue_name: str
) -> None:
    """The twins answer and promise the same: in rounds, over queues, with replies that are lost."""
    name, second = queue_name, sync_client.queue(f"{queue_name}-b")
    queue = sync_client.queue(name)
    told: list[int] = []
    with sync.Client(cutting.url) as mine:
        handle = mine.flows.add(flow(call(name), [call(name), call(second.name)]))
        assert [each.admitted for each in handle.walk()] == [True] * 3
        cutting.cuts = 4
        handle = mine.flows.add(flow(call(name), [call(second.name), *[call(name)] * 400]), progress=told.append)
    assert told[-1] == 402
    assert (queue.counts().pending, queue.counts().waiting, second.counts().pending) == (401, 2, 2)
    assert handle.job.state() == "waiting"
    again = sync_client.flows.add(flow(call(name, dedup="k"), [call(name)]))
    held = sync_client.flows.add(flow(call(name, dedup="k"), [call(name)]))
    assert (held.admitted, held.id) == (False, again.id)
    kept = call(name, result_ttl=60)
    both = sync_client.flows.add(group([kept, chain(kept, kept)]))
    assert [len(member.children) for member in both.members] == [0, 1]
    with pytest.raises(TimeoutError):
        both.results(0)
    answers = sync_client.flows.add_many([call(name), flow(call(name), [call(name)])], progress=told.append)
    assert [len(answer.children) for answer in answers] == [0, 1]
    tree = sync_client.flows.tree(handle)
    assert (tree.size, tree.state, len(tree.children)) == (402, "waiting", 50)
    report = handle.cancel(reason="enough")
    assert (report.cancelled, report.asked) == (402, 0)
    assert second.counts().pending == 1
