"""The benchmarks run; how fast anything is, is not asserted here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

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


@pytest.mark.slow
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


@pytest.mark.skipif(memory_free() is None, reason="nobody tells here how much memory is free")
def test_scale_says_that_memory_does_not_suffice(tmp_path: Path) -> None:
    """Backlogs that this machine cannot hold are refused before anything is started."""
    done = _run("scale.py", "--largest", "1000000000000", cwd=tmp_path)
    assert done.returncode == 1
    assert "MiB are free: give a smaller one with --largest" in " ".join(done.stderr.split())
