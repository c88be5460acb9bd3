"""What the commands share: which server, how to run, how errors read.

A command is a coroutine function that gets an open client, an `Output` and its own options::

    @click.command("pause")
    @queue_option
    @connected
    async def pause(client: Client, out: Output, *, queue: str) -> None:
        \"\"\"Let no more jobs of a queue be claimed.\"\"\"
        did = await client.queue(queue).pause()
        out.done("paused" if did else "was paused already", paused=True, changed=did)

`connected` brings `--url`, `--prefix`, `--wait` and `--json`. A command that needs no server takes `json_option` instead.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Final, TypeVar, final

import anyio
import click

from echomq.cli.output import Output
from echomq.client import URL_VARIABLE, open_client
from echomq.errors import EchoMQError, InvalidJobError, UnavailableError
from echomq.protocol.keys import check_prefix, check_queue_name
from echomq.worker.logs import configure_logs

F = TypeVar("F", bound=Callable[..., Any])

REFUSED: Final = 1
UNREACHED: Final = 3
INTERRUPTED: Final = 130
"""Exit codes, beside click's 2 for bad arguments."""
_ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False, "": False}
WAIT: Final = 5.0
"""Seconds that a command waits for a server that is away, unless told otherwise."""


@final
class CommandError(click.ClickException):
    """What could not be done, and what to do about it: one line, and an exit code."""

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.code = exit_code

    @property
    def exit_code(self) -> int:  # type: ignore[override] # click's own is of the class
        """Code that the process ends with."""
        return self.code

    def show(self, file: Any = None) -> None:
        """Write it to standard error, in lower case as the messages of the library are."""
        click.echo(f"{click.style('error:', fg='red', bold=True)} {self.message}", file=file, err=file is None)


@final
class UnsureError(Exception):
    """A command with an option `--yes` wants somebody to be asked before it goes on."""

    def __init__(self, question: str) -> None:
        super().__init__(question)
        self.question = question


def _confirm(question: str) -> None:
    """Ask.

    Raises:
        CommandError: It is not meant, or was interrupted.
    """
    answer, line = None, ""
    try:
        while answer is None:
            click.echo(f"{question} [y/N]: ", nl=False, err=True)
            line = read_line()
            answer = _ANSWERS.get(line.strip().lower())
    except KeyboardInterrupt:
        click.echo(err=True)  # the question's line is not ended
        raise CommandError("nothing was done", INTERRUPTED) from None
    if not line:
        click.echo(err=True)
    if not answer:
        raise CommandError("nothing was done")


def read_line() -> str:
    """Read a line from the terminal; "" at its end.

    Not by `input()`: a Ctrl-C that comes just before that waits is heard with the next key only.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    interrupts, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        if interrupts in select.select([sys.stdin, interrupts], [], [])[0]:
            raise KeyboardInterrupt
        return sys.stdin.readline()
    finally:
        signal.set_wakeup_fd(before)
        os.close(interrupts)
        os.close(told)


def json_option(command: F) -> F:
    """Give a command `--json`: its parameter is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")(command)


def checked(check: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Make the `callback=` of an option from what answers its value, or raises a `ValueError`; None stays None."""

    def callback(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
        try:
            return None if value is None else check(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None

    return callback


def checked_all(check: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Make the same of an argument that may be said several times: each is checked, and one said twice counts once."""
    one = checked(check)
    return lambda context, parameter, values: tuple(dict.fromkeys(one(context, parameter, each) for each in values))


queue_option: Final[Callable[[F], F]] = click.option(
    "--queue", "-q", required=True, callback=checked(check_queue_name), metavar="QUEUE", help="The queue."
)
"""Gives a command `--queue`, which must be said."""


def connected(function: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a coroutine function what click calls: it gets an open client and an `Output`, on trio.

    Errors of the library become one line and an exit code: 2 for values that were refused before anything was sent, 3 if
    the server was not reached, else 1.
    """

    def run(*, url: str | None, prefix: str, wait: float, as_json: bool, **given: Any) -> None:
        configure_logs("console", "error")  # to standard error; what a command meets, it says itself

        async def main() -> None:
            async with open_client(url, prefix=prefix, unavailable_after=wait, name="cli") as client:
                await function(client, Output(as_json=as_json), **given)

        try:
            run_guarded(main)
        except UnsureError as unsure:
            # Not within the event loop: a thread that waits for a terminal cannot be interrupted.
            _confirm(unsure.question)
            given["yes"] = True
            run_guarded(main)

    update_wrapper(run, function)
    del run.__wrapped__  # type: ignore[attr-defined] # else click's own checks would look at a coroutine function
    command: Callable[..., None] = json_option(run)
    for option in (
        click.option("--wait", type=float, default=WAIT, show_default=True, help="Seconds to wait for a server that is away."),
        click.option("--prefix", default="emq", show_default=True, callback=checked(check_prefix), help="What all keys begin with."),
        click.option("--url", envvar=URL_VARIABLE, help=f"The server, such as valkey://localhost:6379; else ${URL_VARIABLE}."),
    ):  # fmt: skip
        command = option(command)
    return command


def run_guarded(function: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run on trio, and turn errors of the library into a `CommandError` or click's own for bad arguments."""
    try:
        anyio.run(function, backend="trio")
    except KeyboardInterrupt:
        raise CommandError("interrupted", INTERRUPTED) from None
    except BaseExceptionGroup as group:  # trio's, if another task than the command's was interrupted
        if group.subgroup(KeyboardInterrupt) is None:
            raise
        raise CommandError("interrupted", INTERRUPTED) from None
    except UnavailableError as error:
        tip = f"is it running, and is --url (or ${URL_VARIABLE}) right?"
        raise CommandError(f"{error}; {tip}", UNREACHED) from None
    except InvalidJobError as error:
        raise click.UsageError(str(error)) from None
    except EchoMQError as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        if error.errno == errno.EPIPE:  # whoever reads has left: click ends quietly
            raise
        raise CommandError(f"the answer could not be written: {error.strerror or error}") from None
    except (TypeError, ValueError) as error:
        # The library checks what it is given before it sends anything.
        raise click.UsageError(str(error)) from None
