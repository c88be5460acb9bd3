"""`echomq pause`, `resume`, `reschedule` and `promote`: whether a queue goes on, and when jobs that wait do."""

from __future__ import annotations

from typing import Final

import click

from echomq.cli.frame import REFUSED, checked, connected, queue_option
from echomq.cli.output import Output
from echomq.cli.typed import moment
from echomq.client import Client
from echomq.errors import EchoMQError
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_queue_name

_QUEUE: Final = click.argument("queue", metavar="QUEUE", callback=checked(check_queue_name))
_JOBS: Final = click.argument("ids", nargs=-1, required=True, metavar="JOB...")


@click.command("pause")
@_QUEUE
@connected
async def pause(client: Client, out: Output, *, queue: str) -> None:
    """Let no more jobs of QUEUE be claimed, until `resume`. What runs goes on."""
    changed = await client.queue(queue).pause()
    out.done(f"{queue}: {'paused' if changed else 'was paused already'}", queue=queue, paused=True, changed=changed)


@click.command("resume")
@_QUEUE
@connected
async def resume(client: Client, out: Output, *, queue: str) -> None:
    """Let jobs of QUEUE be claimed again."""
    changed = await client.queue(queue).resume()
    out.done(f"{queue}: {'goes on' if changed else 'was not paused'}", queue=queue, paused=False, changed=changed)


@click.command("reschedule")
@_JOBS
@queue_option
@click.option("--delay", type=float, metavar="SECONDS", help="Not before so long from now.")
@click.option("--at", metavar="TIME", help="Not before this moment: ISO 8601, with an offset.")
@connected
async def reschedule(
    client: Client, out: Output, *, ids: tuple[str, ...], queue: str, delay: float | None, at: str | None
) -> None:
    """Give JOBs that wait another time, whether they are scheduled or ready."""
    if (delay is None) == (at is None):
        raise click.UsageError(f"say either --delay or --at ({'neither is' if at is None else 'both are'} given)")
    due = None if at is None else moment("--at", at)
    outcomes = await client.queue(queue).reschedule(map(check_id, ids), delay=delay, at=due)
    answer_each(out, ids, outcomes, "rescheduled")


@click.command("promote")
@_JOBS
@queue_option
@connected
async def promote(client: Client, out: Output, *, ids: tuple[str, ...], queue: str) -> None:
    """Let scheduled JOBs run now; those that are ready stay so."""
    outcomes = await client.queue(queue).promote(map(check_id, ids))
    answer_each(out, ids, outcomes, "promoted")


def answer_each(out: Output, ids: tuple[str, ...], outcomes: list[EchoMQError | None], done: str) -> None:
    """Say what became of each job; one that failed fails the command, and no other."""
    if out.as_json:
        out.json([
            {"id": id, "outcome": done} if problem is None else {"id": id, "error": str(problem)}
            for id, problem in zip(ids, outcomes, strict=True)
        ])  # fmt: skip
    else:
        for id, problem in zip(ids, outcomes, strict=True):
            click.echo(f"{id}: {done}" if problem is None else str(problem), err=problem is not None)
    if any(problem is not None for problem in outcomes):
        click.get_current_context().exit(REFUSED)
