"""Flows: what a child costs, and how long a chain takes from link to link: `make flows`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import anyio
import click
import redis
import trio
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import slowlog
from echomq import App, chain, flow, run_worker
from echomq.embedded import open_server

# The targets.
RATE = 2 / 3
"""Children a second of one parent, of plain jobs a second."""
SCRIPT_MS = 5.0
"""What 99.9 % of the calls of a script may take."""
TRIPS = 3.0
"""Times that a chain may ask the server from link to link: the completion, the bell, the claim."""
PINGS = 500


def _app(url: str) -> tuple[App, Any, Any, Any]:
    app = App(url)

    @app.task(queue="flows", result_ttl=60)
    async def parent(n: int) -> int:
        return n

    @app.task(queue="flows")
    async def child(n: int) -> int:
        return n

    @app.task(queue="plain", result_ttl=60)
    async def plain(n: int) -> int:
        return n

    return app, parent, child, plain


async def _plain(app: App, task: Any, jobs: int) -> float:
    """Answer how many plain jobs a second are drained."""
    await app.enqueue_many(task.options(result_ttl=0).call(n) for n in range(jobs))
    begun = time.perf_counter()
    queue = app.queue("plain")
    async with anyio.create_task_group() as tasks:
        worker = await tasks.start(lambda task_status: run_worker(app, queues=["plain"], task_status=task_status))
        while (await queue.counts()).totals.get("completed", 0) < jobs:  # noqa: ASYNC110 - what the server has counted
            await anyio.sleep(0.005)
        took = time.perf_counter() - begun
        worker.stop()
    return jobs / took


async def _fan_in(app: App, parent: Any, child: Any, jobs: int) -> dict[str, float]:
    """Answer how many children a second are added, and are done, and how the last tenth compares with the first."""
    begun = time.perf_counter()
    handle = await app.flows.add(flow(parent.call(1), [child.call(n) for n in range(jobs)]))
    added = time.perf_counter() - begun
    queue, marks = app.queue("flows"), []
    begun = time.perf_counter()
    async with anyio.create_task_group() as tasks:
        worker = await tasks.start(lambda task_status: run_worker(app, queues=["flows"], task_status=task_status))
        while (done := (await queue.counts()).totals.get("completed", 0)) <= jobs:
            marks.append((time.perf_counter() - begun, done))
            await anyio.sleep(0.005)
        await handle.result(timeout=60)
        took = time.perf_counter() - begun
        worker.stop()
    reached = [next(at for at, done in marks if done >= part * jobs) for part in (0.2, 0.4, 0.6, 0.8)]
    return {"added": jobs / added, "done": jobs / took, "late": (reached[3] - reached[2]) / (reached[1] - reached[0])}


def _asked(client: redis.Redis) -> int:
    """Answer how many scripts have run, and how many parks have ended."""
    info: Any = client.info("commandstats")
    return sum(int(info.get(f"cmdstat_{name}", {"calls": 0})["calls"]) for name in ("evalsha", "blpop"))


async def _chain(app: App, client: redis.Redis, parent: Any, child: Any, links: int) -> tuple[float, float]:
    """Answer how long a chain takes from link to link, ms, on an idle worker, and how often the server is asked for that."""
    async with anyio.create_task_group() as tasks:
        worker = await tasks.start(lambda task_status: run_worker(app, queues=["flows"], task_status=task_status))
        await anyio.sleep(0.2)
        before = _asked(client)
        begun = time.perf_counter()
        handle = await app.flows.add(chain(*(child.call(n) for n in range(links - 1)), parent.call(0)))
        await handle.result(timeout=60)
        took, asked = time.perf_counter() - begun, _asked(client) - before
        worker.stop()
    return 1000 * took / links, asked / links


async def _trip(app: App) -> float:
    """Answer how long a round trip of the client takes, ms, at the median: a read of the queue's counts."""
    queue, took = app.queue("flows"), []
    for _ in range(PINGS):
        begun = time.perf_counter()
        await queue.counts()
        took.append(time.perf_counter() - begun)
    return 1000 * sorted(took)[PINGS // 2]


async def _measure(
    url: str, client: redis.Redis, children: int, links: int, say: Console
) -> list[tuple[str, str, str, bool]]:
    app, parent, child, plain = _app(url)
    async with app:
        say.print(f"{children:,} plain jobs")
        rate = await _plain(app, plain, children)
        client.execute_command("SLOWLOG", "RESET")
        before = slowlog.calls(client)
        say.print(f"a parent of {children:,} children")
        fan = await _fan_in(app, parent, child, children)
        scripts = slowlog.times(client, slowlog.calls(client) - before)
        say.print(f"a chain of {links:,}")
        (link, asked), trip = await _chain(app, client, parent, child, links), await _trip(app)
    worst = max((verb for verb in scripts if verb in slowlog.VERBS.values()), key=lambda verb: scripts[verb]["p99.9"])
    slowest = scripts[worst]["p99.9"]
    return [
        ("plain jobs/s", f"{rate:,.0f}", "", True),
        ("children added/s", f"{fan['added']:,.0f}", "", True),
        ("children done/s", f"{fan['done']:,.0f}", "", True),
        ("... of plain jobs", f"{fan['done'] / rate:.2f}", f">= {RATE:.2f}", fan["done"] / rate >= RATE),
        ("the fourth fifth's time, of the second's", f"{fan['late']:.2f}", "about 1", True),
        (f"script p99.9, ms ({worst})", f"{slowest:.2f}", f"< {SCRIPT_MS:g}", slowest < SCRIPT_MS),
        ("round trip, ms", f"{trip:.3f}", "", True),
        ("a link of the chain, ms", f"{link:.3f}", "", True),
        ("... in round trips of an idle client", f"{link / trip:.2f}", "", True),
        ("... times that the server is asked", f"{asked:.2f}", f"<= {TRIPS:g}", asked <= TRIPS),
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--children", default=10_000, show_default=True, type=click.IntRange(100), help="Children of the parent.")
@click.option("--links", default=100, show_default=True, type=click.IntRange(2, 1000), help="Links of the chain.")
@click.option("--quick", is_flag=True, help="In seconds: to see whether it works.")
def main(children: int, links: int, *, quick: bool) -> None:
    """Measure flows on a private server: fan-in beside a plain drain, script times, a chain from link to link."""
    if quick:
        children, links = 500, 20
    say = Console(stderr=True)
    with open_server() as server, redis.Redis.from_url(server.url) as client:
        client.config_set("slowlog-log-slower-than", slowlog.SLOWER_THAN_US)
        client.config_set("slowlog-max-len", slowlog.MOST_ENTRIES)
        rows = trio.run(_measure, server.url, client, children, links, say)
    table = Table("what", "measured", "target", "")
    for what, measured, target, holds in rows:
        table.add_row(what, measured, target, "" if not target else "holds" if holds else "misses")
    Console().print(table)


if __name__ == "__main__":
    main(prog_name="benchmarks/flows.py")
