"""What a job costs is what the page says: commands, bytes and memory, counted and not timed."""

from __future__ import annotations

import copy
import subprocess
import sys

import orjson
import pytest

from benchmarks import counted

MEASURED = {
    scenario.name: {figure.name: 100.0 * number for number, figure in enumerate(scenario.figures, 1)}
    for scenario in counted.SCENARIOS
}


@pytest.mark.slow
def test_counted_page_is_true() -> None:
    """Each figure of the page is measured again, and neither worse nor better than its tolerance."""
    command = [sys.executable, "-m", "benchmarks.counted", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=counted.ROOT, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    now = orjson.loads(done.stdout)
    found = list(counted.differences(counted.PAGE.read_text("utf-8"), now["measured"], now["server"]))
    if found:
        pytest.fail(counted.report(found), pytrace=False)


def test_counted_page_that_was_just_written_is_true() -> None:
    """What is written is read back, figure by figure."""
    text = counted.page(MEASURED, "valkey 9.1")
    figures, server = counted.read_page(text)
    assert len(figures) == sum(len(scenario.figures) for scenario in counted.SCENARIOS)
    assert server == "valkey 9.1"
    assert list(counted.differences(text, MEASURED, server)) == []


@pytest.mark.parametrize("factor", [-1, 1])
@pytest.mark.parametrize(
    ("scenario", "figure"), [(s, f) for s in counted.SCENARIOS for f in s.figures], ids=lambda it: it.name
)
def test_counted_difference_is_told(scenario: counted.Scenario, figure: counted.Figure, factor: int) -> None:
    """A figure beyond its tolerance is named with both values, better or worse; one within it is not."""
    text = counted.page(MEASURED, "valkey 9.1")
    changed = copy.deepcopy(MEASURED)
    changed[scenario.name][figure.name] *= 1 + factor * (figure.tolerance + 0.02)
    [line] = counted.differences(text, changed, "valkey 9.1")
    was, now = (figure.form.format(it[scenario.name][figure.name]) for it in (MEASURED, changed))
    assert line.startswith(f"{scenario.title}: {figure.title}: committed {was}, measured {now} (")
    assert counted.COMMAND in counted.report([line])
    assert bool(list(counted.differences(text, changed, "redis 7.0"))) is not figure.of_server
    changed[scenario.name][figure.name] = MEASURED[scenario.name][figure.name] * (1 + factor * figure.tolerance * 0.9)
    assert list(counted.differences(text, changed, "valkey 9.1")) == []


def test_counted_figure_that_is_missing_is_told() -> None:
    """A page that lacks a figure, or has one that nobody measures, is not true."""
    text = counted.page(MEASURED, "valkey 9.1")
    line = next(line for line in text.splitlines() if line.startswith("| keys left"))
    assert [*counted.differences(text.replace(line, "", 1), MEASURED, "valkey 9.1")] == [
        "Drain: keys left behind: missing in the page"
    ]
    other = text.replace("keys left behind", "keys lost", 1)
    assert len([*counted.differences(other, MEASURED, "valkey 9.1")]) == 2
