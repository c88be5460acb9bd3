"""More tables of the reference that are made from the code.

`{worker-options}`
    A row an option of `WorkerOptions`: name, default, and its docstring, which gives the reason.

`{worker-command}`
    A row an option of `python -m echomq.worker`.

`{command} NAME`
    A command of `echomq`, or a group of them: how it is called, what it does, a row an option. Those that all commands
    have are in the page once.

`{errors}`
    A row an error of `echomq.errors`: name, bases and the first sentence of its docstring.

`{metrics}`
    A row a metric of the instruments; its content says which: `events` or `samples`.

`{server-errors}`
    A row an error of the server that the wire knows: its first word, the exception, what the wire does.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
import click
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.docutils import SphinxDirective

from echomq import errors
from echomq.cli import main as commands
from echomq.instruments import metrics
from echomq.wire import replies
from echomq.worker import options
from echomq.worker.__main__ import main as worker_command

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from sphinx.application import Sphinx


class _Table(SphinxDirective):
    """A table whose cells are MyST text, so that literals and references in docstrings are shown as such."""

    has_content: ClassVar[bool] = False
    head: ClassVar[tuple[str, ...]]

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Make the rows."""
        raise NotImplementedError

    def run(self) -> list[nodes.Node]:
        """Make the table, by way of its source."""
        lines = [self.head, tuple("---" for _ in self.head), *self.rows()]
        source = ["| " + " | ".join(_one_line(cell) for cell in cells) + " |" for cells in lines]
        holder = nodes.container()
        self.state.nested_parse(StringList(source, source=self.get_source_info()[0]), 0, holder)
        return holder.children


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


class WorkerOptionsTable(_Table):
    """The options of a worker."""

    head = ("option", "default", "meaning and reason")

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Read the fields and the docstrings below them."""
        analyzer = ModuleAnalyzer.for_module(options.__name__)
        docs = analyzer.find_attr_docs()
        for field in attrs.fields(options.WorkerOptions):
            default = "" if isinstance(field.default, attrs.Factory) else f"`{field.default!r}`"  # type: ignore[arg-type]
            yield f"`{field.name}`", default, " ".join(docs["WorkerOptions", field.name])


OPTIONS_HEAD = ("option", "default", "meaning")


def _options(command: click.Command, without: Collection[str] = ()) -> Iterator[tuple[str, ...]]:
    """Make a row an option of a command, but for some."""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name not in without:
            default: Any = parameter.default
            # click's mark for "no default" is an object of its own, and a flag's default says nothing.
            shown = isinstance(default, (int, float, str)) and not isinstance(default, bool)
            variable = f" (or the variable `{parameter.envvar}`)" if parameter.envvar else ""
            value = f" {parameter.make_metavar(click.Context(command))}" if not parameter.is_flag else ""
            yield (
                ", ".join(f"`{name}`" for name in parameter.opts) + (f" `{value.strip()}`" if value else ""),
                f"`{default}`" if shown else "",
                (parameter.help or "") + variable,
            )


class WorkerCommandTable(_Table):
    """The options of the worker command."""

    head = OPTIONS_HEAD

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Ask click."""
        return _options(worker_command)


COMMON = ("url", "prefix", "wait", "as_json")
"""Parameters that all commands have, but for those that need no server."""


class Command(SphinxDirective):
    """One command, or a group and its commands."""

    required_arguments: ClassVar[int] = 1
    has_content: ClassVar[bool] = False

    def run(self) -> list[nodes.Node]:
        """Make the text, by way of its source."""
        command = commands.commands[self.arguments[0]]
        context = click.Context(command, info_name=f"echomq {command.name}")
        lines = self._lines(command, context)
        if isinstance(command, click.Group):
            lines = [*(command.help or "").splitlines(), ""]
            for name, each in command.commands.items():
                lines += self._lines(each, click.Context(each, info_name=f"echomq {command.name} {name}"))
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.get_source_info()[0]), 0, holder)
        return holder.children

    @staticmethod
    def _lines(command: click.Command, context: click.Context) -> list[str]:
        usage = command.get_usage(context).removeprefix("Usage: ")
        # What click marks by \b stands as it is typed.
        text, _, typed = (command.help or "").partition("\b\n")
        lines = ["```text", *usage.splitlines(), "```", "", *text.splitlines(), ""]
        if typed:
            lines += ["```text", *typed.splitlines(), "```", ""]
        rows = list(_options(command, COMMON))
        if rows:
            cells = [OPTIONS_HEAD, ("---",) * 3, *rows]
            lines += ["| " + " | ".join(map(_one_line, row)) + " |" for row in cells]
        return [*lines, ""]


class ErrorsTable(_Table):
    """The errors that are raised on purpose."""

    head = ("error", "also a", "when")

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Read the classes in the file's order."""
        for name, value in vars(errors).items():
            if not (isinstance(value, type) and issubclass(value, errors.EchoMQError)):
                continue
            bases = [base.__name__ for base in value.__bases__ if base not in {errors.EchoMQError, Exception}]
            summary = inspect.getdoc(value) or ""
            yield (
                f"{{py:exc}}`~echomq.errors.{name}`",
                ", ".join(f"`{base}`" for base in bases),
                summary.split("\n\n")[0],
            )


class ServerErrorsTable(_Table):
    """What a server's error becomes."""

    head = ("the server says", "becomes", "first, the wire will")

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Read the wire's table."""
        for rule in replies.TABLE.values():
            yield f"`{rule.code}`", f"{{py:exc}}`~echomq.errors.{rule.error.__name__}`", rule.action.value


class MetricsTable(_Table):
    """The metrics that instruments show."""

    head = ("Prometheus", "OpenTelemetry", "kind", "labels", "unit", "meaning")
    required_arguments = 1

    def rows(self) -> Iterable[tuple[str, ...]]:
        """Read the instruments' table."""
        for metric in {"events": metrics.EVENTS, "samples": metrics.SAMPLES}[self.arguments[0]]:
            kind = "counter" if metric.kind == "total" else metric.kind
            labels = ", ".join(metric.labels) or "-"
            yield f"`{metric.name}`", f"`{metric.otel}`", kind, labels, f"`{metric.unit}`", metric.help


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("worker-options", WorkerOptionsTable)
    app.add_directive("worker-command", WorkerCommandTable)
    app.add_directive("command", Command)
    app.add_directive("errors", ErrorsTable)
    app.add_directive("metrics", MetricsTable)
    app.add_directive("server-errors", ServerErrorsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
