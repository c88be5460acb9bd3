"""`echomq stats`: how many jobs are where."""

from __future__ import annotations

import anyio
import click

from echomq.cli.frame import checked_all, connected
from echomq.cli.output import Output, console_of
from echomq.cli.samples import NUMBERS, names_of, sample_all, table_of_samples
from echomq.client import Client
from echomq.protocol.keys import check_queue_name


@click.command("stats")
@click.argument("queues", nargs=-1, metavar="[QUEUE]...", callback=checked_all(check_queue_name))
@click.option("--over", type=click.FloatRange(min=0.1), metavar="SECONDS", help="Read twice, so long apart, and show rates too.")  # fmt: skip
@connected
async def stats(client: Client, out: Output, *, queues: tuple[str, ...], over: float | None) -> None:
    """Count the jobs of QUEUEs by state; without any, of all that are known."""
    names = await names_of(client, queues)
    before = []
    if over is not None:
        before = await sample_all(client, names)
        await anyio.sleep(over)
    samples = await sample_all(client, names)
    rates = [now.rates(then) for then, now in zip(before, samples, strict=True)] if before else [None] * len(samples)
    if out.as_json:
        out.json([each.plain(rate) for each, rate in zip(samples, rates, strict=True)])
        return
    columns, rows = table_of_samples(
        list(zip(samples, rates, strict=True)), rates=over is not None, width=console_of().width
    )
    out.table(columns, rows, empty="no queue is known: enqueue a job, or name one", right=NUMBERS)
