"""What may be sent again and what may not, and one call of a verb in flight (rule 6)."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
import redis

from echomq import transitions as t
from echomq.conformance.proxy import FaultProxy
from echomq.errors import UnavailableError
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.transitions.base import Call, Transition
from echomq.wire import WireClient, open_wire
from tests.wire.test_faults import outcome, until

pytestmark = pytest.mark.anyio


async def test_verbs_that_a_lease_depends_on_have_their_own_connection(server_url: str, keys: QueueKeys) -> None:
    """Bulk must not delay a heartbeat, nor a claim or a verdict (pitfall 24)."""
    async with open_wire(server_url) as client:
        routes = {}
        for verb in ("extend", "complete", "fail", "release", "snooze", "end", "enqueue", "log", "progress"):
            sink: Any = client.group(keys, verb)._slot._sink
            routes[verb] = sink
        await client.remembered(keys, lambda call: t.claim(keys, call, count=1, lease_ms=1000), verb="claim")
        routes["claim"] = client._slots[keys.base, "claim"]._sink
    control = routes.pop("claim")
    bulk = {verb for verb, sink in routes.items() if sink is not control}
    assert bulk == {"enqueue", "log", "progress"}


async def test_unnumbered_call_that_would_remember_is_not_sent_twice(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """Without a number the server cannot answer a repetition from memory: its caller is told that it may have run."""
    async with open_wire(proxy.url) as client:
        await client.run(t.enqueue(keys, Call(client.tag), [NewJob()]))
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, client.run(t.enqueue(keys, Call(client.tag), [NewJob()])), got)
            await until(lambda: redis_client.zcard(keys.pending) == 2)
            proxy.dropping_replies = False
            proxy.cut()
        assert isinstance(got[0], UnavailableError)
        assert got[0].sent
        assert client.statistics.resent == 0


async def test_read_whose_reply_is_lost_is_sent_again(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A read changes nothing, so its caller does not hear of a connection that broke."""
    async with open_wire(proxy.url) as client:
        await client.run(t.counts(keys, Call(client.tag)))
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, client.run(t.counts(keys, Call(client.tag))), got)
            await until(lambda: proxy.dropped_bytes)
            proxy.dropping_replies = False
            proxy.cut()
        assert got[0].pending == 0
        assert client.statistics.resent == 1


async def test_plain_read_whose_reply_is_lost_is_sent_again(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A plain command that says so is a read, too."""
    async with open_wire(proxy.url) as client:
        await client.command("PING")
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, client.command("EXISTS", keys.meta, keys=keys, repeat=True), got)
            await until(lambda: proxy.dropped_bytes)
            proxy.dropping_replies = False
            proxy.cut()
        assert got == [0]
        assert client.statistics.resent == 1


class Claims:
    """Claims, and notes the numbers they carried."""

    def __init__(self, client: WireClient, keys: QueueKeys) -> None:
        self.client = client
        self.keys = keys
        self.numbers: list[int] = []

    def build(self, call: Call) -> Transition[t.ClaimReply]:
        """Make the call."""
        self.numbers.append(call.number)
        return t.claim(self.keys, call, count=1, lease_ms=30_000)

    async def claim(self) -> Any:
        """Claim a job."""
        return await self.client.remembered(self.keys, self.build, verb="claim")


async def test_verb_has_one_call_in_flight(proxy: FaultProxy, keys: QueueKeys) -> None:
    """The server remembers a client's last call of a verb only: also one whose caller has left is waited for."""
    async with open_wire(proxy.url) as client:
        claims = Claims(client, keys)
        await claims.claim()
        proxy.frozen = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claims.claim)
            await until(lambda: claims.numbers == [1, 2])
            tasks.cancel_scope.cancel()
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, claims.claim(), got)
            await anyio.sleep(0.05)
            assert claims.numbers == [1, 2]
            proxy.frozen = False
        assert claims.numbers == [1, 2, 3]
        assert got[0].jobs == []


async def test_numbers_have_no_gaps_when_callers_leave(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A number is drawn when the call is written, and not when its caller comes."""
    async with open_wire(proxy.url) as client:
        claims = Claims(client, keys)
        await claims.claim()
        proxy.frozen = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(claims.claim)
            await until(lambda: claims.numbers == [1, 2])
            with anyio.move_on_after(0.02):
                await claims.claim()
            tasks.start_soon(claims.claim)
            await anyio.sleep(0.02)
            proxy.frozen = False
        assert claims.numbers == [1, 2, 3]
