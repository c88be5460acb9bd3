"""A slot that moves key by key: every call is refused whole, on both nodes, in each half-moved state."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import redis
from redis.crc import key_slot

from echomq.app import App
from echomq.conformance.driver import Driver, connect
from echomq.conformance.invariants import violations
from echomq.conformance.snapshot import scan, take
from echomq.embedded import Server, open_server
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import ALL_VERBS, Call, Transition
from tests.faults.support import FENCED, call_of
from tests.worker.support import TRIO, Peek, running, until

OPTIONS = {"cluster-enabled": "yes", "enable-debug-command": "local", "cluster-require-full-coverage": "no"}
HALF = 8192


@attrs.frozen
class Node:
    """One node of the cluster."""

    server: Server
    client: redis.Redis
    id: str

    def cluster(self, *words: Any) -> Any:
        """Run a command of the cluster's own."""
        return self.client.execute_command("CLUSTER", *words)

    def digest(self) -> bytes:
        """Answer a digest of all its data, TTLs' existence included."""
        answer: bytes = self.client.execute_command("DEBUG", "DIGEST")
        return answer


@pytest.fixture(scope="module")
def nodes(binary: Path | None) -> Iterator[tuple[Node, Node]]:
    """Two nodes that know each other; each has half of the slots, for a node that has none becomes a replica."""
    with (
        open_server(config=OPTIONS, binary=binary) as one,
        open_server(config=OPTIONS, binary=binary) as two,
        connect(one.url) as here,
        connect(two.url) as there,
    ):
        first, second = (
            Node(server, client, client.execute_command("CLUSTER", "MYID").decode())
            for server, client in ((one, here), (two, there))
        )
        first.cluster("ADDSLOTSRANGE", 0, HALF - 1)
        second.cluster("ADDSLOTSRANGE", HALF, 16383)
        first.cluster("MEET", "127.0.0.1", two.port, there.config_get("cluster-port")["cluster-port"])
        until = time.monotonic() + 20
        while not (_is_whole(first) and _is_whole(second)):
            assert time.monotonic() < until, [node.cluster("INFO") for node in (first, second)]
            time.sleep(0.05)
        yield first, second


def _is_whole(node: Node) -> bool:
    info: Any = node.cluster("INFO")
    text = info if isinstance(info, dict) else dict(line.split(":", 1) for line in info.decode().splitlines())
    seen = {str(name): str(value) for name, value in text.items()}
    return (seen["cluster_known_nodes"], seen["cluster_state"], seen["cluster_slots_assigned"]) == ("2", "ok", "16384")


@attrs.frozen
class Moving:
    """A queue with work of every kind whose slot is on its way from one node to the other."""

    source: Node
    target: Node
    keys: QueueKeys
    held: Claimed
    ready: str

    @property
    def slot(self) -> int:
        """Its slot."""
        return key_slot(self.keys.meta.encode())

    def begin(self) -> None:
        """Open the slot on both sides."""
        self.target.cluster("SETSLOT", self.slot, "IMPORTING", self.source.id)
        self.source.cluster("SETSLOT", self.slot, "MIGRATING", self.target.id)

    def move(self, names: list[bytes]) -> None:
        """Move keys."""
        if names:
            port = self.target.server.port
            self.source.client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *names)

    def bring_back(self, names: list[bytes]) -> None:
        """Move keys the other way."""
        port = self.source.server.port
        self.target.client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", *names)

    def end(self) -> None:
        """Give the slot to the target."""
        for node in (self.target, self.source):
            node.cluster("SETSLOT", self.slot, "NODE", self.target.id)

    def call(self, verb: str) -> Transition[Any]:
        """Make a call that would do its work if the slot stood still."""
        call = Call("reshard0001", 1_000_000)
        return call_of(verb, self.keys, call, self.held, self.ready)


@pytest.fixture
def moving(nodes: tuple[Node, Node], queue_name: str) -> Iterator[Moving]:
    """A queue on the node that has its slot; afterwards both nodes are empty, and the slot is where it was."""
    keys = QueueKeys(queue=queue_name)
    source, target = nodes if key_slot(keys.meta.encode()) < HALF else reversed(nodes)
    driver = Driver(source.client, keys)
    driver.plain("configure", settings={"events": "all"})
    jobs = [NewJob(payload=b"x", dedup=f"k{n}", result_ttl_ms=60_000) for n in range(5)]
    driver.items("enqueue", *jobs, NewJob(delay_ms=60_000))
    driver.run(call_of("schedule_put", keys, driver.call("schedule_put"), held := driver.claim(1).jobs[0], ""))
    source.client.hset(keys.schedule_of("nightly"), "slot", 1)
    source.client.zadd(keys.schedules, {"nightly": 1})
    done, dead = driver.claim(2).jobs
    for verb, claimed in (("complete", done), ("fail", dead), ("log", held)):
        driver.run(call_of(verb, keys, driver.call(verb), claimed, ""))
    for node in nodes:  # as after some time at work: so that no refusal is that of an unknown script
        for verb in ALL_VERBS:
            node.client.script_load(call_of(verb, keys, Call("x", 1), held, jobs[3].id).script.source)
    it = Moving(source, target, keys, held, jobs[3].id)
    yield it
    for node in nodes:
        node.client.flushall()
        node.cluster("SETSLOT", it.slot, "STABLE")
        # Back to whose it was: of some hundred queues, two may well share a slot.
        node.cluster("SETSLOT", it.slot, "NODE", source.id)


def refusal(client: redis.Redis, transition: Transition[Any], *, asking: bool = False) -> str:
    """Send a call and answer the first word of its refusal, or `ran`."""
    with client.pipeline(transaction=False) as pipe:
        if asking:
            pipe.execute_command("ASKING")
        pipe.execute_command(*transition.command())
        answer = pipe.execute(raise_on_error=False)[-1]
    if not isinstance(answer, Exception):
        return "ran"
    kinds = {
        redis.exceptions.TryAgainError: "TRYAGAIN",
        redis.exceptions.AskError: "ASK",
        redis.exceptions.MovedError: "MOVED",
    }
    return kinds.get(type(answer), f"{type(answer).__name__}: {answer}")


@pytest.mark.parametrize("state", ["nothing moved", "meta moved", "all but meta moved", "rows moved", "all moved"])
def test_moving_slot_refuses_every_script_whole(moving: Moving, state: str) -> None:
    """On either node, asked or not, no verb runs a line: TRYAGAIN, ASK or MOVED, and both nodes hold what they held."""
    names = scan(moving.source.client, f"{moving.keys.base}*")
    meta = moving.keys.meta.encode()
    moved = {
        "nothing moved": [],
        "meta moved": [meta],
        "all but meta moved": [name for name in names if name != meta],
        "rows moved": [name for name in names if b":job:" in name],
        "all moved": names,
    }[state]
    assert len(names) > 12
    moving.begin()
    moving.move(moved)
    before = [moving.source.digest(), moving.target.digest()]
    seen = {}
    for verb in ALL_VERBS:
        transition = moving.call(verb)
        seen[verb] = (
            refusal(moving.source.client, transition),
            refusal(moving.target.client, transition),
            refusal(moving.target.client, transition, asking=True),
        )
        assert [moving.source.digest(), moving.target.digest()] == before, verb
    # `meta` and `void`: one there and one not is TRYAGAIN, none there is ASK; who has not asked is sent back.
    at_source = "ASK" if meta in moved else "TRYAGAIN"
    assert seen == dict.fromkeys(ALL_VERBS, (at_source, "MOVED", "TRYAGAIN"))


@pytest.mark.parametrize("verb", ALL_VERBS)
def test_slot_that_has_moved_runs_scripts_again(moving: Moving, verb: str) -> None:
    """Once it stands still, on the other node, a call that was refused meanwhile does its work; the old node sends on."""
    names = scan(moving.source.client, f"{moving.keys.base}*")
    transition = moving.call(verb)
    moving.begin()
    moving.move(names[: len(names) // 2])
    assert refusal(moving.source.client, transition) in {"TRYAGAIN", "ASK"}
    moving.move(names[len(names) // 2 :])
    moving.end()
    assert violations(take(moving.target.client, moving.keys)) == []
    assert refusal(moving.source.client, transition) == "MOVED"
    answer = transition.read(moving.target.client.execute_command(*transition.command()))
    if verb in FENCED:
        assert [verdict.ok for verdict in answer] == [True]
    assert violations(take(moving.target.client, moving.keys), awake=1) == []


def test_slot_that_stays_after_all_goes_on(moving: Moving) -> None:
    """A migration that is given up, with what had moved brought back, leaves the queue as it was."""
    before = moving.source.digest()
    names = scan(moving.source.client, f"{moving.keys.base}*")
    moving.begin()
    moving.move(names[::2])
    assert refusal(moving.source.client, moving.call("claim")) in {"TRYAGAIN", "ASK"}
    moving.source.cluster("SETSLOT", moving.slot, "STABLE")
    moving.bring_back(names[::2])
    moving.target.cluster("SETSLOT", moving.slot, "STABLE")
    assert moving.source.digest() == before
    answer = moving.call("claim")
    assert [job.id for job in answer.read(moving.source.client.execute_command(*answer.command())).jobs]
    assert violations(take(moving.source.client, moving.keys), awake=1) == []


@TRIO
@pytest.mark.anyio
@pytest.mark.slow
@pytest.mark.parametrize("moved", [False, True], ids=["meta here", "meta moved"])
async def test_worker_waits_while_its_slot_moves(nodes: tuple[Node, Node], queue_name: str, moved: bool) -> None:
    """Renewals, verdicts and claims wait and are sent again; nothing is lost, and it costs no more than time."""
    keys = QueueKeys(queue=queue_name)
    source, target = nodes if key_slot(keys.meta.encode()) < HALF else reversed(nodes)
    app = App(source.server.url, unavailable_after=15.0)
    peek = Peek(source.client, queue_name)
    gate = anyio.Event()
    ran: list[int] = []

    @app.task(queue=queue_name, result_ttl=60)
    async def work(n: int) -> int:
        ran.append(n)
        await gate.wait()
        return n

    try:
        async with app, running(app, lease=6.0, concurrency=2) as worker:
            jobs = [await work.enqueue(n) for n in range(5)]
            await until(lambda: worker.statistics().running == 2)
            slot = key_slot(keys.meta.encode())
            target.cluster("SETSLOT", slot, "IMPORTING", source.id)
            source.cluster("SETSLOT", slot, "MIGRATING", target.id)
            if moved:
                port = target.server.port
                source.client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", keys.meta)
            gate.set()
            await anyio.sleep(1.0)
            assert sorted(ran) == [0, 1]
            source.cluster("SETSLOT", slot, "STABLE")
            if moved:
                port = source.server.port
                target.client.execute_command("MIGRATE", "127.0.0.1", port, "", 0, 5000, "KEYS", keys.meta)
            target.cluster("SETSLOT", slot, "STABLE")
            for n, job in enumerate(jobs):
                assert await job.result(timeout=15) == n
        assert sorted(ran) == list(range(5))
        assert (peek.count("completed"), peek.count("stalled")) == (5, 0)
    finally:
        for node in nodes:
            node.client.flushall()
            node.cluster("SETSLOT", key_slot(keys.meta.encode()), "STABLE")
