from __future__ import annotations
import time
from typing import Any
import anyio, pytest, redis
import echomq
from echomq import App
from echomq.protocol.words import pack_words
from echomq._delivery import deliver_walk
from echomq._walks import drive

pytestmark = pytest.mark.anyio

@pytest.fixture(scope="session", params=["trio"])
def anyio_backend(request): return request.param

def make(server_url, queue_name):
    app = App(server_url)
    @app.task(queue=queue_name, result_ttl=60)
    async def top(n: int = 0) -> int: return n
    @app.task(queue=queue_name + "-b")
    async def leaf(n: int = 0) -> int: return n
    @app.task(queue=queue_name + "-c")
    async def deep(n: int = 0) -> int: return n
    return app, top, leaf, deep

TORN = {
 "cut": b"\x00\x00",
 "one": pack_words(["tell"]),
 "text": pack_words([b"\xff\xfe", b"\xff"]) ,
 "four": pack_words([b"tell", b"", b"\xff", b"\xff", b"\xff", b""]),
 "queue": pack_words([b"add", b"no such {queue}", b"x"]),
 "ownadd": pack_words([b"add", b"", b"x"]),
 "badadd": pack_words([b"add", b"QQ", b"\x00\x00garbage"]),
 "badtellq": pack_words([b"tell", b"{}", b"a", b"b", b"c", b"d"]),
}
@pytest.mark.parametrize("kind", TORN)
async def test_torn(server_url, queue_name, redis_client, kind):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app:
        q = app.queue(queue_name)
        await app.flows.add(echomq.flow(top.call(), [top.call(1)]))
        r = redis_client
        r.hset(q.keys.outbox_entries, "tell:torn", TORN[kind].replace(b"QQ", (queue_name+"-b").encode()).replace(b"\x00\x00\x00\x02"+(queue_name+"-b").encode(), b"\x00\x00\x00"+bytes([len(queue_name)+2])+(queue_name+"-b").encode()))
        r.zadd(q.keys.outbox, {"tell:torn": 1})
        await app.flows.add(echomq.flow(top.call(), [leaf.call(1)]))
        c = await app.queue(queue_name + "-b").counts()
        print(kind, c.pending, r.hkeys(q.keys.outbox_entries))
        assert c.pending == 1
        assert r.hkeys(q.keys.outbox_entries) == []

@pytest.mark.parametrize("n", [10, 128, 129, 300])
async def test_many_foreign(server_url, queue_name, redis_client, n):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app:
        t = time.perf_counter()
        await app.flows.add(echomq.flow(top.call(), [leaf.call(i) for i in range(n)]))
        print(n, time.perf_counter() - t)
        assert (await app.queue(queue_name + "-b").counts()).pending == n

async def test_nested_foreign(server_url, queue_name):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app:
        await app.flows.add(echomq.flow(top.call(), [echomq.flow(leaf.call(), [deep.call()])]))
        assert (await app.queue(queue_name + "-c").counts()).pending == 1

async def test_duplicate_child(server_url, queue_name):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app:
        first = await top.options(dedup="k").enqueue(1)
        h = await app.flows.add(echomq.flow(top.call(), [echomq.child(top.options(dedup="k").call(2), on_failure="ignore")]))
        assert (h.children["0"].admitted, h.children["0"].id) == (False, first.id)

async def test_results_of_flow_handles(server_url, queue_name):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app, anyio.create_task_group() as tg:
        w = await tg.start(echomq.run_worker, app)
        h = await app.flows.add(echomq.flow(top.call(5), [top.call(1)]))
        async for handle, r in app.results([h]):
            assert r == 5
        w.stop()

async def test_group_results_zero(server_url, queue_name):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app, anyio.create_task_group() as tg:
        w = await tg.start(echomq.run_worker, app)
        g = await app.flows.add(echomq.group([top.call(5), top.call(1)]))
        assert await g.results(10) == [5, 1]
        try:
            assert await g.results(0) == [5, 1]
        finally:
            w.stop()

@pytest.mark.parametrize("taken", [False, True])
async def test_obliterate(server_url, queue_name, redis_client, taken):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app:
        q = app.queue(queue_name + "-b")
        h = await app.flows.add(echomq.flow(top.call(), [leaf.call(1)]))
        await q.pause()
        if taken:
            from echomq.transitions import flow_take
            q2 = app.queue(queue_name)
            c = h.children["0"]
            await q.wire.group(q.keys, "remove").many([c.id])
            await q.wire.run(flow_take(q.keys, q._call))
        t = time.perf_counter()
        n = await q.obliterate()
        print("obliterate", n, time.perf_counter() - t)
        assert (await h.job.state()) == "dead"

async def test_obliterate_while_held(server_url, queue_name, redis_client):
    app, top, leaf, deep = make(server_url, queue_name)
    from echomq.transitions import flow_add, LocalNode
    from echomq.protocol.newjob import NewJob
    async with app:
        q = app.queue(queue_name)
        root = NewJob()
        await q.wire.remembered(q.keys, lambda call: flow_add(q.keys, call, [LocalNode(job=root, kids=True)], hold=root.id, last=False), verb="flow_add")
        await q.pause()
        t = time.perf_counter()
        try:
            n = await q.obliterate()
        finally:
            print("held", time.perf_counter() - t)

async def test_reroute(server_url, queue_name):
    import attrs
    app, top, leaf, deep = make(server_url, queue_name)
    @app.around_enqueue
    def move(call):
        yield attrs.evolve(call, queue=queue_name + "-c")
    async with app:
        one = await top.enqueue(1)
        assert one.queue == queue_name + "-c"
        h = await app.flows.add(echomq.flow(top.call(), [top.call(1)]))
        assert await h.job.state() == "waiting"

async def test_cancel_cost(server_url, queue_name):
    app, top, leaf, deep = make(server_url, queue_name)
    async with app:
        hs = await app.enqueue_many(top.call(i) for i in range(3000))
        s = app.client.wire.statistics.sent
        t = time.perf_counter()
        async with anyio.create_task_group() as tg:
            for h in hs: tg.start_soon(h.cancel)
        print("cancel 3000", time.perf_counter() - t, app.client.wire.statistics.sent - s)
