"""Starts at a rate, by four worker processes, and what they ask of the server meanwhile.

A start is the server's own event of a claim, with the server's time. Counting begins half a second after the first one:
what had gathered before is away by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import redis
import trio

from benchmarks import rota
from benchmarks.measure import read_line, start_side
from benchmarks.workload import KEYS
from echomq import transitions
from echomq.embedded import open_server
from echomq.transitions import Call, RateLimit

CALL = Call("bench")
WORKERS = 4
CONCURRENCY = 10
SETTLED_MS = 500.0
LOOK = 0.2
"""Seconds between two looks at the events: fewer are kept than come in ten seconds."""


def _now(client: redis.Redis) -> float:
    seconds, micros = client.time()
    return float(seconds) * 1000 + float(micros) / 1000


def _run(client: redis.Redis, transition: transitions.Transition[Any]) -> None:
    client.script_load(transition.script.source)
    client.execute_command(*transition.command())


def _calls(client: redis.Redis) -> int:
    stats: Any = client.info("commandstats")
    return sum(int(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "blpop"))


def _measure(client: redis.Redis, url: str, per_second: int, lane: str | None, seconds: int) -> dict[str, Any]:
    rate = RateLimit(count=per_second, per_ms=1000).spell()
    starts: list[float] = []
    last = "-"

    def look() -> None:
        nonlocal last
        found: Any = client.xrange(KEYS.events, min=last)
        for at, fields in found:
            last = "(" + at.decode()
            if fields[b"event"] == b"claimed":
                starts.append(float(at.split(b"-")[0]))

    _run(client, transitions.configure(KEYS, CALL, settings={"events": "all"}))
    if lane is None:
        _run(client, transitions.configure(KEYS, CALL, settings={"rate": rate}))
    else:
        _run(client, transitions.set_lane(KEYS, CALL, lane=lane, settings={"rate": rate}))
    trio.run(rota.fill, url, [lane or ""] * (per_second * (seconds + 3) + 20))
    while not starts or starts[-1] < starts[0] + SETTLED_MS:
        time.sleep(LOOK / 10)
        look()
    calls, since = _calls(client), _now(client)
    while _now(client) < since + seconds * 1000:
        time.sleep(LOOK)
        look()
    until, calls = _now(client), _calls(client) - calls
    look()
    # Nothing of this one may be left, on the server or in a worker, when the next one begins.
    _run(client, transitions.pause(KEYS, CALL))
    while client.exists(KEYS.active):
        time.sleep(LOOK / 10)
    client.execute_command("FLUSHALL", "SYNC")
    return {
        "per_second": per_second,
        "of": f"lane {lane!r}" if lane else "the queue",
        "seconds": (until - since) / 1000,
        "starts": sum(since <= at < until for at in starts),
        "calls": calls,
    }


def measure(rates: Sequence[int], seconds: int, advance: Callable[[int], object]) -> list[dict[str, Any]]:
    """Let four workers drain more than each rate allows, of a lane and of the queue; answer what was seen."""
    found = []
    with ExitStack() as stack:
        url = stack.enter_context(open_server()).url
        client = stack.enter_context(redis.Redis.from_url(url))
        workers = [stack.enter_context(start_side("lanes", "worker", url, CONCURRENCY)) for _ in range(WORKERS)]
        for worker in workers:
            read_line(worker)
        for per_second in rates:
            for lane in ("paced", None):
                found.append(_measure(client, url, per_second, lane, seconds))
                advance(1)
    return found
