"""What becomes of a job whose dedup key is held: refused, or its content taken over; the handle says which, and by whom."""

from __future__ import annotations

import pytest
import redis

from echomq import App, Client, JobHandle, Queue, State, sync
from tests.integration.working import claim_one, complete

pytestmark = pytest.mark.anyio


async def payload(queue: Queue, id: str) -> bytes:
    """Read what a job carries."""
    job = await queue.job(id)
    assert job is not None
    return job.record.payload


async def test_replace_gives_the_waiting_job_its_content(queue: Queue) -> None:
    """One job, the holder's id and turn, the last content; the handle says so."""
    first = await queue.enqueue(b"1", dedup="k", max_attempts=2)
    await queue.enqueue(b"between")
    second = await queue.enqueue(b"2", dedup="k", dedup_mode="replace", task="t", max_attempts=9)
    assert (first.outcome, first.admitted) == ("admitted", True)
    assert (second.id, second.outcome, second.admitted) == (first.id, "replaced", False)
    page = await queue.browse("pending")
    assert [(record.id == first.id, record.payload) for record, _ in page.jobs] == [(True, b"2"), (False, b"between")]
    record = page.jobs[0][0]
    assert (record.task, record.max_attempts, record.dedup) == ("t", 9, "k")
    third = await queue.enqueue(b"3", dedup="k")
    assert (third.id, third.outcome, third.admitted) == (first.id, "duplicate", False)
    assert await payload(queue, first.id) == b"2"


async def test_replace_keeps_the_time_and_debounce_starts_it_again(queue: Queue, redis_client: redis.Redis) -> None:
    """A scheduled holder stays where it is in time, or is put off as if it came now."""
    first = await queue.enqueue(b"1", dedup="k", delay=100)
    soon = float(redis_client.zscore(queue.keys.schedule, first.id) or 0) - 90_000
    redis_client.zadd(queue.keys.schedule, {first.id: soon})
    second = await queue.enqueue(b"2", dedup="k", dedup_mode="replace", delay=1000)
    assert (second.id, second.outcome) == (first.id, "replaced")
    assert redis_client.zscore(queue.keys.schedule, first.id) == soon
    third = await queue.enqueue(b"3", dedup="k", dedup_mode="debounce", delay=50)
    assert (third.id, third.outcome) == (first.id, "replaced")
    due = redis_client.zscore(queue.keys.schedule, first.id)
    assert due is not None
    assert soon + 30_000 < float(due) < soon + 60_000
    assert await payload(queue, first.id) == b"3"
    assert (await queue.counts()).schedule == 1


async def test_job_that_runs_is_not_replaced(client: Client, queue: Queue) -> None:
    """The new job is a job, and takes the key over."""
    first = await queue.enqueue(b"1", dedup="k")
    await claim_one(client, queue)
    second = await queue.enqueue(b"2", dedup="k", dedup_mode="replace")
    assert (second.outcome, second.id != first.id) == ("admitted", True)
    assert await payload(queue, first.id) == b"1"
    third = await queue.enqueue(b"3", dedup="k")
    assert (third.id, third.outcome) == (second.id, "duplicate")


async def test_throttle_window_lets_the_first_win(client: Client, queue: Queue) -> None:
    """Also against a mode, once its job is not waiting any more; while it waits, it may be replaced."""
    first = await queue.enqueue(b"1", dedup="k", dedup_window=60)
    assert (await queue.enqueue(b"2", dedup="k", dedup_window=60)).outcome == "duplicate"
    replaced = await queue.enqueue(b"3", dedup="k", dedup_mode="replace")
    assert (replaced.id, replaced.outcome) == (first.id, "replaced")
    assert await complete(client, queue) == first.id
    after = await queue.enqueue(b"4", dedup="k", dedup_mode="replace")
    assert (after.id, after.outcome) == (first.id, "duplicate")


async def test_many_answer_what_became_of_each(app: App, queue_name: str) -> None:
    """Each by its own rule, in order; whoever waits for the holder gets its result."""
    stub = app.task_stub("t", queue=queue_name, result_ttl=60)
    async with app:
        answers = await app.enqueue_many(
            [
                stub.options(dedup="k").call(1),
                stub.options(dedup="k").call(2),
                stub.options(dedup="k", dedup_mode="replace").call(3),
                stub.call(4),
            ]
        )
        handles = [answer for answer in answers if isinstance(answer, JobHandle)]
        assert [handle.outcome for handle in handles] == ["admitted", "duplicate", "replaced", "admitted"]
        assert len({handle.id for handle in handles[:3]}) == 1
        queue = app.queue(queue_name)
        assert await payload(queue, handles[0].id) == b'{"args":[3]}'
        await complete(app.client, queue, b"17")
        assert await handles[2].result(timeout=10) == 17
        assert await handles[3].state() is State.PENDING


def test_sync_dedup_modes(sync_client: sync.Client, queue_name: str) -> None:
    """The same, without an event loop."""
    queue = sync_client.queue(queue_name)
    first = queue.enqueue(b"1", dedup="k", delay=60)
    again = queue.enqueue(b"2", dedup="k", dedup_mode="debounce", delay=90)
    assert (first.outcome, again.outcome, again.id, again.admitted) == ("admitted", "replaced", first.id, False)
    (answer,) = queue.enqueue_many([b"3"], dedup="k")
    assert isinstance(answer, sync.JobHandle)
    assert (answer.outcome, answer.id) == ("duplicate", first.id)
    info = first.info()
    assert info is not None
    assert info.record.payload == b"2"
    assert queue.handle(first.id).outcome == "admitted"
