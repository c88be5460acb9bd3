"""Tables of what was measured: medians over rounds, and ratios as the median of each round's ratio."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

Rounds = list[dict[str, dict[str, dict[str, float]]]]


@attrs.frozen
class Figure:
    """A row: which measurement, which of its numbers, how it is shown."""

    title: str
    role: str
    name: str
    form: str


TIMED = (
    Figure("drain, jobs/s", "drain", "rate", "{:,.0f}"),
    Figure("enqueue one at a time, jobs/s", "enqueue_single", "rate", "{:,.0f}"),
    Figure("enqueue by 64 tasks at once, jobs/s", "enqueue_tasks", "rate", "{:,.0f}"),
    Figure("enqueue in bulk, jobs/s", "enqueue_bulk", "rate", "{:,.0f}"),
    Figure("pick-up by an idle worker, p50, ms", "latency", "p50_ms", "{:.2f}"),
    Figure("pick-up by an idle worker, p99, ms", "latency", "p99_ms", "{:.2f}"),
    Figure("worker CPU, drain, us/job", "drain", "cpu_us", "{:.1f}"),
    Figure("producer CPU, one at a time, us/job", "enqueue_single", "cpu_us", "{:.1f}"),
    Figure("producer CPU, bulk, us/job", "enqueue_bulk", "cpu_us", "{:.1f}"),
    Figure("server CPU, drain, us/job", "drain", "server_cpu_us", "{:.1f}"),
    Figure("server CPU, one at a time, us/job", "enqueue_single", "server_cpu_us", "{:.1f}"),
    Figure("server CPU, bulk, us/job", "enqueue_bulk", "server_cpu_us", "{:.1f}"),
)
COUNTED = (
    Figure("commands sent, drain, a job", "drain", "calls", "{:.4f}"),
    Figure("commands sent, one at a time, a job", "enqueue_single", "calls", "{:.4f}"),
    Figure("commands sent, bulk, a job", "enqueue_bulk", "calls", "{:.4f}"),
    Figure("commands inside scripts, drain, a job", "drain", "inner", "{:.2f}"),
    Figure("commands inside scripts, bulk, a job", "enqueue_bulk", "inner", "{:.2f}"),
    Figure("reads of the server, drain, a job", "drain", "reads", "{:.4f}"),
    Figure("reads of the server, one at a time, a job", "enqueue_single", "reads", "{:.4f}"),
    Figure("reads of the server, 64 tasks at once, a job", "enqueue_tasks", "reads", "{:.4f}"),
    Figure("server memory, bytes a queued job", "enqueue_bulk", "bytes", "{:.0f}"),
    Figure("worker peak RSS, MiB", "drain", "rss_mib", "{:.1f}"),
)
TABLES = (
    ("Timed: only the ratio carries over to another machine or hour", TIMED),
    ("Counted: the same on any machine", COUNTED),
)
HEAD = ("", "echomq", "ceiling", "ratio", "ratios of the rounds")


def rows(rounds: Rounds, figures: tuple[Figure, ...]) -> Iterator[tuple[str, ...]]:
    """Make a table's rows."""
    for figure in figures:
        sides = [[each[side][figure.role][figure.name] for each in rounds] for side in ("echomq", "ceiling")]
        ratios = [a / b for a, b in zip(*sides, strict=True) if b]
        low_high = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else ""
        shown = [figure.form.format(median(side)) for side in sides]
        yield figure.title, *shown, f"{median(ratios):.2f}" if ratios else "", low_high


def _about(result: dict[str, Any]) -> str:
    sizes = ", ".join(f"{name} {size:,}" for name, size in result["sizes"].items())
    return (
        f"{result['when']}, Python {result['python']}, {result['server']}, {result['machine']}; "
        f"{len(result['rounds'])} rounds; {sizes}"
    )


def print_tables(console: Console, result: dict[str, Any]) -> None:
    """Print the tables."""
    for title, figures in TABLES:
        table = Table(title=title, title_justify="left")
        for at, name in enumerate(HEAD):
            table.add_column(name, justify="right" if at else "left")
        for row in rows(result["rounds"], figures):
            table.add_row(*row)
        console.print(table)
    console.print(_about(result), soft_wrap=True)


def markdown(result: dict[str, Any]) -> str:
    """Write the tables as Markdown."""
    lines = []
    for title, figures in TABLES:
        lines += [f"### {title}", "", f"| {' | '.join(HEAD)} |", "| --- | ---: | ---: | ---: | ---: |"]
        lines += [f"| {' | '.join(row)} |" for row in rows(result["rounds"], figures)]
        lines.append("")
    return "\n".join([*lines, _about(result)])
