"""`echomq update` and `echomq reprioritise`: jobs that wait get another payload, or another priority."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from echomq.cli.frame import checked, connected, queue_option
from echomq.cli.going import answer_each
from echomq.cli.output import Output
from echomq.client import Client
from echomq.protocol.ids import check_id


@click.command("update")
@click.argument("id", metavar="JOB", callback=checked(check_id))
@queue_option
@click.option("--payload", metavar="TEXT", help="The payload as it is sent, such as a task's arguments in JSON.")
@click.option(
    "--file", "source", type=click.File("rb"), metavar="PATH", help="A file that holds it; - reads the input."
)
@connected
async def update(
    client: Client, out: Output, *, id: str, queue: str, payload: str | None, source: BinaryIO | None
) -> None:
    """Replace the payload of a JOB that waits or is dead. Nobody checks it before a worker does."""
    if (payload is None) == (source is None):
        raise click.UsageError("say either --payload or --file")
    data = (payload or "").encode("utf-8", "surrogateescape") if source is None else source.read()
    await client.queue(queue).update(id, data)
    out.done(f"{id}: updated", id=id, outcome="updated")


_JOBS: Final = click.argument("ids", nargs=-1, required=True, metavar="JOB...")


@click.command("reprioritise")
@_JOBS
@queue_option
@click.option("--priority", "-p", type=int, required=True, metavar="N", help="-2047 to 2047; higher is served first.")
@connected
async def reprioritise(client: Client, out: Output, *, ids: tuple[str, ...], queue: str, priority: int) -> None:
    """Give JOBs that wait, or are dead, another priority."""
    outcomes = await client.queue(queue).reprioritise(map(check_id, ids), priority=priority)
    answer_each(out, ids, outcomes, "reprioritised")
