"""Functions around the handlers of batches: once a batch, whose items are decoded within."""

from __future__ import annotations

from typing import Any

import pytest

from echomq import (
    App,
    Batch,
    HandlerCall,
    JobBatch,
)
from echomq.protocol.failures import ErrorRecord
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


def error_of(peek: Peek, id: str) -> ErrorRecord:
    """What a job failed by."""
    error = peek.record(id).error
    assert error is not None
    return error


def declare_batch(app: App, queue: str, handled: list[Any], **options: Any) -> Any:
    """A task of batches that notes its items."""

    @app.task(queue=queue, batch=Batch(max_size=3, linger=0.5), result_ttl=60, **options)
    async def handle(batch: JobBatch[int]) -> None:
        handled.append([item.value for item in batch])
        for item in batch:
            batch.done(item, item.value * 2)

    return handle


async def test_around_handling_is_once_around_a_batch(app: App, queue_name: str) -> None:
    """It gets the batch, its items without values until it calls; what it returns is nobody's result."""
    handled: list[Any] = []
    task, seen = declare_batch(app, queue_name, handled), []

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        assert type(batch) is JobBatch
        seen.append([(item.payload, item.value) for item in batch])
        assert await call() is None
        seen.append([item.value for item in batch.items])
        return "ignored"

    async with app, running(app):
        handles = [await task.enqueue(n) for n in range(3)]
        assert [await each.result(timeout=10) for each in handles] == [0, 2, 4]
    assert handled == [[0, 1, 2]]
    assert seen == [[(b'{"args":[%d]}' % n, None) for n in range(3)], [0, 1, 2]]


async def test_around_handling_may_turn_a_batchs_payloads_back(app: App, queue_name: str, peek: Peek) -> None:
    """By item; what cannot be decoded then is settled alone, and the handler does not see it."""
    handled: list[Any] = []
    task = declare_batch(app, queue_name, handled)

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        values = {b'{"args":[0]}': b'{"args":[100]}', b'{"args":[1]}': b"poison"}
        return await call(payload={item: values[item.payload] for item in batch if item.payload in values})

    async with app, running(app):
        handles = [await task.enqueue(n) for n in range(3)]
        assert await handles[0].result(timeout=10) == 200
        assert await handles[2].result(timeout=10) == 4
        await until(lambda: peek.state(handles[1].id) == "dead")
    assert handled == [[100, 2]]


async def test_around_handling_of_a_batch_that_is_all_poison_calls_nobody(
    app: App, queue_name: str, peek: Peek
) -> None:
    """Nothing is left to be handled; the middleware goes on."""
    handled: list[Any] = []
    declare_batch(app, queue_name, handled)
    seen = []

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        seen.append(await call())

    async with app, running(app):
        jobs = [await app.queue(queue_name).enqueue(b"no call", task="handle") for _ in range(2)]
        await until(lambda: all(peek.state(job.id) == "dead" for job in jobs))
    assert handled == []
    assert set(seen) == {None}


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"x", "the payloads of a batch are a mapping of its items to bytes, not b'x'"),
        ({"no item": b"x"}, "the payloads of a batch are by its items, and this is none: 'no item'"),
    ],
)
async def test_around_handling_of_a_batch_wants_payloads_by_item(
    app: App, queue_name: str, peek: Peek, payload: Any, message: str
) -> None:
    """Anything else fails all of the batch."""
    task = declare_batch(app, queue_name, [], max_attempts=1)

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        await call(payload=payload)

    async with app, running(app):
        job = await task.enqueue(1)
        await until(lambda: peek.state(job.id) == "dead")
    assert error_of(peek, job.id).message == message


async def test_around_handling_that_swallows_a_batchs_error_completes_it(app: App, queue_name: str) -> None:
    """Items that are not settled are done; one that never calls completes them too."""

    @app.task(queue=queue_name, batch=Batch(max_size=2), result_ttl=60)
    async def handle(batch: JobBatch[int]) -> None:
        raise LookupError

    @app.around_handling
    async def around(batch: JobBatch[Any], call: HandlerCall) -> Any:
        try:
            if batch.items[0].headers:
                await call()
        except LookupError:
            pass

    async with app, running(app):
        assert await (await handle.enqueue(1)).result(timeout=10) is None
        assert await (await handle.options(headers={"call": "1"}).enqueue(1)).result(timeout=10) is None
