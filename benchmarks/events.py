"""What events cost: the same jobs with none kept, failures only, and all: `make events`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import statistics
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

from echomq import App, run_worker
from echomq.embedded import open_server
from echomq.worker.logs import configure_logs

LEVELS = ("none", "failures", "all")
FOLLOWED = "all, followed"
Cost = dict[str, float]


def _server(client: redis.Redis) -> tuple[float, float]:
    """Answer the seconds that scripts have taken the server, and those of its processor."""
    stats: Any = client.info("commandstats")
    cpu: Any = client.info("cpu")
    scripts = stats.get("cmdstat_evalsha", {"usec": 0})["usec"] / 1e6
    return scripts, float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


async def _play(app: App, task: Any, client: redis.Redis, level: str, jobs: int) -> Cost:
    """Enqueue and drain in a fresh queue; answer seconds of the clock and us of the server's a job."""
    client.flushall()
    queue = app.queue("events")
    await queue.configure(events="all" if level == FOLLOWED else level)  # type: ignore[arg-type] # one of the three
    read = 0

    async def follow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        nonlocal read
        async with queue.events() as events:
            task_status.started()
            async for _ in events:
                read += 1

    async with anyio.create_task_group() as tasks:
        if level == FOLLOWED:
            await tasks.start(follow)
        before, begun = _server(client), time.perf_counter()
        await app.enqueue_many(task.call(n) for n in range(jobs))
        added = time.perf_counter() - begun
        worker = await tasks.start(lambda task_status: run_worker(app, queues=["events"], task_status=task_status))
        while (await queue.counts()).totals.get("completed", 0) < jobs:  # noqa: ASYNC110 - what the server has counted
            await anyio.sleep(0.005)
        drained = time.perf_counter() - begun - added
        scripts, cpu = (now - then for now, then in zip(_server(client), before, strict=True))
        worker.stop()
        while level == FOLLOWED and read < 3 * jobs:  # noqa: ASYNC110 - as above
            await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    return {
        "enqueued/s": jobs / added, "drained/s": jobs / drained, "scripts, us a job": 1e6 * scripts / jobs,
        "server's processor, us a job": 1e6 * cpu / jobs,
    }  # fmt: skip


async def _measure(url: str, client: redis.Redis, jobs: int, rounds: int, say: Console) -> dict[str, list[Cost]]:
    app = App(url)

    @app.task(queue="events")
    async def nothing(n: int) -> None:
        """Do nothing."""

    found: dict[str, list[Cost]] = {level: [] for level in (*LEVELS, FOLLOWED)}
    async with app:
        await _play(app, nothing, client, "none", jobs // 10)
        for turn in range(rounds):
            for level, costs in found.items():
                say.print(f"round {turn + 1}: {jobs:,} jobs, events {level}")
                costs.append(await _play(app, nothing, client, level, jobs))
    return found


def _table(found: dict[str, list[Cost]]) -> Table:
    names = list(found["none"][0])
    table = Table("events", *names, "drained, of none")
    for level, costs in found.items():
        middle = [statistics.median(cost[name] for cost in costs) for name in names]
        # Each round beside its own: what else the machine does comes and goes.
        ratio = statistics.median(
            cost["drained/s"] / none["drained/s"] for cost, none in zip(costs, found["none"], strict=True)
        )
        table.add_row(level, *(f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in middle), f"{ratio:.2f}")
    return table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--jobs", default=10_000, show_default=True, type=click.IntRange(100), help="Jobs of a round.")
@click.option(
    "--rounds", default=5, show_default=True, type=click.IntRange(1, 100), help="Rounds; the medians are shown."
)
@click.option("--quick", is_flag=True, help="In seconds: to see whether it works.")
def main(jobs: int, rounds: int, *, quick: bool) -> None:
    """Measure what events cost on a private server: jobs enqueued and drained with none, failures and all of them kept."""
    if quick:
        jobs, rounds = 500, 1
    configure_logs("console", "error")
    with open_server() as server, redis.Redis.from_url(server.url) as client:
        found = trio.run(_measure, server.url, client, jobs, rounds, Console(stderr=True))
    Console().print(_table(found))


if __name__ == "__main__":
    main(prog_name="benchmarks/events.py")
