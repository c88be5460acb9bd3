"""Waiting times of a queue's tenants while one of them floods it, with lanes and without: `make fairness`.

One worker, ten handlers of 20 ms each. One tenant enqueues some thousand jobs at once; five others have a job now and
then. The same twice, on servers of their own: all jobs in one queue without lanes, and each tenant's in a lane.

The result is committed (`results/fairness.json`), and so is what is made of it: the plot, and the table beneath it in
docs/how-to/fairness.md. Nobody edits these; `--draw` makes them anew from the result without running anything.
"""

from __future__ import annotations

import signal
import sys
import time
from math import log10
from pathlib import Path
from statistics import median
from typing import Any

import attrs
import click
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.measure import RESULTS, ROOT, describe, read_line, save, start_side
from benchmarks.workload import KEYS, TASK
from echomq.conformance.driver import Driver, connect
from echomq.embedded import open_server
from echomq.protocol.newjob import NewJob

FLOOD = "flood"
SMALL = ("acme", "globex", "hooli", "initech", "umbrella")
RESULT = RESULTS / "fairness.json"
PLOT = ROOT / "docs" / "_static" / "fairness.svg"
PAGE = ROOT / "docs" / "how-to" / "fairness.md"
BEGIN, END = "<!-- table: of benchmarks/results/fairness.json -->", "<!-- table: end -->"
PER_CALL = 200

Waits = dict[str, dict[str, float]]
"""Of each tenant: its jobs, and the shortest, median and longest time from a job's enqueue to its start, seconds."""


@attrs.frozen
class Sizes:
    """How much of each."""

    flood: int
    """Jobs that one tenant enqueues at once."""
    seconds: float
    """For how long the others enqueue."""
    every: float
    """Seconds between two jobs of one of the others."""
    concurrency: int
    job_ms: int


FULL = Sizes(flood=3000, seconds=6.0, every=0.25, concurrency=10, job_ms=20)
QUICK = Sizes(flood=200, seconds=0.4, every=0.1, concurrency=10, job_ms=20)


def _job(tenant: str, *, lanes: bool) -> NewJob:
    payload = orjson.dumps({"args": [tenant, time.time()]})
    return NewJob(task=TASK, payload=payload, lane=tenant if lanes else None)


def _run(sizes: Sizes, *, lanes: bool) -> Waits:
    moments = sorted(
        (number * sizes.every + at * sizes.every / len(SMALL), tenant)
        for number in range(round(sizes.seconds / sizes.every))
        for at, tenant in enumerate(SMALL)
    )
    jobs = sizes.flood + len(moments)
    with (
        open_server() as server,
        start_side("lanes", "tenants", server.url, jobs, sizes.concurrency, sizes.job_ms) as worker,
        connect(server.url) as client,
    ):
        read_line(worker)
        driver = Driver(client, KEYS)
        for first in range(0, sizes.flood, PER_CALL):
            count = min(PER_CALL, sizes.flood - first)
            driver.items("enqueue", *(_job(FLOOD, lanes=lanes) for _ in range(count)))
        began = time.monotonic()
        for moment, tenant in moments:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            driver.item("enqueue", _job(tenant, lanes=lanes))
        waits: dict[str, list[float]] = {tenant: [] for tenant in (FLOOD, *SMALL)}
        for tenant, seconds in read_line(worker):
            waits[tenant].append(seconds)
    return {
        tenant: {
            "jobs": len(each),
            "shortest": round(min(each), 4),
            "median": round(median(each), 4),
            "longest": round(max(each), 4),
        }
        for tenant, each in waits.items()
    }


def _measure(sizes: Sizes) -> dict[str, Any]:
    with open_server() as server:
        result = describe(server.url) | {"sizes": attrs.asdict(sizes)}
    result["waits"] = {"without": _run(sizes, lanes=False), "with": _run(sizes, lanes=True)}
    return result


# --- what is made of it --------------------------------------------------------------------------


def _shown(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def table(result: dict[str, Any]) -> str:
    """Write the table of a result, as it stands in the page."""
    lines = [
        "| tenant | jobs | median without lanes | longest without lanes | median with lanes | longest with lanes |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    without, with_lanes = result["waits"]["without"], result["waits"]["with"]
    for tenant, waits in without.items():
        cells = [_shown(each[name]) for each in (waits, with_lanes[tenant]) for name in ("median", "longest")]
        lines.append(f"| {tenant} | {waits['jobs']:,} | {' | '.join(cells)} |")
    sizes = result["sizes"]
    about = (
        f"A real run: {result['server']}, {result['machine'].rpartition(',')[0]}; one worker, {sizes['concurrency']} "
        f"handlers of {sizes['job_ms']} ms each; `{FLOOD}` enqueues {sizes['flood']:,} jobs at once, each of the others one "
        f"every {sizes['every'] * 1000:.0f} ms."
    )
    lines += ["", about]
    return "\n".join(lines)


LEFT, TOP, ROW, RIGHT = 150, 64, 52, 30
DECADE = 145
LEAST, DECADES = -3, 4
"""The axis goes from a ms to ten seconds."""
STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  text { fill: #24292f; font: 14px system-ui, sans-serif; }
  .small { font-size: 13px; fill: #57606a; }
  .grid { stroke: #d8dee4; }
  .without { stroke: #bc4c00; fill: #bc4c00; }
  .with { stroke: #0969da; fill: #0969da; }
  .span { stroke-width: 3; stroke-linecap: round; opacity: 0.55; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    text { fill: #e6edf3; }
    .small { fill: #9ea7b3; }
    .grid { stroke: #30363d; }
    .without { stroke: #ffa657; fill: #ffa657; }
    .with { stroke: #58a6ff; fill: #58a6ff; }
  }
"""


def _x(seconds: float) -> float:
    return LEFT + (min(max(log10(max(seconds, 1e-9)), LEAST), LEAST + DECADES) - LEAST) * DECADE


def _mark(kind: str, x: float, y: float) -> str:
    # Told apart by their shape as well as by their colour.
    if kind == "without":
        return f'<rect class="{kind}" x="{x - 5.5:.1f}" y="{y - 5.5:.1f}" width="11" height="11"/>'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>'


def draw(result: dict[str, Any]) -> str:
    """Draw the waiting times of a result: for each tenant from the shortest to the longest, with a mark at the median."""
    waits = result["waits"]
    tenants = list(waits["without"])
    bottom = TOP + ROW * len(tenants)
    width, height = LEFT + DECADES * DECADE + RIGHT, bottom + 62
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
        '<title id="title">Waiting time of each tenant, with lanes and without, while one of them floods the queue</title>',
        f"<style>{STYLE}</style>",
        f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>',
    ]
    for at, (kind, title) in enumerate((("without", "one queue without lanes"), ("with", "a lane for each tenant"))):
        x = LEFT + at * 230
        lines += [_mark(kind, x + 6, 28), f'<text x="{x + 20}" y="33">{title}</text>']
    for decade, label in enumerate(("1 ms", "10 ms", "100 ms", "1 s", "10 s")):
        x = LEFT + decade * DECADE
        lines += [
            f'<line class="grid" x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{bottom}"/>',
            f'<text class="small" x="{x}" y="{bottom + 20}" text-anchor="middle">{label}</text>',
        ]
    for row, tenant in enumerate(tenants):
        middle = TOP + ROW * row + ROW / 2 - 4
        note = f"{waits['without'][tenant]['jobs']:,} jobs"
        lines += [
            f'<text x="{LEFT - 14}" y="{middle:.1f}" text-anchor="end">{tenant}</text>',
            f'<text class="small" x="{LEFT - 14}" y="{middle + 16:.1f}" text-anchor="end">{note}</text>',
        ]
        for kind, y in (("without", middle - 7), ("with", middle + 9)):
            some = waits[kind][tenant]
            low, high = _x(some["shortest"]), _x(some["longest"])
            lines += [
                f'<line class="span {kind}" x1="{low:.1f}" y1="{y:.1f}" x2="{high:.1f}" y2="{y:.1f}"/>',
                _mark(kind, _x(some["median"]), y),
            ]
    label = "waiting time from enqueue to start (logarithmic): shortest to longest, the mark at the median"
    lines.append(f'<text class="small" x="{width / 2:.0f}" y="{bottom + 44}" text-anchor="middle">{label}</text>')
    return "\n".join([*lines, "</svg>", ""])


def page(text: str, result: dict[str, Any]) -> str:
    """Put a result's table into the page's text, between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise click.ClickException(f"{PAGE.name} has no {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{table(result)}\n\n{END}{after}"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--quick", is_flag=True, help="Small sizes, and the result is only printed: whether it works.")
@click.option(
    "--draw", "only_draw", is_flag=True, help="Make plot and table of the committed result anew, and run nothing."
)
def main(*, quick: bool, only_draw: bool) -> None:
    """Measure how long tenants wait while one floods the queue, and write result, plot and table."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if quick:
        print(table(_measure(QUICK)))
        return
    if not only_draw:
        save(_measure(FULL), RESULT)
    result = orjson.loads(RESULT.read_bytes())
    PLOT.parent.mkdir(parents=True, exist_ok=True)
    PLOT.write_text(draw(result), "utf-8")
    PAGE.write_text(page(PAGE.read_text("utf-8"), result), "utf-8")
    print(table(result))


if __name__ == "__main__":
    main()
