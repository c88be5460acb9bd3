"""What the reference says by hand agrees with the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from echomq.cli import main as commands
from echomq.conformance.scenarios import SCENARIOS
from echomq.instruments import JobOutcome
from echomq.instruments.metrics import JOBS, METRICS, SETTLED
from echomq.instruments.sampling import STATES
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import _KNOWN
from echomq.transitions import ALL_VERBS, load
from echomq.worker.metrics import GAUGES
from tests.docs import pitfalls

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
KEYS = (DOCS / "reference" / "keys.md").read_text("utf-8")
RESERVED = {"void"}


def _section(title: str) -> str:
    return KEYS.split(f"# {title}\n")[1].split("\n## ")[0]


def test_keys_table_is_that_of_the_scripts() -> None:
    """Each key that some script's header names is in the table with its type, and no other."""
    listed = dict(re.findall(r"^\| `([^`]+)` \| (\w+) \|", _section("Keys"), re.MULTILINE))
    named = dict(key.split() for verb in ALL_VERBS for key in load(verb).header.keys)
    assert {suffix: kind for suffix, kind in listed.items() if suffix not in RESERVED} == {
        suffix: kind for suffix, kind in named.items() if suffix not in RESERVED
    }
    assert listed.keys() >= RESERVED
    assert all(
        hasattr(QueueKeys, suffix) or hasattr(QueueKeys(queue="q"), suffix) for suffix in listed if suffix.isalpha()
    )


def test_row_fields_are_those_that_scripts_and_records_know() -> None:
    """The row's table names each field that is read or written, and no other."""
    cells = re.findall(r"^\| (`.*?) \|", _section("The row"), re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert listed == {name.decode() for name in _KNOWN}


def test_commands_are_all_in_the_reference() -> None:
    """Each command has its place in the page."""
    page = (DOCS / "reference" / "command-line.md").read_text("utf-8")
    assert sorted(re.findall(r"^```\{command\} (\S+)$", page, re.MULTILINE)) == sorted(commands.commands)


NAMED_COMMAND = re.compile(r"(?:`|^\$ |-m |look: )echomq\s+([a-z][a-z-]*)\b", re.MULTILINE)
"""A command, as pages name it: `echomq X`, `python -m echomq X`, and in the comments of alerts."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.stem) for page in (*sorted(DOCS.rglob("*.md")), ROOT / "README.md")]
)
def test_commands_that_a_page_names_exist(page: Path) -> None:
    """Nobody is sent to a command that is not there, least of all by an alert."""
    if "_build" not in page.parts:
        assert set(NAMED_COMMAND.findall(page.read_text("utf-8"))) <= commands.commands.keys()


def test_settings_are_those_that_scripts_touch() -> None:
    """The table of `meta` names each field that some script reads or writes, and no other."""
    cells = re.findall(r"^\| (`.*?) \|", _section("The settings"), re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    calls = [
        arguments for verb in ALL_VERBS for arguments in re.findall(r"call\('H\w+', META, (.*?)\)", load(verb).source)
    ]
    assert listed == {name for arguments in calls for name in re.findall(r"'(\w+)'", arguments)}


def test_pitfalls_are_held_by_tests_that_exist() -> None:
    """Each known way to break has a scenario or a test, and every number that a scenario carries is told."""
    assert {n for it in SCENARIOS for n in it.pitfalls} <= pitfalls.HELD.keys()
    for number, (what, tests) in pitfalls.HELD.items():
        assert list(pitfalls.missing(tests)) == [], (number, what)
        assert tests or any(number in it.pitfalls for it in SCENARIOS), (number, what)


def test_pitfalls_page_is_that_of_the_scenarios_and_tests() -> None:
    """The page says what there is; else it is to be made anew."""
    assert pitfalls.PAGE.read_text(encoding="utf-8") == pitfalls.page(), "python -m tests.docs.pitfalls"


def test_alerts_ask_for_metrics_and_labels_that_exist() -> None:
    """Each metric, label, outcome and counter that the page's rules name is there; a rule that never fires is worse than none."""
    page = (DOCS / "how-to" / "telemetry.md").read_text("utf-8")
    rules = "\n".join(re.findall(r"expr: (.*)", page))
    series: dict[str, set[str]] = {f"echomq_worker_{name}": set() for name in GAUGES}
    for metric in METRICS:
        suffix = {"counter": "_total", "total": "_total", "histogram": "_bucket"}.get(metric.kind, "")
        series[metric.name + suffix] = set(metric.labels)
    named = set(re.findall(r"echomq_\w+", rules))
    assert len(named) > 5
    assert named <= series.keys()
    for name, condition in re.findall(r"(echomq_\w+){(.*?)}", rules):
        ((label, values),) = re.findall(r'(\w+)=~?"(.*?)"', condition)
        assert label in series[name]
        if label == "outcome":
            assert set(values.split("|")) <= set(get_args(JobOutcome))


def test_metrics_that_count_outcomes_name_all() -> None:
    """What a metric's words list is what there is."""
    assert set(re.findall(r"\w+", SETTLED.help)) >= set(get_args(JobOutcome))
    assert set(re.findall(r"\w+", JOBS.help)) >= set(STATES)


NAMED = re.compile(r"`(\w[\w/]*::test_\w+)`")
"""A test, as pages name it."""
NAMING = [
    path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts and NAMED.search(path.read_text("utf-8"))
]


@pytest.mark.parametrize("page", [pytest.param(page, id=str(page.relative_to(DOCS))) for page in NAMING])
def test_tests_that_a_page_names_exist(page: Path) -> None:
    """What is said to be held by a test is."""
    assert list(pitfalls.missing(NAMED.findall(page.read_text(encoding="utf-8")))) == []


def _tables(page: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Answer a page's tables: the head, and the rows."""
    for table in re.findall(r"(?:^\|.*\|\n)+", page, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        yield head, rows


def test_guarantees_are_each_held_by_a_test() -> None:
    """No line of a table with tests goes without one."""
    held = [
        (rows, head.index("held by"))
        for head, rows in _tables((DOCS / "explanation" / "guarantees.md").read_text("utf-8"))
        if "held by" in head
    ]
    assert len(held) >= 9
    assert [row[0] for rows, at in held for row in rows if not NAMED.search(row[at])] == []


def _events() -> Iterator[str]:
    """Answer what the package logs, debugging apart."""
    for path in (ROOT / "src" / "echomq").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(
                        value=ast.Name(id="_log" | "logger"),
                        attr="info" | "warning" | "error" | "exception" as level,
                    ),
                    args=[ast.Constant(value=str(event)), *_],
                ) if re.fullmatch(r"[a-z_]+", event):
                    yield f"`{event}` {'error' if level == 'exception' else level}"


def test_events_of_the_log_are_explained() -> None:
    """The table of the log's events has each with its level, and no other."""
    page = (DOCS / "explanation" / "faults.md").read_text("utf-8")
    (rows,) = (rows for head, rows in _tables(page) if head[0] == "event")
    names = [row[0].strip("`") for row in rows]
    assert names == sorted(names)
    assert {f"{row[0]} {row[1]}" for row in rows} == set(_events())
