"""`echomq drain` and `echomq trim`: what waits is removed, what was kept for long enough goes."""

from __future__ import annotations

import click

from echomq.cli.asking import bar, make_sure, yes_option
from echomq.cli.frame import connected, queue_option
from echomq.cli.output import Output
from echomq.client import Client


@click.command("drain")
@queue_option
@click.option("--lane", metavar="LANE", help='Only this lane; "" means the jobs without one.')
@click.option(
    "--scheduled", is_flag=True, help="Also what is scheduled: delays, and jobs that wait for their next attempt."
)
@yes_option
@connected
async def drain(client: Client, out: Output, *, queue: str, lane: str | None, scheduled: bool, yes: bool) -> None:
    """Remove the jobs that are ready. What runs goes on; recurring schedules stay. Interrupted, call it again."""
    found = client.queue(queue)
    of_lane = None if lane is None else found.lane(lane)
    total: int | None
    if of_lane is not None:
        total = (await of_lane.info()).pending
        total = None if scheduled else total  # how many of a lane are scheduled is not known
    else:
        counts = await found.counts()
        total = counts.pending + (counts.schedule if scheduled else 0)
    where = f"queue {queue!r}" if lane is None else f"lane {lane!r} of queue {queue!r}"
    what = "ready and scheduled jobs" if scheduled else "ready jobs"
    make_sure(f"Remove the {'' if total is None else f'{total:,} '}{what} of {where}?", yes=yes)
    with bar("removed", total) as progress:
        if of_lane is not None:
            count = await of_lane.drain(progress, scheduled=scheduled)
        else:
            count = await found.drain(scheduled=scheduled, progress=progress)
    out.done(f"{count:,} removed", queue=queue, removed=count)


@click.command("trim")
@queue_option
@click.option("--dead-max", type=click.IntRange(0), metavar="N", help="How many dead jobs are left, however young.")
@click.option("--dead-age", type=float, metavar="SECONDS", help="For how long dead jobs are kept.")
@click.option("--done-max", type=click.IntRange(0), metavar="N", help="How many results are left.")
@yes_option
@connected
async def trim(
    client: Client,
    out: Output,
    *,
    queue: str,
    dead_max: int | None,
    dead_age: float | None,
    done_max: int | None,
    yes: bool,
) -> None:
    """Drop dead jobs and results that are too old or too many: by the queue's settings, or by the limits given here."""
    given = {"--dead-max": dead_max, "--dead-age": dead_age, "--done-max": done_max}
    said = " ".join(f"{name} {value:g}" for name, value in given.items() if value is not None)
    if said:  # what the settings say goes anyway
        make_sure(f"Drop dead jobs and results of queue {queue!r} beyond {said}?", yes=yes)
    with bar("dropped", None) as progress:
        count = await client.queue(queue).trim(
            dead_max=dead_max, dead_age=dead_age, done_max=done_max, progress=progress
        )
    out.done(f"{count:,} dropped", queue=queue, dropped=count)
