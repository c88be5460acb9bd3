"""What the commands share that change much: they ask before they do, and show how far they are."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import anyio.to_thread
import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from echomq.cli.frame import CommandError

F = TypeVar("F", bound=Callable[..., Any])

yes_option: Final[Callable[[F], F]] = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
"""Gives a command `--yes`."""


def can_ask() -> bool:
    """Tell whether somebody sits there."""
    return sys.stdin.isatty()


async def make_sure(question: str, *, yes: bool) -> None:
    """Ask whether that is meant, unless it was said already.

    Raises:
        click.UsageError: Nobody is there to be asked.
        CommandError: It is not meant.
    """
    if yes:
        return
    if not can_ask():
        raise click.UsageError(f"{question} Nobody can be asked here: say --yes.")
    # In a thread, so that the connection is looked after meanwhile.
    ask = partial(click.confirm, question, default=False, err=True)
    if not await anyio.to_thread.run_sync(ask, abandon_on_cancel=True):
        raise CommandError("nothing was done")


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[[int], Awaitable[None]]]:
    """Show a bar on a terminal's standard error: what it answers is awaited with how many there are by now.

    As in `with bar("redriven", counts.dead) as progress: await queue.dead.redrive(progress=progress)`.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=total)

        async def progress(count: int) -> None:
            shown.update(task, completed=count)

        yield progress
