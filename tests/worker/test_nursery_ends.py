"""A nursery whose attempt ends at a bad moment: lost leases, lost replies, shutdowns, cancellations."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from echomq import App
from echomq.errors import LeaseLostError
from echomq.job import Job
from echomq.transitions import Call, read_flow
from echomq.worker import nursery
from tests.worker.support import Peek, proxied, running, until

pytestmark = pytest.mark.anyio


def names_of(peek: Peek, id: str) -> list[str]:
    """Answer the names of a job's children."""
    page = peek.run(read_flow(peek.keys, Call("looks"), id=id, count=1000))
    return sorted(child.name for child in page.children)


async def test_zombie_spawns_nothing(app: App, queue_name: str, peek: Peek) -> None:
    """Whose job has been taken over hears of it within the block, and its child is not there."""
    seen: list[Any] = []
    begun, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        begun.set()
        await gate.wait()
        try:
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())
        except LeaseLostError as error:
            seen.append((error.id, error.token, job.cancel_reason))
            raise

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app, lease=600.0, concurrency=1) as worker:
        handle = await parent.enqueue()
        await begun.wait()
        peek.expire(handle.id)
        peek.reap()
        (taken,) = peek.claim()
        assert taken.token == 2
        gate.set()
        await until(lambda: worker.statistics().counters.lost)
    assert seen == [(handle.id, 1, "lease_lost")]
    assert names_of(peek, handle.id) == []
    assert (peek.state(handle.id), peek.record(handle.id).attempts) == ("active", 2)


async def test_zombie_whose_job_is_gone_spawns_nothing(app: App, queue_name: str, peek: Peek) -> None:
    """The same, of a job that somebody else has completed."""
    seen: list[Any] = []
    begun, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        begun.set()
        await gate.wait()
        try:
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())
        except LeaseLostError as error:
            seen.append(error.reason)
            raise

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app, lease=600.0, concurrency=1) as worker:
        handle = await parent.enqueue()
        await begun.wait()
        peek.client.delete(peek.keys.job(handle.id))
        gate.set()
        await until(lambda: worker.statistics().counters.lost)
    assert seen == ["gone"]


async def test_spawn_whose_replies_are_lost_is_made_again(
    server_url: str, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage longer than a call's patience costs no attempt, and each child is there once."""
    monkeypatch.setattr(nursery, "AGAIN", 0.05)
    begun, ran = anyio.Event(), []
    async with proxied(server_url) as proxy:
        app = App(proxy.url, unavailable_after=0.2)

        @app.task(queue=queue_name, result_ttl=60)
        async def parent(job: Job) -> int:
            if job.attempt == 1:
                proxy.dropping_replies = True
                begun.set()
            async with job.nursery() as children:
                counted = [children.enqueue(child.call(i)) for i in range(3)]
                if job.attempt == 1:
                    await anyio.sleep(0.1)
            return sum(each.result() for each in counted)

        @app.task(queue=queue_name)
        async def child(i: int) -> int:
            ran.append(i)
            return i

        async with app, running(app, lease=600.0, concurrency=1) as worker:
            handle = await parent.enqueue()
            await begun.wait()
            await anyio.sleep(0.2)
            proxy.refusing = True
            proxy.cut()
            await anyio.sleep(1.0)  # the call is given up, and made again
            proxy.dropping_replies = proxy.refusing = False
            await until(lambda: peek.state(handle.id) == "done")
            assert peek.record(handle.id).result == b"3"
            assert worker.statistics().counters.failed == 0
    assert sorted(ran) == [0, 1, 2]
    assert names_of(peek, handle.id) in ([], ["0", "1", "2"])


async def test_suspension_outlives_an_outage(server_url: str, queue_name: str, peek: Peek) -> None:
    """The verdict waits for the server, and its repetition does no harm."""
    suspending = anyio.Event()
    async with proxied(server_url) as proxy:
        app = App(proxy.url, unavailable_after=0.2)

        @app.task(queue=queue_name, result_ttl=60)
        async def parent(job: Job) -> int:
            try:
                async with job.nursery() as children:
                    one = children.enqueue(child.call())
                    await until(lambda: peek.count("completed"))
            finally:
                if job.cancel_reason == "suspended":
                    proxy.dropping_replies = True
                    suspending.set()
            return one.result()

        @app.task(queue=queue_name)
        async def child() -> int:
            return 7

        async with app, running(app, lease=600.0) as worker:
            handle = await parent.enqueue()
            await suspending.wait()
            await until(lambda: worker.statistics().unsettled >= 1)
            await anyio.sleep(0.3)
            assert worker.statistics().unsettled >= 1
            proxy.cut()
            proxy.dropping_replies = False
            await until(lambda: peek.state(handle.id) == "done")
            assert peek.record(handle.id).result == b"7"
            counters = worker.statistics().counters
    assert (counters.suspended, counters.failed, counters.lost, peek.count("stalled")) == (1, 0, 0, 0)


async def test_shutdown_that_comes_first_gives_the_job_back(app: App, queue_name: str, peek: Peek) -> None:
    """The reason is `shutdown`, the verdict `release`; another worker's attempt finds the children."""
    reasons: list[str | None] = []
    begun = anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> int:
        try:
            async with job.nursery() as children:
                one = children.enqueue(child.call(), name="one")
                if job.attempt == 1:
                    await until(lambda: peek.count("completed"))
                    begun.set()
                    await anyio.sleep_forever()
        finally:
            reasons.append(job.cancel_reason)
        return one.result()

    @app.task(queue=queue_name)
    async def child() -> int:
        return 5

    async with app:
        async with running(app) as worker:
            handle = await parent.enqueue()
            await begun.wait()
        assert (peek.state(handle.id), worker.statistics().counters.released) == ("pending", 1)
        async with running(app):
            assert await handle.result(timeout=10) == 5
    assert reasons == ["shutdown", None]


async def test_shutdown_while_a_handler_is_being_suspended(app: App, queue_name: str, peek: Peek) -> None:
    """The first reason holds: its cleanup runs on, and the job waits for its children."""
    reasons: list[str | None] = []
    cleaning = anyio.Event()

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        try:
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())
        finally:
            cleaning.set()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.3)
                await job.checkpoint({"kept": True})
            reasons.append(job.cancel_reason)

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app:
        async with running(app) as worker:
            handle = await parent.enqueue()
            await cleaning.wait()
        assert peek.state(handle.id) == "waiting"
        assert worker.statistics().counters.suspended == 1
    assert reasons == ["suspended"]
    assert peek.record(handle.id).checkpoint == b'{"kept":true}'


async def test_person_that_cancels_a_handler_being_suspended(app: App, queue_name: str, peek: Peek) -> None:
    """The request waits in the row, and the suspension ends the job."""
    cleaning, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        try:
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())
        finally:
            cleaning.set()
            with anyio.CancelScope(shield=True):
                await gate.wait()

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app) as worker:
        handle = await parent.enqueue()
        await cleaning.wait()
        assert await handle.cancel() == "asked"
        gate.set()
        await until(lambda: worker.statistics().counters.cancelled == 1)
        await until(lambda: peek.state(handle.id) == "")
        await until(peek.empty)


async def test_children_that_cannot_be_sent_end_the_body(app: App, queue_name: str, peek: Peek) -> None:
    """The body is cancelled, and the error leaves the block as it is; a handler may go on after it."""
    seen: list[Any] = []
    begun, gate = anyio.Event(), anyio.Event()

    @app.task(queue=queue_name, result_ttl=60)
    async def parent(job: Job) -> str:
        begun.set()
        await gate.wait()
        try:
            async with job.nursery() as children:
                children.enqueue(child.options(delay=60).call())
                await anyio.sleep_forever()
        except Exception as error:
            seen.append(type(error).__name__)
        return "went on"

    @app.task(queue=queue_name)
    async def child() -> None: ...

    async with app, running(app):
        handle = await parent.enqueue()
        await begun.wait()
        peek.client.hset(peek.keys.meta, "closing", 1)  # as while it is obliterated
        gate.set()
        assert await handle.result(timeout=10) == "went on"
    assert seen == ["JobStateError"]
    assert names_of(peek, handle.id) == []
