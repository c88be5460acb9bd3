"""How long scripts hold the server: its slow log, while the real client enqueues and the real worker drains.

The server has one thread for all clients: what a script takes, every other client waits. The log counts wall time, so
what the machine does besides is in the longest ones.

The threshold is not 0: Valkey logs the commands inside scripts as well, and 3 to 8 entries a job, made while the script
runs, make a script up to a third longer. Those commands take a few us each, scripts take more; the few calls that stay
below the threshold are counted as not logged.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import redis
import trio

from benchmarks.backlog import Backlog, Queue
from benchmarks.ceiling_side import connect
from benchmarks.measure import ask
from echomq.embedded import open_server
from echomq.transitions.scripts import ALL_VERBS, load

SLOWER_THAN_US = 10
MOST_ENTRIES = 1_000_000
CONCURRENCY = 100
NOT_LOGGED = "not logged"
VERBS = {load(verb).sha.encode(): verb for verb in ALL_VERBS}

Times = dict[str, float]


def quantile(ordered: list[int], part: float) -> int:
    """Answer the value that so large a part of them does not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def calls(client: redis.Redis) -> int:
    """Answer how many scripts the server has run."""
    info: Any = client.info("commandstats")
    return int(info.get("cmdstat_evalsha", {"calls": 0})["calls"])


def times(client: redis.Redis, ran: int) -> dict[str, Times]:
    """Answer the times of the calls that its slow log holds, ms, by verb; `ran` is how many there were."""
    by_verb: dict[str, list[int]] = defaultdict(list)
    entries: Any = client.execute_command("SLOWLOG", "GET", MOST_ENTRIES)
    for entry in entries:
        us, command = entry[2], entry[3]
        if command[0].upper() == b"EVALSHA":
            by_verb[VERBS[command[1]]].append(us)
    found: dict[str, Times] = {}
    for verb, took in sorted(by_verb.items()):
        took.sort()
        quantiles = {f"p{part * 100:g}": quantile(took, part) / 1000 for part in (0.5, 0.99, 0.999)}
        found[verb] = {"calls": len(took), **quantiles, "longest": took[-1] / 1000}
    quick = ran - sum(map(len, by_verb.values()))
    return found | ({NOT_LOGGED: {"calls": quick}} if quick else {})


async def _fill(url: str, backlog: Backlog) -> None:
    await Queue(await connect(url)).fill(backlog, lambda _: None)


def measure(
    *, backlog: int, single: int, bulk: int, drain: int, advance: Callable[[int], object]
) -> dict[str, dict[str, Times]]:
    """Answer the times of scripts in ms, by phase and verb, with so many jobs queued from the beginning."""
    config = {"slowlog-log-slower-than": SLOWER_THAN_US, "slowlog-max-len": MOST_ENTRIES}
    found = {}
    with open_server(config=config) as server, redis.Redis.from_url(server.url) as client:
        trio.run(_fill, server.url, Backlog(backlog))
        for phase, jobs, arguments in (
            ("one at a time", single, ("enqueue_single", server.url, single)),
            ("in bulk", bulk, ("enqueue_bulk", server.url, bulk)),
            ("drain", drain, ("drain", server.url, drain, CONCURRENCY)),
        ):
            client.execute_command("SLOWLOG", "RESET")
            before = calls(client)
            ask("echomq", *arguments)
            found[phase] = times(client, calls(client) - before)
            advance(jobs)
    return found
