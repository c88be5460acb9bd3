"""A million delayed jobs, many of them due at the same instant, while another client pings: `make delayed`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import click
import redis
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import slowlog
from benchmarks.measure import RESULTS, describe, read_line, save, start_side
from benchmarks.report import Grid, about
from benchmarks.workload import KEYS
from echomq import open_client, run_worker
from echomq.embedded import open_server
from echomq.errors import EchoMQError
from echomq.queue import Queue
from echomq.transitions import MAX_ROUND, Call, promote

# The targets.
PING_MS = 20.0
"""What 99 % of the pings of another client may take."""
SCRIPT_MS = 5.0
"""What 99.9 % of the calls of a script may take."""
PROMOTION = 0.5
"""Jobs promoted a second, of those enqueued a second."""
LATE_MS = 50.0
"""By how much 99 % of the delayed jobs of an idle worker may start later than they are due."""
PAYLOAD = b'{"args":["' + b"x" * 64 + b'"]}'
AHEAD = timedelta(days=1)


@attrs.frozen
class Phase:
    """A phase: from when to when on the monotonic clock, how many jobs it was about, and how long its scripts took."""

    title: str
    jobs: int
    begun: float
    ended: float
    scripts: dict[str, dict[str, float]]

    @property
    def rate(self) -> float:
        return self.jobs / (self.ended - self.begun)


async def _lateness(url: str, jobs: int, advance: Callable[[int], object]) -> list[float]:
    """Answer by how many ms each job starts too late on a worker that has nothing else to do; this machine's one clock."""
    late: list[float] = []
    over = trio.Event()

    async def start(due_ms: int) -> None:
        late.append(time.time() * 1000 - due_ms)
        advance(1)
        if len(late) == jobs:
            over.set()

    async with open_client(url) as client, trio.open_nursery() as nursery:
        queue = client.queue("delayed")
        await nursery.start(run_worker, queue, start)
        chance = Random(1)
        for _ in range(jobs):
            at = datetime.now(UTC) + timedelta(milliseconds=chance.randrange(20, 500))
            await queue.enqueue(b"%d" % (at.timestamp() * 1000), at=at)
            await trio.sleep(0.02)
        await over.wait()
        nursery.cancel_scope.cancel()
    return late


async def _enqueue(queue: Queue, jobs: int, at: datetime, advance: Callable[[int], object]) -> int:
    for_now = 0
    async for handle in queue.enqueue_stream((PAYLOAD for _ in range(jobs)), at=at):
        if isinstance(handle, EchoMQError):
            raise handle
        for_now += 1
        if for_now % 4096 == 0:
            advance(4096)
    advance(jobs % 4096)
    return jobs


async def _promote(queue: Queue, jobs: int, advance: Callable[[int], object]) -> int:
    """Make all that is due ready, in the rounds that each claim makes."""
    done = 0
    while done < jobs:
        moved = await queue.wire.run(promote(KEYS, Call(queue.wire.tag)), route="bulk")
        done += moved
        advance(moved)
    return done


async def _list(queue: Queue, state: str, advance: Callable[[int], object]) -> int:
    seen = 0
    while True:
        page = await queue.browse(state, offset=seen, count=MAX_ROUND)
        seen += len(page.jobs)
        advance(len(page.jobs))
        if not page.jobs:
            return seen


async def _measure(url: str, jobs: int, due: int, progress: Progress, client: redis.Redis) -> list[Phase]:
    phases: list[Phase] = []
    async with open_client(url) as echo:
        queue = echo.queue(KEYS.queue)

        async def phase(title: str, total: int, work: Callable[[Callable[[int], object]], Awaitable[int]]) -> None:
            task = progress.add_task(title, total=total)
            await trio.to_thread.run_sync(client.execute_command, "SLOWLOG", "RESET")
            calls = slowlog.calls(client)
            begun = time.monotonic()
            done = await work(lambda n: progress.advance(task, n))
            ended = time.monotonic()
            if done != total:
                raise click.ClickException(f"{title}: {done:,} jobs instead of {total:,}")
            phases.append(Phase(title, done, begun, ended, slowlog.times(client, slowlog.calls(client) - calls)))

        moment = datetime.now(UTC) + AHEAD
        await phase("enqueue, delayed", jobs - due, lambda step: _enqueue(queue, jobs - due, moment, step))
        # Due at one instant, which lies so far ahead that all of them are there before.
        instant = datetime.now(UTC) + timedelta(seconds=max(2.0, due / 10_000))
        await phase("enqueue, one instant", due, lambda step: _enqueue(queue, due, instant, step))
        await trio.sleep((instant - datetime.now(UTC)).total_seconds())
        await phase("promote", due, lambda step: _promote(queue, due, step))
        await phase("list the schedule", jobs - due, lambda step: _list(queue, "schedule", step))
        await queue.pause()

        async def obliterate(step: Callable[[int], object]) -> int:
            before = 0

            async def tell(done: int) -> None:
                nonlocal before
                step(done - before)
                before = done

            return await queue.obliterate(progress=tell)

        await phase("obliterate", jobs, obliterate)
        left = await trio.to_thread.run_sync(lambda: [*client.scan_iter(f"{KEYS.base}*")])
        if left:
            raise click.ClickException(f"obliterate left {left[:5]!r}")
    return phases


def _pings(pings: list[tuple[float, float]], phase: Phase) -> dict[str, float]:
    took = sorted(int(seconds * 1e6) for sent, seconds in pings if phase.begun <= sent <= phase.ended)
    if not took:
        return {"pings": 0}
    quantiles = {f"p{part * 100:g}": slowlog.quantile(took, part) / 1000 for part in (0.5, 0.99, 0.999)}
    return {"pings": len(took), **quantiles, "longest": took[-1] / 1000}


def _holds(value: bool) -> str:  # noqa: FBT001 - it is what is said
    return "holds" if value else "MISSED"


def _phases(found: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    bulk = found["enqueue, delayed"]["rate"]
    for title, each in found.items():
        ping = each["ping"]
        share = each["rate"] / bulk
        rated = title == "promote"
        yield (
            title,
            f"{each['jobs']:,}",
            f"{each['rate']:,.0f}",
            f"{share:.2f}",
            _holds(share >= PROMOTION) if rated else "",
            *(f"{ping.get(name, 0):.2f}" for name in ("p50", "p99", "longest")),
            _holds(ping.get("p99", 0) < PING_MS),
        )


def _grids(result: dict[str, Any]) -> list[Grid]:
    [found] = result["rounds"]
    scripts = [
        (
            f"{title}: {verb}",
            f"{times['calls']:,.0f}",
            *(f"{times[name]:.2f}" for name in ("p50", "p99", "p99.9", "longest")),
            _holds(times["p99.9"] < SCRIPT_MS),
        )
        for title, each in found.items()
        for verb, times in each["scripts"].items()
        if verb != slowlog.NOT_LOGGED
    ]
    late = sorted(int(ms * 1000) for ms in result["late_ms"])
    late_ms = [slowlog.quantile(late, part) / 1000 for part in (0.5, 0.99, 1)]
    return [
        Grid(
            f"Delayed jobs of an idle worker: how late they start, ms (target: p99 under {LATE_MS:g})",
            ("", "jobs", "p50", "p99", "longest", "target"),
            [("start", f"{len(late):,}", *(f"{ms:.2f}" for ms in late_ms), _holds(late_ms[1] < LATE_MS))],
        ),
        Grid(
            f"Phases, and the pings of another client, ms (targets: promotion at {PROMOTION:g} of the first phase's rate, "
            f"ping p99 under {PING_MS:g})",
            ("", "jobs", "a second", "to the first", "target", "ping p50", "p99", "longest", "target"),
            list(_phases(found)),
        ),
        Grid(
            f"Scripts on the server's one thread, ms (target: p99.9 under {SCRIPT_MS:g})",
            ("", "calls", "p50", "p99", "p99.9", "longest", "target"),
            scripts,
        ),
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--jobs", default=1_000_000, type=click.IntRange(100), help="Delayed jobs in all.")
@click.option("--due", default=100_000, type=click.IntRange(10), help="How many of them are due at one instant.")
@click.option("--quick", is_flag=True, help="Small sizes: whether it works, not how fast.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables as Markdown, and nothing else.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="The JSON file; benchmarks/results/delayed-TIME.json else."
)
def main(*, jobs: int, due: int, quick: bool, as_markdown: bool, output: Path | None) -> None:
    """Delay jobs, promote, list and obliterate them on a private server, while another client pings."""
    picked = 500
    if quick:
        jobs, due, picked = 2_000, 500, 20
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    config = {"slowlog-log-slower-than": slowlog.SLOWER_THAN_US, "slowlog-max-len": slowlog.MOST_ENTRIES}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        open_server(config=config) as server,
        redis.Redis.from_url(server.url) as client,
        Progress(*columns, console=Console(stderr=True)) as progress,
        start_side("ping", "ping", server.url) as pinger,
    ):
        result = describe(server.url) | {"sizes": {"jobs": jobs, "due_at_once": due, "picked": picked}}
        task = progress.add_task("an idle worker", total=picked)
        result["late_ms"] = trio.run(_lateness, server.url, picked, lambda n: progress.advance(task, n))
        read_line(pinger)
        phases = trio.run(_measure, server.url, jobs, due, progress, client)
        pinger.send_signal(signal.SIGTERM)
        pings = read_line(pinger)
    phases_found = {
        each.title: {"jobs": each.jobs, "rate": each.rate, "ping": _pings(pings, each), "scripts": each.scripts}
        for each in phases
    }
    result["rounds"] = [phases_found]
    path = save(result, output or RESULTS / f"delayed-{datetime.now(UTC):%Y%m%dT%H%M%S}.json")
    if as_markdown:
        print("\n".join([*(grid.markdown() for grid in _grids(result)), about(result)]))
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 130)
    for grid in _grids(result):
        grid.print(console)
    console.print(about(result), soft_wrap=True)
    console.print(f"written: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
