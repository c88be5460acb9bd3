"""Enqueueing by a client: what is written, what is refused, and what faults and cancellation may leave."""

from __future__ import annotations

import datetime as dt

import anyio
import pytest
import redis

from echomq import (
    Client,
    EchoMQError,
    InvalidJobError,
    JobHandle,
    JobStateError,
    Queue,
    State,
    UnavailableError,
    open_client,
)
from echomq.conformance.proxy import FaultProxy
from echomq.protocol.ids import mint
from echomq.protocol.stamps import JobStamp, StampedJob
from echomq.transitions import reap
from tests.integration.working import claim_one, complete, fail, until

pytestmark = pytest.mark.anyio


async def holds(queue: Queue, count: int) -> bool:
    """Whether that many jobs are ready."""
    return (await queue.counts()).pending == count


async def test_enqueue_writes_what_was_asked_for(queue: Queue) -> None:
    """Every option stands in the row, in the units of the wire."""
    handle = await queue.enqueue(
        b"payload", task="t", priority=3, dedup="key", max_attempts=5, max_stalls=0, timeout=1.5,
        result_ttl=dt.timedelta(minutes=1), headers={"trace": "1"},
    )  # fmt: skip
    assert handle.admitted
    job = await handle.info()
    assert job is not None
    record = job.record
    assert (record.payload, record.task, record.priority, record.dedup) == (b"payload", "t", 3, "key")
    assert (record.max_attempts, record.max_stalls, record.timeout_ms, record.result_ttl_ms) == (5, 0, 1500, 60_000)
    assert record.headers == {"trace": "1"}
    assert job.score == -3


async def test_enqueue_later_by_delay_or_moment(queue: Queue) -> None:
    """A delay counts from admission by the server's clock; a moment is taken as it is."""
    by_delay = await (await queue.enqueue(b"", delay=100)).info()
    moment = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
    by_moment = await (await queue.enqueue(b"", at=moment)).info()
    assert by_delay is not None
    assert by_moment is not None
    assert by_delay.record.state is by_moment.record.state is State.SCHEDULE
    assert by_delay.score == by_delay.record.since + 100_000
    assert by_moment.score == int(moment.timestamp() * 1000)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"delay": -1}, ValueError),
        ({"delay": float("nan")}, ValueError),
        ({"delay": "soon"}, TypeError),
        ({"at": dt.datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001 - that is the point
        ({"delay": 1, "at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}, ValueError),
        ({"priority": 5000}, InvalidJobError),
        ({"priority": 1.5}, TypeError),
        ({"dedup": ""}, ValueError),
        ({"dedup_window": 5}, ValueError),
        ({"max_attempts": 0}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"headers": {"a": 1}}, TypeError),
        ({"lane": "ac{me}"}, ValueError),
        ({"dedup_mode": "replace"}, InvalidJobError),
        ({"colour": "red"}, TypeError),
    ],
)
async def test_enqueue_refuses_before_any_io(queue: Queue, options: dict, error: type[Exception]) -> None:
    """What does not fit is refused here, and the queue does not come into being."""
    with pytest.raises(error):
        await queue.enqueue(b"", **options)
    with pytest.raises(TypeError):
        await queue.enqueue("text")  # type: ignore[arg-type]
    assert (await queue.counts()).pending == 0


async def test_enqueue_many_answers_in_order_and_a_bad_one_fails_no_other(queue: Queue) -> None:
    """An error stands in its job's place; all else is admitted, in the order of the input."""
    payloads = [b"a", bytes((1 << 20) + 1), *(b"%d" % n for n in range(600)), b"z"]
    answers = await queue.enqueue_many(iter(payloads))
    assert [isinstance(answer, InvalidJobError) for answer in answers] == [at == 1 for at in range(len(payloads))]
    ids = [answer.id for answer in answers if isinstance(answer, JobHandle)]
    assert ids == sorted(ids)
    assert (await queue.counts()).pending == len(payloads) - 1
    assert await queue.enqueue_many([]) == []


async def test_enqueue_many_goes_on_over_rounds(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long iterable is drawn in rounds, and progress is told after each."""
    monkeypatch.setattr("echomq._bulk.AT_ONCE", 100)
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    answers = await queue.enqueue_many((b"" for _ in range(250)), progress=progress)
    assert len(answers) == 250
    assert told == [100, 200, 250]


async def test_enqueue_mints_again_on_a_collision(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that another producer's job has is replaced by another; both jobs are there, each with its content."""
    async with open_client(queue.wire.url) as other:
        first = await other.queue(queue.name).enqueue(b"theirs")
    real = StampedJob.__init__
    taken = [first.id, first.id]

    def collide(self: StampedJob, id: str, payload: bytes, size: int, stamp: JobStamp) -> None:
        real(self, taken.pop() if taken else id, payload, size, stamp)

    monkeypatch.setattr(StampedJob, "__init__", collide)
    second = await queue.enqueue(b"ours")
    taken.append(first.id)
    (third,) = await queue.enqueue_many([b"ours too"])
    assert isinstance(third, JobHandle)
    assert len({first.id, second.id, third.id}) == 3
    for id, payload in ((first.id, b"theirs"), (second.id, b"ours"), (third.id, b"ours too")):
        job = await queue.job(id)
        assert job is not None
        assert job.record.payload == payload


async def test_enqueue_gives_up_when_every_id_is_taken(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mint that only makes taken ids is an error, not an endless loop."""
    async with open_client(queue.wire.url) as other:
        first = await other.queue(queue.name).enqueue(b"theirs")
    monkeypatch.setattr("echomq.protocol.stamps.mint", lambda: first.id)
    with pytest.raises(InvalidJobError, match="taken"):
        await queue.enqueue(b"ours")
    (answer,) = await queue.enqueue_many([b"ours"])
    assert isinstance(answer, InvalidJobError)


# --- deduplication (pitfall 22) ---------------------------------------------------------------


async def test_dedup_answers_the_holder_until_it_ends(client: Client, queue: Queue) -> None:
    """A held key is no error: the handle names its holder. It is free when that has ended, dead included."""
    first = await queue.enqueue(b"1", dedup="key")
    second = await queue.enqueue(b"2", dedup="key")
    assert (second.id, second.admitted) == (first.id, False)
    await complete(client, queue)
    third = await queue.enqueue(b"3", dedup="key")
    assert third.admitted
    assert await third.cancel() == "cancelled"
    assert (await queue.enqueue(b"4", dedup="key")).admitted


async def test_dedup_key_of_another_job_is_left_alone(client: Client, queue: Queue, redis_client: redis.Redis) -> None:
    """(a) The key ran out and belongs to Y; X's end does not take it from Y."""
    first = await queue.enqueue(b"x", dedup="key")
    await claim_one(client, queue)
    redis_client.delete(queue.keys.dedup("key"))
    second = await queue.enqueue(b"y", dedup="key")
    assert second.admitted
    assert await first.cancel() == "asked"
    redis_client.zadd(queue.keys.active, {first.id: 1})
    await queue.wire.remembered(queue.keys, lambda call: reap(queue.keys, call, bound=10), verb="reap")
    assert await first.state() is None
    assert not (await queue.enqueue(b"z", dedup="key")).admitted


async def test_dedup_key_whose_job_is_gone_counts_as_free(queue: Queue, redis_client: redis.Redis) -> None:
    """(b) A key left without its row blocks nobody."""
    first = await queue.enqueue(b"x", dedup="key")
    redis_client.delete(queue.keys.job(first.id))
    assert (await queue.enqueue(b"y", dedup="key")).admitted


async def test_dedup_resend_finds_its_own_key(client: Client, proxy: FaultProxy, queue: Queue) -> None:
    """(c) The reply is lost, the call is sent again: admitted, once, and no duplicate of itself."""
    async with open_client(proxy.url) as mine:
        behind = mine.queue(queue.name)
        await behind.enqueue(b"warm up")
        proxy.dropping_replies = True
        async with anyio.create_task_group() as tasks:
            handles: list[JobHandle[object]] = []

            async def enqueue() -> None:
                handles.append(await behind.enqueue(b"x", dedup="key"))

            tasks.start_soon(enqueue)
            await until(lambda: holds(queue, 2))
            proxy.dropping_replies = False
            proxy.cut()
    assert [handle.admitted for handle in handles] == [True]
    assert (await queue.counts()).pending == 2


async def test_dedup_window_outlives_its_job(client: Client, queue: Queue) -> None:
    """(d) Asked to, the key throttles: it is held by a job that has ended."""
    first = await queue.enqueue(b"x", dedup="key", dedup_window=60)
    await complete(client, queue)
    second = await queue.enqueue(b"y", dedup="key")
    assert (second.id, second.admitted) == (first.id, False)


# --- faults -----------------------------------------------------------------------------------


async def test_enqueue_resent_after_its_job_has_ended_runs_once(
    client: Client, proxy: FaultProxy, queue: Queue
) -> None:
    """Pitfall 2: admitted, reply lost, completed, resent: answered from memory, and nothing is there again."""
    async with open_client(proxy.url) as mine:
        behind = mine.queue(queue.name)
        await behind.enqueue(b"warm up")
        await complete(client, queue)
        proxy.dropping_replies = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(behind.enqueue, b"once")
            await until(lambda: holds(queue, 1))
            await complete(client, queue)
            proxy.dropping_replies = False
            proxy.cut()
        counts = await queue.counts()
        assert (counts.pending, counts.active, counts.totals["completed"]) == (0, 0, 2)
        assert mine.wire.statistics.resent == 1


async def test_enqueue_without_a_server_says_that_it_was_not_sent(proxy: FaultProxy, queue_name: str) -> None:
    """The error says whether trying again can do it twice; a bulk call tries once and no more."""
    proxy.refusing = True
    async with open_client(proxy.url, unavailable_after=0.2) as client:
        with pytest.raises(UnavailableError) as caught:
            await client.queue(queue_name).enqueue(b"")
        assert not caught.value.sent
        answers = await client.queue(queue_name).enqueue_many(b"" for _ in range(2000))
        assert len(answers) == 2000
        assert all(isinstance(answer, UnavailableError) and not answer.sent for answer in answers)


async def test_enqueue_cancelled_before_it_is_sent_does_not_happen(proxy: FaultProxy, queue: Queue) -> None:
    """Who gave up must not find the job there when the server is back."""
    proxy.refusing = True
    async with open_client(proxy.url) as mine:
        behind = mine.queue(queue.name)
        with anyio.move_on_after(0.05):
            await behind.enqueue(b"given up")
        with anyio.move_on_after(0.05):
            await behind.enqueue_many([b"given up"] * 300)
        proxy.refusing = False
        await behind.enqueue(b"kept")
        assert (await queue.counts()).pending == 1


async def test_enqueue_many_cancelled_leaves_whole_jobs(queue: Queue) -> None:
    """What was sent stays, each job with its row; the client goes on working."""
    with anyio.move_on_after(0.02):
        await queue.enqueue_many(b"x" * 40 for _ in range(200_000))
    done = (await queue.counts()).pending
    await queue.enqueue(b"last")
    counts = await queue.counts()
    assert counts.pending >= done + 1
    page = await queue.browse("pending", count=256, reverse=True)
    assert page.jobs[0][0].payload == b"last"
    assert len(page.jobs) == min(counts.pending, 256)
    assert (await queue.browse(State.DEAD)).jobs == ()


# --- the other verbs --------------------------------------------------------------------------


async def test_cancel_remove_and_redrive_say_what_became_of_each(client: Client, queue: Queue) -> None:
    """A refusal names the state, and is raised or answered for its own job only."""
    first, second = await queue.enqueue(b"1"), await queue.enqueue(b"2")
    claimed = await claim_one(client, queue)
    assert claimed.id == first.id
    assert await first.cancel(reason="enough") == "asked"
    gone = mint()
    running, removed, missing = await queue.remove([first.id, second.id, gone])
    assert isinstance(running, JobStateError)
    assert running.actual == "active"
    assert removed is None
    assert isinstance(missing, EchoMQError)
    with pytest.raises(EchoMQError, match=gone):
        await queue.cancel(gone)
    (refused,) = await queue.redrive([first.id])
    assert isinstance(refused, JobStateError)
    for bad in ([gone, "nonsense"], "JOB00000000000"):
        with pytest.raises((TypeError, ValueError)):
            await queue.remove(bad)


async def test_redrive_refuses_a_job_whose_key_is_held(client: Client, queue: Queue) -> None:
    """Another job took the dedup key meanwhile: the error names it."""
    first = await queue.enqueue(b"1", dedup="key")
    await fail(client, queue, KeyError("x"))
    second = await queue.enqueue(b"2", dedup="key")
    (refused,) = await queue.redrive([first.id])
    assert isinstance(refused, JobStateError)
    assert second.id in str(refused)
    await second.cancel()
    assert await queue.redrive([first.id]) == [None]
    assert await first.state() is State.PENDING


async def test_queue_pauses_and_resumes_once(queue: Queue) -> None:
    """Each call says whether it was the one that did it."""
    await queue.enqueue(b"")
    assert [await queue.pause(), await queue.pause()] == [True, False]
    assert (await queue.counts()).paused
    assert [await queue.resume(), await queue.resume()] == [True, False]
    oldest = await queue.age()
    assert oldest is not None
    assert oldest[1] >= 0


async def test_client_answers_the_same_queue_and_refuses_bad_names(client: Client) -> None:
    """A queue is made once; a name that does not fit is shown."""
    assert client.queue("a") is client.queue("a")
    with pytest.raises(ValueError, match="b c"):
        client.queue("b c")


async def test_client_lets_the_bodys_exception_out_as_it_is(server_url: str) -> None:
    """No group around it, though the client runs tasks of its own."""
    with pytest.raises(KeyError):
        async with open_client(server_url):
            raise KeyError("mine")


async def test_client_needs_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the environment decides, and without either there is a clear error."""
    monkeypatch.delenv("ECHOMQ_URL", raising=False)
    with pytest.raises(ValueError, match="ECHOMQ_URL"):
        open_client()
