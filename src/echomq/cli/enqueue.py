"""`echomq enqueue`: one job, by hand."""

from __future__ import annotations

from typing import Any, BinaryIO

import click

from echomq.cli.frame import checked, connected
from echomq.cli.output import Output
from echomq.cli.typed import call_payload, moment, seconds_or_moment
from echomq.client import Client
from echomq.protocol.keys import check_queue_name, check_task_name
from echomq.protocol.newjob import MAX_PAYLOAD

DEDUP_MODES = ("reject", "replace", "debounce")


@click.command("enqueue")
@click.argument("queue", metavar="QUEUE", callback=checked(check_queue_name))
@click.argument("task", metavar="[TASK]", required=False, callback=checked(check_task_name))
@click.option("--args", metavar="JSON", help="The task's arguments, as a JSON list.")
@click.option("--kwargs", metavar="JSON", help="The task's arguments by name, as a JSON object.")
@click.option("--payload", metavar="TEXT", help="The whole payload instead, as it is sent.")
@click.option(
    "--file", "source", type=click.File("rb"), metavar="PATH", help="A file that holds it; - reads the input."
)
@click.option("--delay", type=float, metavar="SECONDS", help="Not before so long from now.")
@click.option("--at", metavar="TIME", help="Not before this moment: ISO 8601, with an offset.")
@click.option("--expires", metavar="WHEN", help="It ends as expired if no worker has claimed it by then: seconds from now, or a time.")  # fmt: skip
@click.option("--deadline", metavar="WHEN", help="All its attempts must be over by then: seconds from now, or a time.")
@click.option("--priority", type=int, help="-2047 to 2047; higher is served first.")
@click.option("--lane", help="The lane it waits in.")
@click.option("--dedup", metavar="KEY", help="While a job with this key lives, another one is refused.")
@click.option("--dedup-mode", type=click.Choice(DEDUP_MODES), help="What it does if a waiting job holds the key.")
@click.option("--dedup-window", type=float, metavar="SECONDS", help="The key lasts so long, whatever becomes of the job.")  # fmt: skip
@click.option("--max-attempts", type=int, help="How many failures bury it; else what its task says.")
@click.option("--max-stalls", type=int, help="How many lost workers it survives; else 3.")
@click.option("--timeout", type=float, metavar="SECONDS", help="How long one attempt may run.")
@click.option("--result-ttl", type=float, metavar="SECONDS", help="How long the ended job and its result are kept.")
@click.option("--header", "headers", multiple=True, metavar="NAME=TEXT", help="Text for middleware; may be repeated.")
@connected
async def enqueue(
    client: Client,
    out: Output,
    *,
    queue: str,
    task: str | None,
    args: str | None,
    kwargs: str | None,
    payload: str | None,
    source: BinaryIO | None,
    at: str | None,
    expires: str | None,
    deadline: str | None,
    headers: tuple[str, ...],
    **options: Any,
) -> None:
    """Enqueue one job of TASK in QUEUE, and say its id; without TASK, for a queue with a handler of its own.

    Arguments are not checked against the task, which only workers know: a job whose arguments do not fit is put aside by
    the worker, and buried after ten minutes.
    """
    if (payload is not None) + (source is not None) + (args is not None or kwargs is not None) > 1:
        raise click.UsageError("say one of --payload, --file, and --args and --kwargs")
    if payload is not None:
        content = payload.encode("utf-8", "surrogateescape")  # the bytes as they were typed
    elif source is not None:
        content = source.read(MAX_PAYLOAD + 1)  # enough to see that it is too large
    elif task is not None:
        content = call_payload(args, kwargs)
    else:
        raise click.UsageError("say a TASK; or --payload or --file, for a queue with a handler of its own")
    options["at"] = None if at is None else moment("--at", at)
    options["expires"] = seconds_or_moment("--expires", expires)
    options["deadline"] = seconds_or_moment("--deadline", deadline)
    options["headers"] = dict(map(_header, headers)) or None
    handle = await client.queue(queue).enqueue(content, task=task or "", **options)
    text = handle.id if handle.admitted else f"{handle.id} ({_OUTCOMES[handle.outcome]})"
    out.done(text, id=handle.id, queue=queue, outcome=handle.outcome)


_OUTCOMES = {
    "duplicate": "a job with this dedup key is there already; none was made",
    "replaced": "the job with this dedup key has the new content; none was made",
}


def _header(text: str) -> tuple[str, str]:
    """Read a header.

    Raises:
        ValueError: It has no name, or no value.
    """
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError(f"--header is written as NAME=TEXT, not {text!r}")
    return name, value
