"""`echomq repair` and `echomq obliterate`: a queue is mended, or erased."""

from __future__ import annotations

import attrs
import click

from echomq.cli.asking import bar, make_sure, yes_option
from echomq.cli.frame import connected, queue_option
from echomq.cli.output import Output
from echomq.client import Client


@click.command("repair")
@queue_option
@connected
async def repair(client: Client, out: Output, *, queue: str) -> None:
    """Bring rows, sets, logs, dedup keys and lanes together again, after writes were lost or made by hand."""
    with bar("looked at", None) as progress:
        report = await client.queue(queue).repair(progress)
    text = (
        f"{report.mended:,} mended, {report.buried:,} buried, {report.dropped:,} dropped; {report.looked:,} looked at"
    )
    if report.unknown:
        text += "\nleft alone, for they are nobody's: " + ", ".join(map(repr, report.unknown))
    out.done(text, **attrs.asdict(report))


@click.command("obliterate")
@queue_option
@click.option("--force", is_flag=True, help="Although it is not paused, or jobs run.")
@yes_option
@connected
async def obliterate(client: Client, out: Output, *, queue: str, force: bool, yes: bool) -> None:
    """Erase a queue: its jobs, schedules, lanes, settings and counters. Interrupted, it goes on when called again."""
    found = client.queue(queue)
    counts = await found.counts()
    total = counts.pending + counts.active + counts.schedule + counts.dead + counts.waiting + counts.done
    await make_sure(f"Erase queue {queue!r} and its {total:,} jobs?", yes=yes)
    with bar("erased", total) as progress:
        jobs = await found.obliterate(force=force, progress=progress)
    out.done(f"queue {queue!r} and {jobs:,} jobs are erased", queue=queue, erased=jobs)
