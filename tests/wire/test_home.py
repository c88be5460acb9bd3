"""A client belongs to the event loop that opened it: elsewhere it is refused, and its owner goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
import trio

import echomq
from echomq import App, JobHandle, open_client
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.transitions import Call, claim, counts
from echomq.wire import WireClient, open_wire
from echomq.wire.home import is_home
from tests.wire.test_faults import until

pytestmark = pytest.mark.anyio

BACKENDS = pytest.mark.parametrize("elsewhere", ["asyncio", "trio"])
FOREIGN = "another loop or thread"


async def in_another_thread(backend: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run something in an event loop of its own, beside ours, which goes on meanwhile."""

    def run() -> None:
        async def bounded() -> None:
            with anyio.fail_after(5):
                await work()

        anyio.run(bounded, backend=backend)

    await anyio.to_thread.run_sync(run)


async def refused(*calls: Callable[[], Any]) -> None:
    """Make each call and expect the one clear error."""
    for call in calls:
        with pytest.raises(RuntimeError, match=FOREIGN):
            await call()


@BACKENDS
async def test_wire_refuses_another_loop_at_each_entry(server_url: str, keys: QueueKeys, elsewhere: str) -> None:
    """Nothing is sent or changed, and the owner's calls are answered before, meanwhile and after."""
    async with open_wire(server_url) as wire, wire.open_park() as park, wire.open_subscription() as words:
        enqueue = wire.group(keys, "enqueue")
        assert (await enqueue(NewJob())).code == "admitted"
        await until(lambda: wire.statistics.connections == 3)
        before = wire.statistics

        async def leave(enter: Any) -> None:
            async with enter():
                pass

        async def sync(call: Callable[[], object]) -> None:
            call()

        async def work() -> None:
            await refused(
                lambda: wire.command("PING"),
                lambda: wire.run(counts(keys, Call(wire.tag))),
                lambda: wire.remembered(keys, lambda call: claim(keys, call, count=1, lease_ms=1000), verb="claim"),
                lambda: sync(lambda: wire.group(keys, "cancel")),
                lambda: enqueue(NewJob()),
                lambda: enqueue.many([NewJob()]),
                lambda: sync(lambda: enqueue.submit(NewJob(), print)),
                lambda: leave(wire.open_park),
                lambda: leave(wire.open_subscription),
                lambda: park.wait([keys.wake], 0.1),
                lambda: words.add("channel"),
                lambda: words.remove("channel"),
                words.__anext__,
            )

        await in_another_thread(elsewhere, work)
        assert wire.statistics == before
        assert (await enqueue(NewJob())).code == "admitted"
        assert (await wire.run(counts(keys, Call(wire.tag)))).pending == 2


@BACKENDS
async def test_client_refuses_another_loop_at_each_entry(server_url: str, queue_name: str, elsewhere: str) -> None:
    """Queues, handles, results and bulk too; making a queue or a handle sends nothing, and may be done anywhere."""
    async with open_client(server_url) as client:
        queue = client.queue(queue_name)
        handle = await queue.enqueue(b"", result_ttl=60)
        drawn: list[object] = []

        def payloads() -> Any:
            drawn.append(None)
            yield b""

        async def work() -> None:
            new = client.queue(f"{queue_name}-new")
            again = new.handle(handle.id)
            await refused(
                lambda: queue.enqueue(b""),
                lambda: new.enqueue(b""),
                lambda: queue.enqueue_many(payloads()),
                lambda: client.enqueue_many(payloads()),
                lambda: queue.cancel(handle.id),
                lambda: queue.remove([handle.id]),
                lambda: queue.redrive([handle.id]),
                queue.pause,
                queue.resume,
                queue.counts,
                queue.age,
                lambda: queue.browse("pending"),
                lambda: queue.configure(events="all"),
                lambda: handle.result(timeout=1),
                lambda: handle.result(timeout=0),
                handle.result,
                handle.state,
                again.info,
                handle.cancel,
                lambda: anext(client.results([handle])),
            )

        await in_another_thread(elsewhere, work)
        assert drawn == []
        assert (await queue.counts()).pending == 1
        assert await handle.cancel() == "cancelled"


@BACKENDS
async def test_app_is_not_closed_nor_worked_for_from_another_loop(
    server_url: str, queue_name: str, elsewhere: str
) -> None:
    """Neither is torn from under its owner, who closes it."""
    app = App(server_url)

    @app.task(queue=queue_name)
    async def task(n: int) -> int:
        return n

    async with app:

        async def work() -> None:
            await refused(
                lambda: task.enqueue(1),
                lambda: app.enqueue_many([task.call(1)]),
                lambda: app.__aexit__(None, None, None),
                lambda: echomq.run_worker(app),
                lambda: echomq.run_worker(app.queue(queue_name), print),
            )
            with pytest.raises(RuntimeError, match="open already"):
                await app.__aenter__()

        await in_another_thread(elsewhere, work)
        assert app.is_open
        assert isinstance(await task.enqueue(1), JobHandle)


async def test_client_refuses_a_thread_without_a_loop(server_url: str, keys: QueueKeys) -> None:
    """A call that begins in a thread's plain code is refused as well, and one made by anyio's bridge is served."""
    async with open_wire(server_url) as wire:
        group = wire.group(keys, "enqueue")

        def work() -> str:
            with pytest.raises(RuntimeError, match=FOREIGN):
                group.submit(NewJob(), print)
            with pytest.raises(RuntimeError, match=FOREIGN):
                wire.command("PING").send(None)
            return anyio.from_thread.run(group, NewJob()).code

        assert await anyio.to_thread.run_sync(work) == "admitted"


async def test_client_refuses_a_loop_inside_of_its_own(server_url: str) -> None:
    """As a notebook has it: the other library's loop runs in the same thread, while the owner's is held up by it."""
    async with open_wire(server_url) as wire:

        async def work() -> None:
            await refused(lambda: wire.command("PING"))

        if _on_trio():
            asyncio.run(work())
        else:
            trio.run(work)
        assert await wire.command("PING") == b"PONG"


def test_client_inside_of_another_loop_is_at_home(server_url: str) -> None:
    """Opened in the inner loop it works there, with whatever runs outside; anyio knows no asyncio within trio."""

    async def work() -> None:
        async with open_wire(server_url) as wire:
            assert await wire.command("PING") == b"PONG"

    async def outside() -> None:
        trio.run(work)

    asyncio.run(outside())


def _on_trio() -> bool:
    return trio.lowlevel.in_trio_task()


def test_client_left_open_is_refused_by_the_threads_next_loop(server_url: str) -> None:
    """Two `asyncio.run` one after another share a thread, and no loop."""
    opened: list[WireClient] = []

    async def first() -> None:
        async with open_wire(server_url) as wire:
            opened.append(wire)
            await anyio.sleep_forever()

    async def second() -> None:
        await refused(lambda: opened[0].command("PING"))

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        task = loop.create_task(first())
        while not opened:
            runner.run(asyncio.sleep(0.01))
        asyncio.run(second())
        task.cancel()


async def test_closed_client_says_that_it_is_closed_wherever_it_is_used(server_url: str) -> None:
    """The nearer reason is told."""
    async with open_client(server_url) as client:
        pass

    async def work() -> None:
        with pytest.raises(RuntimeError, match="closed"):
            await client.queue("q").counts()

    await in_another_thread("trio", work)
    await work()


async def test_home_is_where_callbacks_of_the_loop_run() -> None:
    """What the loop calls without a task is at home; a thread is not, and neither is the same thread afterwards."""
    here = is_home()
    heard: list[bool] = []
    if _on_trio():
        trio.lowlevel.current_trio_token().run_sync_soon(lambda: heard.append(here()))
    else:
        asyncio.get_running_loop().call_soon(lambda: heard.append(here()))
    with anyio.fail_after(5):
        while not heard:  # noqa: ASYNC110 - the loop's own turn
            await anyio.sleep(0.001)
    thread = threading.Thread(target=lambda: heard.append(here()))
    thread.start()
    await anyio.to_thread.run_sync(thread.join)
    assert heard == [True, False]


def test_home_is_left_when_the_loop_has_ended() -> None:
    """Plain code of the same thread is not at home."""

    async def opened() -> Callable[[], bool]:
        here = is_home()
        assert here()
        return here

    for backend in ("asyncio", "trio"):
        assert not anyio.run(opened, backend=backend)()
