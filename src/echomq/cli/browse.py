"""`echomq ls`: the jobs of a queue, by state."""

from __future__ import annotations

from typing import Any, Final, final

import attrs
import click

from echomq.cli.frame import checked, connected
from echomq.cli.output import Output, span
from echomq.client import Client
from echomq.errors import DecodeError
from echomq.finding import JobFilters
from echomq.protocol.keys import check_queue_name
from echomq.protocol.records import JobRecord
from echomq.protocol.states import State
from echomq.queue import Queue

STATES: Final = ("pending", "active", "schedule", "waiting", "dead", "done")
SHOWN: Final = 100
"""Characters of an error or a reason that people are shown."""
PLACES: Final = {
    State.PENDING: ("ready for", False), State.ACTIVE: ("lease ends in", True), State.SCHEDULE: ("due in", True),
    State.DEAD: ("dead for", False), State.DONE: ("kept for", True), State.WAITING: ("waiting for", False),
}  # fmt: skip
"""What is told of the time in a state: since then, or until the moment that its score names."""

FIELDS: Final = (
    "state",
    "since",
    "task",
    "lane",
    "priority",
    "attempts",
    "failures",
    "stalls",
    "kind",
    "reason",
    "error",
)
"""Fields of a row that programs are told."""


@click.command("ls")
@click.argument("queue", metavar="QUEUE", callback=checked(check_queue_name))
@click.option("--state", "-s", type=click.Choice(STATES), default="pending", show_default=True, help="Which jobs.")
@click.option("--lane", help='Only jobs of this lane; "" are those that have none.')
@click.option("--task", metavar="TASK", help="Only jobs of this task.")
@click.option("--error", metavar="TEXT", help="Only jobs with this text in their error or reason.")
@click.option("--older", type=float, metavar="SECONDS", help="Only jobs that have been in the state for so long.")
@click.option("--reverse", is_flag=True, help="From the far end: what comes last, or died last.")
@click.option("--limit", "-n", default=50, show_default=True, type=click.IntRange(1, 256), help="Jobs of a page.")
@click.option("--page", "-p", default=1, show_default=True, type=click.IntRange(1, 1_000_000), help="Which page.")
@connected
async def ls(
    client: Client,
    out: Output,
    *,
    queue: str,
    state: str,
    lane: str | None,
    reverse: bool,
    limit: int,
    page: int,
    **filters: Any,
) -> None:
    """List jobs of QUEUE that are in a state, in the order of their turn; those in lanes lane by lane.

    With --task, --error or --older all jobs of the state are looked at, 128 a call.
    """
    wanted: JobFilters = {name: value for name, value in filters.items() if value is not None}  # type: ignore[assignment] # their names are its own
    found, more = await _page(client.queue(queue), State(state), wanted, lane, skip=limit * (page - 1), limit=limit, reverse=reverse)  # fmt: skip
    if out.as_json:
        out.json([each.plain() for each in found])
        return
    columns = ("id", "task", "lane", "attempts", PLACES[State(state)][0], "error or reason")
    out.table(columns, [each.row() for each in found], empty=f"queue {queue!r} has no such jobs", right=("attempts",))
    if more:
        click.echo(f"there are more: --page {page + 1}", err=True)


@final
@attrs.frozen
class Listed:
    """A job as it is listed."""

    record: JobRecord
    """Its row."""
    score: float | None
    """Its score in the state's set."""
    now_ms: int
    """The server's clock when it was read."""

    def row(self) -> tuple[str, ...]:
        """Spell it for people; a row that is torn is shown as far as it can be."""
        row = self.record
        try:
            error = row.error
            why = row.reason or ("" if error is None else f"{error.type}: {error.message}")
            seconds = time_in_place(row, self.score, self.now_ms)
            return (row.id, row.task or "-", row.lane or "-", str(row.attempts), spell(seconds), _short(why))
        except DecodeError as torn:
            return (row.id, row.task or "-", row.lane or "-", "?", "?", f"torn: {torn}")

    def plain(self) -> dict[str, Any]:
        """Make it what JSON can hold: what `show` tells in more words."""
        values: dict[str, Any] = {"id": self.record.id}
        for name in FIELDS:
            try:
                values[name] = getattr(self.record, name)
            except DecodeError as torn:
                values[name], values["torn"] = None, str(torn)
        error = values["error"]
        values["error"] = None if error is None else {"type": error.type, "message": error.message}
        return {**values, "score": self.score, "now_ms": self.now_ms}


def time_in_place(row: JobRecord, score: float | None, now_ms: int) -> float:
    """Answer the seconds that `PLACES` speaks of: since the state began, or until its score's moment, which may be past.

    Raises:
        DecodeError: The row is torn.
    """
    if PLACES[row.state][1] and score is not None:
        return (score - now_ms) / 1000
    return max(0, now_ms - row.since) / 1000


def spell(seconds: float) -> str:
    """Say how long; what should have been is said to be over."""
    return span(seconds) if seconds >= 0 else f"{span(-seconds)} ago"


async def _page(
    queue: Queue, state: State, filters: JobFilters, lane: str | None, *, skip: int, limit: int, reverse: bool
) -> tuple[list[Listed], bool]:
    """Read a page, and whether there are more jobs behind it."""
    if not filters and _is_one_set(state, lane):  # of which a page costs no more the farther it is
        page = await queue.browse(state, offset=skip, count=limit, reverse=reverse, lane=lane or "")
        return [Listed(row, score, page.now_ms) for row, score in page.jobs], page.total > skip + limit
    found: list[Listed] = []
    number = 0
    async for job in queue.find(state, lane=lane, limit=skip + limit + 1, reverse=reverse, **filters):
        number += 1
        if skip < number <= skip + limit:
            found.append(Listed(job.record, job.score, job.now_ms))
    return found, number > skip + limit


def _is_one_set(state: State, lane: str | None) -> bool:
    """Tell whether what is wanted is all of one set: what is ready stands in many, and ended jobs know their lane only."""
    if lane is None:
        return state != State.PENDING
    return state == State.PENDING or (state == State.ACTIVE and lane != "")


def _short(text: str) -> str:
    line = text.replace("\n", " ")
    return line if len(line) <= SHOWN else line[:SHOWN] + "..."
