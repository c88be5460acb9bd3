"""How the commands answer: for people in lines and tables, for programs in JSON."""

from __future__ import annotations

import datetime as dt
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, final

import click
import orjson
from rich.console import Console
from rich.table import Table

WIDE: Final = 1000
"""Columns of what is no terminal: a program that reads lines must find a row on one."""
_BEYOND: Final = re.compile(r"[^\n -~]")
"""What is not plain ASCII."""
_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60))


@final
class Output:
    """Where a command's answer goes: to standard output, in one of two forms."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        """Whether it is one JSON document; else it is for people."""

    def say(self, text: str) -> None:
        """Say something to people only."""
        if not self.as_json:
            click.echo(text)

    def done(self, text: str, **values: Any) -> None:
        """Say what was done: the text, or its values as a JSON object."""
        if self.as_json:
            self.json(values)
        else:
            click.echo(text)

    def json(self, value: Any) -> None:
        """Write a value as JSON: datetimes as text, bytes as text if they are UTF-8."""
        click.echo(spelled(value, indent=True))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        empty: str = "nothing",
        right: Collection[str] = (),
    ) -> None:
        """Write a table for people; of no rows, `empty`. Columns of numbers are named by `right`."""
        rows = list(rows)
        if not rows:
            click.echo(empty)
            return
        console = console_of()
        with console.capture() as drawn:
            console.print(table_of(columns, rows, right=right))
        # The last column is as wide as its widest cell: nobody sees that on a terminal, but whoever reads lines does.
        click.echo("\n".join(map(str.rstrip, drawn.get().splitlines())))

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int], Awaitable[None]]]:
        """Show on a terminal's standard error how far something is: what it answers is awaited with a number.

        As in `with out.counting("redriven") as progress: await queue.dead.redrive(progress=progress)`.
        """
        console = console_of(sys.stderr)
        with console.status(f"0 {what}") as status:

            async def progress(count: int) -> None:
                status.update(f"{count:,} {what}")

            yield progress


def spelled(value: Any, *, indent: bool = False) -> str:
    """Spell a value as JSON, in which nothing stands as it is that a terminal would obey or hide."""
    text = orjson.dumps(value, default=_plain, option=orjson.OPT_INDENT_2 if indent else None).decode()
    return _BEYOND.sub(lambda found: found[0] if found[0].isprintable() else _escape(found[0]), text)


def _escape(letter: str) -> str:
    units = letter.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def table_of(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Collection[str] = ()) -> Table:
    """Make a table for people: what is in it is shown as it is, but for what a terminal would obey."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = column in right
        table.add_column(column, overflow="fold", no_wrap=number, justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(safe, row))
    return table


def when(moment: dt.datetime | None, *, none: str = "-") -> str:
    """Spell a moment for people, to the second, or to the millisecond where it has some."""
    if moment is None:
        return none
    return moment.isoformat(sep=" ", timespec="milliseconds" if moment.microsecond else "seconds")


def span(seconds: float) -> str:
    """Say how long, for people: the largest unit, and one digit behind the point."""
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    raise TypeError(f"no JSON: {value!r}")


def tame(text: str, *, keep: str = "") -> str:
    """Take from a text what a terminal would obey or hide, but for the letters to keep."""
    return "".join(letter if letter.isprintable() or letter in keep else "?" for letter in text)


def safe(text: str) -> str:
    """Take from a name what a terminal would obey, and what rich would read as markup."""
    return tame(text, keep="\n").replace("[", r"\[")


def console_of(file: Any = None) -> Console:
    """Make what draws on a stream: as wide as its terminal, or so wide that nothing is folded. None: standard output."""
    file = sys.stdout if file is None else file
    terminal = bool(getattr(file, "isatty", bool)())
    return Console(file=file, width=None if terminal else WIDE, highlight=False)
