"""`echomq events QUEUE`: what has happened, and what happens."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

import click

from echomq._events import is_position
from echomq.cli.frame import checked, connected
from echomq.cli.output import Output, spelled, tame, when
from echomq.client import Client
from echomq.events import Event, Gap, Since
from echomq.protocol._convert import shown
from echomq.protocol.keys import check_queue_name

_WIDTH: Final = 16
"""Letters of the longest kind."""
_GONE: Final = "gone before they could be read: the queue keeps its latest events only"


def _since(text: str) -> Since:
    """Read `--since`: what the library takes for a position, or a moment."""
    if is_position(text):
        return text
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            'neither an event\'s id such as 1767225600000-0, nor "0" for all that are kept, nor a moment such as '
            f"2026-01-01T00:00Z: {shown(text)}"
        ) from None
    if moment.utcoffset() is None:
        said = text if "T" in text or ":" in text else f"{text}T00:00"
        raise ValueError(f"a moment needs an offset, such as {said}Z or {said}+01:00")
    return moment


@click.command("events")
@click.argument("queue", metavar="QUEUE", callback=checked(check_queue_name))
@click.option(
    "--since",
    callback=checked(_since),
    metavar="POSITION",
    help='An event\'s id, to go on behind it; "0": all that are kept; or a moment: ISO 8601, with an offset. '
    "Else all, or with --follow what happens from now on.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens, until interrupted.")
@click.option("--job", metavar="JOB", help="Events of this job only.")
@click.option(
    "--kind", "kinds", multiple=True, metavar="KIND", help="Events of this kind only; may be said several times."
)
@connected
async def events(
    client: Client, out: Output, *, queue: str, since: Since, follow: bool, job: str | None, kinds: tuple[str, ...]
) -> None:  # fmt: skip
    """Show what has happened in QUEUE, a line an event; with --json, a JSON object a line.

    The queue's setting `events` says what is kept: failures, unless it was told otherwise.
    """
    begin = "0" if since is None and not follow else since
    found = client.queue(queue).events(begin, follow=follow, job=job, kinds=kinds or None)
    async with found:
        async for event in found:
            click.echo(_json(event) if out.as_json else _line(event))


def _line(event: Event | Gap) -> str:
    if isinstance(event, Gap):
        return f"-- {'perhaps some' if event.missed is None else f'{event.missed:,}'} events are {_GONE}"
    words = [f"{when(event.at):<29}", f"{event.kind:<{_WIDTH}}", f"{event.job or '-':<14}"]
    words += [f"{name}={_shown(event, name)}" for name in event.fields if event.fields[name]]
    return tame("  ".join(words))


def _shown(event: Event, name: str) -> str:
    """Spell a field: a moment as one, words as they are."""
    moment = {"due": event.due, "until": event.due, "slot": event.slot}.get(name)
    return event.fields[name] if moment is None else when(moment)


def _json(event: Event | Gap) -> str:
    value: dict[str, Any]
    if isinstance(event, Gap):
        value = {
            "kind": "gap",
            "queue": event.queue,
            "after": event.after,
            "before": event.before,
            "missed": event.missed,
        }
    else:
        value = {
            "id": event.id,
            "kind": event.kind,
            "queue": event.queue,
            "job": event.job,
            "at": event.at,
            **event.fields,
        }
    return spelled(value)
