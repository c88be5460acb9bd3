"""Does a job cost the same in a long queue, do scripts stay short, what does waiting cost: `make scale`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import signal
import sys
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import click
import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import backlog, idle, slowlog
from benchmarks.backlog import Backlog
from benchmarks.measure import RESULTS, describe, save
from benchmarks.report import Grid, about
from echomq.embedded import open_server

# The targets.
FLAT = 0.35
"""How far a median may be from that of the smallest backlog."""
SCRIPT_MS = 5.0
"""What 99.9 % of the calls of a script may take."""
IDLE_READS = 2.0
"""Reads of the server, a second and queue."""


@attrs.frozen
class Sizes:
    """How much of each."""

    smallest: int
    largest: int
    jobs: int
    queued: int
    single: int
    bulk: int
    drain: int
    idle_seconds: float


FULL = Sizes(
    smallest=1_000,
    largest=1_000_000,
    jobs=10_000,
    queued=100_000,
    single=10_000,
    bulk=100_000,
    drain=100_000,
    idle_seconds=10.0,
)
QUICK = Sizes(smallest=100, largest=1_000, jobs=200, queued=500, single=50, bulk=500, drain=500, idle_seconds=1.0)


def _measure(
    sizes: Sizes, rounds: int, chosen: list[Backlog], progress: Progress, binary: Path | None
) -> dict[str, Any]:
    with ExitStack() as stack:
        urls = {each: stack.enter_context(open_server(binary=binary)).url for each in chosen}
        result = describe(next(iter(urls.values()))) | {"sizes": attrs.asdict(sizes)}
        total = sum(each.pending + each.schedule for each in chosen) + rounds * len(chosen) * sizes.jobs
        task = progress.add_task("jobs by backlog", total=total)
        result["rounds"] = trio.run(
            backlog.measure, urls, sizes.jobs, rounds, lambda jobs: progress.advance(task, jobs)
        )
    task = progress.add_task("jobs by the slow log", total=sizes.single + sizes.bulk + sizes.drain)
    result["scripts"] = slowlog.measure(
        backlog=sizes.queued,
        single=sizes.single,
        bulk=sizes.bulk,
        drain=sizes.drain,
        advance=lambda jobs: progress.advance(task, jobs),
    )
    task = progress.add_task("idle workers", total=1)
    result["idle"] = {str(queues): cost for queues, cost in idle.measure(sizes.idle_seconds).items()}
    progress.advance(task)
    return result


def _holds(value: bool) -> str:  # noqa: FBT001 - it is what is said
    return "holds" if value else "MISSED"


def _flat(rounds: list[dict[str, dict[str, float]]], smallest: int) -> Grid:
    first = Backlog(smallest).title

    def middle(phase: str, size: str) -> float:
        return median(each[size][phase] for each in rounds)

    def grown(phase: str, size: str) -> float:
        return middle(phase, size) - middle(phase, first)

    rows = []
    for phase, title in backlog.PHASES.items():
        plain = backlog.PLAIN.get(phase)
        for size in rounds[0]:
            costs = [each[size][phase] for each in rounds]
            ratio = middle(phase, size) / middle(phase, first)
            row = (
                f"{title}: {size}",
                f"{middle(phase, size):.1f}",
                f"{min(costs):.1f} to {max(costs):.1f}",
                f"{ratio:.2f}",
            )
            if plain is None:
                rows.append((*row, "", ""))
            else:
                beyond = grown(phase, size) - grown(plain, size)
                rows.append((*row, f"{beyond:+.1f}", _holds(abs(ratio - 1) <= FLAT)))
    return Grid(
        f"Server CPU, us a job, by jobs queued (target: median within {FLAT * 100:g} % of that at {smallest:,})",
        ("", "median", "low to high", f"ratio to {smallest:,}", "grown beyond plain", "target"),
        rows,
    )


def _scripts(phases: dict[str, dict[str, slowlog.Times]], queued: int) -> Grid:
    rows = []
    for phase, verbs in phases.items():
        for verb, times in verbs.items():
            row: tuple[str, ...] = (f"{phase}: {verb}", f"{times['calls']:,.0f}")
            if verb == slowlog.NOT_LOGGED:
                row += ("",) * 5
            else:
                row += tuple(f"{times[name]:.2f}" for name in ("p50", "p99", "p99.9", "longest"))
                row += (_holds(times["p99.9"] < SCRIPT_MS),)
            rows.append(row)
    return Grid(
        f"Scripts on the server's one thread, ms, {queued:,} jobs queued (target: p99.9 under {SCRIPT_MS:g})",
        ("", "calls", "p50", "p99", "p99.9", "longest", "target"),
        rows,
    )


def _idle(costs: dict[str, idle.Cost]) -> Grid:
    rows = []
    for queues, cost in costs.items():
        each = cost["reads"] / max(1, int(queues))
        rows.append((
            {"0": "the server alone", "1": "1 queue"}.get(queues, f"{queues} queues"),
            f"{cost['reads']:.2f}",
            f"{each:.2f}",
            ", ".join(f"{name} {n:.2f}" for name, n in cost["sent"].items()) or "none",
            f"{sum(cost['inside'].values()):.1f}",
            f"{cost['cpu_ms']:.2f}",
            _holds(each <= IDLE_READS) if int(queues) else "",
        ))  # fmt: skip
    return Grid(
        f"An idle worker, a second (target: at most {IDLE_READS:g} reads a queue)",
        ("", "reads", "a queue", "commands sent", "inside scripts", "server CPU, ms", "target"),
        rows,
    )


def _grids(result: dict[str, Any]) -> list[Grid]:
    sizes = result["sizes"]
    return [
        _flat(result["rounds"], sizes["smallest"]),
        _scripts(result["scripts"], sizes["queued"]),
        _idle(result["idle"]),
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--rounds", default=5, type=click.IntRange(1), help="Rounds, each backlog in each.")
@click.option("--largest", default=FULL.largest, type=click.IntRange(1_000), help="The largest backlog.")
@click.option("--jobs", default=FULL.jobs, type=click.IntRange(100), help="Jobs a measurement with a backlog.")
@click.option(
    "--server",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server's program for the first table; the packaged Valkey else.",
)
@click.option("--quick", is_flag=True, help="One round, small sizes: whether it works, not how it scales.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables as Markdown, and nothing else.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="The JSON file; benchmarks/results/scale-TIME.json else."
)
def main(
    rounds: int, largest: int, jobs: int, *, server: Path | None, quick: bool, as_markdown: bool, output: Path | None
) -> None:
    """Measure what grows with the queue, on private servers."""
    sizes = attrs.evolve(FULL, largest=largest, jobs=jobs)
    if quick:
        rounds, sizes = 1, QUICK
    chosen = backlog.backlogs(sizes.smallest, sizes.largest)
    needed, free = backlog.memory_needed(chosen), backlog.memory_free()
    if free is not None and needed > free:
        raise click.ClickException(
            f"backlogs of up to {sizes.largest:,} jobs take about {needed / 2**20:,.0f} MiB, and {free / 2**20:,.0f} MiB "
            f"are free: give a smaller one with --largest"
        )
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        result = _measure(sizes, rounds, chosen, progress, server)
    path = save(result, output or RESULTS / f"scale-{datetime.now(UTC):%Y%m%dT%H%M%S}.json")
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
