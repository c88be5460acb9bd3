"""`python -m echomq.demo [DIR]`: the demonstration as a command.

Exit codes: 0 when every file has a digest and every digest is right, 1 when not or when it came to grief, 2 for bad
arguments, 130 and the like (128 + signal) when it was interrupted; no process is left in any case.
"""

from __future__ import annotations

import errno
import signal
import sys
import sysconfig
from typing import Final, NoReturn

import anyio
import click

from echomq.demo.listing import Listing, list_tree
from echomq.errors import EchoMQError

EXIT_WRONG: Final = 1
EXIT_USAGE: Final = 2
SKIPPED: Final = "__pycache__"
"""Directories of this name are passed over: Python may write into them while they are read."""

ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals upon which everything is stopped in order."""


def _list(directory: str | None) -> Listing:
    """List the directory given, or the standard library without what was installed into it; exits if it cannot."""
    root, skip = directory, {SKIPPED}
    if root is None:
        root = sysconfig.get_path("stdlib")
        skip |= {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), "site-packages", "dist-packages"}
    try:
        return list_tree(root, skip=skip)
    except OSError as error:
        what = {errno.ENOENT: "there is no directory", errno.ENOTDIR: "not a directory:"}
        _fail(f"{what.get(error.errno or 0, f'{error.strerror}:')} {root!r}", EXIT_USAGE)
    except ValueError:  # a null byte
        _fail(f"there is no directory {root!r}", EXIT_USAGE)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"error: {message}", err=True)
    sys.exit(code)


async def _run(listing: Listing) -> int:
    """Run it until it is over or a signal comes; answer the exit code."""
    from rich.console import Console  # noqa: PLC0415 - whoever asks for --help need not wait for it

    from echomq.demo.report import RichDisplay, print_report, verdict  # noqa: PLC0415
    from echomq.demo.run import run  # noqa: PLC0415

    console = Console(highlight=False)
    interrupted: signal.Signals | None = None
    # Under nohup the end of the terminal is to be ignored, and stays so.
    heeded = [each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    async with anyio.create_task_group() as tasks:

        async def on_signals() -> None:
            nonlocal interrupted
            with anyio.open_signal_receiver(*heeded) as signals:
                started.set()
                async for number in signals:
                    # A second one changes nothing: what is being stopped must not be left half stopped.
                    interrupted = interrupted or signal.Signals(number)
                    main.cancel()

        started, main = anyio.Event(), anyio.CancelScope()
        tasks.start_soon(on_signals)
        await started.wait()
        tally = None
        with main, RichDisplay(console) as display:
            display.say(f"{len(listing.files):,} files; directories named {SKIPPED} are passed over")
            tally = await run(listing, display)
        tasks.cancel_scope.cancel()
    if interrupted is not None or tally is None:
        console.print(f"interrupted by {interrupted.name if interrupted else 'cancellation'}; everything was stopped")
        return 128 + (interrupted or signal.SIGINT)
    print_report(console, listing, tally)
    return 0 if verdict(listing, tally) else EXIT_WRONG


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", metavar="[DIR]", required=False)
def main(directory: str | None) -> None:
    """Compute the checksum of every file under DIR by jobs, on a private Valkey, while one of two workers is killed.

    DIR is Python's own standard library unless given. Directories named __pycache__ are passed over, and so is what
    was installed into the standard library (site-packages); symbolic links are not followed.
    """
    listing = _list(directory)
    try:
        code = anyio.run(_run, listing, backend="trio")
    except BaseExceptionGroup as group:
        leaf: BaseException = group
        while isinstance(leaf, BaseExceptionGroup):
            leaf = leaf.exceptions[0]
        if not isinstance(leaf, EchoMQError):
            raise
        _fail(str(leaf), EXIT_WRONG)
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="python -m echomq.demo")
