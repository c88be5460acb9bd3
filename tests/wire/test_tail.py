"""The end of a stream: heard of at once, and over lost and half-open connections."""

from __future__ import annotations

import anyio
import pytest
import redis

from echomq.conformance.proxy import FaultProxy
from echomq.protocol.keys import QueueKeys
from echomq.wire import open_wire, tail
from tests.wire.test_faults import until

pytestmark = pytest.mark.anyio


def add(server: redis.Redis, keys: QueueKeys) -> str:
    """Add an entry; answer its id."""
    id = server.xadd(keys.events, {"event": "paused", "job": ""})
    assert isinstance(id, bytes)
    return id.decode()


def blocked(server: redis.Redis) -> int:
    """Count clients that block on the server."""
    return int(server.info("clients")["blocked_clients"])


async def test_tail_hears_of_an_entry(server_url: str, keys: QueueKeys, redis_client: redis.Redis) -> None:
    """One behind the position that is there, and one that comes; a wait that was cancelled goes on with the same XREAD."""
    async with open_wire(server_url) as client:
        end = client.tail(keys)
        first = add(redis_client, keys)
        with anyio.fail_after(10):
            await end.wait(keys.events, "0-0")
        for _ in range(3):
            with anyio.move_on_after(0.02):
                await end.wait(keys.events, first)
        await until(lambda: blocked(redis_client))
        assert client.statistics.sent == 2
        add(redis_client, keys)
        with anyio.fail_after(10):
            await end.wait(keys.events, first)
        end.close()
        end.close()
        await until(lambda: not blocked(redis_client))


async def test_tail_says_look_when_its_connection_is_lost(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """What was added meanwhile is found by looking; the next wait stands on a new connection."""
    async with open_wire(proxy.url) as client:
        end = client.tail(keys)
        first = add(redis_client, keys)
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                await until(lambda: blocked(redis_client))
                proxy.cut()

            tasks.start_soon(cut)
            with anyio.fail_after(10):
                await end.wait(keys.events, first)
        second = add(redis_client, keys)
        with anyio.fail_after(10):
            await end.wait(keys.events, first)
        assert second > first


async def test_tail_notices_a_connection_that_is_half_open(
    proxy: FaultProxy, keys: QueueKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An XREAD that has no answer after its time has lost its peer: look, and then wait on another connection."""
    monkeypatch.setattr(tail, "BLOCK", 0.2)
    monkeypatch.setattr(tail, "LATE", 0.2)
    async with open_wire(proxy.url) as client:
        end = client.tail(keys)
        with anyio.fail_after(10):
            await end.wait(keys.events, "0-0")  # its time is over
            proxy.frozen = True
            await end.wait(keys.events, "0-0")
            proxy.frozen = False
            connects = client.statistics.connects
            while client.statistics.connects == connects:
                await end.wait(keys.events, "0-0")
