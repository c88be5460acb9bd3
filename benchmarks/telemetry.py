"""Telemetry: what each instrument costs, and that none costs nothing: `make telemetry`.

See README.md beside this file for what is measured and how to read it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import click
import redis
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import RESULTS, ask, describe, save
from echomq.embedded import open_server

NAMES = ("off", "structlog, filtered", "structlog", "prometheus", "opentelemetry")
ROLES = ("enqueue_single", "enqueue_bulk", "drain")
Found = dict[str, dict[str, dict[str, float]]]


@contextmanager
def _source(path: Path | None) -> Iterator[None]:
    """Have another checkout's package imported by what is started within the block."""
    before = os.environ.get("PYTHONPATH")
    if path is not None:
        os.environ["PYTHONPATH"] = str(path)
    try:
        yield
    finally:
        if path is not None:
            os.environ.pop("PYTHONPATH")
            if before is not None:
                os.environ["PYTHONPATH"] = before


def _measure(client: redis.Redis, url: str, name: str, single: int, jobs: int) -> dict[str, dict[str, float]]:
    found = {}
    for role, count in (("enqueue_single", single), ("enqueue_bulk", jobs), ("drain", jobs)):
        if role != "drain":  # which takes what the bulk has left
            client.flushall()
        found[role] = ask("telemetry", f"{name}-{role}", url, count)
    return found


def _rows(rounds: list[Found]) -> Iterator[tuple[str, ...]]:
    for name in rounds[0]:
        cells = [name]
        for role in ROLES:
            rate = median(each[name][role]["rate"] for each in rounds)
            ratio = median(each[name][role]["rate"] / each["off"][role]["rate"] for each in rounds)
            more = median(each[name][role]["cpu_us"] - each["off"][role]["cpu_us"] for each in rounds)
            cells.append(f"{rate:,.0f}/s, {ratio:.2f}, {more:+.0f} us")
        yield tuple(cells)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--rounds", default=5, type=click.IntRange(1), help="Rounds, every instrument in each.")
@click.option("--single", default=2000, type=click.IntRange(100), help="Jobs enqueued one at a time.")
@click.option("--jobs", default=10_000, type=click.IntRange(100), help="Jobs enqueued in bulk and drained.")
@click.option("--before", type=click.Path(path_type=Path), help="Another checkout's src/, measured as `before`.")
@click.option("--quick", is_flag=True, help="One round, small sizes: whether it works, not how fast.")
@click.option("--output", type=click.Path(path_type=Path), help="The JSON file; benchmarks/results/TIME.json else.")
def main(rounds: int, single: int, jobs: int, before: Path | None, output: Path | None, *, quick: bool) -> None:
    """Measure one worker and one producer with each instrument, on a private server."""
    if quick:
        rounds, single, jobs = 1, 100, 500
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    names = (*(["before"] if before else []), *NAMES)
    found: list[Found] = []
    with open_server() as server, redis.Redis.from_url(server.url) as client:
        about: dict[str, Any] = describe(server.url)
        for number in range(rounds):
            each: Found = {}
            for name in names if number % 2 == 0 else names[::-1]:
                with _source(before if name == "before" else None):
                    each[name] = _measure(client, server.url, name, single, jobs)
            found.append({name: each[name] for name in names})
    path = output or RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-telemetry.json"
    save(about | {"sizes": {"single": single, "jobs": jobs}, "rounds": found}, path)
    table = Table("instrument", *ROLES, title="jobs a second, ratio to off, CPU a job beyond off")
    for row in _rows(found):
        table.add_row(*row)
    Console(highlight=False, width=None if sys.stdout.isatty() else 130).print(table)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
