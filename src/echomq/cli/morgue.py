"""`echomq dead` and `echomq redrive`: jobs that were given up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs
import click

from echomq.cli import typed
from echomq.cli.asking import bar
from echomq.cli.frame import REFUSED, connected, queue_option
from echomq.cli.output import Output, span
from echomq.client import Client
from echomq.finding import JobFilters
from echomq.morgue import DeadJob

F = TypeVar("F", bound=Callable[..., Any])

SHOWN: Final = 50
"""Dead jobs that are shown unless told otherwise."""


def filter_options(command: F) -> F:
    """Give a command `--task`, `--error` and `--older`."""
    for option in (
        click.option("--older", type=float, metavar="SECONDS", help="Only jobs that have been dead for so long."),
        click.option("--error", metavar="TEXT", help="Only jobs with this text in their error or reason."),
        click.option("--task", metavar="TASK", help="Only jobs of this task."),
    ):
        command = option(command)
    return command


@click.command("dead")
@queue_option
@filter_options
@click.option("--limit", "-n", default=SHOWN, show_default=True, type=click.IntRange(1), help="How many at most.")
@connected
async def dead(
    client: Client, out: Output, *, queue: str, task: str | None, error: str | None, older: float | None, limit: int
) -> None:
    """Show dead jobs with their errors, the longest dead first."""
    jobs: list[DeadJob] = []
    async for job in client.queue(queue).dead.find(**_filters(task, error, older)):
        jobs.append(job)
        if len(jobs) == limit:
            break
    if out.as_json:
        out.json([{**attrs.asdict(job, recurse=False), "error": _plain(job)} for job in jobs])
    else:
        columns = ("id", "task", "attempts", "dead for", "error", "reason")
        out.table(columns, [_row(job) for job in jobs], empty=f"queue {queue!r} has no such dead jobs")


@click.command("redrive")
@click.argument("ids", nargs=-1, metavar="[JOB]...")
@queue_option
@filter_options
@click.option("--all", "every", is_flag=True, help="All dead jobs.")
@click.option("--limit", "-n", type=click.IntRange(1), help="How many at most, the longest dead first.")
@click.option("--rate", metavar="N[/SECONDS]", help="How many in how long, such as 5 (a second) or 100/60.")
@connected
async def redrive(
    client: Client,
    out: Output,
    *,
    ids: tuple[str, ...],
    queue: str,
    task: str | None,
    error: str | None,
    older: float | None,
    every: bool,
    limit: int | None,
    rate: str | None,
) -> None:
    """Begin a new life for dead JOBs, or for those that fit, or all."""
    filters = _filters(task, error, older)
    if bool(ids) + bool(filters) + every != 1:
        raise click.UsageError("say JOBs, or which ones (--task, --error, --older), or --all")
    found = client.queue(queue)
    if not ids:
        pace = None if rate is None else typed.rate(rate)
        total = (await found.counts()).dead if every else None
        with bar("redriven", limit if total is None or (limit is not None and limit < total) else total) as progress:
            count = await found.dead.redrive(limit=limit, rate=pace, progress=progress, **filters)
        out.done(f"{count:,} redriven", redriven=count)
        return
    if limit is not None or rate is not None:
        raise click.UsageError("--limit and --rate are for jobs that are looked for, not for JOBs that are named")
    outcomes = await found.redrive(ids)
    problems = [str(problem) for problem in outcomes if problem is not None]
    for problem in problems:
        click.echo(problem, err=True)
    out.done(f"{len(ids) - len(problems):,} redriven", redriven=len(ids) - len(problems), errors=problems)
    if problems:
        click.get_current_context().exit(REFUSED)


def _filters(task: str | None, error: str | None, older: float | None) -> JobFilters:
    filters: JobFilters = {}
    if task is not None:
        filters["task"] = task
    if error is not None:
        filters["error"] = error
    if older is not None:
        filters["older"] = older
    return filters


def _row(job: DeadJob) -> tuple[str, ...]:
    error = "-" if job.error is None else f"{job.error.type}: {job.error.message}"
    return (job.id, job.task or "-", str(job.attempts), span(job.age), error[:200], job.reason[:200])


def _plain(job: DeadJob) -> dict[str, str] | None:
    error = job.error
    return None if error is None else {"type": error.type, "message": error.message, "traceback": error.traceback}
