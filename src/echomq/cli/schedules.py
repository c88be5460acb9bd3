"""`echomq schedules ...`: recurring jobs, looked at and changed by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import click
import orjson

from echomq.cli.frame import CommandError, connected, json_option, queue_option
from echomq.cli.output import Output, when
from echomq.cli.typed import call_payload
from echomq.client import Client
from echomq.errors import ScheduleNotFoundError
from echomq.protocol.times import from_unix_ms, unix_ms
from echomq.recurrence import MISSED_POLICIES, Recurrence
from echomq.recurrence.zones import find_zone
from echomq.schedules import ScheduleInfo
from echomq.transitions.schedules import OVERLAPS

RUNS: Final = 5
"""Runs that `next` shows unless told otherwise."""


@click.group("schedules")
def schedules() -> None:
    """Look after recurring jobs."""


@schedules.command("list")
@queue_option
@click.option("--runs", default=1, show_default=True, type=click.IntRange(1, 100), help="How many next runs to show.")
@connected
async def list_schedules(client: Client, out: Output, *, queue: str, runs: int) -> None:
    """List the recurring jobs of a queue, with their next runs."""
    found = [each async for each in client.queue(queue).schedules]
    if out.as_json:
        out.json([_plain(each, runs) for each in found])
        return
    columns = ("name", "task", "slots", "next run", "made", "skipped", "last job", "origin", "remarks")
    out.table(columns, [_row(each, runs) for each in found], empty=f"queue {queue!r} has no recurring jobs")


@schedules.command("put")
@click.argument("name")
@queue_option
@click.option("--cron", metavar="EXPRESSION", help='Its slots: five fields, such as "30 2 * * MON-FRI".')
@click.option("--every", type=float, metavar="SECONDS", help="Its slots at an interval instead.")
@click.option(
    "--tz", default="UTC", show_default=True, help="The zone of the expression's times, such as Europe/Berlin."
)
@click.option("--task", default="", help="The task of its jobs.")
@click.option("--args", metavar="JSON", help="The task's arguments, as a JSON list.")
@click.option("--kwargs", metavar="JSON", help="The task's arguments by name, as a JSON object.")
@click.option("--payload", metavar="TEXT", help="The whole payload instead, for a queue with a handler of its own.")
@click.option("--start", metavar="TIME", help="No slot before it (ISO 8601; without an offset: in the zone).")
@click.option("--end", metavar="TIME", help="No slot after it.")
@click.option("--limit", type=int, help="How many slots may make a job.")
@click.option(
    "--missed",
    type=click.Choice(MISSED_POLICIES),
    default="last",
    show_default=True,
    help="What becomes of slots that nobody fired in time.",
)
@click.option(
    "--overlap",
    type=click.Choice(OVERLAPS),
    default="allow",
    show_default=True,
    help="What a slot does while the last one's job is not over.",
)
@click.option("--jitter", type=float, metavar="SECONDS", help="Each job may run later by up to so much.")
@click.option("--lane", help="The lane of its jobs.")
@click.option("--priority", type=int, help="The priority of its jobs.")
@click.option("--expires", type=float, metavar="SECONDS", help="A job that has waited for so long ends as expired.")
@click.option(
    "--deadline", type=float, metavar="SECONDS", help="All attempts of a job must be over so long after it was made."
)
@click.option("--max-attempts", type=int, help="How many failures bury a job.")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long one attempt may run.")
@click.option("--result-ttl", type=float, metavar="SECONDS", help="How long an ended job is kept.")
@connected
async def put(
    client: Client,
    out: Output,
    *,
    name: str,
    queue: str,
    tz: str,
    start: str | None,
    end: str | None,
    args: str | None,
    kwargs: str | None,
    payload: str | None,
    **given: Any,
) -> None:
    """Define a recurring job NAME, or change it. Doing it again does nothing."""
    if not given["task"] and payload is None:
        raise click.UsageError("say --task, or --payload for a queue with a handler of its own")
    _one_of("--cron", given["cron"], given["every"], tz)
    zone = find_zone(tz)
    outcome = await client.queue(queue).schedules.put(
        name, _payload(args, kwargs, payload), tz=tz, start=_moment(start, zone), end=_moment(end, zone), **given
    )
    info = await client.queue(queue).schedules.get(name)
    run = None if info is None else info.next_run
    text = {"same": "stands so already"}.get(outcome, outcome)
    out.done(f"{name}: {text}; next run {when(run, none='never')}", name=name, outcome=outcome, next_run=run)


@schedules.command("remove")
@click.argument("name")
@queue_option
@connected
async def remove(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Remove the recurring job NAME. The jobs it has made stay."""
    if not await client.queue(queue).schedules.remove(name):
        raise CommandError(str(ScheduleNotFoundError(name, queue)))
    out.done(f"{name}: removed", name=name, removed=True)


@schedules.command("pause")
@click.argument("name")
@queue_option
@connected
async def pause(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Let the recurring job NAME rest."""
    changed = await client.queue(queue).schedules.pause(name)
    out.done(f"{name}: {'paused' if changed else 'was paused already'}", name=name, paused=True, changed=changed)


@schedules.command("resume")
@click.argument("name")
@queue_option
@connected
async def resume(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Let the recurring job NAME go on at its next slot."""
    changed = await client.queue(queue).schedules.resume(name)
    out.done(f"{name}: {'goes on' if changed else 'was not paused'}", name=name, paused=False, changed=changed)


@schedules.command("run")
@click.argument("name")
@queue_option
@connected
async def run_now(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Make a job of NAME now. Its slots stay as they are."""
    handle = await client.queue(queue).schedules.run_now(name)
    out.done(handle.id, name=name, id=handle.id)


@schedules.command("next")
@click.argument("expression", required=False)
@click.option("--every", type=float, metavar="SECONDS", help="An interval instead of an expression.")
@click.option(
    "--tz", default="UTC", show_default=True, help="The zone of the expression's times, such as Europe/Berlin."
)
@click.option(
    "--after", metavar="TIME", help="Begin there (ISO 8601; without an offset: in the zone); now unless given."
)
@click.option("--count", "-n", default=RUNS, show_default=True, type=click.IntRange(1, 1000), help="How many.")
@json_option
def next_runs(
    expression: str | None, every: float | None, tz: str, after: str | None, count: int, *, as_json: bool
) -> None:
    """Show the next runs of a cron EXPRESSION, such as "30 2 * * MON-FRI". Needs no server."""
    out = Output(as_json=as_json)
    _one_of("an EXPRESSION", expression, every, None)  # here a zone is also that of what is shown
    try:
        zone = find_zone(tz)
        recurrence = Recurrence.of(cron=expression, every=every, tz="UTC" if every is not None else tz)
        begin = _moment(after, zone) or dt.datetime.now(dt.UTC)
        runs = [from_unix_ms(slot) for slot in recurrence.upcoming(unix_ms(begin), count)]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if out.as_json:
        out.json([{"utc": run, "local": run.astimezone(zone)} for run in runs])
    else:
        local = [run.astimezone(zone) for run in runs]
        out.table(("local", "UTC"), [(when(each), when(run)) for each, run in zip(local, runs, strict=True)])


def _one_of(cron: str, expression: str | None, every: float | None, tz: str | None) -> None:
    """Refuse slots that are said twice or not at all, or a zone where there is none.

    Raises:
        click.UsageError: That.
    """
    if (expression is None) == (every is None):
        raise click.UsageError(f"say either {cron} or --every ({'neither is' if every is None else 'both are'} given)")
    if every is not None and tz not in (None, "UTC"):
        raise click.UsageError(f"--tz is for {cron}; intervals are in UTC")


def _moment(text: str | None, zone: dt.tzinfo) -> dt.datetime | None:
    """Read a moment as people type it.

    Raises:
        ValueError: It is none.
    """
    if text is None:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"a time is written as 2026-10-25T02:30 or 2026-10-25T02:30+02:00, not {text!r}") from None
    return moment.replace(tzinfo=zone) if moment.tzinfo is None else moment


def _payload(args: str | None, kwargs: str | None, payload: str | None) -> bytes:
    """Make a payload of what was typed.

    Raises:
        ValueError: It is no JSON, or not of the kind that is wanted; or there is both.
    """
    if payload is not None:
        if args is not None or kwargs is not None:
            raise ValueError("say either --payload, or --args and --kwargs")
        return payload.encode("utf-8", "surrogateescape")  # the bytes as they were typed
    return call_payload(args, kwargs)


def _row(info: ScheduleInfo, runs: int) -> tuple[str, ...]:
    remarks = [f"overlap: {info.overlap}"] if info.overlap != "allow" else []
    if info.lane:
        remarks.append(f"lane: {info.lane}")
    if info.paused is not None:
        remarks.append(f"paused since {when(info.paused)}")
    elif info.next_run is None:
        remarks.append("over")
    if info.problem is not None:
        remarks.append(f"unreadable: {info.problem}")
    next_runs = "\n".join(map(when, info.next_runs(runs))) or "-"
    return (
        info.name, info.task or "-", "?" if info.recurrence is None else str(info.recurrence), next_runs,
        str(info.count), str(info.skipped), info.last_job or "-", info.origin or "-", ", ".join(remarks),
    )  # fmt: skip


def _plain(info: ScheduleInfo, runs: int) -> dict[str, Any]:
    spec = None if info.recurrence is None else orjson.loads(info.recurrence.spell())
    return {
        "name": info.name, "task": info.task, "spec": spec, "problem": info.problem, "overlap": info.overlap,
        "next_runs": info.next_runs(runs), "paused": info.paused, "count": info.count, "skipped": info.skipped,
        "last_job": info.last_job, "last_run": info.last_run, "origin": info.origin, "lane": info.lane,
        "payload": info.payload,
    }  # fmt: skip
