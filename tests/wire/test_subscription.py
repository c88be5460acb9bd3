"""Subscriptions (pitfall 36)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import redis

from echomq.conformance.proxy import FaultProxy
from echomq.embedded import Server
from echomq.errors import PermissionDeniedError
from echomq.protocol.keys import QueueKeys
from echomq.wire import Message, Reconnected, open_wire, subscription
from tests.wire.test_faults import until

pytestmark = pytest.mark.anyio


async def test_confirmed_subscription_misses_nothing(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """What is published after `add` has returned arrives, on each channel, until `remove`."""
    async with open_wire(server_url) as client, client.open_subscription() as heard:
        for number in range(5):
            await heard.add(keys.job(str(number)))
        for number in range(5):
            redis_client.publish(keys.job(str(number)), str(number))
        for number in range(5):
            assert await anext(heard) == Message(keys.job(str(number)), str(number).encode())
        await heard.remove(keys.job("0"))
        await until(lambda: not redis_client.pubsub_numsub(keys.job("0"))[0][1])
        assert redis_client.publish(keys.job("1"), "x") == 1


async def test_refused_channel_raises_and_harms_no_other(own_server: Server) -> None:
    """NOPERM comes in the line of replies: the right caller gets it, and the order holds."""
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "me", "on", ">pw", "~*", "+@all", "resetchannels", "&mine:*")
        url = f"valkey://me:pw@{own_server.url.split('//')[1]}"
        async with open_wire(url) as client, client.open_subscription() as heard:
            got: list[Any] = []

            async def add(channel: str) -> None:
                try:
                    await heard.add(channel)
                except PermissionDeniedError as error:
                    got.append((channel, error))

            async with anyio.create_task_group() as tasks:
                for channel in ("mine:1", "yours:1", "mine:2", "yours:2", "mine:3"):
                    tasks.start_soon(add, channel)
            assert sorted(channel for channel, _ in got) == ["yours:1", "yours:2"]
            assert set(heard.channels) == {"mine:1", "mine:2", "mine:3"}
            admin.publish("mine:3", "x")
            assert await anext(heard) == Message("mine:3", b"x")


async def test_reader_is_told_that_messages_may_have_been_missed(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """After a reconnect all channels are subscribed again before the reader hears of it."""
    async with open_wire(proxy.url) as client, client.open_subscription() as heard:
        await heard.add(keys.job("1"))
        await heard.add(keys.job("2"))
        proxy.cut()
        assert isinstance(await anext(heard), Reconnected)
        redis_client.publish(keys.job("2"), "x")
        assert await anext(heard) == Message(keys.job("2"), b"x")


async def test_connection_lost_while_subscribing_again_is_no_error(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """A second loss before the channels were confirmed again costs one more round, and one word to the reader."""
    async with open_wire(proxy.url) as client, client.open_subscription() as heard:
        await heard.add(keys.job("1"))
        proxy.delay = 0.1
        for _ in range(2):
            proxy.cut()
            await until(lambda: client.statistics.connections == 0)
            await until(lambda: client.statistics.connections == 2)
        proxy.delay = 0
        assert isinstance(await anext(heard), Reconnected)
        redis_client.publish(keys.job("1"), "x")
        assert await anext(heard) == Message(keys.job("1"), b"x")


async def test_dead_peer_of_a_silent_subscription_is_found(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A subscription on which nothing is published is pinged."""
    async with open_wire(proxy.url, ping_deadline=0.2) as client, client.open_subscription() as heard:
        await heard.add(keys.job("1"))
        proxy.frozen = True
        await until(lambda: client.statistics.connections == 0)
        proxy.cut()
        proxy.frozen = False
        told = await anext(heard)
        assert isinstance(told, Reconnected)
        assert "no answer" in told.reason


async def test_add_waits_for_the_server(proxy: FaultProxy, keys: QueueKeys) -> None:
    """Adding while the server is away returns when it is back and has confirmed."""
    async with open_wire(proxy.url) as client, client.open_subscription() as heard:
        proxy.refusing = True
        proxy.cut()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(heard.add, keys.job("1"))
            await anyio.sleep(0.05)
            proxy.refusing = False
        assert heard.channels == (keys.job("1"),)


async def test_cancelled_add_leaves_no_channel(proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis) -> None:
    """A channel whose adding was cancelled is not listened to."""
    async with open_wire(proxy.url) as client, client.open_subscription() as heard:
        await heard.add(keys.job("1"))
        proxy.frozen = True
        with anyio.move_on_after(0.05):
            await heard.add(keys.job("2"))
        proxy.frozen = False
        assert heard.channels == (keys.job("1"),)
        await heard.add(keys.job("3"))
        assert redis_client.pubsub_numsub(keys.job("2"))[0][1] == 0


async def test_slow_reader_costs_bounded_memory(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the buffer all is dropped, and the reader told."""
    monkeypatch.setattr(subscription, "BUFFER", 10)
    async with open_wire(server_url) as client, client.open_subscription() as heard:
        await heard.add(keys.job("1"))
        for number in range(15):
            redis_client.publish(keys.job("1"), str(number))
        await heard.add(keys.job("2"))  # its confirmation comes behind the messages
        assert isinstance(await anext(heard), Reconnected)
        assert await anext(heard) == Message(keys.job("1"), b"10")
