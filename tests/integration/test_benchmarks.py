"""The benchmarks run; how fast anything is, is not asserted here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from benchmarks import fairness
from benchmarks.backlog import memory_free

ROOT = Path(__file__).resolve().parent.parent.parent


def _run(program: str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "benchmarks" / program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=55, check=False)


@pytest.mark.slow
def test_benchmarks_measure_both_sides_and_write_what_they_found(tmp_path: Path) -> None:
    """A quick run from any directory prints both tables, and its JSON has every measurement of both sides."""
    output = tmp_path / "made" / "result.json"
    done = _run("bench.py", "--quick", "--markdown", "--output", output, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "### Timed" in done.stdout
    assert "| server memory, bytes a queued job |" in done.stdout
    [found] = orjson.loads(output.read_bytes())["rounds"]
    roles = {"enqueue_single", "enqueue_tasks", "enqueue_bulk", "drain", "latency"}
    assert {side: set(measured) for side, measured in found.items()} == {"echomq": roles, "ceiling": roles}
    assert all(found[side]["drain"]["rate"] > 0 for side in found)


@pytest.mark.prove
def test_scale_measures_backlogs_scripts_and_idle_workers(tmp_path: Path) -> None:
    """A quick run prints three tables, shows its progress on stderr alone, and its JSON has every measurement."""
    output = tmp_path / "scale.json"
    done = _run("scale.py", "--quick", "--markdown", "--output", output, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("### ") == 3
    assert "jobs by backlog" in done.stderr
    found = orjson.loads(output.read_bytes())
    [backlogs] = found["rounds"]
    assert backlogs.keys() == {"100 queued", "1,000 queued", "100 queued, 1,000 scheduled"}
    assert all(min(cost.values()) > 0 for cost in backlogs.values())
    scripts = found["scripts"]
    assert scripts["one at a time"]["enqueue"]["calls"] == found["sizes"]["single"] + 1
    assert scripts["drain"].keys() >= {"claim", "complete"}
    assert found["idle"].keys() == {"0", "1", "3"}
    assert found["idle"]["0"]["sent"] == {}
    assert found["idle"]["3"]["reads"] > 0


@pytest.mark.prove
def test_events_measures_every_level(tmp_path: Path) -> None:
    """A quick run prints a line for each, those with a reader too."""
    done = _run("events.py", "--quick", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(f"events {level}" in done.stderr for level in ("none", "failures", "all", "all, followed"))
    assert "us a job" in " ".join(done.stdout.split())


@pytest.mark.skipif(memory_free() is None, reason="nobody tells here how much memory is free")
def test_scale_says_that_memory_does_not_suffice(tmp_path: Path) -> None:
    """Backlogs that this machine cannot hold are refused before anything is started."""
    done = _run("scale.py", "--largest", "1000000000000", cwd=tmp_path)
    assert done.returncode == 1
    assert "MiB are free: give a smaller one with --largest" in " ".join(done.stderr.split())


@pytest.mark.prove
def test_lanes_measures_every_promise(tmp_path: Path) -> None:
    """A quick run prints two tables, and what is counted and not timed is as promised."""
    output = tmp_path / "lanes.json"
    done = _run("lanes.py", "--quick", "--markdown", "--output", output, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("### ") == 2
    found = orjson.loads(output.read_bytes())
    assert found["costs"].keys() == {"1", "10", "100"}
    assert all(cost.keys() == {"0", "1", "10", "100"} for cost in found["costs"].values())
    assert [each["dispatch"] <= each["lanes"] for each in found["first_turn"]] == [True] * 4
    assert all(abs(off) <= 0.1 for off in found["shares"].values())
    assert found["idle_slots"] == 0
    [drained] = found["rounds"]
    assert drained.keys() == {"flat", "tenants", "one", "many", "alone", "batches"}
    assert found["stream"].keys() >= {"rate", "growth_mib"}
    assert len(found["pick_up_ms"]) == found["sizes"]["pick_ups"]
    assert [each["per_second"] for each in found["rates"]] == [5, 5, 500, 500]


@pytest.mark.prove
def test_delayed_measures_each_phase(tmp_path: Path) -> None:
    """A quick run prints three tables, nothing is left of the queue, and another client was answered in each phase."""
    output = tmp_path / "delayed.json"
    done = _run("delayed.py", "--quick", "--markdown", "--output", output, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("### ") == 3
    result = orjson.loads(output.read_bytes())
    [found] = result["rounds"]
    assert len(result["late_ms"]) == 20
    assert [each["jobs"] for each in found.values()] == [1500, 500, 500, 1500, 2000]
    assert [*found] == ["enqueue, delayed", "enqueue, one instant", "promote", "list the schedule", "obliterate"]
    assert all(each["ping"]["pings"] > 0 for each in found.values())
    assert found["promote"]["scripts"].keys() >= {"promote"}


@pytest.mark.prove
def test_fairness_measures_all_tenants(tmp_path: Path) -> None:
    """A quick run prints the table, and touches neither the page nor the result."""
    before = {path: path.read_bytes() for path in (fairness.PAGE, fairness.PLOT, fairness.RESULT)}
    done = _run("fairness.py", "--quick", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(f"| {tenant} |" in done.stdout for tenant in (fairness.FLOOD, *fairness.SMALL))
    assert before == {path: path.read_bytes() for path in before}


def test_fairness_page_and_plot_are_made_of_the_committed_result() -> None:
    """Nobody has edited a figure by hand: `make fairness ARGS=--draw` would change nothing."""
    result = orjson.loads(fairness.RESULT.read_bytes())
    text = fairness.PAGE.read_text("utf-8")
    assert fairness.page(text, result) == text
    assert fairness.table(result) in text
    assert fairness.PLOT.read_text("utf-8") == fairness.draw(result)
