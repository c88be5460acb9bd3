"""`echomq flow`: a flow as a picture, for a terminal, a page or a program."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from echomq.cli.frame import checked, connected
from echomq.cli.output import Output, console_of, tame
from echomq.client import Client
from echomq.flow_tree import OPEN, FlowTree, TreeLimits
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_queue_name
from echomq.protocol.kin import Policy

STYLES: Final = {
    "completed": "green", "active": "bold blue", "pending": "cyan", "schedule": "cyan", "waiting": "yellow",
    "dead": "bold red", "cancelled": "magenta", "expired": "magenta", "discarded": "magenta", "removed": "magenta",
    "duplicate": "magenta", "lost": "bold red", "unknown": "dim", "detached": "dim",
}  # fmt: skip
"""How a state looks in a terminal."""
FILLS: Final = {
    "completed": "#d5e8d4", "active": "#dae8fc", "pending": "#e1f5fe", "schedule": "#e1f5fe", "waiting": "#fff2cc",
    "dead": "#f8cecc", "lost": "#f8cecc",
}  # fmt: skip
"""How it is filled on a page; grey for all others."""
SHOWN: Final = 200
"""Characters of an error or a reason that are shown."""
DEEPEST: Final = 100
"""Levels that a picture may have: each moves it to the right."""
_GOING_ON: Final = frozenset({"pending", "active", "schedule", "waiting"})
_ENTITIES: Final = str.maketrans({'"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "#": "#35;", "`": "#96;"})
_LIST: Final = re.compile(r"^(\d*)([-+*.])(?=\s)")


@click.command("flow")
@click.argument("queue", metavar="QUEUE", callback=checked(check_queue_name))
@click.argument("job", metavar="JOB")
@click.option("--whole", is_flag=True, help="Start at the job at the top, not at JOB.")
@click.option("--mermaid", is_flag=True, help="Write a Mermaid flowchart, for a page.")
@click.option("--depth", type=click.IntRange(0, DEEPEST), default=16, show_default=True, help="Levels that are shown.")
@click.option("--breadth", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Children of one parent that are shown; the others are counted.")  # fmt: skip
@connected
async def flow(
    client: Client, out: Output, *, queue: str, job: str, whole: bool, mermaid: bool, depth: int, breadth: int
) -> None:
    """Draw the flow that JOB of QUEUE begins: what it waits for, and how each of these is."""
    if mermaid and out.as_json:
        raise click.UsageError("say either --mermaid or --json")
    limits = TreeLimits(depth=depth, breadth=breadth, nodes=max(TreeLimits().nodes, breadth + 1))
    tree = await client.flows.tree(check_id(job), queue, whole=whole, limits=limits)
    if out.as_json:
        out.json(list(as_values(tree)))
    elif mermaid:
        click.echo("\n".join(as_mermaid(tree, asked=job)))
    else:
        draw(console_of(), tree, asked=job)


def draw(console: Console, tree: FlowTree, *, asked: str, now: dt.datetime | None = None) -> None:
    """Draw a flow.

    Args:
        console: Where.
        tree: The flow.
        asked: The id of the job that was asked for, which is marked.
        now: The moment from which times are told; None: now.
    """
    now = now or dt.datetime.now(dt.UTC)
    top = Tree(_line(tree, asked, tree.queue, now))
    todo = [(tree, top)]
    while todo:
        node, branch = todo.pop()
        for child in node.children:
            below = branch.add(_line(child, asked, node.queue, now))
            todo.append((child, below))
        if node.more:
            branch.add(Text(f"and {more_of(node)}", style="dim"))
    console.print(top, soft_wrap=True)


def more_of(node: FlowTree) -> str:
    """Say how many children are not shown, and how they are."""
    parts = ", ".join(f"{count:,} {'not over' if kind == OPEN else kind}" for kind, count in sorted(node.more.items()))
    return f"{sum(node.more.values()):,} more: {parts}"


def _line(node: FlowTree, asked: str, queue_above: str, now: dt.datetime) -> Text:
    text = Text()
    text.append("> " if node.id == asked else "", style="bold")
    if node.name:
        text.append(f"{tame(node.name)} ", style="bold")
    text.append(f"{tame(node.task)} " if node.task else "")
    text.append(node.state, style=STYLES.get(node.state, ""))
    if node.since is not None:
        spelled = spell(now - node.since)
        text.append(f" {spelled}" if node.state in _GOING_ON else f" {spelled} ago", style="dim")
    if node.attempts > 1:
        text.append(f" attempt {node.attempts}")
    if node.policy is not Policy.FAIL_PARENT and node.name:
        text.append(f" ({node.policy})", style="dim")
    if node.queue != queue_above:
        text.append(f" in {node.queue}", style="dim")
    text.append(f" {node.id}", style="dim")
    why = node.error or node.reason
    if why:
        why = tame(why)
        text.append(f" {why if len(why) <= SHOWN else why[:SHOWN] + '...'}", style="red" if node.error else "")
    return text


def spell(span: dt.timedelta) -> str:
    """Spell how long something has been so: the largest unit that it fills."""
    seconds = max(0.0, span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:.1f} s"


def as_mermaid(tree: FlowTree, *, asked: str) -> Iterator[str]:
    """Write a flow as a Mermaid flowchart, a line at a time: arrows go from a child to the parent that waits for it."""
    yield "flowchart TD"
    todo = [tree]
    states: dict[str, None] = {}
    while todo:
        node = todo.pop()
        lines = [" ".join(filter(None, (node.name, node.task))) or node.id, node.state, node.queue]
        label = "<br/>".join(map(_label, lines))
        yield f'    {node.id}["{label}"]:::{node.state}'
        if node.id == asked:
            yield f"    style {node.id} stroke-width:3px"
        states[node.state] = None
        for child in node.children:
            yield f"    {child.id} --> {node.id}"
        if node.more:
            yield f'    more{node.id}["{more_of(node)}"] --> {node.id}'
        todo += reversed(node.children)
    for state in states:
        yield f"    classDef {state} fill:{FILLS.get(state, '#eeeeee')},stroke:#666666,color:#222222"


def as_values(tree: FlowTree) -> Iterator[dict[str, Any]]:
    """Make a flow what JSON can hold, however deep it is: its jobs, parents first, each with its parent's id."""
    todo: list[tuple[FlowTree, str | None]] = [(tree, None)]
    while todo:
        node, parent = todo.pop()
        yield {
            "id": node.id, "queue": node.queue, "parent": parent, "name": node.name, "policy": str(node.policy) if parent else None,
            "task": node.task, "state": node.state, "since": node.since, "attempts": node.attempts, "reason": node.reason,
            "error": node.error, "more": dict(node.more),
        }  # fmt: skip
        todo += [(child, node.id) for child in reversed(node.children)]


def _label(line: str) -> str:
    """Take from a line what Mermaid would read: quotes, tags, and what begins a list."""
    return _LIST.sub(lambda found: f"{found[1]}#{ord(found[2])};", tame(line).translate(_ENTITIES))
