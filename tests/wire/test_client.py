"""Calls over a healthy connection, what the server refuses, and the ends of a client."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import redis

from echomq import transitions as t
from echomq.embedded import Server, open_server
from echomq.errors import AuthenticationError, PermissionDeniedError, ServerError, UnavailableError
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.wire import WireClient, open_wire
from tests.wire.test_faults import until

pytestmark = pytest.mark.anyio


async def test_run_answers_a_transitions_value(server_url: str, keys: QueueKeys) -> None:
    """A transition runs and its reply is read."""
    async with open_wire(server_url) as client:
        verdict = await client.group(keys, "enqueue")(NewJob(payload=b"1"))
        assert verdict.code == "admitted"
        counts = await client.run(t.counts(keys, t.Call(client.tag)))
        assert counts.pending == 1


async def test_replies_go_to_their_callers(server_url: str) -> None:
    """Concurrent callers each get their own reply."""
    async with open_wire(server_url) as client:
        got: dict[int, Any] = {}

        async def ask(number: int) -> None:
            for _ in range(20):
                got[number] = await client.command("ECHO", str(number))
                await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(ask, number)
        assert got == {number: str(number).encode() for number in range(50)}


async def test_noscript_in_a_pipeline_harms_no_other_reply(own_server: Server, keys: QueueKeys) -> None:
    """After SCRIPT FLUSH the script is loaded once and all callers get their answers."""
    async with open_wire(own_server.url) as client:
        await client.run(t.counts(keys, t.Call(client.tag)))
        await client.command("SCRIPT", "FLUSH")
        results: list[Any] = []

        async def count() -> None:
            results.append((await client.run(t.counts(keys, t.Call(client.tag)))).pending)

        async def echo(text: str) -> None:
            results.append(await client.command("ECHO", text))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(count)
                tasks.start_soon(echo, str(number))
        assert sorted(results, key=str) == sorted([0] * 20 + [str(n).encode() for n in range(20)], key=str)
        loads = (await client.command("INFO", "commandstats")).decode()
        assert "cmdstat_script|load:calls=2," in loads


async def test_argument_that_cannot_be_packed_hurts_only_its_caller(server_url: str) -> None:
    """A bad argument raises at its caller; the connection goes on."""
    async with open_wire(server_url) as client:
        with pytest.raises(TypeError):
            await client.command("ECHO", object())  # type: ignore[arg-type]
        assert await client.command("ECHO", "x") == b"x"


async def test_acl_refusal_names_what_is_missing(own_server: Server, keys: QueueKeys) -> None:
    """A user without rights gets a clear error for commands, scripts' keys and script loading."""
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+ping", "+hello", "+evalsha")
        admin.execute_command("ACL", "SETUSER", "keyless", "on", ">pw", "~other:*", "+@all")
    place = own_server.url.split("//")[1]
    async with open_wire(f"valkey://poor:pw@{place}") as client:
        with pytest.raises(PermissionDeniedError, match="get"):
            await client.command("GET", "x")
        with pytest.raises(PermissionDeniedError, match=r"(?i)script\|load"):
            await client.run(t.counts(keys, t.Call(client.tag)))
        assert await client.command("PING") == b"PONG"
    async with open_wire(f"valkey://keyless:pw@{place}") as client:
        with pytest.raises(PermissionDeniedError, match="key"):
            await client.run(t.counts(keys, t.Call(client.tag)))


@pytest.mark.parametrize("auth", ["me:wrong@", ""])
async def test_wrong_credentials_are_told_at_once(own_server: Server, auth: str) -> None:
    """A client that was never connected is told of a wrong or missing password and does not try for ever."""
    with redis.Redis.from_url(own_server.url) as admin:
        admin.config_set("requirepass", "right")
    place = own_server.url.split("//")[1]
    with pytest.raises(AuthenticationError) as caught:
        async with open_wire(f"valkey://{auth}{place}"):
            pass
    assert "wrong" not in str(caught.value).replace("WRONGPASS", "")


async def test_database_that_does_not_exist_is_told_at_once(server_url: str) -> None:
    """A database number beyond the server's is refused on opening."""
    with pytest.raises(ServerError, match="DB index"):
        async with open_wire(f"{server_url}/99999"):
            pass


async def test_database_is_selected(own_server: Server) -> None:
    """The URL's database number holds."""
    async with open_wire(f"{own_server.url}/3") as client:
        await client.command("SET", "here", "1")
    with redis.Redis.from_url(own_server.url, db=3) as admin:
        assert admin.get("here") == b"1"


async def test_unix_socket_works() -> None:
    """A client talks over a unix socket."""
    with open_server(unix_socket=True) as server:
        async with open_wire(f"unix://{server.unix_socket}?db=1") as client:
            assert await client.command("PING") == b"PONG"


async def test_exit_leaves_no_task_and_no_socket(server_url: str, keys: QueueKeys) -> None:
    """After the context no task and no descriptor of the client's is left, parks and subscriptions included."""
    before = _descriptors()
    tasks = {task.id for task in anyio.get_running_tasks()}
    async with (
        open_wire(server_url) as client,
        client.open_park() as park,
        client.open_subscription() as subscription,
    ):
        await park.wait([keys.wake], 0.01)
        await subscription.add(keys.cancel_channel)
        await client.run(t.counts(keys, t.Call(client.tag)), route="control")
        assert len(_descriptors()) > len(before)
    assert {task.id for task in anyio.get_running_tasks()} <= tasks
    gc.collect()
    assert _descriptors() == before


def _descriptors() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor of the listing itself
            found.add(str(entry.readlink()))
    return {name for name in found if name.startswith("socket:")}


async def test_exit_fails_callers_that_still_wait(server_url: str) -> None:
    """A caller outside of the client's body does not hang when the client is closed, and later ones are refused."""
    errors: list[Exception] = []

    async def block(client: WireClient) -> None:
        try:
            await client.command("BLPOP", "nothing:here", 30)
        except UnavailableError as error:
            errors.append(error)

    async with anyio.create_task_group() as tasks, open_wire(server_url) as client:
        tasks.start_soon(block, client)
        await until(lambda: client.statistics.unanswered_bytes)
    assert [error.sent for error in errors if isinstance(error, UnavailableError)] == [True]
    with pytest.raises(RuntimeError, match="closed"):
        await client.command("PING")


async def test_cancelled_body_can_still_call_under_a_shield(server_url: str) -> None:
    """Cancelling everything from outside does not kill the service before the body has ended."""
    said = None
    with anyio.CancelScope() as scope:
        async with open_wire(server_url) as client:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    said = await client.command("ECHO", "still here")
    assert said == b"still here"


async def test_body_exception_leaves_as_it_is(server_url: str) -> None:
    """What the body raises is not wrapped in a group."""
    with pytest.raises(KeyError):
        async with open_wire(server_url):
            raise KeyError("x")


async def test_fork_child_is_refused_and_parent_goes_on(server_url: str) -> None:
    """In a child every call raises at once; the parent's connection is not touched."""
    async with open_wire(server_url) as client:
        await client.command("PING")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.command("PING").send(None)
            except RuntimeError as error:
                code = 0 if "fork" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for number in range(10):
            assert await client.command("ECHO", str(number)) == str(number).encode()
        assert client.statistics.connects == 1


async def test_client_works_on_redis_7(redis7_url: str, keys: QueueKeys) -> None:
    """An older server, which lacks CLIENT SETINFO, is as good."""
    async with open_wire(redis7_url) as client:
        await client.group(keys, "enqueue")(NewJob())
        reply = await client.remembered(keys, lambda call: t.claim(keys, call, count=1, lease_ms=1000))
        assert len(reply.jobs) == 1
