"""What a job costs, counted: makes `docs/reference/counted.md`, and compares it with what is measured now.

`python -m benchmarks.counted` compares, `--write` writes the page anew. A test does the same (`make test`), so a change
that makes a job cost more *or less* comes with its change of the page.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import orjson
import trio

from benchmarks import counting
from benchmarks.measure import ROOT, describe
from echomq.embedded import open_server
from echomq.worker.logs import configure_logs

PAGE = ROOT / "docs" / "reference" / "counted.md"
COMMAND = "python -m benchmarks.counted --write"

Measured = dict[str, counting.Found]


@attrs.frozen
class Figure:
    """A row: which number of its scenario, how it is shown, by what part it may differ, whether the server matters."""

    title: str
    name: str
    form: str = "{:.3f}"
    tolerance: float = 0.0
    of_server: bool = False

    @property
    def allowed(self) -> str:
        return f"within {self.tolerance * 100:g} %" if self.tolerance else "exact"


@attrs.frozen
class Scenario:
    """A table: its function in `counting`, its heading, a sentence, its figures."""

    name: str
    title: str
    about: str
    figures: tuple[Figure, ...]


TRAFFIC = (
    Figure("bytes to the server, a job", "received", "{:.1f}", 0.01),
    Figure("bytes from the server, a job", "sent", "{:.1f}", 0.01),
)
# A stray claim (a timer that was over while the work was let go) is 1 of the 103 and 43 calls of the last two.


def _of_work(*, calls: float, inner: float, left: float) -> tuple[Figure, ...]:
    """Make the figures of a worker that does jobs, with these tolerances."""
    return (
        Figure("commands sent, a job", "calls", "{:.4f}", calls),
        Figure("commands inside scripts, a job", "inner", "{:.3f}", inner),
        Figure("reads of the server, a job", "reads", "{:.4f}", 0.4, of_server=True),
        *TRAFFIC,
        Figure("keys left behind", "keys", "{:.0f}"),
        Figure("bytes of the keys left behind", "left", "{:,.0f}", left, of_server=True),
    )


SCENARIOS = (
    Scenario(
        "enqueue_single",
        "Enqueue, one at a time",
        f"{counting.SINGLE:,} times `await task.enqueue(...)`, each after the other. Nobody works: the doorbell fills up.",
        (
            Figure("commands sent, a job", "calls"),
            Figure("commands inside scripts, a job", "inner"),
            Figure("reads of the server, a job", "reads", tolerance=0.01),
            *TRAFFIC,
        ),
    ),
    Scenario(
        "enqueue_bulk",
        "Enqueue, in bulk",
        f"`app.enqueue_many` of {counting.BULK:,} jobs; memory is that of {counting.STORED:,} jobs in the queue.",
        (
            Figure("commands sent, a job", "calls", "{:.4f}"),
            Figure("commands inside scripts, a job", "inner", "{:.3f}", 0.001),
            # One or two a call of 26 KiB, by how the server's buffers meet the client's writes.
            Figure("reads of the server, a job", "reads", "{:.4f}", 0.6, of_server=True),
            *TRAFFIC,
            Figure("server memory of a queued job, bytes", "bytes", "{:.0f}", 0.03, of_server=True),
        ),
    ),
    Scenario(
        "drain",
        "Drain",
        f"One worker with concurrency {counting.CONCURRENCY} takes {counting.DRAIN:,} jobs whose handlers do nothing.",
        _of_work(calls=0.05, inner=0.001, left=0.05),
    ),
    Scenario(
        "retry",
        "Retry",
        f"The same with {counting.RETRY:,} jobs that each fail once and are tried again at once. Bytes are without the "
        "error's text, which is sent once and comes back once.",
        _of_work(calls=0.1, inner=0.002, left=0.1),
    ),
    Scenario(
        "idle",
        "Idle",
        f"A worker of one queue with nothing to do, for {counting.IDLE_UNTIL - counting.IDLE_FROM:.1f} seconds. It asks "
        "about once a second, with jitter: twice here.",
        (
            Figure("commands sent", "calls", "{:.0f}"),
            Figure("commands inside scripts", "inner", "{:.0f}"),
            Figure("reads of the server", "reads", "{:.0f}"),
            Figure("bytes to the server", "received", "{:.0f}", 0.05),
            Figure("bytes from the server", "sent", "{:.0f}", 0.05),
        ),
    ),
)
HEAD = """# What a job costs, counted

These figures are the same on any machine and under any load: they count what is sent, what scripts do and what the
server keeps. `{command}` writes this page. `make test` measures anew and fails when a
figure has become worse *or better* than its tolerance allows, so the page is true. What depends on time is measured by
`make bench` and `make scale`.

Measured on {server}, with one worker process on trio and jobs with one argument of 64 characters. Figures of memory
are compared on that version of the server only, as are its reads of calls that are too long for one. Commands are
counted by the server: those that clients send (`EVALSHA` for the most part), and those that scripts call.
"""
FOOT = """## What is left behind

The keys that remain when all jobs have ended are `meta`, `counts`, `events` if something failed, and for each client
and verb the last call and its reply (`once`, for an hour); see [keys](keys.md).
"""


def server_version() -> str:
    """Tell which server is measured here: its name, and its version without the last part."""
    with open_server() as server:
        return describe(server.url)["server"].rpartition(".")[0]


def page(measured: Measured, server: str) -> str:
    """Write the page."""
    parts = [HEAD.format(command=COMMAND, server=server)]
    for scenario in SCENARIOS:
        rows = [
            f"| {each.title} | {each.form.format(measured[scenario.name][each.name])} | {each.allowed} |"
            for each in scenario.figures
        ]
        table = "\n".join(["| figure | value | tolerance |", "| --- | ---: | --- |", *rows])
        parts.append(f"## {scenario.title}\n\n{textwrap.fill(scenario.about, 120)}\n\n{table}\n")
    return "\n".join([*parts, FOOT])


def read_page(text: str) -> tuple[dict[tuple[str, str], str], str]:
    """Read a page: the figures as they are written, by heading and title, and the server."""
    figures: dict[tuple[str, str], str] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif match := re.fullmatch(r"\| (.+?) \| (-?[\d.,]+) \| .+ \|", line):
            figures[heading, match[1]] = match[2]
    server = re.search(r"^Measured on (.+?), with", text, re.MULTILINE)
    return figures, server[1] if server else ""


def differences(text: str, measured: Measured, server: str) -> Iterator[str]:
    """Compare a page with what was measured; answer a line for each figure that is not true any more."""
    committed, of = read_page(text)
    wanted = {
        (scenario.title, each.title): (scenario.name, each) for scenario in SCENARIOS for each in scenario.figures
    }
    for heading, title in wanted.keys() ^ committed.keys():
        where = "only in the page" if (heading, title) in committed else "missing in the page"
        yield f"{heading}: {title}: {where}"
    for key in wanted.keys() & committed.keys():
        name, figure = wanted[key]
        if figure.of_server and server != of:
            continue
        value, was = measured[name][figure.name], committed[key]
        shown = figure.form.format(value)
        number = float(was.replace(",", ""))
        # What is shown is rounded: half of its last digit is no difference.
        rounding = 0.5 * 10.0 ** -len(was.partition(".")[2])
        if shown != was and (not figure.tolerance or abs(value - number) > figure.tolerance * abs(number) + rounding):
            change = f" ({(value - number) / number:+.1%})" if number else ""
            yield f"{key[0]}: {key[1]}: committed {was}, measured {shown}{change}, allowed: {figure.allowed}"


def report(found: list[str]) -> str:
    """Say what is not true, and what to do about it."""
    where = PAGE.relative_to(ROOT)
    return "\n".join(
        [
            f"{where} is not true any more:",
            *(f"  {line}" for line in sorted(found)),
            f"If that is meant, write it anew and commit it: {COMMAND}",
        ]
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--write", is_flag=True, help="Write the page anew.")
@click.option("--json", "as_json", is_flag=True, help="Print what was measured, and compare nothing.")
@click.option("--page", "path", type=click.Path(path_type=Path), default=PAGE, help="The page, if it is another.")
def main(path: Path, *, write: bool, as_json: bool) -> None:
    """Count what a job costs, and compare it with the page."""
    configure_logs("console", "critical")
    server = server_version()
    measured = {each.name: trio.run(counting.SCENARIOS[each.name]) for each in SCENARIOS}
    if as_json:
        result: dict[str, Any] = {"server": server, "measured": measured}
        print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
        return
    old = path.read_text("utf-8") if path.exists() else ""
    found = list(differences(old, measured, server))
    if write:
        path.write_text(page(measured, server), "utf-8")
        print("\n".join([*sorted(found), f"written: {path}"]))
    elif found:
        print(report(found), file=sys.stderr)
        sys.exit(1)
    else:
        print(f"all figures of {path} are true")


if __name__ == "__main__":
    main()
