"""How jobs are gathered: a batch is asked for when there is room for it and when it is ripe, and not for each arrival."""

from __future__ import annotations

import anyio
import pytest

from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.worker import gather, intake
from echomq.worker.calls import QueueCalls
from echomq.worker.gather import SHORT, Gathering
from tests.worker.support import TRIO, Peek, running, until
from tests.worker.test_batches import put
from tests.worker.test_command import put as put_one

pytestmark = pytest.mark.anyio

Claims = list[tuple[str, int]]


@pytest.fixture
def claims(monkeypatch: pytest.MonkeyPatch) -> Claims:
    """The claims that are sent: queue and count."""
    sent: Claims = []
    start_claim = QueueCalls.start_claim

    def noted(self: QueueCalls, count: int, lease: float) -> object:
        sent.append((self.queue, count))
        return start_claim(self, count, lease)

    monkeypatch.setattr(QueueCalls, "start_claim", noted)
    return sent


# --- linger ----------------------------------------------------------------------------------------------------------


@TRIO
async def test_batch_waits_for_others_without_a_lease(app: App, queue_name: str, peek: Peek) -> None:
    """Nothing is leased while the first job lingers; then all that have come are one batch, however few."""
    sizes: list[int] = []
    held: list[int] = []

    @app.task(queue=queue_name, batch=Batch(max_size=10, linger=2.4))
    async def handle(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))

    async with app, running(app):
        began = anyio.current_time()
        for n in range(4):
            await handle.enqueue(n)
            await anyio.sleep(0.05)
            held.append(len(peek.active()))
        await until(lambda: sizes)
        waited = anyio.current_time() - began
    assert sizes == [4]
    assert held == [0] * 4
    assert waited >= 2.4


@TRIO
@pytest.mark.parametrize("min_size", [None, 3])
async def test_full_batch_does_not_wait(app: App, queue_name: str, min_size: int | None) -> None:
    """As soon as there are enough, a whole batch or `min_size`, the wait is over."""
    sizes: list[int] = []
    enough = min_size or 10

    @app.task(queue=queue_name, batch=Batch(max_size=10, linger=60, min_size=min_size))
    async def handle(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))

    async with app, running(app):
        await put(app, handle, range(enough - 1))
        await anyio.sleep(0.3)
        assert sizes == []
        await handle.enqueue(1)
        await until(lambda: sizes)
    assert sizes == [enough]


@TRIO
async def test_full_batch_is_noticed_soon(app: App, queue_name: str, long_parks: None) -> None:
    """Its last job may come while rings are not followed; the worker does not sleep on."""
    sizes: list[int] = []

    @app.task(queue=queue_name, batch=Batch(max_size=4, linger=4.0))
    async def handle(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))

    async with app, running(app):
        await anyio.sleep(0.1)
        for n in range(4):  # the first is followed at once, the second not at all
            await handle.enqueue(n)
            await anyio.sleep(0.03)
        await until(lambda: sizes, 3)  # the worker's own next look would be when the linger is over
    assert sizes == [4]


@TRIO
@pytest.mark.parametrize("beside", [False, True])
async def test_arrivals_do_not_make_claims(app: App, queue_name: str, claims: Claims, beside: bool) -> None:
    """A hundred arrivals within a linger cost about ten claims; with a queue beside that is served meanwhile, twice."""
    sizes: list[int] = []
    ran: list[int] = []

    @app.task(queue=queue_name, batch=Batch(max_size=500, linger=2.5))
    async def handle(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))

    @app.task(queue=f"{queue_name}-plain")
    async def plain(n: int) -> None:
        ran.append(n)

    queues = [queue_name, f"{queue_name}-plain"][: 1 + beside]
    async with app, running(app, queues=queues, concurrency=500):
        await anyio.sleep(0.1)
        claims.clear()
        for n in range(100):
            await handle.enqueue(n)
            if beside:
                await plain.enqueue(n)
            await anyio.sleep(0.005)
        if beside:
            await until(lambda: len(ran) == 100)
            assert sizes == []  # none of them had to wait for the batch
        await until(lambda: sizes)
        asked = [queue for queue, _ in claims].count(queue_name)
    assert sizes == [100]
    assert 2 <= asked <= (24 if beside else 13)


@TRIO
async def test_first_arrival_of_an_idle_queue_is_heard_at_once(
    app: App, queue_name: str, claims: Claims, long_parks: None
) -> None:
    """It may be a whole batch: what the worker's own looks at an empty queue brought does not hold it up."""
    began: list[int] = []

    @app.task(queue=queue_name, batch=Batch(max_size=5, linger=600))
    async def handle(batch: JobBatch[int]) -> None:
        began.append(len(batch))

    async with app, running(app):
        for count in (1, 2):
            await anyio.sleep(0.3)
            await put(app, handle, range(5))
            await until(lambda: began == [5] * count, 5)  # noqa: B023 - awaited at once


async def test_batch_is_of_one_lane(app: App, queue_name: str, peek: Peek) -> None:
    """By lane, each batch says which, and none is mixed."""
    seen: list[tuple[str | None, set[str]]] = []

    @app.task(queue=queue_name, batch=Batch(max_size=10, by_lane=True))
    async def handle(batch: JobBatch[str]) -> None:
        seen.append((batch.lane, {item.value for item in batch}))

    async with app:
        for n in range(12):
            lane = ("a", "b", "")[n % 3]
            put_one(peek, "handle", lane, lane=lane or None)
        async with running(app, burst=True):
            await until(lambda: len(seen) >= 3)
    assert sorted(seen) == [("", {""}), ("a", {"a"}), ("b", {"b"})]


# --- room ------------------------------------------------------------------------------------------------------------


@TRIO
async def test_batch_waits_for_room_and_is_woken_by_it(
    app: App, queue_name: str, claims: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue is not taken in scraps: asked for at once when the slots of a whole batch are free, and not before."""
    monkeypatch.setattr(gather, "SHORT", 600.0)
    monkeypatch.setattr(intake, "CAP", 600.0)
    sizes: list[int] = []
    gate, rest = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, batch=Batch(max_size=6))
    async def handle(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))
        if len(sizes) > 1:
            return
        for item in list(batch)[:1]:
            batch.done(item)
        await gate.wait()
        for item in list(batch)[:1]:
            batch.done(item)
        await rest.wait()

    async with app:
        await put(app, handle, range(12))
        async with running(app, concurrency=10):
            await until(lambda: sizes)
            await anyio.sleep(0.3)
            assert sizes == [6]
            assert claims == [(queue_name, 6)]
            gate.set()  # one slot more: six of ten
            await until(lambda: len(sizes) == 2, 5)
            rest.set()
    assert sizes == [6, 6]


@TRIO
async def test_batch_does_not_wait_for_room_for_ever(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a while, what there is room for: a queue must not starve, nor slots be idle, beside a long batch."""
    monkeypatch.setattr(gather, "SHORT", 0.3)
    sizes: list[int] = []
    gate = anyio.Event()

    @app.task(queue=queue_name, batch=Batch(max_size=6, linger=60))
    async def handle(batch: JobBatch[int]) -> None:
        sizes.append(len(batch))
        await gate.wait()

    async with app:
        await put(app, handle, range(10))
        async with running(app, concurrency=10):
            await until(lambda: len(sizes) == 2)
            gate.set()
    assert sizes == [6, 4]


@TRIO
async def test_queue_beside_a_batch_without_room_is_served(
    app: App, queue_name: str, long_parks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slots are not kept free for the batch, and its bell is heard."""
    monkeypatch.setattr(gather, "SHORT", 600.0)
    ran: list[int] = []
    gate = anyio.Event()

    @app.task(queue=queue_name, batch=Batch(max_size=6))
    async def handle(batch: JobBatch[int]) -> None:
        await gate.wait()

    @app.task(queue=f"{queue_name}-plain")
    async def plain(n: int) -> None:
        ran.append(n)

    async with app:
        await put(app, handle, range(12))
        async with running(app, concurrency=10) as worker:
            await until(lambda: worker.statistics().running == 6)
            for n in range(5):
                await plain.enqueue(n)
                await until(lambda: len(ran) == n + 1, 5)  # noqa: B023 - awaited at once
            gate.set()


def test_gathering_is_closed_and_deaf_when_it_should_be() -> None:
    """Without room: until there is, or for a second. Unripe: for a tenth of the linger. Deaf: only after a ring."""
    it = Gathering(Batch(max_size=10, linger=10))
    assert it.closed_for(9, 100.0) == it.deaf_for(9, 100.0) == SHORT
    assert it.closed_for(9, 100.4) == pytest.approx(SHORT - 0.4)
    assert it.closed_for(10, 100.5) == 0
    assert it.closed_for(9, 101.0) == SHORT  # there was room in between
    assert it.closed_for(9, 102.0) == 0
    assert it.begin(9) == 9
    assert it.closed_for(9, 102.0) == SHORT
    assert it.begin(99) == 10

    it.answered(200.0, jobs=False, wait=5.0)  # a look of its own: an arrival is followed
    assert it.closed_for(99, 200.0) == 1.0
    assert it.deaf_for(99, 200.0) == 0
    it.rang()
    assert it.deaf_for(99, 200.0) == 0
    it.answered(200.5, jobs=False, wait=0.25)  # the answer to a ring: the next one is not followed
    assert it.closed_for(99, 200.5) == 0.25
    assert it.deaf_for(99, 200.5) == 0
    it.rang()
    assert it.deaf_for(99, 200.5) == 1.0
    it.answered(201.0, jobs=True, wait=1.0)
    assert it.closed_for(99, 201.0) == it.deaf_for(99, 201.0) == 0
