"""What the commands share that change much: they ask before they do, and show how far they are."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from echomq.cli.frame import UnsureError

F = TypeVar("F", bound=Callable[..., Any])

yes_option: Final[Callable[[F], F]] = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
"""Gives a command `--yes`."""


def can_ask() -> bool:
    """Tell whether somebody sits there."""
    return sys.stdin.isatty()


def make_sure(question: str, *, yes: bool) -> None:
    """Have it asked whether that is meant, unless it was said already. The command must have changed nothing before it.

    Raises:
        click.UsageError: Nobody is there to be asked.
        UnsureError: Somebody is: `connected` asks, and runs the command again.
    """
    if yes:
        return
    if not can_ask():
        raise click.UsageError(f"{question} Nobody can be asked here: say --yes.")
    raise UnsureError(question)


@contextmanager
def bar(what: str, total: int | None) -> Iterator[Callable[[int], Awaitable[None]]]:
    """Show a bar on a terminal's standard error: what it answers is awaited with how many there are by now.

    As in `with bar("redriven", counts.dead) as progress: await queue.dead.redrive(progress=progress)`. If what is within
    is broken off, it says how many there were at least: the round that was on its way may have been done.
    """
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = 0
    try:
        with (
            terminal_kept() if console.is_terminal else nullcontext(),
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown,
        ):
            task = shown.add_task(what, total=total)

            async def progress(count: int) -> None:
                nonlocal done
                done = count
                shown.update(task, completed=count)

            yield progress
    except BaseException as error:
        if done or not isinstance(error, Exception):
            click.echo(f"at least {done:,} {what} until then", err=True)
        raise


@contextmanager
def terminal_kept(*, screen: bool = False) -> Iterator[None]:
    """Let SIGTERM, which ends the process at once, take away what is drawn and show the cursor that is hidden meanwhile.

    Args:
        screen: Whether what is drawn has the terminal's other screen, which is left; else it is the line of a bar.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: object) -> None:
        # Past all buffers: whoever is interrupted may be writing to them.
        os.write(2, b"\x1b[?1049l\x1b[?25h" if screen else b"\r\x1b[2K\x1b[?25h")
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
