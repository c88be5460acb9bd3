"""What happens to calls when the network or the server fails (pitfalls 2, 3, 24, 26 and 36)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import hiredis
import pytest
import redis
from anyio.abc import ByteStream, SocketAttribute

from echomq import transitions as t
from echomq.conformance.proxy import FaultProxy, open_proxy
from echomq.embedded import Server
from echomq.errors import UnavailableError
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.wire import open_wire
from echomq.wire.pipeline import ROOM
from tests.worker.support import TRIO

pytestmark = pytest.mark.anyio


async def until(condition: Callable[[], object]) -> None:
    """Wait for something that will become true."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110 - whatever the condition, no event tells of it
            await anyio.sleep(0.005)


async def outcome(call: Awaitable[Any], into: list[Any]) -> None:
    """Run a call and note how it ended."""
    try:
        into.append(await call)
    except Exception as error:
        into.append(error)


async def test_reply_lost_after_the_call_ran_is_answered_once(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """An enqueue whose reply is lost is sent again and answered from memory, even after its job has gone."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob(payload=b"warm"))
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            job = NewJob(payload=b"x")
            tasks.start_soon(outcome, enqueue(job), got)
            await until(lambda: redis_client.zcard(keys.pending) == 2)
            redis_client.delete(keys.pending, keys.job(job.id))  # as if it had been run and was gone
            proxy.dropping_replies = False
            proxy.cut()
        assert got[0].code == "admitted"
        assert redis_client.zcard(keys.pending) == 0
        assert client.statistics.resent == 1


async def test_claim_whose_reply_is_lost_answers_the_same_jobs(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """A repeated claim does not strand the jobs of the first."""
    async with open_wire(proxy.url) as client:
        await client.group(keys, "enqueue").many(NewJob() for _ in range(10))

        async def claim() -> Any:
            return await client.remembered(keys, lambda call: t.claim(keys, call, count=3, lease_ms=30_000))

        first = await claim()
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, claim(), got)
            await until(lambda: redis_client.zcard(keys.active) == 6)
            proxy.dropping_replies = False
            proxy.cut()
        assert len(got[0].jobs) == 3
        assert not {job.id for job in got[0].jobs} & {job.id for job in first.jobs}
        assert redis_client.zcard(keys.active) == 6


async def test_plain_command_is_never_sent_twice(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A command that may have run fails as such when its connection breaks."""
    async with open_wire(proxy.url) as client:
        await client.command("PING")
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, client.command("RPUSH", keys.log("x"), "1"), got)
            await until(lambda: proxy.dropped_bytes)
            proxy.dropping_replies = False
            proxy.cut()
        assert isinstance(got[0], UnavailableError)
        assert got[0].sent
        assert await client.command("LLEN", keys.log("x")) == 1


async def test_calls_wait_for_a_reconnect(proxy: FaultProxy) -> None:
    """Calls made while the connection is away are sent when it is back."""
    async with open_wire(proxy.url) as client:
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not client.connected)
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(outcome, client.command("ECHO", str(number)), got)
            await anyio.sleep(0.1)
            assert got == []
            proxy.refusing = False
        assert sorted(got) == [b"0", b"1", b"2", b"3", b"4"]


async def test_outage_gives_callers_up_with_word_whether_it_ran(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """After `unavailable_after` callers learn whether their call may have run, and it runs no more."""
    async with open_wire(proxy.url, unavailable_after=0.3) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        got: list[Any] = []
        proxy.dropping_replies = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, enqueue(NewJob()), got)
            await until(lambda: redis_client.zcard(keys.pending) == 2)
            proxy.refusing = True
            proxy.cut()
            await until(lambda: not client.connected)
            tasks.start_soon(outcome, enqueue(NewJob()), got)
            tasks.start_soon(outcome, client.command("RPUSH", keys.log("x"), "1"), got)
        assert {(type(error), error.sent) for error in got} == {
            (UnavailableError, True),
            (UnavailableError, False),
        }
        assert [error.sent for error in got].count(True) == 1
        assert "127.0.0.1" in str(got[0])
        proxy.refusing = proxy.dropping_replies = False
        await until(lambda: client.connected)
        assert await client.command("LLEN", keys.log("x")) == 0
        assert redis_client.zcard(keys.pending) == 2


async def test_cancelled_caller_takes_an_unsent_command_out(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A command whose caller left while the server was away is not sent when it is back."""
    async with open_wire(proxy.url) as client:
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not client.connected)
        with anyio.move_on_after(0.05):
            await client.command("RPUSH", keys.log("x"), "1")
        assert client.statistics.waiting == 0
        proxy.refusing = False
        assert await client.command("LLEN", keys.log("x")) == 0


async def test_cancelled_caller_of_a_sent_command_harms_nobody(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A sent command runs, its reply is thrown away, and the others' replies stay in order."""
    async with open_wire(proxy.url) as client:
        await client.command("PING")
        proxy.frozen = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.command, "RPUSH", keys.log("x"), "1")
            await until(lambda: client.statistics.unanswered_bytes)
            tasks.cancel_scope.cancel()
        proxy.frozen = False
        assert await client.command("ECHO", "mine") == b"mine"
        assert await client.command("LLEN", keys.log("x")) == 1
        assert client.statistics.connects == 1


async def test_sent_call_of_a_cancelled_caller_is_not_sent_again(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """Who gave up does not find the call running again after the reconnect."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.frozen = True
        with anyio.move_on_after(0.05):
            await enqueue(NewJob())
        proxy.cut()
        proxy.frozen = False
        await enqueue(NewJob())
        assert redis_client.zcard(keys.pending) == 2
        assert client.statistics.resent == 0


async def test_half_open_connection_is_found_with_calls_and_idle(proxy: FaultProxy) -> None:
    """A peer that falls silent is found by the deadline, whether a reply is due or not."""
    async with open_wire(proxy.url, ping_deadline=0.6) as client:
        lost: list[float] = []
        client.on_disconnect.append(lambda: lost.append(time.monotonic()))
        await client.command("PING")
        await anyio.sleep(1.5)  # idle, pinged and answered: nothing happens
        assert client.statistics.connects == 1
        proxy.frozen = True
        await until(lambda: lost)
        proxy.cut()
        proxy.frozen = False
        assert await client.command("ECHO", "back") == b"back"


async def test_bytes_in_flight_are_bounded(proxy: FaultProxy) -> None:
    """While the server does not answer, no more than the bound and one call is sent; the rest waits in order."""
    async with open_wire(proxy.url) as client:
        proxy.frozen = True
        block = b"x" * 100_000
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(outcome, client.command("ECHO", block), got)
            await until(lambda: client.statistics.unanswered_bytes >= ROOM)
            await anyio.sleep(0.05)
            assert client.statistics.unanswered_bytes <= ROOM + 101_000
            assert client.statistics.waiting >= 28
            proxy.frozen = False
        assert got == [block] * 40


async def test_server_that_comes_back_empty_gets_its_scripts_again(own_server: Server, keys: QueueKeys) -> None:
    """After a restart the scripts are loaded anew and work goes on."""
    async with open_wire(own_server.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        own_server.restart()
        assert (await enqueue(NewJob())).code == "admitted"
        assert client.statistics.connects >= 2


async def test_server_never_up_is_no_error_until_a_call_waits(keys: QueueKeys) -> None:
    """A client opens although nobody listens; its callers learn the reason in time."""
    async with open_proxy("127.0.0.1", 1) as proxy, open_wire(proxy.url, unavailable_after=0.2) as client:
        assert not client.connected
        with pytest.raises(UnavailableError, match="closed during the handshake") as caught:
            await client.group(keys, "enqueue")(NewJob())
        assert not caught.value.sent
    async with open_wire("valkey://127.0.0.1:1", unavailable_after=0.2) as client:
        with pytest.raises(UnavailableError, match=r"(?i)refused"):
            await client.command("PING")


@TRIO
@pytest.mark.parametrize("word", ["LOADING", "BUSY", "TRYAGAIN"])
async def test_server_that_asks_for_a_moment_gets_it(word: str) -> None:
    """A call refused for a while is sent again until it is served, or its caller's time is up."""
    refusals = [word] * 3
    async with _scripted_server(refusals) as url, open_wire(url, unavailable_after=1.0) as client:
        assert await client.command("ECHO", "x") == b"OK"
        assert refusals == []
        refusals.extend([word] * 1000)
        with pytest.raises(UnavailableError) as caught:
            await client.command("ECHO", "x")
        assert not caught.value.sent
        assert word in str(caught.value)


async def test_read_only_server_is_left_for_another(keys: QueueKeys) -> None:
    """READONLY makes the wire connect again and send the call there."""
    refusals = ["READONLY"]
    async with _scripted_server(refusals) as url, open_wire(url) as client:
        assert await client.command("SET", "x", "1") == b"OK"
        assert client.statistics.connects == 2


def _scripted_server(refusals: list[str]) -> Any:
    """A server that refuses as many commands as the list has words: states no real one is in at will."""

    async def serve(stream: ByteStream) -> None:
        reader = hiredis.Reader()
        async with stream:
            while True:
                try:
                    reader.feed(await stream.receive())
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    return
                while (command := reader.gets()) is not False:
                    if command[0] == b"HELLO":
                        answer = b"%1\r\n$5\r\nproto\r\n:3\r\n"
                    elif command[0] in {b"CLIENT", b"PING"} or not refusals:
                        answer = b"$2\r\nOK\r\n"
                    else:
                        answer = b"-" + refusals.pop(0).encode() + b" not now\r\n"
                    await stream.send(answer)

    @asynccontextmanager
    async def opened() -> Any:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, serve)
            yield f"valkey://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            tasks.cancel_scope.cancel()

    return opened()


async def test_error_to_a_resend_leaves_the_outcome_unknown(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """A resend that the server refuses is told as perhaps run, with the refusal as its cause."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, enqueue(NewJob()), got)
            await until(lambda: redis_client.zcard(keys.pending) == 2)
            once = keys.once(client.tag, "enqueue")
            redis_client.delete(once)
            redis_client.rpush(once, "not what it should be")  # WRONGTYPE at the resend
            proxy.dropping_replies = False
            proxy.cut()
        assert isinstance(got[0], UnavailableError)
        assert got[0].sent
        assert "WRONGTYPE" in str(got[0].__cause__)


async def test_refusal_of_a_running_client_is_waited_out(own_server: Server) -> None:
    """A client that was connected keeps trying when its password is refused: it may be a rotation."""
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "app", "on", ">old", "~*", "+@all")
        url = f"valkey://app:old@{own_server.url.split('//')[1]}"
        async with open_wire(url) as client:
            await client.command("PING")
            admin.execute_command("ACL", "SETUSER", "app", "resetpass", ">new")
            admin.execute_command("CLIENT", "KILL", "USER", "app")
            await until(lambda: not client.connected)
            got: list[Any] = []
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outcome, client.command("PING"), got)
                await anyio.sleep(0.1)
                admin.execute_command("ACL", "SETUSER", "app", ">old")
            assert got == [b"PONG"]


async def test_readiness_hears_of_both(proxy: FaultProxy) -> None:
    """The lists of listeners are called at each loss and each return."""
    async with open_wire(proxy.url) as client:
        heard: list[str] = []
        client.on_connect.append(lambda: heard.append("up"))
        client.on_disconnect.append(lambda: heard.append("down"))
        proxy.cut()
        await until(lambda: "up" in heard)
        assert heard == ["down", "up"]
