"""What lanes and limits promise, measured on private servers: `make lanes`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
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

from benchmarks import pace, rota
from benchmarks.measure import RESULTS, ask, describe, save
from benchmarks.report import Grid, about
from echomq.embedded import open_server

# The targets.
GROWTH = 1.6
"""By how much a claimed job's cost may grow from one lane to the most."""
SHARE = 0.10
"""By how much a lane's share of a backlog may differ from its weight's."""
MANY = 0.20
"""By how much the drain of many lanes with a job each may differ from that of one lane with as many."""
TENANTS = 0.75
"""How much of the flat drain that of 100 lanes is, at least."""
BATCHES = 1.5
"""How many times as fast as one by one jobs are drained by batches of `BATCH`, at least."""
BULK = 60_000
"""Jobs that a stream enqueues in a second, at least."""
GROWN_MIB = 8.0
"""By how much a process may grow while it streams the last nine tenths of its jobs, MiB: not with their number."""
PICK_UP_MS = 100.0
"""Until three idle workers run three jobs that come together."""
RATE = 0.02
"""By how much the starts in some time may differ from the rate, or by one job."""
CONCURRENCY = 100
BATCH = 100
TURNS = ((1, 1), (1, 50), (100, 1), (100, 50))
"""Lanes with a backlog, and jobs a claim."""
RATES = (5, 500)
"""Starts a second."""


@attrs.frozen
class Sizes:
    """How much of each."""

    lanes: int
    jobs: int
    backlog: int
    drain: int
    slots: int
    pick_ups: int
    seconds: int
    streamed: int


FULL = Sizes(
    lanes=100_000, jobs=200_000, backlog=100_000, drain=20_000, slots=1_000, pick_ups=30, seconds=10, streamed=1_000_000
)
QUICK = Sizes(lanes=100, jobs=6_000, backlog=500, drain=500, slots=50, pick_ups=3, seconds=1, streamed=2_000)


def _numbers(most: int) -> list[int]:
    found = [0, 1]
    while found[-1] * 10 <= most:
        found.append(found[-1] * 10)
    return found


def _drain(jobs: int, lanes: int) -> float:
    """Let a worker drain so many jobs of so many lanes (0: without any); answer jobs a second."""
    with open_server() as server:
        trio.run(rota.fill, server.url, rota.tenants(lanes, jobs))
        return float(ask("echomq", "drain", server.url, jobs, CONCURRENCY)["rate"])


def _drain_batches(jobs: int) -> float:
    """Let a worker drain so many jobs by batches; answer jobs a second."""
    with open_server() as server:
        trio.run(rota.fill, server.url, rota.tenants(0, jobs))
        return float(ask("lanes", "batches", server.url, jobs, 2 * BATCH, BATCH)["rate"])


def _drain_alone(jobs: int) -> float:
    """The same one by one, with as many slots."""
    with open_server() as server:
        trio.run(rota.fill, server.url, rota.tenants(0, jobs))
        return float(ask("echomq", "drain", server.url, jobs, 2 * BATCH)["rate"])


def _measure(sizes: Sizes, rounds: int, progress: Progress) -> dict[str, Any]:
    def counting(title: str, total: int) -> Callable[[int], object]:
        task = progress.add_task(title, total=total)
        return lambda count: progress.advance(task, count)

    with open_server() as server:
        result = describe(server.url) | {"sizes": attrs.asdict(sizes)}
    numbers = _numbers(sizes.lanes)
    advance = counting("claims by lanes", len(numbers) * (sizes.jobs + 4 * rounds * sum(rota.CHUNK.values())))
    result["costs"] = trio.run(rota.costs, numbers, sizes.jobs, 4 * rounds, advance)
    advance = counting("turns", len(TURNS) + 3)
    result["first_turn"] = []
    for lanes, per_call in TURNS:
        at = trio.run(rota.first_turn, sizes.backlog, lanes, per_call)
        result["first_turn"].append({"lanes": lanes + 1, "per_call": per_call, "dispatch": at})
        advance(1)
    result["shares"] = {}
    for per_call in (1, 50):
        result["shares"][str(per_call)] = trio.run(rota.shares, sizes.backlog, sizes.backlog // 10, per_call)
        advance(1)
    result["idle_slots"] = trio.run(rota.idle_slots, sizes.slots)
    advance(1)
    kinds = {"flat": (sizes.drain, 0), "tenants": (sizes.drain, 100), "one": (sizes.drain // 2, 1)}
    kinds["many"] = (sizes.drain // 2, sizes.drain // 2)
    advance = counting("drains", rounds * (len(kinds) + 2))
    result["rounds"] = []
    for number in range(rounds):
        order = list(kinds)[:: 1 if number % 2 else -1]
        drained = {}
        for kind in order:
            drained[kind] = _drain(*kinds[kind])
            advance(1)
        for kind, drain in (("alone", _drain_alone), ("batches", _drain_batches))[:: 1 if number % 2 else -1]:
            drained[kind] = drain(sizes.drain)
            advance(1)
        result["rounds"].append(drained)
    advance = counting("a stream", 1)
    with open_server() as server:
        result["stream"] = ask("lanes", "stream", server.url, sizes.streamed)
    advance(1)
    advance = counting("pick-ups and rates", 5)
    with open_server() as server:
        result["pick_up_ms"] = ask("lanes", "pickup", server.url, sizes.pick_ups)
    advance(1)
    result["rates"] = pace.measure(RATES, sizes.seconds, advance)
    return result


def _held(value: bool) -> str:  # noqa: FBT001 - it is what is said
    return "met" if value else "MISSED"


def _costs(costs: dict[str, dict[str, dict[str, float]]]) -> Grid:
    rows = []
    for lanes in next(iter(costs.values())):
        cells = [f"{found[lanes]['us']:.1f} ({found[lanes]['ratio']:.2f})" for found in costs.values()]
        rows.append(({"0": "no lanes", "1": "1 lane"}.get(lanes, f"{int(lanes):,} lanes"), *cells))
    return Grid(
        "Server time, us a claimed job, and its ratio to one lane, by jobs a claim",
        ("", *(f"{per_call} a claim" for per_call in costs)),
        rows,
    )


def _promises(result: dict[str, Any]) -> Grid:
    rows: list[tuple[str, str, str, str]] = []

    def row(title: str, target: str, value: str, *, held: bool) -> None:
        rows.append((title, target, value, _held(held)))

    for found in result["first_turn"]:
        title = (
            f"first turn of a lane's one job, full lanes beside it: {found['lanes'] - 1}, {found['per_call']} a claim"
        )
        row(title, f"dispatch {found['lanes']}", str(found["dispatch"]), held=found["dispatch"] <= found["lanes"])
    for per_call, off in result["shares"].items():
        row(
            f"share by weights 3 to 1, {per_call} a claim", f"within {SHARE:.0%}", f"{off:+.1%}", held=abs(off) <= SHARE
        )
    row("slots empty while a job could start", "0", str(result["idle_slots"]), held=result["idle_slots"] == 0)
    for per_call, by_lanes in result["costs"].items():
        most = max(by_lanes, key=int)
        ratio = by_lanes[most]["ratio"]
        title = f"cost of a claimed job, {per_call} a claim: {int(most):,} lanes to one"
        row(title, f"at most {GROWTH:g}", f"{ratio:.2f}", held=ratio <= GROWTH)
    drains = result["rounds"]
    many = median(each["many"] / each["one"] for each in drains)
    tenants = median(each["tenants"] / each["flat"] for each in drains)
    count = result["sizes"]["drain"] // 2
    row(
        f"drain of {count:,} lanes with a job each, to one lane",
        f"within {MANY:.0%}",
        f"{many:.2f}",
        held=many >= 1 - MANY,
    )
    row("drain of 100 lanes, to no lanes", f"at least {TENANTS:g}", f"{tenants:.2f}", held=tenants >= TENANTS)
    batches = median(each["batches"] / each["alone"] for each in drains)
    row(
        f"drain by batches of {BATCH}, to one by one",
        f"at least {BATCHES:g}",
        f"{batches:.2f}",
        held=batches >= BATCHES,
    )
    stream, streamed = result["stream"], result["sizes"]["streamed"]
    rate = f"{stream['rate']:,.0f}"
    row(f"jobs a second, a stream of {streamed:,}", f"at least {BULK:,}", rate, held=stream["rate"] >= BULK)
    grown = f"{stream['growth_mib']:+.1f} MiB, {stream['rss_mib']:.0f} in all"
    row(
        "memory of the process, after a tenth of it",
        f"{GROWN_MIB:g} MiB more",
        grown,
        held=stream["growth_mib"] <= GROWN_MIB,
    )
    slowest = max(result["pick_up_ms"])
    shown = f"p50 {median(result['pick_up_ms']):.1f} ms, longest {slowest:.1f} ms"
    row("three jobs run by three idle workers", f"{PICK_UP_MS:g} ms", shown, held=slowest < PICK_UP_MS)
    for found in result["rates"]:
        expected = found["per_second"] * found["seconds"]
        row(
            f"{found['per_second']} a second of {found['of']}, four workers",
            f"{expected:.0f} in {found['seconds']:.1f} s",
            f"{found['starts']} starts, {found['calls'] / found['seconds']:.0f} calls a second",
            held=abs(found["starts"] - expected) <= max(1.0, RATE * expected),
        )
    return Grid("Lanes and limits", ("", "target", "value", ""), rows)


def _grids(result: dict[str, Any]) -> list[Grid]:
    return [_costs(result["costs"]), _promises(result)]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option(
    "--rounds", default=5, type=click.IntRange(1), help="Rounds of what is timed; four times as many of costs."
)
@click.option("--quick", is_flag=True, help="One round, small sizes: whether it works, not what it costs.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Print the tables as Markdown, and nothing else.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="The JSON file; benchmarks/results/lanes-TIME.json else."
)
def main(rounds: int, *, quick: bool, as_markdown: bool, output: Path | None) -> None:
    """Measure what lanes and limits promise, on private servers."""
    sizes = FULL
    if quick:
        rounds, sizes = 1, QUICK
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        result = _measure(sizes, rounds, progress)
    path = save(result, output or RESULTS / f"lanes-{datetime.now(UTC):%Y%m%dT%H%M%S}.json")
    if as_markdown:
        print("\n".join([*(grid.markdown() for grid in _grids(result)), about(result)]))
        return
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    for grid in _grids(result):
        grid.print(console)
    console.print(about(result), soft_wrap=True)
    console.print(f"written: {path}", soft_wrap=True)


if __name__ == "__main__":
    main()
