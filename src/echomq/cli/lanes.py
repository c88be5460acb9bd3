"""`echomq lanes ...`: the lanes of a queue, looked at and changed by hand."""

from __future__ import annotations

from typing import Any

import attrs
import click

from echomq.cli import typed
from echomq.cli.frame import connected, queue_option
from echomq.cli.output import Output, span
from echomq.client import Client
from echomq.lanes import LaneInfo
from echomq.limits import LaneOptions


@click.group("lanes")
def lanes() -> None:
    """Look after the lanes of a queue, which take turns.

    LANE is a lane's name; "" is the lane of the jobs that have none.
    """


@lanes.command("list")
@queue_option
@click.option("--limit", "-n", default=100, show_default=True, type=click.IntRange(1), help="How many at most.")
@connected
async def list_lanes(client: Client, out: Output, *, queue: str, limit: int) -> None:
    """List the lanes that have jobs or settings, those first that have most jobs ready."""
    found: dict[str, LaneInfo] = {}
    more = False
    async for lane in client.queue(queue).lanes:
        found[lane.name] = lane  # a lane may come twice
        if len(found) > limit:
            more = True
            del found[lane.name]
            break
    shown = sorted(found.values(), key=lambda lane: (-lane.pending, lane.name))
    if out.as_json:
        out.json([_plain(lane) for lane in shown])
        return
    columns = ("lane", "ready", "running", "oldest", "weight", "limit", "rate", "served")
    out.table(columns, map(_row, shown), empty=f"queue {queue!r} has no lanes")
    if more:
        click.echo(f"these are {limit}, and there are more: --limit", err=True)


@lanes.command("show")
@click.argument("name", metavar="LANE")
@queue_option
@connected
async def show(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Show one LANE: what it was told, what is in it, and whether it is served."""
    lane = await client.queue(queue).lane(name).info()
    if out.as_json:
        out.json(_plain(lane))
    else:
        out.table(("lane", "ready", "running", "oldest", "weight", "limit", "rate", "served"), [_row(lane)])


@lanes.command("pause")
@click.argument("name", metavar="LANE")
@queue_option
@connected
async def pause(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Let no more jobs of LANE be claimed, until `resume`. What runs goes on."""
    changed = await client.queue(queue).lane(name).pause()
    text = f"lane {name!r}: {'paused' if changed else 'was paused already'}"
    out.done(text, lane=name, queue=queue, paused=True, changed=changed)


@lanes.command("resume")
@click.argument("name", metavar="LANE")
@queue_option
@connected
async def resume(client: Client, out: Output, *, name: str, queue: str) -> None:
    """Let jobs of LANE be claimed again, also if a handler had closed it for a while."""
    changed = await client.queue(queue).lane(name).resume()
    text = f"lane {name!r}: {'goes on' if changed else 'was not paused'}"
    out.done(text, lane=name, queue=queue, paused=False, changed=changed)


@lanes.command("configure")
@click.argument("name", metavar="LANE")
@queue_option
@click.option("--weight", type=int, help="How many of its jobs may start in one turn.")
@click.option("--limit", type=int, help="How many of its jobs may run at once.")
@click.option("--rate", metavar="N[/SECONDS]", help="How many may start in how long, such as 5 (a second) or 100/60.")
@click.option("--burst", type=int, help="How many may start at once after a rest, of that rate.")
@click.option("--clear", multiple=True, type=click.Choice(["weight", "limit", "rate"]), help="Take a setting away; may be repeated.")  # fmt: skip
@connected
async def configure(
    client: Client,
    out: Output,
    *,
    name: str,
    queue: str,
    weight: int | None,
    limit: int | None,
    rate: str | None,
    burst: int | None,
    clear: tuple[str, ...],
) -> None:
    """Change settings of LANE; those that are not named stay."""
    settings: LaneOptions = {}
    if weight is not None:
        settings["weight"] = weight
    if limit is not None:
        settings["limit"] = limit
    if rate is not None:
        settings["rate"] = typed.rate(rate, burst)
    elif burst is not None:
        raise click.UsageError("--burst belongs to --rate")
    both = settings.keys() & set(clear)
    if both or not (settings or clear):
        what = f"both set and cleared: {', '.join(sorted(both))}" if both else "say what: --weight, --limit, --rate, --clear"  # fmt: skip
        raise click.UsageError(what)
    for word in clear:
        settings[word] = None  # type: ignore[literal-required] # click has checked it
    lane = client.queue(queue).lane(name)
    changed = await lane.configure(**settings)
    if out.as_json:
        out.json({**_plain(await lane.info()), "changed": changed})
    else:
        click.echo(f"lane {name!r}: {'changed' if changed else 'stands so already'}")


def _served(lane: LaneInfo) -> str:
    if lane.servable:
        return "yes"
    again = "" if lane.again_in is None else f", again in {span(lane.again_in)}"
    return f"no: {'; '.join(lane.reasons)}{again}"


def _row(lane: LaneInfo) -> tuple[str, ...]:
    return (
        lane.name or '""', f"{lane.pending:,}", "-" if lane.active is None else f"{lane.active:,}",
        "-" if lane.oldest is None else span(lane.oldest), str(lane.weight), "-" if lane.limit is None else str(lane.limit),
        "-" if lane.rate is None else str(lane.rate), _served(lane),
    )  # fmt: skip


def _plain(lane: LaneInfo) -> dict[str, Any]:
    rate = None if lane.rate is None else attrs.asdict(lane.rate)
    return {**attrs.asdict(lane, recurse=False), "rate": rate, "closed": list(lane.closed), "servable": lane.servable}
