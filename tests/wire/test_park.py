"""The doorbell (pitfalls 4 and 5)."""

from __future__ import annotations

import time

import anyio
import pytest
import redis

from echomq.conformance.proxy import FaultProxy
from echomq.errors import UnavailableError
from echomq.protocol.keys import QueueKeys
from echomq.wire import open_wire, park
from tests.wire.test_faults import until

pytestmark = pytest.mark.anyio


def blocked(admin: redis.Redis) -> int:
    """Count clients that block on the server."""
    return int(admin.info("clients")["blocked_clients"])


async def test_park_hears_the_ring(server_url: str, keys: QueueKeys, redis_client: redis.Redis) -> None:
    """A token ends the wait and names its list; one that was there already does so at once."""
    other = QueueKeys(queue=f"{keys.queue}-2")
    async with open_wire(server_url) as client, client.open_park() as bell:
        async with anyio.create_task_group() as tasks:

            async def ring() -> None:
                await until(lambda: blocked(redis_client))
                redis_client.rpush(other.wake, "1")

            tasks.start_soon(ring)
            assert await bell.wait([keys.wake, other.wake], 10) == other.wake
        redis_client.rpush(keys.wake, "1")
        assert await bell.wait([keys.wake, other.wake], 10) == keys.wake
        assert not bell.may_have_eaten


async def test_ring_is_told_before_the_waiter_wakes_and_only_while_it_waits(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """The callback is called once, with the list; a token that comes after the wait has ended calls nobody."""
    heard: list[str] = []
    async with open_wire(server_url) as client, client.open_park() as bell:
        redis_client.rpush(keys.wake, "1")
        assert await bell.wait([keys.wake], 10, on_ring=heard.append) == keys.wake
        assert heard == [keys.wake]
        assert await bell.wait([keys.wake], 0.05, on_ring=heard.append) is None
        redis_client.rpush(keys.wake, "1")
        await until(lambda: redis_client.llen(keys.wake) == 0)
        await until(lambda: bell._block is not None and bell._block.over)  # read, too
        assert await bell.wait([keys.wake], 10, on_ring=heard.append) == keys.wake
        assert heard == [keys.wake]


async def test_park_ends_by_its_own_timer_and_goes_on_with_the_same_blpop(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """Waits shorter than the BLPOP share one; a token that came in between is handed out by the next."""
    async with open_wire(server_url) as client, client.open_park() as bell:
        for _ in range(5):
            assert await bell.wait([keys.wake], 0.02) is None
        await until(lambda: blocked(redis_client))
        assert bell.may_have_eaten
        assert client.statistics.sent <= 1
        with anyio.move_on_after(0.02):
            await bell.wait([keys.wake], 10)
        redis_client.rpush(keys.wake, "1")
        await until(lambda: redis_client.llen(keys.wake) == 0)
        assert bell.may_have_eaten  # served, and not handed out yet
        assert await bell.wait([keys.wake], 10) == keys.wake
        assert not bell.may_have_eaten


async def test_leaving_a_park_closes_its_socket_and_eats_no_later_token(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """After the block the server has no client blocked, and a token stays in the list."""
    async with open_wire(server_url) as client:
        before = blocked(redis_client)
        async with client.open_park() as bell:
            await bell.wait([keys.wake], 0.01)
            await until(lambda: bell.may_have_eaten)  # once it is connected, the BLPOP stands
        await until(lambda: blocked(redis_client) <= before)
        redis_client.rpush(keys.wake, "1")
        assert redis_client.llen(keys.wake) == 1


async def test_blpop_is_sent_again_when_it_ends(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wait longer than one BLPOP goes on with the next, and never asks for 0 seconds."""
    monkeypatch.setattr(park, "BLOCK", 0.05)
    async with open_wire(server_url) as client, client.open_park() as bell:
        assert await bell.wait([keys.wake], 0.5) is None
        async with anyio.create_task_group() as tasks:
            before = client.statistics.sent
            tasks.start_soon(bell.wait, [keys.wake], 10)
            await until(lambda: client.statistics.sent >= before + 2)
            tasks.cancel_scope.cancel()
        assert await bell.wait([keys.wake], 0) is None


async def test_dead_peer_of_a_park_is_found(
    proxy: FaultProxy, keys: QueueKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer so long after the BLPOP's own timeout means a dead peer: an error, and a new connection."""
    monkeypatch.setattr(park, "BLOCK", 0.1)
    monkeypatch.setattr(park, "LATE", 0.2)
    async with open_wire(proxy.url) as client, client.open_park() as bell:
        await bell.wait([keys.wake], 0.01)
        await until(lambda: bell.may_have_eaten)
        proxy.frozen = True
        start = time.monotonic()
        with pytest.raises(UnavailableError, match="BLPOP was not answered") as caught:
            await bell.wait([keys.wake], 10)
        assert time.monotonic() - start < 5
        assert caught.value.sent
        assert bell.may_have_eaten
        proxy.cut()
        proxy.frozen = False
        assert await bell.wait([keys.wake], 0.2) is None


async def test_park_waits_while_the_server_is_away(proxy: FaultProxy, keys: QueueKeys) -> None:
    """Without a connection a wait ends by its timer, and no token can have been taken."""
    async with open_wire(proxy.url) as client:
        proxy.refusing = True
        async with client.open_park() as bell:
            assert await bell.wait([keys.wake], 0.05) is None
            assert not bell.may_have_eaten


async def test_other_keys_give_the_standing_blpop_up(
    server_url: str, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """A park that changes what it waits for does not eat tokens of what it waited for before."""
    other = QueueKeys(queue=f"{keys.queue}-2")
    async with open_wire(server_url) as client, client.open_park() as bell:
        await bell.wait([keys.wake], 0.01)
        await until(lambda: bell.may_have_eaten)
        await bell.wait([other.wake], 0.01)
        assert bell.may_have_eaten
        await until(lambda: client.statistics.connections == 2)
        redis_client.rpush(keys.wake, "1")
        redis_client.rpush(other.wake, "1")
        assert await bell.wait([other.wake], 10) == other.wake
        assert redis_client.llen(keys.wake) == 1
