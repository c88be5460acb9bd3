"""`echomq repair` and `echomq obliterate`: a queue is mended, or erased."""

from __future__ import annotations

import attrs
import click

from echomq.cli.asking import bar, make_sure, yes_option
from echomq.cli.frame import CommandError, connected, queue_option
from echomq.cli.output import Output
from echomq.client import Client
from echomq.errors import JobStateError, ServerError
from echomq.queue import Queue


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
    total = await _jobs(found)
    make_sure(f"Erase queue {queue!r} and its {'' if total is None else f'{total:,} '}jobs?", yes=yes)
    try:
        with bar("erased", total) as progress:
            jobs = await found.obliterate(force=force, progress=progress)
    except JobStateError as error:
        stands = "has running jobs" if error.actual.startswith("active") else "is not paused"
        raise CommandError(
            f"queue {queue!r} {stands}: pause it (echomq pause {queue}) and let its jobs end, or say --force"
        ) from None
    out.done(f"queue {queue!r} and {jobs:,} jobs are erased", queue=queue, erased=jobs)


async def _jobs(queue: Queue) -> int | None:
    """Count the queue's jobs; None if it is too torn for that."""
    try:
        counts = await queue.counts()
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise
        return None
    return counts.pending + counts.active + counts.schedule + counts.dead + counts.waiting + counts.done
