"""`echomq cancel ...`: end jobs that wait, ask those that run."""

from __future__ import annotations

from typing import Any

import click

from echomq.cli.asking import bar, make_sure, yes_option
from echomq.cli.frame import REFUSED, connected, queue_option
from echomq.cli.output import Output
from echomq.client import Client
from echomq.errors import EchoMQError
from echomq.protocol.ids import check_id
from echomq.queue import Queue


@click.command("cancel")
@click.argument("ids", nargs=-1, metavar="[JOB]...")
@queue_option
@click.option("--dedup", metavar="KEY", help="The job that holds this dedup key.")
@click.option("--task", metavar="TASK", help="All jobs of this task.")
@click.option("--lane", metavar="LANE", help='All jobs of this lane; "" are those that have none.')
@click.option("--reason", default="", metavar="TEXT", help="Why, for people.")
@yes_option
@connected
async def cancel(
    client: Client,
    out: Output,
    *,
    ids: tuple[str, ...],
    queue: str,
    dedup: str | None,
    task: str | None,
    lane: str | None,
    reason: str,
    yes: bool,
) -> None:
    """Cancel JOBs, or the one of a dedup key, or all of a task, of a lane, or of a task in a lane.

    Those that do not run end at once; those that run are asked, and end when their handler has.
    """
    ways = bool(ids) + (dedup is not None) + (task is not None or lane is not None)
    if ways != 1:
        raise click.UsageError("say JOBs, or --dedup, or --task and --lane or one of them")
    found = client.queue(queue)
    if task is not None or lane is not None:
        await _where(found, out, task, lane, reason, yes=yes)
    elif dedup is not None:
        outcome = await found.cancel_dedup(dedup, reason=reason)
        out.done(outcome, dedup=dedup, outcome=outcome)
    else:
        await _each(found, out, ids, reason)


async def _where(queue: Queue, out: Output, task: str | None, lane: str | None, reason: str, *, yes: bool) -> None:
    of = " ".join([f"of task {task!r}"] * (task is not None) + [f"of lane {lane!r}"] * (lane is not None))
    make_sure(f"Cancel all jobs {of} in queue {queue.name!r}?", yes=yes)
    with bar("cancelled", None) as progress:
        report = await queue.cancel_where(task=task, lane=lane, reason=reason, progress=progress)
    text = f"{report.cancelled:,} cancelled, {report.asked:,} running asked"
    out.done(text, cancelled=report.cancelled, asked=report.asked)


async def _each(queue: Queue, out: Output, ids: tuple[str, ...], reason: str) -> None:
    answers: list[dict[str, Any]] = []
    failed = False
    for id in map(check_id, ids):
        try:
            answers.append({"id": id, "outcome": await queue.cancel(id, reason=reason)})
        except EchoMQError as error:
            failed = True
            answers.append({"id": id, "error": str(error)})
    if out.as_json:
        out.json(answers)
    else:
        for answer in answers:
            click.echo(answer.get("error") or f"{answer['id']}: {answer['outcome']}", err="error" in answer)
    if failed:
        click.get_current_context().exit(REFUSED)
