"""No wake is lost: a state machine of workers that really block in BLPOP, some of which die or freeze there.

Theory of operation
    A worker here is what a worker is to the server: it claims one job at a time; when it gets none it waits in a BLPOP,
    on a socket of its own, until a token comes or the time is up that its claim named, and claims again. After each step
    the machine lets everybody who was rung, or whose time is up, claim, until nothing happens any more. Our own command
    is answered after the server has served those who block, so one more round trip shows who was rung.

    As long as nobody died or froze while waiting, no job that may start is left while a worker waits. A token may go to
    one who is dead, or does not read; then such a job may be left, but no longer than a claim lets a worker sleep: once
    the time of everybody alive is up, none is. `next_ms` must never be longer than the cap, or the second half would
    promise nothing.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from typing import Any, Final
from urllib.parse import urlsplit

import attrs
import hypothesis
import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from echomq.conformance.driver import Driver
from echomq.conformance.items import make_item
from echomq.protocol.ids import mint
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import RateLimit

CAP_MS: Final = 40
LANES: Final = ("", "a", "b")
WORKERS: Final = 3
AT: Final = st.integers(0, WORKERS - 1)
RATE: Final = RateLimit(count=1, per_ms=20).spell()


@attrs.define
class Sleeper:
    """A worker: a client that claims, and a socket that waits."""

    driver: Driver
    url: str
    socket: socket.socket | None = None
    until: float = 0.0
    """When its time is up, server ms."""
    held: Claimed | None = None

    def park(self, keys: QueueKeys, until: float) -> None:
        """Begin to wait. A BLPOP that stands from before goes on, as a worker's does."""
        self.until = until
        if self.socket is None:
            parts = urlsplit(self.url)
            self.socket = socket.create_connection((parts.hostname or "", parts.port or 0))
            words = (b"BLPOP", keys.wake.encode(), b"60")
            self.socket.sendall(b"*3\r\n" + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words))

    def rung(self) -> bool:
        """Tell whether the BLPOP has been answered; then it is over."""
        if self.socket is None or not select.select([self.socket], [], [], 0)[0]:
            return False
        assert self.socket.recv(4096).startswith(b"*2")
        self.socket.close()
        self.socket = None
        return True

    @property
    def waits(self) -> bool:
        """Whether it is free."""
        return self.held is None


class Wakes(RuleBasedStateMachine):
    """Producers, workers and operators of one queue."""

    url: str
    server: redis.Redis

    def __init__(self) -> None:
        super().__init__()
        self.keys = QueueKeys(queue=f"wake-{mint()}")
        self.operator = Driver(self.server, self.keys)
        self.workers: list[Sleeper] = []
        self.frozen: list[socket.socket] = []
        self.doubt = False
        """Whether a token may have gone to one who will never claim."""
        for _ in range(WORKERS):
            self.start()
        self.settle()

    # --- what happens ---------------------------------------------------------------------------

    def start(self) -> None:
        """A worker comes."""
        self.workers.append(Sleeper(Driver(self.server, self.keys), self.url))

    @rule(jobs=st.lists(st.tuples(st.sampled_from(LANES), st.sampled_from([0, 0, 0, 5, 30])), min_size=1, max_size=4))
    def enqueue(self, jobs: list[tuple[str, int]]) -> None:
        """Jobs come by one call, some delayed."""
        self.operator.items("enqueue", *(NewJob(lane=lane or None, delay_ms=delay or None) for lane, delay in jobs))
        self.settle()

    # What is drawn must not hang on the clock, and who holds a job does: so a rule draws a number, and finds nobody at times.

    @rule(at=AT, verb=st.sampled_from(["complete", "release"]))
    def finish(self, at: int, verb: str) -> None:
        """A worker is done, or gives its job back, and claims again."""
        busy = [each for each in self.workers if each.held]
        if not busy:
            return
        worker = busy[at % len(busy)]
        held, worker.held = worker.held, None
        assert held is not None
        assert self.operator.item(verb, make_item(verb, held.id, held.token, held.nonce, 1)).ok
        self.workers.remove(worker)
        self.settle()  # the others do not depend on its coming back
        self.workers.append(worker)
        self.claim(worker)
        self.settle()

    @rule(at=AT, how=st.sampled_from(["killed", "frozen", "cut off"]))
    def lose(self, at: int, how: str) -> None:
        """One that waits dies, or freezes, or is cut off by the server."""
        waiting = [each for each in self.workers if each.waits]
        if len(waiting) < 2:
            return
        worker = waiting[at % len(waiting)]
        assert worker.socket is not None
        self.workers.remove(worker)
        if how == "frozen":
            self.frozen.append(worker.socket)
            self.doubt = True
        elif how == "killed":
            worker.socket.close()
            self.doubt = True
        else:
            port = worker.socket.getsockname()[1]
            for client in self.server.client_list():
                if client["addr"].endswith(f":{port}"):
                    self.server.client_kill(client["addr"])
            worker.socket.close()
        self.settle()

    @rule()
    def come(self) -> None:
        """A worker comes in a lost one's place."""
        if len(self.workers) < WORKERS:
            self.start()
            self.settle()

    @rule(lane=st.sampled_from(LANES), name=st.sampled_from(["limit", "rate", "paused", "weight"]), given=st.booleans())
    def set_lane(self, lane: str, name: str, given: bool) -> None:
        """A lane is told something, or no longer."""
        if name == "limit" and not lane:
            return
        value = {"limit": "1", "rate": RATE, "paused": "1", "weight": "2"}[name] if given else ""
        self.operator.plain("set_lane", lane=lane, settings={name: value})
        self.settle()

    @rule(limit=st.sampled_from(["", "", "1", "2"]))
    def configure(self, limit: str) -> None:
        """The queue is limited, or no longer."""
        self.operator.plain("configure", settings={"limit": limit})
        self.settle()

    @rule(verb=st.sampled_from(["pause", "resume"]))
    def hold(self, verb: str) -> None:
        """The queue is paused, or goes on."""
        self.operator.plain(verb)
        self.settle()

    @rule()
    def wait(self) -> None:
        """Time passes until that of everybody who waits is up: as long as a claim may let a worker sleep."""
        began = self.now()
        latest = max((each.until for each in self.workers if each.waits), default=began)
        assert latest <= began + CAP_MS + 1
        while self.now() < latest:
            time.sleep(0.002)
            self.settle()
        self.settle()
        self.sound(due_by=began)
        # Who froze may still be rung; who died is known by now.
        self.doubt = any(not select.select([each], [], [], 0)[0] for each in self.frozen)

    # --- what must hold -------------------------------------------------------------------------

    def now(self) -> float:
        """Read the server's clock, whole ms as scripts have it."""
        seconds, micros = self.server.time()
        return float(int(seconds) * 1000 + int(micros) // 1000)

    def claim(self, worker: Sleeper) -> None:
        """A worker asks for a job, again at once while it is told to, and waits if it gets none."""
        for _ in range(100):
            reply = worker.driver.claim(1, cap_ms=CAP_MS)
            assert reply.next_ms <= CAP_MS
            if reply.jobs:
                [worker.held] = reply.jobs
                return
            if reply.next_ms:
                worker.park(self.keys, reply.now_ms + reply.next_ms)
                return
        raise AssertionError("a claim says for ever to ask again at once")

    def settle(self) -> None:
        """Let everybody claim who was rung or whose time is up, until nobody was, and look whether any job is left."""
        while True:
            now = self.now()
            rung = [each for each in self.workers if each.rung()]
            # Who has a job hears nothing: its BLPOP stands from before, and the token is gone.
            self.doubt = self.doubt or any(each.held for each in rung)
            some = [each for each in self.workers if each.waits and (each.socket is None or each.until <= now)]
            if not some:
                break
            for worker in some:
                self.claim(worker)
        if not self.doubt:
            self.sound()

    def sound(self, *, due_by: float = 0.0) -> None:
        """Hold that no worker waits while a job could have started; and, due at that time, could have become ready."""
        if not any(each.waits for each in self.workers):
            return
        meta: Any = self.server.hgetall(self.keys.meta)
        active: Any = self.server.zcard(self.keys.active)
        if b"paused" in meta:
            return
        limit = int(meta.get(b"limits", b"0 0").split(b" ")[1])
        if limit and active >= limit:
            return
        if due_by:
            assert not self.server.zcount(self.keys.schedule, "-inf", due_by - 1), "a job is due and nobody came"
        for lane in LANES:
            ready: Any = self.server.zcard(self.keys.lane_pending(lane))
            record: Any = self.server.hget(self.keys.lanes, lane)
            words = (record or b"-0").split(b" ")[1:] or [b"0"] * 8
            limit, rated, paused = int(words[1]), int(words[2]), int(words[6])
            running: Any = self.server.zcard(self.keys.lane_active(lane)) if lane else 0
            # Where a rate decides, the moment does too: who keeps the timer comes when it opens.
            if paused or rated or (limit and running >= limit):
                continue
            assert not ready, f"{ready} jobs of lane {lane!r} are ready, and a worker waits"

    def teardown(self) -> None:
        """Leave nothing behind."""
        for each in (*self.frozen, *(worker.socket for worker in self.workers)):
            if each is not None:
                each.close()
        with contextlib.suppress(redis.RedisError):
            for key in self.server.scan_iter(match=f"{self.keys.base}*", count=1000):
                self.server.delete(key)


def machine(url: str, server: redis.Redis) -> type[Wakes]:
    """Answer the machine for a server."""
    return type("Wakes", (Wakes,), {"url": url, "server": server, "TestCase": None})


QUICK = hypothesis.settings(max_examples=20, stateful_step_count=30)
LONG = hypothesis.settings(max_examples=500, stateful_step_count=60, derandomize=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_wake_is_lost(server_url: str, redis_client: redis.Redis) -> None:
    """Whatever is enqueued, finished, told, killed: nobody sleeps while a job could run."""
    run_state_machine_as_test(machine(server_url, redis_client), settings=QUICK)


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_no_wake_is_lost_for_long(server_url: str, redis_client: redis.Redis) -> None:
    """The same, more often, longer, and with a new seed a run."""
    run_state_machine_as_test(machine(server_url, redis_client), settings=LONG)
