"""Enqueueing more than memory holds: answers in order, bounded rounds, and what is left when it ends half way."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import anyio
import pytest

from echomq import (
    App,
    EnqueueStream,
    InvalidJobError,
    JobCall,
    JobHandle,
    Queue,
    QueueFullError,
    UnavailableError,
    open_client,
    sync,
)
from echomq._bulk import ROUND_SECONDS
from echomq.conformance.proxy import FaultProxy
from tests.integration.cutting import CuttingProxy
from tests.integration.working import until
from tests.worker.support import TRIO

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_rounds(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let a round have 100 jobs."""
    monkeypatch.setattr("echomq._bulk.AT_ONCE", 100)
    return 100


async def test_stream_answers_in_the_order_of_its_input(queue: Queue, small_rounds: int) -> None:
    """Each by a handle or the error it met; progress is told by rounds; nothing is done before it is iterated over."""
    told: list[int] = []

    async def progress(count: int) -> None:
        told.append(count)

    huge = bytes((1 << 20) + 1)
    payloads = [huge if n in {5, 149} else b"%d" % n for n in range(250)]
    stream = queue.enqueue_stream(iter(payloads), progress=progress, lane="a")
    assert isinstance(stream, EnqueueStream)
    assert (await queue.counts()).pending == 0
    answers = [answer async for answer in stream]
    assert [at for at, answer in enumerate(answers) if isinstance(answer, InvalidJobError)] == [5, 149]
    handles = [answer for answer in answers if isinstance(answer, JobHandle)]
    first, last = await handles[0].info(), await handles[-1].info()
    assert first is not None
    assert last is not None
    assert (first.record.payload, last.record.payload, last.record.lane) == (b"0", b"249", "a")
    assert told == [100, 200, 250]
    assert [answer async for answer in stream] == []
    assert [answer async for answer in queue.enqueue_stream([])] == []


async def test_stream_draws_a_round_ahead_at_most(queue: Queue, small_rounds: int) -> None:
    """By number and by bytes; what was answered is not kept."""
    drawn = 0

    def payloads(size: int, count: int) -> Iterator[bytes]:
        nonlocal drawn
        for _ in range(count):
            drawn += 1
            yield b"x" * size

    answered = 0
    async for _ in queue.enqueue_stream(payloads(1, 1000)):
        answered += 1
        assert drawn - answered < small_rounds
    drawn = answered = 0
    async for _ in queue.enqueue_stream(payloads(1_000_000, 30)):
        answered += 1
        assert drawn - answered < 10  # 8 MiB
    assert answered == 30


@TRIO
async def test_stream_is_flat_in_memory(queue: Queue, small_rounds: int) -> None:
    """Ten times the jobs take no more of it, where a list of answers does."""

    async def peak(count: int) -> int:
        gc.collect()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        async for answer in queue.enqueue_stream(b"x" * 40 for _ in range(count)):
            assert isinstance(answer, JobHandle)
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        await peak(500)
        few, many = await peak(500), await peak(5000)
    finally:
        tracemalloc.stop()
    assert many < few + 200_000  # the answers alone would be half a million bytes


async def test_stream_takes_an_asynchronous_source(queue: Queue, small_rounds: int) -> None:
    """A quick one in rounds; of a slow one each job is sent as it is drawn."""

    async def quick() -> AsyncIterator[bytes]:
        for n in range(250):
            yield b"%d" % n

    answers = await queue.enqueue_many(quick())
    assert len({answer.id for answer in answers if isinstance(answer, JobHandle)}) == 250
    send, receive = anyio.create_memory_object_stream[bytes](10)
    answered: list[object] = []

    async def holds(count: int) -> bool:
        return (await queue.counts()).pending == count

    async def consume() -> None:
        async with receive:
            async for answer in queue.enqueue_stream(receive):
                answered.append(answer)  # noqa: PERF401 - one by one, as they come

    async with anyio.create_task_group() as tasks, send:
        tasks.start_soon(consume)
        for n in range(3):
            await send.send(b"slow")
            await until(partial(holds, 251 + n))
            await anyio.sleep(ROUND_SECONDS)
            await until(lambda: len(answered) >= n - 1)  # noqa: B023 - awaited at once
        send.close()
    assert len(answered) == 3


async def test_stream_left_half_way_sends_and_draws_nothing_more(queue: Queue, small_rounds: int) -> None:
    """What was sent stays."""
    drawn = 0

    def payloads() -> Iterator[bytes]:
        nonlocal drawn
        while True:
            drawn += 1
            yield b""

    async for _ in queue.enqueue_stream(payloads()):
        break
    gc.collect()
    await queue.enqueue(b"last")
    assert drawn == small_rounds
    assert (await queue.counts()).pending == small_rounds + 1


async def test_stream_cancelled_in_a_round_is_over(proxy: FaultProxy, queue: Queue) -> None:
    """What had not left is taken out; the stream says that it was broken off, and the client works on."""
    proxy.refusing = True
    async with open_client(proxy.url) as mine:
        behind = mine.queue(queue.name)
        stream = behind.enqueue_stream(b"given up" for _ in range(300))
        with anyio.move_on_after(0.05) as scope:
            await anext(stream)
        assert scope.cancelled_caught
        with pytest.raises(RuntimeError, match="broken off"):
            await anext(stream)
        proxy.refusing = False
        await behind.enqueue(b"kept")
        assert (await queue.counts()).pending == 1


async def test_stream_whose_source_raises_is_over(queue: Queue) -> None:
    """Its error comes out as it is, after the answers of the jobs before it; so does that of a payload that is none."""

    def payloads() -> Iterator[bytes]:
        yield b"1"
        raise KeyError("mine")

    stream = queue.enqueue_stream(payloads())
    answer = await anext(stream)
    assert isinstance(answer, JobHandle)
    assert answer.admitted
    with pytest.raises(KeyError, match="mine"):
        await anext(stream)
    with pytest.raises(RuntimeError, match="broken off"):
        await anext(stream)
    with pytest.raises(TypeError, match="bytes"):
        await queue.enqueue_many([b"", "text"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="iterable"):
        queue.enqueue_stream(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="priority"):
        queue.enqueue_stream([], priority=9999)


async def test_stream_of_two_tasks_at_once_is_refused(queue: Queue) -> None:
    """Its answers would be torn apart."""
    stream = queue.enqueue_stream(b"" for _ in range(10_000))
    refused: list[RuntimeError] = []

    async def second() -> None:
        try:
            await anext(stream)
        except RuntimeError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(second)
        tasks.start_soon(second)
    assert len(refused) == 1


async def test_stream_goes_through_after_an_outage_without_sending(
    proxy: FaultProxy, queue: Queue, small_rounds: int
) -> None:
    """Those after the failed one are answered, each in its place and each as not sent, and cost no more waiting."""
    async with open_client(proxy.url, unavailable_after=0.2) as mine:
        behind = mine.queue(queue.name)
        answers: list[object] = []
        with anyio.fail_after(5):
            async for answer in behind.enqueue_stream(b"%d" % n for n in range(1000)):
                answers.append(answer)
                if len(answers) == 50:
                    proxy.refusing = True
                    proxy.cut()
    assert len(answers) == 1000
    kinds = [isinstance(answer, JobHandle) for answer in answers]
    assert kinds == [True] * small_rounds + [False] * 900
    assert all(isinstance(answer, UnavailableError) for answer in answers[small_rounds:])
    # The failed round's first call may have been on the wire when it was cut.
    assert not any(answer.sent for answer in answers[2 * small_rounds :] if isinstance(answer, UnavailableError))
    assert (await queue.counts()).pending == small_rounds


async def test_stream_of_calls_goes_to_their_queues(app: App, queue_name: str, small_rounds: int) -> None:
    """In the order of the calls, whatever the queues; a full one fails its own only."""
    names = [f"{queue_name}.{n}" for n in range(3)]
    stubs = [app.task_stub("t", queue=name) for name in names]
    async with app:
        await app.queue(names[1]).configure(max_size=10)
        answers = [answer async for answer in app.enqueue_stream(stubs[n % 3].call(n) for n in range(300))]
        assert [type(answer) for answer in answers[1::3]] == [JobHandle] * 10 + [QueueFullError] * 90
        handles = [answer for answer in answers if isinstance(answer, JobHandle)]
        assert [handle.queue for handle in handles[:6]] == names * 2
        last = await handles[-1].info()
        assert last is not None
        assert last.record.payload == b'{"args":[299]}'
        assert [(await app.queue(name).counts()).pending for name in names] == [100, 10, 100]


async def test_stream_to_several_queues_makes_whole_calls(app: App, queue_name: str) -> None:
    """They are on the way at the same time, and none makes the others' calls smaller."""
    stubs = [app.task_stub("t", queue=f"{queue_name}.{n}") for n in range(4)]
    async with app:
        await app.enqueue_many(stub.call(0) for stub in stubs)
        before = app.client.wire.statistics.sent
        await app.enqueue_many(stubs[n % 4].call(n) for n in range(4096))
        assert app.client.wire.statistics.sent - before <= 2 * 4096 / 128


# --- without an event loop --------------------------------------------------------------------


def counted(count: int, drawn: list[int]) -> Iterator[bytes]:
    """Payloads that are noted as they are drawn."""
    for n in range(count):
        drawn.append(n)
        yield b"%d" % n


def test_sync_stream_answers_call_by_call(sync_client: sync.Client, queue_name: str) -> None:
    """In order, a call ahead at most; left half way, it sends and draws nothing more."""
    queue = sync_client.queue(queue_name)
    drawn: list[int] = []
    told: list[int] = []
    for at, answer in enumerate(queue.enqueue_stream(counted(1000, drawn), progress=told.append)):
        assert isinstance(answer, sync.JobHandle)
        assert len(drawn) - at <= 129
    assert told[-1] == 1000
    assert queue.counts().pending == 1000
    drawn.clear()
    stream = queue.enqueue_stream(counted(1000, drawn))
    assert not drawn
    next(stream)
    del stream
    assert (len(drawn), queue.counts().pending) == (128, 1128)
    with pytest.raises(InvalidJobError, match="priority"):
        queue.enqueue_stream([], priority=9999)


def test_sync_stream_answers_refused_jobs_in_their_places(sync_client: sync.Client, queue_name: str) -> None:
    """One that is held back because its call is full keeps its place before one that is refused here."""
    huge, large = bytes((1 << 20) + 1), b"x" * 100_000
    payloads = [large, large, large, huge, b"", huge, large, large, huge]
    answers = list(sync_client.queue(queue_name).enqueue_stream(payloads))
    assert [isinstance(answer, InvalidJobError) for answer in answers] == [payload is huge for payload in payloads]


def test_sync_stream_goes_through_after_an_outage(cutting: CuttingProxy, queue_name: str) -> None:
    """Nothing more is sent, and each is answered."""
    with sync.Client(cutting.url, unavailable_after=0.2) as client:
        queue = client.queue(queue_name)
        queue.enqueue(b"")
        stream = queue.enqueue_stream(b"" for _ in range(1000))
        answers = [next(stream) for _ in range(10)]
        cutting.cuts = 1000
        answers += list(stream)
        cutting.cuts = 0
    assert len(answers) == 1000
    assert [isinstance(answer, sync.JobHandle) for answer in answers] == [True] * 128 + [False] * 872
    lost = [answer.sent for answer in answers if isinstance(answer, UnavailableError)]
    assert lost == [True] * 128 + [False] * 744


@pytest.mark.parametrize("queues", [1, 3])
def test_sync_stream_of_calls_is_drawn_by_portions(
    sync_client: sync.Client, queue_name: str, monkeypatch: pytest.MonkeyPatch, queues: int
) -> None:
    """Whatever the queues: in order, and a portion ahead at most."""
    monkeypatch.setattr("echomq._bulk.AT_ONCE", 50)
    stubs = [App("valkey://nowhere.invalid").task_stub("t", queue=f"{queue_name}.{n}") for n in range(queues)]
    drawn: list[int] = []

    def calls() -> Iterator[JobCall[Any]]:
        for n in range(500):
            drawn.append(n)
            yield stubs[n % queues].call(n)

    handles = []
    for at, answer in enumerate(sync_client.enqueue_stream(calls())):
        assert isinstance(answer, sync.JobHandle)
        assert len(drawn) - at <= 50
        handles.append(answer)
    info = handles[-1].info()
    assert info is not None
    assert info.record.payload == b'{"args":[499]}'
    assert [handle.queue for handle in handles] == [stubs[n % queues].queue for n in range(500)]
