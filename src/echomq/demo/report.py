"""What the demonstration shows: a progress bar on a terminal, plain lines elsewhere, a table at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self, final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from echomq.cli.flow import draw
from echomq.demo.jobs import Sum
from echomq.demo.listing import Listing, show
from echomq.demo.run import Tally

SHOWN: Final = 10
"""Failures that are shown one by one; the rest is counted."""


@final
class RichDisplay:
    """A `Display` on a console. Use it as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            console=console, disable=not console.is_terminal,
        )  # fmt: skip
        self._task: TaskID | None = None
        self._what = ""
        self._total = self._done = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, text: str) -> None:
        """Show a line, above the bar where there is one."""
        self._console.print(Text(text), soft_wrap=True)

    def begin(self, what: str, total: int) -> None:
        """Begin a bar, or lines at every tenth."""
        self._what, self._total, self._done = what, total, 0
        self._task = self._bar.add_task(what, total=total)

    def advance(self) -> None:
        """One more."""
        self._done += 1
        if self._task is not None:
            self._bar.advance(self._task)
        if not self._console.is_terminal and self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            self.say(f"{self._what} {self._done}/{self._total}")


def verdict(listing: Listing, tally: Tally) -> bool:
    """Tell whether every file has a digest and every digest is right."""
    whole = len(tally.digests) == len(listing.files)
    if listing.files and tally.total != Sum(len(tally.digests), sum(digest.size for digest in tally.digests.values())):
        return False  # what the jobs summed up is not what they found
    return whole and not (tally.failures or tally.mismatches or listing.unlisted)


def print_report(console: Console, listing: Listing, tally: Tally) -> None:
    """Print the closing table, and what went wrong line by line."""
    wrong = [f"{show(path)}: {why}" for found in (tally.failures, tally.mismatches) for path, why in found.items()]
    wrong += listing.unlisted
    for line in wrong[:SHOWN]:
        console.print(Text(f"wrong: {line}", style="red"), soft_wrap=True)
    if len(wrong) > SHOWN:
        console.print(Text(f"wrong: and {len(wrong) - SHOWN} more", style="red"))
    console.print(_table(listing, tally))
    if tally.tree is not None:
        console.print(Text("the flow, of which some jobs are shown: echomq flow draws any"))
        draw(console, tally.tree, asked="")
    good = verdict(listing, tally)
    agree = len(tally.digests) - len(tally.mismatches)
    text = f"{agree:,} of {len(listing.files):,} digests are there and agree with a direct computation"
    console.print(Text(text, style="bold green" if good else "bold red"), soft_wrap=True)


def _table(listing: Listing, tally: Tally) -> Table:
    table = Table(title=Text(show(listing.root)), show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    size = sum(digest.size for digest in tally.digests.values())
    table.add_row("files", f"{len(listing.files):,}")
    table.add_row("bytes read", f"{size:,}")
    if listing.irregular:
        table.add_row("passed over (links, sockets, ...)", f"{listing.irregular:,}")
    if listing.unlisted:
        table.add_row("directories not listed", f"{len(listing.unlisted):,}")
    table.add_section()
    if tally.total is not None:
        table.add_row("files and bytes summed up by jobs", f"{tally.total.files:,}, {tally.total.size:,}")
    table.add_row("checksums completed", f"{len(tally.digests):,}")
    table.add_row("checksums failed", f"{len(tally.failures):,}")
    killed = tally.killed.pid if tally.killed is not None else None
    for pid, count in sorted(tally.shares.items()):
        table.add_row(f"by worker {pid}" + (" (killed)" if pid == killed else ""), f"{count:,}")
    table.add_section()
    held = f"{len(tally.held):,}" if tally.killed is not None else "nobody was killed: done too soon"
    table.add_row("checksums held by the killed worker", held)
    table.add_row("checksums recovered (attempts above one)", f"{len(tally.recovered):,}")
    table.add_row("stalls counted by the queue", f"{tally.stalled:,}")
    table.add_section()
    rate = f" ({len(tally.digests) / tally.seconds:,.0f} jobs/s)" if tally.seconds else ""
    table.add_row("time", f"{tally.seconds:.1f} s{rate}")
    return table
