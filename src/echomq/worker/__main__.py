"""`python -m echomq.worker module:app`: a worker as a process, on trio.

Exit codes: 0 after an orderly shutdown (a signal, `--burst` and nothing left, `--max-jobs`, `--max-rss`), 1 when the
worker failed, 2 for bad arguments, 70 when handlers would not end and the process stopped hard at its deadline: their
leases expire, and the jobs run again elsewhere. With `--processes`: the worst of the workers', 128 and more for one that a
signal has ended.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import traceback
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
import structlog
from click.core import ParameterSource

from echomq._logs import get_logger
from echomq.app import App
from echomq.client import server_url
from echomq.errors import EchoMQError
from echomq.protocol.keys import check_queue_name
from echomq.wire.urls import parse
from echomq.worker.deadline import Deadline
from echomq.worker.entry import check_served, run_worker
from echomq.worker.gather import find_batch
from echomq.worker.logs import REDACT, configure_logs, open_missing_streams
from echomq.worker.options import WorkerOptions
from echomq.worker.orders import HURRY, STOP, Orders, urgency
from echomq.worker.retire import check_memory
from echomq.worker.supervisor import EXIT_FAILED, EXIT_REPLACE, SLACK, Supervisor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from echomq.worker.run import Worker

LINGER = 5.0
"""Seconds that threads which handlers have left may keep a process that was not told to stop: with `--burst`, say."""
DEADLINE = Deadline()
"""The process has one end."""

_log = get_logger("echomq.worker")


class NotImportableError(click.ClickException):
    """A module that fails when it is imported: said by its own frames, without those of the import and of ours."""

    exit_code = EXIT_FAILED

    def __init__(self, module: str, error: BaseException) -> None:
        while error.__traceback__ is not None and _is_machinery(error.__traceback__.tb_frame.f_code.co_filename):
            error.__traceback__ = error.__traceback__.tb_next
        text = "".join(traceback.format_exception(error)).rstrip()
        super().__init__(f"{module!r} cannot be imported\n{text}")


def _is_machinery(file: str) -> bool:
    return file in {__file__, importlib.__file__} or file.startswith("<frozen importlib")


def find_app(path: str) -> App:
    """Import `module:attribute` and answer the app there; the attribute is `app` unless given.

    Raises:
        click.UsageError: There is no such module, attribute, or it is no app.
        NotImportableError: The module is there, and fails.
    """
    module_name, _, attribute = path.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        msg = f"{module_name!r} is no module: name your app as module:attribute"
        raise click.UsageError(msg)
    with suppress(FileNotFoundError):  # the directory was deleted: what is installed can be found all the same
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does for scripts
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise NotImportableError(module_name, error) from None  # what it imports is missing
        msg = f"there is no module {module_name!r} here or on the path: name your app as module:attribute"
        raise click.UsageError(msg) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - what the module's own lines raise
        raise NotImportableError(module_name, error) from None
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, App):
        msg = f"{module_name!r} has no echomq App named {attribute or 'app'!r} ({'it is ' + repr(app) if app is not None else 'there is no such name'})"
        raise click.UsageError(msg)
    return app


def check_app(app: App, queues: tuple[str, ...], settings: WorkerOptions) -> None:
    """Look at what can be known before anything is opened.

    Raises:
        ValueError: There is nothing to serve, or no server is named, or not by a URL; or a batch takes more slots than
            the worker has.
        TypeError: An annotation of a task cannot be resolved, or a task asks for what nobody provides.
    """
    if not app.tasks:
        msg = "the app has no tasks: import the modules that declare them"
        raise ValueError(msg)
    for queue in queues:
        check_served(app, check_queue_name(queue))
    told = app.on_dead.tasks
    for task in (*app.tasks.values(), *told):
        task.check()
    served = queues or app.queues
    app.provide.plan((*(task for task in app.tasks.values() if task.queue in served), *told))
    for queue in served:
        find_batch({task.name: task for task in app.tasks.values() if task.queue == queue}, settings)
    parse(server_url(app.url))
    check_memory(settings.max_rss)


async def _serve(app: App, queues: tuple[str, ...], options: dict[str, Any], *, supervised: bool) -> str:
    """Run the worker; answer why it is to be replaced, "" if it is not."""
    grace, cleanup = options["grace"], options["cleanup"]
    heard = STOP | {HURRY} if supervised else STOP
    means = partial(urgency, supervised=supervised)

    def seconds(urgency: int) -> float:
        return float((grace if urgency == 1 else 0) + cleanup + SLACK)

    async with anyio.create_task_group() as tasks:
        worker: Worker | None = None
        came: list[int] = []

        async def on_signals() -> None:
            with anyio.open_signal_receiver(*heard) as signals, DEADLINE.set_by(heard, means, seconds):
                async for number in signals:
                    before = means(came)
                    came.append(number)
                    if (now := means(came)) == before:
                        continue
                    _log.info("signal", signal=signal.Signals(number).name, stopping="at once" if now > 1 else "")
                    for _ in range(before, now):
                        if worker is not None:
                            worker.stop()
                        else:
                            running.cancel_scope.cancel()

        tasks.start_soon(on_signals)
        async with anyio.create_task_group() as running:
            worker = await running.start(partial(run_worker, app, queues=queues, **options))
        tasks.cancel_scope.cancel()
    return "" if worker is None else worker.retired


def _find_changes(directories: Sequence[Path]) -> Callable[[anyio.Event], AsyncIterator[Sequence[str]]]:
    try:
        from echomq.worker.reload import Changes  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        msg = f"--reload needs {error.name}: pip install 'echomq[reload]'"
        raise click.UsageError(msg) from None
    return Changes(directories)


def _supervise(
    processes: int, directories: Sequence[Path] | None, given: dict[str, Any], *, embedded: bool, arguments: list[str]
) -> None:
    """Be the supervisor. The app is its workers' to look at."""
    changes = None if directories is None else _find_changes(directories)
    try:
        settings = WorkerOptions(**given)
        env = dict(os.environ)
        supervisor = Supervisor(processes, arguments, settings, name=given.get("name"), env=env, changes=changes)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    with ExitStack() as stack:
        if embedded:
            env["ECHOMQ_URL"] = _open_server(stack)
        sys.exit(anyio.run(supervisor.run, backend="trio"))


def _open_server(stack: ExitStack) -> str:
    from echomq.embedded import open_server  # noqa: PLC0415 - only then is a server binary needed

    url = stack.enter_context(open_server()).url
    _log.info("embedded_server", url=url)
    return url


class _Command(click.Command):
    """Keeps its arguments as they were typed, for the processes that are to have the same."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.obj = list(args)
        return super().parse_args(ctx, args)


@click.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("app", metavar="MODULE:APP")
@click.option("--queue", "queues", multiple=True, help="A queue to serve (repeatable); all of the app's unless given.")
@click.option("--concurrency", default=100, help="How many handlers run at once.")
@click.option(
    "--threads",
    type=int,
    help="How many plain functions run at once in threads; as many as --concurrency unless given.",
)
@click.option(
    "--pool", type=int, help="How many handlers run at once in processes of their own; one a processor unless given."
)
@click.option(
    "--processes",
    type=int,
    help="Run that many workers in processes of their own, and start one anew that dies; one worker, and here, unless given.",
)
@click.option(
    "--max-jobs", type=int, help="End after about so many jobs, when their handlers have ended, to be replaced."
)
@click.option("--max-rss", type=int, help="The same from so many MiB of resident memory on.")
@click.option("--reload", is_flag=True, help="For development: start anew when a Python file changes.")
@click.option(
    "--reload-dir",
    "directories",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to look for changes (repeatable); the current directory unless given.",
)
@click.option("--lease", default=30.0, help="Seconds a claim holds without being renewed.")
@click.option("--grace", default=20.0, help="Seconds a shutdown waits for handlers.")
@click.option("--cleanup", default=5.0, help="Seconds that cancelled handlers and last verdicts may take.")
@click.option("--url", envvar="ECHOMQ_URL", help="The server; the app's own unless given.")
@click.option("--embedded", is_flag=True, help="Start a private Valkey for this run; nothing is kept.")
@click.option(
    "--burst", is_flag=True, help="Stop when the queues are empty: nothing ready, running or scheduled for later."
)
@click.option("--allow-eviction", is_flag=True, help="Work on a server whose eviction policy may drop jobs.")
@click.option(
    "--health-port", type=int, help="Answer health probes over HTTP at this port; 0: a free one, which is logged."
)
@click.option("--health-host", default="127.0.0.1", help="Where to listen for health probes.")
@click.option("--sample-every", type=float, help="Seconds between samples of the queues, for the app's instruments.")
@click.option("--sample-lanes", default=0, help="How many lanes of each queue are sampled with it, at most.")
@click.option(
    "--name",
    help="What this worker is called in logs; host and process id unless given. With --processes: -1, -2, ... follow.",
)
@click.option("--log-format", type=click.Choice(["console", "json"]), default="console", help="How to log.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", help="What.")
@click.option("--supervised", hidden=True)
@click.pass_context
def main(
    context: click.Context,
    /,
    app: str,
    queues: tuple[str, ...],
    url: str | None,
    log_format: str,
    log_level: str,
    processes: int | None,
    directories: tuple[Path, ...],
    supervised: str | None,
    *,
    embedded: bool,
    reload: bool,
    **given: Any,
) -> None:
    """Run the tasks of an app. SIGTERM and SIGINT shut down in order; a second one skips the waiting."""
    orders = None if supervised is None else Orders.read(supervised)
    configure_logs(log_format, log_level)
    options = {name: value for name, value in given.items() if value is not None}
    if embedded and click.get_current_context().get_parameter_source("url") is ParameterSource.COMMANDLINE:
        msg = "say either --url or --embedded: an embedded server is a new and empty one"
        raise click.UsageError(msg)
    if directories and not reload:
        msg = "--reload-dir says where to look for changes: say --reload, too"
        raise click.UsageError(msg)
    if reload and given["burst"]:
        msg = "say either --reload or --burst: one waits for changes, the other ends"
        raise click.UsageError(msg)
    if orders is not None:
        embedded = False  # its server is the supervisor's, and its URL in the environment
        options["name"] = orders.name
        if options.get("health_port"):
            options["health_port"] += orders.place
    elif processes is not None or reload:
        watched = (directories or (Path(),)) if reload else None
        _supervise(1 if processes is None else processes, watched, options, embedded=embedded, arguments=context.obj)
    found = find_app(app)
    REDACT.redaction = found.redact
    try:
        settings = WorkerOptions(**options)
        if embedded:
            found.url = "valkey://127.0.0.1"  # until its port is known
        elif url is not None:
            found.url = url
        check_app(found, queues, settings)
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from None
    structlog.contextvars.bind_contextvars(worker=settings.name)
    if orders is not None:
        orders.tell_checked()
    with ExitStack() as stack:
        if embedded:
            found.url = _open_server(stack)
        try:
            serve = partial(_serve, found, queues, options, supervised=orders is not None)
            if anyio.run(serve, backend="trio") and orders is not None:
                sys.exit(EXIT_REPLACE)
        except BaseExceptionGroup as group:
            known, rest = group.split(EchoMQError)
            if known is None or rest is not None:
                raise
            _log.error("worker_failed", error="; ".join(str(leaf) for leaf in _leaves(known)))
            sys.exit(EXIT_FAILED)


def _leaves(group: BaseExceptionGroup[Any]) -> Iterator[BaseException]:
    for each in group.exceptions:
        if isinstance(each, BaseExceptionGroup):
            yield from _leaves(each)
        else:
            yield each


if __name__ == "__main__":
    open_missing_streams()
    try:
        main(prog_name="python -m echomq.worker")
    finally:
        if not DEADLINE.armed:
            DEADLINE.set(LINGER)
