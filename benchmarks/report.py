"""Tables of what was measured: medians over rounds, and ratios as the median of each round's ratio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


@attrs.frozen
class Grid:
    """A table of text, for the terminal or for a page; its first column is aligned left, the others right."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def print(self, console: Console) -> None:
        table = Table(title=self.title, title_justify="left")
        for at, name in enumerate(self.head):
            table.add_column(name, justify="right" if at else "left")
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> str:
        align = f"| --- |{' ---: |' * (len(self.head) - 1)}"
        lines = [f"| {' | '.join(cell.replace('|', ' ') for cell in row)} |" for row in self.rows]
        return "\n".join([f"### {self.title}", "", f"| {' | '.join(self.head)} |", align, *lines, ""])


def _grids(result: dict[str, Any]) -> list[Grid]:
    return [Grid(title, HEAD, list(rows(result["rounds"], figures))) for title, figures in TABLES]


def about(result: dict[str, Any]) -> str:
    """Tell where and how it was measured."""
    sizes = ", ".join(f"{name.replace('_', ' ')} {size:,}" for name, size in result["sizes"].items())
    return (
        f"{result['when']}, Python {result['python']}, {result['server']} (memory: {result['allocator']}), {result['machine']}; "
        f"{len(result['rounds'])} rounds; {sizes}"
    )


def print_tables(console: Console, result: dict[str, Any]) -> None:
    """Print the tables."""
    for grid in _grids(result):
        grid.print(console)
    console.print(about(result), soft_wrap=True)


def markdown(result: dict[str, Any]) -> str:
    """Write the tables as Markdown."""
    return "\n".join([*(grid.markdown() for grid in _grids(result)), about(result)])
