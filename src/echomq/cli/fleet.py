"""`echomq workers` and `echomq queues`: who works, and on what."""

from __future__ import annotations

import datetime as dt

import attrs
import click

from echomq.cli.frame import checked, connected
from echomq.cli.output import Output, when
from echomq.client import Client
from echomq.protocol.keys import check_queue_name
from echomq.workers import WorkerInfo


@click.command("workers")
@click.argument("queue", metavar="[QUEUE]", required=False, callback=checked(check_queue_name))
@connected
async def workers(client: Client, out: Output, *, queue: str | None) -> None:
    """List the workers that are alive, of QUEUE or of all queues that are known, and what they run."""
    names = [queue] if queue else sorted(name for name, _ in await client.queues())
    found = [(name, worker) for name in names for worker in await client.queue(name).workers()]
    if out.as_json:
        out.json([{"queue": name, **attrs.asdict(worker)} for name, worker in found])
        return
    now = dt.datetime.now(dt.UTC)
    columns = ("queue", "worker", "host", "pid", "since", "runs", "jobs that have run for longest")
    out.table(columns, [_row(name, worker, now) for name, worker in found], empty="no worker is alive")


def _row(queue: str, worker: WorkerInfo, now: dt.datetime) -> tuple[str, ...]:
    longest = [f"{job.id} {job.task} {max(0.0, (now - job.since).total_seconds()):,.0f} s" for job in worker.jobs[:3]]
    more = len(longest) < worker.running and longest
    return (
        queue,
        worker.name,
        worker.host,
        str(worker.pid),
        when(worker.since.replace(microsecond=0)),
        f"{worker.running:,}/{worker.concurrency:,}",
        "\n".join((*longest, *(["..."] if more else []))),
    )


@click.command("queues")
@connected
async def queues(client: Client, out: Output) -> None:
    """List the queues that are known, with when each was last used; the latest first."""
    known = await client.queues()
    if out.as_json:
        out.json([{"queue": name, "used_at": used_at} for name, used_at in known])
        return
    rows = [(name, when(used_at.replace(microsecond=0))) for name, used_at in known]
    out.table(("queue", "last used"), rows, empty="no queue is known")
