"""The cancellation matrix of clients: every call, cancelled at each moment in turn, leaves nothing behind and nothing half done."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from types import coroutine
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
import redis

from echomq import App, flow, open_client
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import Snapshot, differences, take
from echomq.queue import Queue
from echomq.results import JobHandle
from echomq.tasks import Task
from echomq.transitions import Call, Completion, Failure, claim, complete, fail
from tests.leftovers import sockets, tasks, threads
from tests.worker.support import TRIO, proxied, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# Minutes on a busy machine, most of it waiting: too long for every run.
LONG = pytest.mark.prove
WAITING = {
    "JobHandle.result, waiting", "JobHandle.result, in time", "App.results", "App.results, waiting", "Queue.enqueue_many",
    "Queue.enqueue_stream",
}  # fmt: skip
"""Calls that wait as another one does (`JobHandle.result`, `App.enqueue_many`), and have the more moments for it."""

OPEN = 0.05
"""Seconds after which a call that waits for ever has reached its last checkpoint."""


# --- how a call is cancelled -----------------------------------------------------------------------------------------


@coroutine
def stepping(awaitable: Awaitable[Any], cancel: Callable[[], None], step: int) -> Any:
    """Await something, and call `cancel` as it comes to its n-th checkpoint, on either event loop."""
    inner = awaitable.__await__()
    send: Callable[[], Any] = inner.__next__
    count = 0
    while True:
        try:
            trap = send()
        except StopIteration as stop:
            return stop.value
        count += 1
        if count == step:
            cancel()
        try:
            value = yield trap
        except BaseException as error:
            send = lambda error=error: inner.throw(error)  # type: ignore[misc]  # noqa: E731
        else:
            send = lambda value=value: inner.send(value)  # type: ignore[misc]  # noqa: E731


async def at_checkpoint(step: int, call: Callable[[], Awaitable[Any]]) -> bool:
    """Make a call and cancel it at its n-th checkpoint. Answers whether it came to that."""
    reached = False

    def cancel() -> None:
        nonlocal reached
        reached = not scope.cancel_called  # else it is at its end
        scope.cancel()

    with anyio.move_on_after(OPEN) as scope:
        await stepping(call(), cancel, step)
    return reached


async def after_ticks(count: int, call: Callable[[], Awaitable[Any]]) -> bool:
    """Make a call and cancel it after so many turns of the event loop. Answers whether that was before its end."""
    ended = False
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as ticking:

            async def tick() -> None:
                for _ in range(count):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

            ticking.start_soon(tick)
            await call()
            ended = True
            ticking.cancel_scope.cancel()
    return not ended


def ticks() -> Iterator[int]:
    """Each of the first turns, then more and more between two."""
    count = 0
    while count < 1000:
        yield count
        count += 1 + count // 3


# --- what is called --------------------------------------------------------------------------------------------------


@attrs.define
class World:
    """An open app, a queue of its own, and a look behind everybody's back."""

    app: App
    task: Task[..., Any]
    queue: Queue
    server: redis.Redis

    def look(self) -> Snapshot:
        """Look at the queue."""
        return take(self.server, self.queue.keys)

    def state(self, id: str) -> str:
        """Answer where a job is; "" when it has no row."""
        found: Any = self.server.hget(self.queue.keys.job(id), "state")
        return (found or b"").decode()

    def size(self) -> int:
        """Count what is pending."""
        found: Any = self.server.zcard(self.queue.keys.pending)
        return int(found)

    async def pending(self) -> JobHandle[Any]:
        """Enqueue a job that keeps its result."""
        return await self.task.options(result_ttl=60).enqueue(1)

    async def held(self) -> tuple[JobHandle[Any], tuple[str, int, str]]:
        """Enqueue a job and claim it as somebody else."""
        handle = await self.pending()
        wire, keys = self.queue.wire, self.queue.keys
        reply = await wire.remembered(keys, lambda call: claim(keys, call, count=1, lease_ms=60_000))
        (job,) = reply.jobs
        return handle, (job.id, job.token, job.nonce)

    async def done(self) -> JobHandle[Any]:
        """A job that has ended, and whose result is kept."""
        handle, fence = await self.held()
        await self.queue.wire.run(complete(self.queue.keys, Call(""), [Completion(*fence, b"null")]))
        return handle

    async def dead(self) -> JobHandle[Any]:
        """A job in the morgue."""
        handle, fence = await self.held()
        await self.queue.wire.run(fail(self.queue.keys, Call(""), [Failure(*fence, 0, 0, b"{}")]))
        return handle


Prepare = Callable[[World], Awaitable[Any]]


@attrs.frozen
class Case:
    """A call, what it needs, and what may be afterwards."""

    prepare: Prepare
    call: Callable[[World, Any], Awaitable[Any]]
    states: frozenset[str] | None = None
    """Where the prepared job may be afterwards; None: nothing may have changed."""
    grows: int = 0
    """By how many pending jobs the queue may have grown."""
    changes: tuple[str, ...] = ()
    """What else may have changed: fields of `meta`, and the events."""

    def check(self, world: World, prepared: Any, before: Snapshot) -> None:
        """Look at what has become of it."""
        after = world.look()
        assert violations(after) == []
        if self.states is not None:
            assert world.state(prepared.id) in self.states
        elif self.grows:
            assert 0 <= len(after.zset("pending")) - len(before.zset("pending")) <= self.grows
        else:
            changed = differences(before.without("once:"), after.without("once:"))
            expected = (*self.changes, "wake")
            assert [line for line in changed if not line.startswith(expected)] == []


async def nothing(_: World) -> None:
    """Nothing is needed."""


async def results_of(world: World, handles: list[JobHandle[Any]]) -> None:
    """Go through results."""
    results = world.app.results(handles)
    try:
        async for _ in results:
            pass
    finally:
        results.close()  # now, and not when the exception and its traceback have gone


async def some(world: World) -> list[JobHandle[Any]]:
    """Jobs that have ended, one in the morgue."""
    return [await world.done(), await world.done(), await world.dead()]


async def some_open(world: World) -> list[JobHandle[Any]]:
    """Jobs of which one never ends."""
    return [await world.done(), await world.pending()]


async def paused(world: World) -> None:
    """A queue that is paused."""
    await world.queue.pause()


async def asked(world: World) -> JobHandle[Any]:
    """A job that runs."""
    return (await world.held())[0]


async def waiting(world: World) -> JobHandle[Any]:
    """A parent that waits for two children."""
    return (await world.app.flows.add(flow(world.task.call(1), [world.task.call(1)] * 2))).job


async def held_flow(world: World, _: None) -> None:
    """Add a flow that comes in rounds."""
    await world.app.flows.add(flow(world.task.call(1), [world.task.call(1)] * 300))


async def stream(world: World, _: None) -> None:
    """Go through a stream."""
    async for _answer in world.queue.enqueue_stream([b"{}"] * 600, task="work"):
        pass


CASES = {
    "Queue.enqueue": Case(nothing, lambda w, _: w.queue.enqueue(b"{}", task="work"), grows=1),
    "Queue.enqueue_many": Case(nothing, lambda w, _: w.queue.enqueue_many([b"{}"] * 600, task="work"), grows=600),
    "Queue.enqueue_stream": Case(nothing, stream, grows=600),
    "App.enqueue": Case(nothing, lambda w, _: w.app.enqueue(w.task.call(1)), grows=1),
    "App.enqueue_many": Case(nothing, lambda w, _: w.app.enqueue_many(w.task.call(n) for n in range(300)), grows=300),
    "Client.enqueue": Case(nothing, lambda w, _: w.app.client.enqueue(w.task.call(1)), grows=1),
    "Client.enqueue_many": Case(nothing, lambda w, _: w.app.client.enqueue_many([w.task.call(1)]), grows=1),
    "Task.enqueue": Case(nothing, lambda w, _: w.task.enqueue(1), grows=1),
    "TaskCaller.enqueue": Case(nothing, lambda w, _: w.task.options(priority=3).enqueue(1), grows=1),
    "Queue.cancel": Case(World.pending, lambda w, h: w.queue.cancel(h.id, reason="x"), frozenset({"pending", "done"})),
    "JobHandle.cancel": Case(World.pending, lambda _, h: h.cancel(), frozenset({"pending", "done"})),
    "JobHandle.cancel, running": Case(asked, lambda _, h: h.cancel(), frozenset({"active"})),
    "Queue.remove": Case(World.pending, lambda w, h: w.queue.remove([h.id]), frozenset({"pending", ""})),
    "Queue.redrive": Case(World.dead, lambda w, h: w.queue.redrive([h.id]), frozenset({"dead", "pending"})),
    "Queue.reassign": Case(World.pending, lambda w, h: w.queue.reassign([h.id], lane=""), frozenset({"pending"})),
    "Queue.update": Case(World.pending, lambda w, h: w.queue.update(h.id, b"[[2],{}]"), frozenset({"pending"})),
    "Queue.reprioritise": Case(
        World.pending, lambda w, h: w.queue.reprioritise([h.id], priority=3), frozenset({"pending"})
    ),
    "Queue.drain": Case(World.pending, lambda w, _: w.queue.drain(scheduled=True), frozenset({"pending", ""})),
    "Queue.trim": Case(World.dead, lambda w, _: w.queue.trim(dead_max=0), frozenset({"dead", ""})),
    "Queue.waits": Case(World.pending, lambda w, _: w.queue.waits()),
    "Queue.workers": Case(World.pending, lambda w, _: w.queue.workers()),
    "Client.queues": Case(World.pending, lambda w, _: w.app.client.queues()),
    "Lane.drain": Case(World.pending, lambda w, _: w.queue.lane("").drain(), frozenset({"pending", ""})),
    "Lane.info": Case(World.pending, lambda w, _: w.queue.lane("acme").info()),
    "Lanes.page": Case(World.pending, lambda w, _: w.queue.lanes.page()),
    "Queue.settings": Case(World.pending, lambda w, _: w.queue.settings()),
    "Queue.pause": Case(World.pending, lambda w, _: w.queue.pause(), changes=("meta[paused]", "events")),
    "Queue.resume": Case(paused, lambda w, _: w.queue.resume(), changes=("meta[paused]", "events")),
    "Queue.configure": Case(
        World.pending, lambda w, _: w.queue.configure(events="all"), changes=("meta[events]", "meta[born]")
    ),
    "Queue.counts": Case(World.pending, lambda w, _: w.queue.counts()),
    "Queue.job": Case(World.pending, lambda w, h: w.queue.job(h.id, log=True)),
    "Queue.browse": Case(World.pending, lambda w, _: w.queue.browse("pending")),
    "Queue.age": Case(World.pending, lambda w, _: w.queue.age()),
    "JobHandle.info": Case(World.pending, lambda _, h: h.info()),
    "JobHandle.state": Case(World.pending, lambda _, h: h.state()),
    "JobHandle.result": Case(World.done, lambda _, h: h.result()),
    "JobHandle.result, waiting": Case(World.pending, lambda _, h: h.result()),
    "JobHandle.result, in time": Case(World.pending, lambda _, h: h.result(timeout=600)),
    "Flows.add": Case(nothing, lambda w, _: w.app.flows.add(flow(w.task.call(1), [w.task.call(1)] * 2)), grows=2),
    "Flows.add, in rounds": Case(nothing, held_flow, grows=300),
    "Flows.add_many": Case(nothing, lambda w, _: w.app.flows.add_many([w.task.call(1)] * 9), grows=9),
    "Flows.tree": Case(waiting, lambda w, h: w.app.flows.tree(h.id, w.queue.name)),
    "Queue.cancel, of a parent": Case(waiting, lambda w, h: w.queue.cancel(h.id), frozenset({"waiting", ""})),
    "Queue.remove, of a parent": Case(waiting, lambda w, h: w.queue.remove([h.id]), frozenset({"waiting", ""})),
    "App.results": Case(some, results_of),
    "App.results, waiting": Case(some_open, results_of),
}


# --- the matrix ------------------------------------------------------------------------------------------------------


def make_app(url: str, queue: str) -> tuple[App, Task[..., Any]]:
    """Make an app with a task."""
    app = App(url, name="matrix")

    @app.task(queue=queue)
    async def work(n: int = 0) -> None: ...

    return app, work


@asynccontextmanager
async def nothing_left(server: redis.Redis) -> AsyncIterator[None]:
    """Afterwards there is no task, socket or thread that was not there before."""
    server.ping()  # it has its socket by now
    gc.collect()
    before = sockets(), tasks(), threads()
    yield
    gc.collect()
    # What an earlier test has left may go meanwhile.
    assert (sockets() - before[0], tasks() - before[1], threads() - before[2]) == (set(), set(), set())


@asynccontextmanager
async def opened(url: str, queue: str, server: redis.Redis) -> AsyncIterator[World]:
    """Open an app."""
    app, task = make_app(url, queue)
    async with app:
        yield World(app, task, app.queue(queue), server)


async def at_rest(world: World) -> None:
    """Wait until what was sent is answered: nobody waits for anything any more."""
    wire = world.queue.wire
    gc.collect()  # iterators that were dropped
    with anyio.fail_after(10):
        while wire.statistics.waiting or wire.statistics.unanswered_bytes:  # noqa: ASYNC110 - no event tells it
            await anyio.sleep(0.001)  # its callers have left: nobody is told
    assert not [slot.verb for slot in wire._slots.values() if slot._holder is not None or slot._line]
    assert not [group.verb for group in wire._groups.values() if group._line]


async def works(world: World) -> None:
    """The client works, and listens to nothing that nobody asked for."""
    channels = world.queue.channels
    with anyio.fail_after(10):
        last = await world.task.options(result_ttl=60).enqueue(2)
        assert await last.state() == "pending"
        assert await last.cancel() == "cancelled"
        with pytest.raises(Exception, match="cancelled"):
            await last.result()
    await channels._unsubscribe()
    assert channels._bells == {}
    assert channels._service is not None
    assert channels._service.subscription is not None
    assert channels._service.subscription.channels == ()


@TRIO
@pytest.mark.parametrize("warm", [pytest.param(False, id="cold"), pytest.param(True, id="warm", marks=LONG)])
@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG) if name in WAITING else name for name in CASES])
async def test_call_cancelled_at_each_moment(
    name: str, warm: bool, server_url: str, redis_client: redis.Redis, queue_name: str
) -> None:
    """No task, socket or thread, nobody who waits, no job lost or torn; the client works. By checkpoints and by turns."""
    case, moments = CASES[name], 0

    async def once(cancelled: Callable[[int, Callable[[], Awaitable[Any]]], Awaitable[bool]], at: int) -> bool:
        nonlocal moments
        moments += 1
        async with nothing_left(redis_client), opened(server_url, f"{queue_name}-{moments}", redis_client) as world:
            if warm:
                prepared = await case.prepare(world)
                with anyio.move_on_after(OPEN):
                    await case.call(world, prepared)
            prepared, before = await case.prepare(world), world.look()
            reached = await cancelled(at, lambda: case.call(world, prepared))
            await at_rest(world)
            case.check(world, prepared, before)
            await works(world)
            assert world.queue.wire.statistics.resent == 0
        return reached

    step = 1
    while await once(at_checkpoint, step):
        step += 1
    for count in ticks():
        if not await once(after_ticks, count):
            break
    assert moments > 2


@LONG
@TRIO
@pytest.mark.parametrize("how", ["refusing", "frozen"])
@pytest.mark.parametrize("name", CASES)
async def test_call_cancelled_while_the_server_is_away(
    name: str, how: str, server_url: str, redis_client: redis.Redis, queue_name: str
) -> None:
    """Who gave up finds nothing of it when the server is back, unless it had been sent; closing waits for nobody."""
    case = CASES[name]
    async with (
        nothing_left(redis_client),
        proxied(server_url) as proxy,
        opened(proxy.url, queue_name, redis_client) as world,
    ):
        prepared: Any = None
        for seconds in (0.0, 0.03):
            prepared, before = await case.prepare(world), world.look()
            if how == "refusing":
                proxy.refusing = True
                proxy.cut()
                await until(lambda: not world.queue.wire.connected)
            else:
                proxy.frozen = True
            with anyio.move_on_after(seconds) as scope:
                await case.call(world, prepared)
            assert scope.cancelled_caught
            proxy.refusing = proxy.frozen = False
            await at_rest(world)
            case.check(world, prepared, before)
            if how == "refusing":
                assert world.look().zset("pending").keys() == before.zset("pending").keys()
            await works(world)
        proxy.frozen = True
        with anyio.move_on_after(0.01):
            await case.call(world, prepared)


@pytest.mark.parametrize("how", ["up", "refusing", "frozen"])
async def test_opening_and_closing_cancelled_at_each_moment(
    how: str, server_url: str, redis_client: redis.Redis, queue_name: str
) -> None:
    """A client or an app that was cancelled while it was opened or closed is closed, and may be opened anew."""
    async with nothing_left(redis_client), proxied(server_url) as proxy:
        app, _ = make_app(proxy.url, queue_name)

        async def with_app() -> None:
            async with app:
                await anyio.lowlevel.checkpoint()

        async def with_client() -> None:
            async with open_client(proxy.url) as client:
                await client.queue(queue_name).counts()

        proxy.refusing, proxy.frozen = how == "refusing", how == "frozen"
        for call in (with_app, with_client):
            step = 1
            while step < 100 and await at_checkpoint(step, call):
                assert not app.is_open
                step += 1
            assert step > 1
            for count in ticks():
                with anyio.move_on_after(OPEN):
                    await after_ticks(count, call)
                assert not app.is_open
        proxy.refusing = proxy.frozen = False
        await until(lambda: not proxy.open_connections)
        await with_app()
        await with_client()
