"""Group commit (pitfall 33), and one call in flight for each verb."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import redis

from echomq import transitions as t
from echomq.conformance.proxy import FaultProxy
from echomq.errors import PermissionDeniedError, UnavailableError
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.protocol.refusals import Verdict
from echomq.transitions.base import MAX_CALL_BYTES, MAX_ITEMS, Call, Transition
from echomq.wire import open_wire
from echomq.wire.group import Head, assemble
from echomq.wire.items import Entry
from tests.wire.test_faults import outcome, until

pytestmark = pytest.mark.anyio


class Recorder:
    """Notes of each call its number and how many items it carries."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def __call__(self, head: Head, number: int, riders: Sequence[Entry]) -> bytes:
        """Note a call, and put it together."""
        self.calls.append((number, len(riders)))
        return assemble(head, number, riders)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Record the calls of every group."""
    recorder = Recorder()
    monkeypatch.setattr("echomq.wire.group.assemble", recorder)
    return recorder


async def leave_when(condition: Callable[[], object], scope: anyio.CancelScope) -> None:
    """Cancel a caller when something has become true."""
    await until(condition)
    scope.cancel()


async def test_items_of_one_moment_ride_together(server_url: str, keys: QueueKeys, recorder: Recorder) -> None:
    """Concurrent items leave as one call, what comes meanwhile as the next, and numbers increase."""
    async with open_wire(server_url) as client:
        enqueue = client.group(keys, "enqueue")
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(outcome, enqueue(NewJob()), got)
        assert [verdict.code for verdict in got] == ["admitted"] * 100
        assert sum(count for _, count in recorder.calls) == 100
        assert len(recorder.calls) <= 3
        assert [number for number, _ in recorder.calls] == list(range(1, len(recorder.calls) + 1))


async def test_calls_are_cut_by_count_and_by_bytes(server_url: str, keys: QueueKeys, recorder: Recorder) -> None:
    """No call has more items or bytes than allowed; one larger item goes alone."""
    async with open_wire(server_url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue.many(NewJob() for _ in range(MAX_ITEMS + 1))
        assert max(count for _, count in recorder.calls) == MAX_ITEMS
        recorder.calls.clear()
        large = [NewJob(payload=b"x" * (MAX_CALL_BYTES * 2 // 5)) for _ in range(4)]
        huge = NewJob(payload=b"x" * (MAX_CALL_BYTES + 1))
        outcomes = await enqueue.many([*large, huge, NewJob()])
        assert [verdict.code for verdict in outcomes if isinstance(verdict, Verdict)] == ["admitted"] * 6
        assert [count for _, count in recorder.calls] == [2, 2, 1, 1]


async def test_verdicts_go_to_their_items(server_url: str, keys: QueueKeys) -> None:
    """Each item of a mixed call gets its own verdict, in input order."""
    async with open_wire(server_url) as client:
        enqueue = client.group(keys, "enqueue")
        jobs = [NewJob(dedup=f"d{number % 10}") for number in range(30)]
        outcomes = await enqueue.many(jobs)
        codes = [verdict.code for verdict in outcomes if isinstance(verdict, Verdict)]
        assert codes == ["admitted"] * 10 + ["duplicate"] * 20
        assert outcomes[17] == Verdict("duplicate", jobs[7].id)


async def test_cancelled_caller_takes_its_item_out_of_an_unsent_call(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """An item that has not left is not sent; the others of its call are."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.frozen = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(outcome, enqueue(NewJob()), got)  # on the wire
            await until(lambda: client.statistics.unanswered_bytes)
            tasks.start_soon(outcome, enqueue(NewJob()), got)  # waits for it
            with anyio.move_on_after(0.02):
                await enqueue(NewJob())  # waits too, and leaves
            proxy.frozen = False
        assert len(got) == 2
        assert redis_client.zcard(keys.pending) == 3


async def test_cancelled_caller_of_a_sent_item_drops_its_verdict(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """An item that has left takes effect; its neighbour gets its own verdict."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.frozen = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(leave_when, lambda: client.statistics.unanswered_bytes, scope)
                enqueue.submit(NewJob(dedup="a"), got.append)
                await enqueue(NewJob())
        proxy.frozen = False
        await until(lambda: got)
        assert [verdict.code for verdict in got] == ["admitted"]
        assert redis_client.zcard(keys.pending) == 3


async def test_call_with_one_caller_left_is_sent_again_byte_for_byte(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis, recorder: Recorder
) -> None:
    """After a lost reply the same call goes again for who stayed; the number keeps it from running twice."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.dropping_replies = True
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            with anyio.CancelScope() as scope:
                tasks.start_soon(leave_when, lambda: redis_client.zcard(keys.pending) == 3, scope)
                enqueue.submit(NewJob(), got.append)
                await enqueue(NewJob())
        proxy.dropping_replies = False
        proxy.cut()
        await until(lambda: got)
        assert [verdict.code for verdict in got] == ["admitted"]
        assert redis_client.zcard(keys.pending) == 3
        assert recorder.calls == [(1, 1), (2, 2)]
        assert client.statistics.resent == 1


async def test_whole_call_error_goes_to_every_caller(
    server_url: str, keys: QueueKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the call is refused, each caller gets an exception of its own, and the next call is a new one."""
    async with open_wire(server_url) as client:

        def broken(head: Head, number: int, riders: Sequence[Entry]) -> bytes:
            return assemble(head, number, [*riders, Entry("torn")])

        monkeypatch.setattr("echomq.wire.group.assemble", broken)
        enqueue = client.group(keys, "enqueue")
        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(outcome, enqueue(NewJob()), got)
        assert len(got) == 3
        assert all(isinstance(error, Exception) for error in got)
        assert len({id(error) for error in got}) == 3
        assert isinstance((await enqueue.many([NewJob()]))[0], Exception)


async def test_submit_waits_an_outage_out(proxy: FaultProxy, keys: QueueKeys) -> None:
    """A submitted item outlives `unavailable_after` if it was given more time; else it does not."""
    async with open_wire(proxy.url, unavailable_after=0.1) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not client.connected)
        patient: list[Any] = []
        short: list[Any] = []
        default: list[Any] = []
        enqueue.submit(NewJob(), patient.append, give_up_after=60)
        enqueue.submit(NewJob(), short.append, give_up_after=0.05)
        enqueue.submit(NewJob(), default.append)
        await until(lambda: short and default)
        assert isinstance(short[0], UnavailableError)
        assert isinstance(default[0], UnavailableError)
        assert not short[0].sent
        assert patient == []
        proxy.refusing = False
        await until(lambda: patient)
        assert patient[0].code == "admitted"


async def test_closing_calls_every_callback_and_lets_later_ones_know(proxy: FaultProxy, keys: QueueKeys) -> None:
    """Also of a call that waits for an absent server, of callbacks that submit again, and of what comes afterwards."""
    heard: list[str] = []
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not client.connected)

        def again(outcome: object) -> None:
            heard.append(type(outcome).__name__)
            if len(heard) < 5:
                enqueue.submit(NewJob(), again, give_up_after=60)

        enqueue.submit(NewJob(), again, give_up_after=60)
        await anyio.sleep(0.05)
        assert heard == []
    assert heard == ["UnavailableError"] * 5
    enqueue.submit(NewJob(), lambda outcome: heard.append(type(outcome).__name__), give_up_after=60)
    assert heard == ["UnavailableError"] * 6


async def test_submit_callback_that_raises_hurts_nobody(server_url: str, keys: QueueKeys) -> None:
    """A callback's exception is logged; its neighbours and the connection go on."""
    async with open_wire(server_url) as client:
        enqueue = client.group(keys, "enqueue")

        def bad(_outcome: object) -> None:
            raise RuntimeError("on purpose")

        good: list[Any] = []
        enqueue.submit(NewJob(), bad)
        enqueue.submit(NewJob(), good.append)
        await until(lambda: good)
        assert (await enqueue(NewJob())).code == "admitted"


async def test_many_holds_only_a_few_calls_worth(server_url: str, keys: QueueKeys) -> None:
    """The iterable is drawn from as verdicts come back, and progress is told."""
    drawn = 0
    known = 0
    ahead = 0

    def note(count: int) -> None:
        nonlocal known, ahead
        known, ahead = count, max(ahead, drawn - count)

    def jobs() -> Any:
        nonlocal drawn
        for _ in range(5000):
            drawn += 1
            yield NewJob()

    async with open_wire(server_url) as client:
        outcomes = await client.group(keys, "enqueue").many(jobs(), progress=note)
        assert len(outcomes) == known == 5000
        assert ahead <= 4 * MAX_ITEMS
        assert await client.group(keys, "enqueue").many([]) == []


async def test_many_stops_sending_when_the_server_is_away(proxy: FaultProxy, keys: QueueKeys) -> None:
    """An outage costs one wait; the rest is answered as not sent, in order."""
    async with open_wire(proxy.url, unavailable_after=0.2) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.refusing = True
        proxy.cut()
        with anyio.fail_after(10):  # a wait for each call would be twice as long
            outcomes = await enqueue.many(NewJob() for _ in range(20_000))
        assert len(outcomes) == 20_000
        assert all(isinstance(error, UnavailableError) for error in outcomes)


async def test_cancelled_many_takes_its_items_out(
    proxy: FaultProxy, keys: QueueKeys, redis_client: redis.Redis
) -> None:
    """What had not left when `many` was cancelled is not sent."""
    async with open_wire(proxy.url) as client:
        enqueue = client.group(keys, "enqueue")
        await enqueue(NewJob())
        proxy.frozen = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enqueue.many, [NewJob() for _ in range(1000)])
            await until(lambda: client.statistics.unanswered_bytes)  # one call has left, and the next waits for it
            tasks.cancel_scope.cancel()
        proxy.frozen = False
        await enqueue(NewJob())
        assert redis_client.zcard(keys.pending) == 1 + MAX_ITEMS + 1


async def test_remembered_calls_of_a_verb_take_turns(server_url: str, keys: QueueKeys) -> None:
    """One call in flight for each queue and verb: numbers go out in order, and nobody is passed over."""
    async with open_wire(server_url) as client:
        await client.group(keys, "enqueue").many(NewJob() for _ in range(20))
        numbers: list[int] = []

        def build(call: Call) -> Transition[t.ClaimReply]:
            numbers.append(call.number)
            return t.claim(keys, call, count=1, lease_ms=30_000)

        got: list[Any] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(outcome, client.remembered(keys, build, verb="claim"), got)
        assert numbers == list(range(1, 21))
        assert len({reply.jobs[0].id for reply in got}) == 20
        assert all(reply.jobs[0].nonce.startswith(client.tag) for reply in got)


async def test_cancelled_remembered_call_lets_the_next_go(server_url: str, keys: QueueKeys) -> None:
    """Callers that leave the line, or whose call is on the wire, do not block the verb."""
    async with open_wire(server_url) as client:

        async def claim() -> Any:
            return await client.remembered(keys, lambda call: t.claim(keys, call, count=1, lease_ms=1000))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(claim)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert (await claim()).jobs == []


async def test_error_of_a_group_names_the_verb(own_server: Any, keys: QueueKeys) -> None:
    """A refusal by ACL reaches each item's caller as what it is."""
    with redis.Redis.from_url(own_server.url) as admin:
        admin.execute_command("ACL", "SETUSER", "reader", "on", ">pw", "%R~*", "+@all")
    async with open_wire(f"valkey://reader:pw@{own_server.url.split('//')[1]}") as client:
        with pytest.raises(PermissionDeniedError):
            await client.group(keys, "enqueue")(NewJob())
