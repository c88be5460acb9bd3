"""`echomq show`: one job, with all that is known of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any, Final

import click
import orjson

from echomq.cli.browse import PLACES, spell, time_in_place
from echomq.cli.flow import draw
from echomq.cli.frame import checked, connected
from echomq.cli.output import Output, console_of, safe, span, when
from echomq.client import Client
from echomq.errors import DecodeError, JobNotFoundError
from echomq.events import Event
from echomq.flow_tree import FlowTree, TreeLimits
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_queue_name
from echomq.protocol.records import JobRecord
from echomq.protocol.states import State
from echomq.protocol.times import from_unix_ms, to_seconds
from echomq.transitions import JobInFull

SHOWN: Final = 500
"""Bytes of arguments, results and checkpoints that people are shown."""
CHILDREN: Final = TreeLimits(depth=1, breadth=20)
"""Children that are shown: `flow` shows more."""

EVENTS: Final = 50
"""Events of its history that people are shown, the last ones."""
_KNOWN_BEFORE: Final = frozenset({"id", "ms", "ev", "queue", "job"})


@click.command("show")
@click.argument("queue", metavar="QUEUE", callback=checked(check_queue_name))
@click.argument("id", metavar="JOB", callback=checked(check_id))
@click.option("--whole", is_flag=True, help="Show arguments, results and checkpoints in full.")
@connected
async def show(client: Client, out: Output, *, queue: str, id: str, whole: bool) -> None:
    """Show JOB of QUEUE: its row, who runs it, its error, log, history and children."""
    job = await client.queue(queue).job(id, log=True)
    if job is None:
        raise JobNotFoundError(id)
    history = await client.queue(queue).history(id)
    tree = await client.flows.tree(id, queue, limits=CHILDREN) if job.record.has_children else None
    if out.as_json:
        out.json(_plain(job, queue, tree, history))
        return
    facts = list(_facts(job, queue, None if whole else SHOWN))
    width = max(len(name) for name, _ in facts)
    for name, text in facts:
        first, *more = _printable(text).splitlines() or [""]
        click.echo("\n".join([f"{name:<{width}}  {first}", *(f"{'':<{width}}  {line}" for line in more)]))
    if job.log:
        click.echo(f"\nlog, {len(job.log)} of {max(job.record.log_lines, len(job.log))} lines:")
        click.echo("\n".join(f"  {_printable(line)}" for line in job.log))
    if history:
        click.echo("\nhistory, as far as the queue's events are kept:")
        click.echo("\n".join(f"  {_printable(_told(event))}" for event in history[-EVENTS:]))
    if tree is not None:
        click.echo("\nchildren:")
        draw(console_of(), tree, asked=id)


def _facts(job: JobInFull, queue: str, most: int | None) -> Iterator[tuple[str, str]]:
    """Spell what there is to tell, in the order in which people ask; what is empty is not told."""
    yield "job", f"{job.record.id} in {queue}"
    for name, tell in FACTS.items():
        try:
            text = tell(job, queue, most)
        except DecodeError as torn:
            text = f"cannot be read: {torn}"
        if text:
            yield name, text


def _state(job: JobInFull) -> str:
    row = job.record
    told = f"{PLACES[row.state][0]} {spell(time_in_place(row, job.score, job.now_ms))}"
    return f"{row.state}: {told}; since {when(_moment(row.since))}"


def _holder(job: JobInFull) -> str:
    if job.record.state != State.ACTIVE:
        return ""
    client = job.record.holder.partition(".")[0]
    return f"{job.worker or 'a worker that was not heard of for half a minute'}, client {client}, attempt {job.record.attempts}"


def _attempts(row: JobRecord) -> str:
    failed, lost = _of(row.failures, row.max_attempts), _of(row.stalls, row.max_stalls)
    return f"{row.attempts}; in this life {failed} failed, {lost} lost their worker"


def _of(count: int, most: int | None) -> str:
    return f"{count}" if most is None else f"{count} (of {most})"


def _moment(ms: int | None) -> dt.datetime | None:
    return None if ms is None else from_unix_ms(ms)


def _error(row: JobRecord) -> str:
    return "" if row.error is None else f"{row.error.type}: {row.error.message}"


def _parent(row: JobRecord, queue: str) -> str:
    it = row.parent
    return "" if it is None else f"{it.id} in {it.queue or queue}, whose child {it.name!r} it is"


def _bytes(data: bytes, most: int | None) -> str:
    text = data[:most].decode("utf-8", "replace")
    return text if most is None or len(data) <= most else f"{text}... ({len(data):,} bytes: --whole)"


def _printable(text: str) -> str:
    return safe(text).replace(r"\[", "[")  # no markup is read here


def _told(event: Event) -> str:
    said = " ".join(f"{name}={value}" for name, value in event.fields.items() if name not in _KNOWN_BEFORE)
    return f"{when(event.at)} {event.kind} {said}".rstrip()


def _plain(job: JobInFull, queue: str, tree: FlowTree | None, history: list[Event]) -> dict[str, Any]:
    """Make a job what JSON can hold: every property of its row, and its place."""
    row = job.record
    names = [name for name, value in vars(JobRecord).items() if isinstance(value, property)]
    values: dict[str, Any] = {}
    torn: dict[str, str] = {}
    for name in names:
        try:
            values[name] = getattr(row, name)
        except DecodeError as error:  # the other fields can be read
            values[name], torn[name] = None, str(error)
    failure, parent = values["error"], values["parent"]
    values["error"] = None if failure is None else {"type": failure.type, "message": failure.message, "traceback": failure.traceback}  # fmt: skip
    values["parent"] = (
        None if parent is None else {"id": parent.id, "queue": parent.queue or queue, "name": parent.name}
    )
    children = [] if tree is None else [{"id": each.id, "queue": each.queue, "name": each.name, "task": each.task, "state": each.state} for each in tree.children]  # fmt: skip
    return {
        "id": row.id, "queue": queue, **values, "score": job.score, "lease_left": job.lease_left, "worker": job.worker, "now_ms": job.now_ms, "log": list(job.log),
        "history": [{"at": event.at, "kind": event.kind, **event.fields} for event in history], "children": children, "torn": torn,
    }  # fmt: skip


FACTS: Final[dict[str, Callable[[JobInFull, str, int | None], str]]] = {
    "task": lambda job, _, __: job.record.task,
    "state": lambda job, _, __: _state(job),
    "outcome": lambda job, _, __: ": ".join(filter(None, (job.record.kind, job.record.reason))),
    "cancel": lambda job, _, __: "" if job.record.cancel is None else f"asked for; {job.record.cancel or 'no reason given'}",
    "held by": lambda job, _, __: _holder(job),
    "attempts": lambda job, _, __: _attempts(job.record),
    "lane": lambda job, _, __: job.record.lane,
    "priority": lambda job, _, __: str(job.record.priority or ""),
    "dedup": lambda job, _, __: job.record.dedup or "",
    "schedule": lambda job, _, __: f"{job.record.schedule}, for {when(_moment(job.record.slot_ms))}" if job.record.schedule else "",
    "timeout": lambda job, _, __: "" if job.record.timeout_ms is None else span(to_seconds(job.record.timeout_ms)),
    "expires": lambda job, _, __: when(_moment(job.record.expires_ms), none=""),
    "deadline": lambda job, _, __: when(_moment(job.record.deadline_ms), none=""),
    "headers": lambda job, _, __: orjson.dumps(job.record.headers).decode() if job.record.headers else "",
    "parent": lambda job, queue, _: _parent(job.record, queue),
    "producer": lambda job, _, __: job.record.by,
    "payload": lambda job, _, most: _bytes(job.record.payload, most),
    "progress": lambda job, _, __: "" if job.record.progress is None else orjson.dumps(job.record.progress).decode(),
    "checkpoint": lambda job, _, most: "" if job.record.checkpoint is None else f"step {job.record.step}: {_bytes(job.record.checkpoint, most)}",
    "result": lambda job, _, most: "" if job.record.result is None else _bytes(job.record.result, most),
    "error": lambda job, _, __: _error(job.record),
    "traceback": lambda job, _, __: "" if job.record.error is None else job.record.error.traceback,
}  # fmt: skip
"""What is told of a job, in the order in which people ask; "" is not told."""
