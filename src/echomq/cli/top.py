"""`echomq top`: what happens now, again and again, until somebody has seen enough.

On a terminal a screen that is drawn anew; elsewhere a line a queue and refresh, for files and pipes; with `--json` a JSON
object a line. Rates are differences of the queues' counters from one refresh to the next.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import anyio
import attrs
import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from echomq.cli.asking import terminal_kept
from echomq.cli.frame import checked_all, connected
from echomq.cli.output import Output, console_of, span, spelled, table_of
from echomq.cli.samples import COLUMNS, NUMBERS, RATES, Sample, sample_all, server_now, table_of_samples
from echomq.client import Client
from echomq.errors import UnavailableError
from echomq.lanes import LaneInfo
from echomq.protocol.keys import check_queue_name
from echomq.workers import RunningJob, WorkerInfo

LANES: Final = 8
"""Lanes that are shown: those with most ready jobs."""
PAGE: Final = 100
"""Lanes of a queue among which they are looked for, about."""
WORKERS: Final = 8
"""Workers that are shown: those with most jobs."""
SLOW: Final = 8
"""Jobs that are shown: those that have run for longest, as workers said at most ten seconds ago."""


@final
@attrs.frozen(kw_only=True)
class View:
    """What one refresh shows."""

    now: dt.datetime
    """When, by the server's clock; while it is away, by ours."""
    url: str
    """The server."""
    queues: Sequence[tuple[Sample, Any]] = ()
    """The queues, each with its rates or None."""
    away: str = ""
    """Why there is nothing new; "": there is."""

    @property
    def samples(self) -> list[Sample]:
        """The queues alone."""
        return [sample for sample, _ in self.queues]


@click.command("top")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", callback=checked_all(check_queue_name))
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, metavar="SECONDS", help="Time between two refreshes.")  # fmt: skip
@click.option("--once", is_flag=True, help="Show one refresh with its rates, and end.")
@connected
async def top(client: Client, out: Output, *, queues: tuple[str, ...], interval: float, once: bool) -> None:
    """Watch QUEUEs, or all that are known: jobs, rates, lanes, workers and slow jobs. Ctrl-C ends it.

    When the server goes away it says so, and goes on when it is back.
    """
    console, watch = console_of(), Watch(client, queues)
    if once:
        await watch.look()
        await anyio.sleep(interval)
        view = await watch.look()
        if out.as_json:
            click.echo(_json(view))
        else:
            console.print(screen(view, console.width))
        return
    due = anyio.current_time()
    with _shown(out, console) as show:
        while True:
            show(await watch.look())
            due = max(due + interval, anyio.current_time())
            await anyio.sleep_until(due)


@final
class Watch:
    """Looks again and again, and remembers what it saw before."""

    def __init__(self, client: Client, names: tuple[str, ...]) -> None:
        self._client = client
        self._names = names
        self._before: dict[str, Sample] | None = None
        self._last = View(now=dt.datetime.now(dt.UTC), url=client.wire.url)

    async def look(self) -> View:
        """Look once.

        Raises:
            UnavailableError: The server was not reached, and never was; else the view says so.
        """
        try:
            now = await server_now(self._client)
            samples = await sample_all(self._client, self._names, lanes=PAGE)
        except UnavailableError as error:
            if self._before is None:
                raise
            self._last = attrs.evolve(self._last, now=dt.datetime.now(dt.UTC), away=str(error))
        else:
            before = self._before or {}
            rows = [(each, each.rates(before.get(each.queue))) for each in samples]
            self._before = {each.queue: each for each in samples}
            self._last = attrs.evolve(self._last, now=now, queues=rows, away="")
        return self._last


def lanes_of(samples: Iterable[Sample]) -> list[tuple[str, LaneInfo]]:
    """Pick the lanes with most ready jobs, each with its queue; a queue without lanes has none to be told of."""
    found = [
        (each.queue, lane)
        for each in samples
        if each.waits is not None and any(lane.name for lane in each.waits.lanes)
        for lane in each.waits.lanes
    ]
    return sorted(found, key=lambda each: (-each[1].pending, each[0], each[1].name))[:LANES]


def workers_of(samples: Iterable[Sample]) -> list[tuple[WorkerInfo, str]]:
    """Pick workers, each once and with its queues: those with most jobs."""
    queues: dict[str, list[str]] = {}
    running: dict[str, int] = {}
    seen: dict[str, WorkerInfo] = {}
    for each in samples:
        for worker in each.workers:
            seen[worker.client] = worker
            queues.setdefault(worker.client, []).append(each.queue)
            running[worker.client] = running.get(worker.client, 0) + worker.running
    picked = sorted(seen.values(), key=lambda worker: (-running[worker.client], worker.name))[:WORKERS]
    return [
        (attrs.evolve(worker, running=running[worker.client]), ", ".join(queues[worker.client])) for worker in picked
    ]


def slow_of(samples: Iterable[Sample]) -> list[tuple[str, WorkerInfo, RunningJob]]:
    """Pick the jobs that have run for longest, of those that workers tell of."""
    jobs = [(each.queue, worker, job) for each in samples for worker in each.workers for job in worker.jobs]
    return sorted(jobs, key=lambda each: each[2].since)[:SLOW]


# --- showing --------------------------------------------------------------------------------


@contextmanager
def _shown(out: Output, console: Console) -> Iterator[Callable[[View], None]]:
    if out.as_json:
        yield lambda view: click.echo(_json(view))
    elif not console.is_terminal:
        yield lambda view: click.echo("\n".join(lines(view)))
    else:
        with terminal_kept(screen=True), Live(console=console, screen=True, auto_refresh=False) as live:
            yield lambda view: live.update(screen(view, console.width), refresh=True)


def screen(view: View, width: int) -> RenderableType:
    """Draw a view for a terminal of so many columns."""
    head = Text.assemble(("echomq top", "bold"), f"  {view.url}  {view.now:%H:%M:%S} UTC")
    if view.away:
        head.append(f"\nthe server is away: {view.away}; trying on", style="bold red")
    parts: list[RenderableType] = [head, Text()]
    right = (*NUMBERS, "weight", "slots", "runs for", "attempt")
    if view.queues:
        parts.append(table_of(*table_of_samples(view.queues, rates=True, width=width), right=right))
    else:
        parts.append(Text("no queue is known yet", style="dim"))
    samples = view.samples
    for columns, rows in (
        (("lane", "of queue", "ready", "running", "oldest", "weight", "served"), list(map(_lane_row, lanes_of(samples)))),
        (("worker", "of queues", "running", "slots", "heard of"), [_worker_row(*each, view.now) for each in workers_of(samples)]),
        (("slow job", "of queue", "task", "runs for", "attempt", "worker"), [_slow_row(*each, view.now) for each in slow_of(samples)]),
    ):  # fmt: skip
        if rows:
            parts += [Text(), table_of(columns, rows, right=right)]
    return Group(*parts)


def lines(view: View) -> Iterator[str]:
    """Spell a view in lines."""
    now = f"{view.now:%Y-%m-%dT%H:%M:%SZ}"
    if view.away:
        yield f"{now} the server is away: {view.away}; trying on"
        return
    for each, rates in view.queues:
        if each.counts is None:
            yield f"{now} {each.queue} {each.problem}"
            continue
        words = [f"{name}={value}" for name, value in zip(COLUMNS[1:], each.row()[1:], strict=True)]
        words += [] if rates is None else [f"{shown}={rates.get(name, 0.0):.1f}" for name, shown in RATES.items()]
        yield " ".join([now, each.queue, *(word.replace(" ", "") for word in words)]) + (f" ({each.remarks})" if each.remarks else "")  # fmt: skip


def _json(view: View) -> str:
    return spelled({
        "now": view.now, "url": view.url, "away": view.away or None,
        "queues": [each.plain(rates) for each, rates in view.queues],
    })  # fmt: skip


def _worker_row(worker: WorkerInfo, queues: str, now: dt.datetime) -> tuple[str, ...]:
    heard = f"{_since(worker.seen, now)} ago"
    return (worker.name, queues, f"{worker.running:,}", f"{worker.concurrency:,}", heard)


def _slow_row(queue: str, worker: WorkerInfo, job: RunningJob, now: dt.datetime) -> tuple[str, ...]:
    return (job.id, queue, job.task, _since(job.since, now), str(job.attempt), worker.name)


def _since(moment: dt.datetime, now: dt.datetime) -> str:
    return span(max(0.0, (now - moment).total_seconds()))


def _lane_row(each: tuple[str, LaneInfo]) -> tuple[str, ...]:
    queue, lane = each
    return (
        lane.name or '""', queue, f"{lane.pending:,}", "-" if lane.active is None else f"{lane.active:,}",
        "-" if lane.oldest is None else span(lane.oldest), str(lane.weight), "yes" if lane.servable else "; ".join(lane.reasons),
    )  # fmt: skip
