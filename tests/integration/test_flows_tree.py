"""A flow as it is now: read from any of its jobs, over queues, and cut where it is large."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from echomq import App, Client, FlowTree, JobCall, JobNotFoundError, Queue, TreeLimits, chain, child, flow, group
from echomq._delivery import deliver_walk
from echomq._walks import drive
from tests.integration.working import claim_one, complete, fail

pytestmark = pytest.mark.anyio


def call(queue: Queue, task: str = "t", **options: Any) -> JobCall[Any]:
    """Make a call for a queue."""
    return App().task_stub(task, queue=queue.name).options(**options).call()


def drawn(tree: FlowTree) -> Any:
    """Draw a tree: names and states."""
    return (tree.state, {each.name: drawn(each) for each in tree.children})


@pytest.fixture
def second(client: Client, queue: Queue) -> Queue:
    """Another queue of the test's."""
    return client.queue(f"{queue.name}-b")


async def test_tree_says_where_each_job_is_and_how_those_ended_that_have(
    client: Client, queue: Queue, second: Queue
) -> None:
    """From the rows that are there, and from what the parents know of those that are not."""
    handle = await client.flows.add(
        flow(
            call(queue, "top"),
            {
                "done": call(queue, "a", priority=9),
                "failed": child(call(queue, "b", priority=8), on_failure="ignore"),
                "runs": call(queue, "c", priority=7),
                "later": call(queue, "d", delay=60),
                "far": flow(call(second, "e"), [call(second, "f"), call(queue, "g")]),
            },
        )
    )
    await complete(client, queue)
    await fail(client, queue, LookupError("no such thing"))
    await claim_one(client, queue)
    tree = await client.flows.tree(handle)
    assert drawn(tree) == (
        "waiting",
        {
            "done": ("completed", {}),
            "failed": ("dead", {}),
            "far": ("waiting", {"0": ("pending", {}), "1": ("pending", {})}),
            "later": ("schedule", {}),
            "runs": ("active", {}),
        },
    )
    assert tree.size == 8
    below = {each.name: each for each in tree.children}
    assert (below["failed"].error, below["failed"].policy.value) == ("LookupError: no such thing", "ignore")
    assert (below["runs"].attempts, below["runs"].task, below["done"].task) == (1, "c", "")
    assert (below["far"].queue, below["far"].children[1].queue) == (second.name, queue.name)
    assert below["done"].since is not None
    low = handle.children["far"].children["1"]
    assert (await client.flows.tree(low)).children == ()
    assert drawn(await client.flows.tree(low.id, queue.name, whole=True)) == drawn(tree)
    assert drawn(await client.flows.tree(low.job, whole=True)) == drawn(tree)


async def test_tree_is_cut_where_it_is_large(client: Client, queue: Queue) -> None:
    """What is not shown is counted, by how it ended."""
    handle = await client.flows.add(flow(call(queue), [call(queue, priority=1), *[call(queue)] * 399]))
    await complete(client, queue)
    tree = await client.flows.tree(handle)
    assert [each.name for each in tree.children] == [str(n) for n in range(50)]
    assert dict(tree.more) == {"open": 350}
    assert tree.size == 401
    tree = await client.flows.tree(handle, limits=TreeLimits(breadth=0))
    assert dict(tree.more) == {"open": 399, "completed": 1}
    long = await client.flows.add(chain(*[call(queue)] * 40))
    tree = await client.flows.tree(long)
    depth = 0
    while tree.children:
        tree, depth = tree.children[0], depth + 1
    assert (depth, dict(tree.more)) == (16, {"open": 1})
    tree = await client.flows.tree(long, limits=TreeLimits(depth=100, nodes=10))
    assert tree.size == 11


async def test_tree_climbs_a_long_chain_without_a_stack(client: Client, queue: Queue) -> None:
    """From the first link to the last, a thousand jobs up."""
    handle = await client.flows.add(chain(*[call(queue)] * 1000))
    *_, first = handle.walk()
    assert (await client.flows.tree(first, whole=True)).id == handle.id
    tree = await client.flows.tree(handle, limits=TreeLimits(depth=1000))
    assert tree.size == 1000


async def test_tree_of_a_job_that_is_not_there(
    client: Client, queue: Queue, second: Queue, redis_client: redis.Redis
) -> None:
    """It is an error at the top; below it is unknown until its parent has been told; a job alone is a tree."""
    handle = await client.flows.add(flow(call(queue), [child(call(second), on_failure="ignore")]))
    low = handle.children["0"]
    redis_client.delete(second.keys.job(low.id))
    redis_client.zrem(second.keys.pending, low.id)
    assert drawn(await client.flows.tree(handle)) == ("waiting", {"0": ("unknown", {})})
    await queue.repair()
    assert drawn(await client.flows.tree(handle)) == ("pending", {"0": ("lost", {})})
    with pytest.raises(JobNotFoundError):
        await client.flows.tree(low)
    alone = await client.enqueue(call(queue))
    assert drawn(await client.flows.tree(alone, whole=True)) == ("pending", {})
    await drive(queue, deliver_walk(queue.keys))
    with pytest.raises(TypeError, match="queue of"):
        await client.flows.tree(alone.id)
    several = await client.flows.add(group([call(queue)]))
    for wrong in (None, 5, several):
        with pytest.raises(TypeError, match="named by its handle"):
            await client.flows.tree(wrong, "a")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing"):
        await client.flows.tree("nothing", queue.name)
