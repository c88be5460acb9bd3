"""The benchmarks run; how fast anything is, is not asserted here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.slow
def test_benchmarks_measure_both_sides_and_write_what_they_found(tmp_path: Path) -> None:
    """A quick run from any directory prints both tables, and its JSON has every measurement of both sides."""
    output = tmp_path / "made" / "result.json"
    command: list[str | Path] = [
        sys.executable,
        ROOT / "benchmarks" / "bench.py",
        "--quick",
        "--markdown",
        "--output",
        output,
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=55, check=False)
    assert done.returncode == 0, done.stderr
    assert "### Timed" in done.stdout
    assert "| server memory, bytes a queued job |" in done.stdout
    [found] = orjson.loads(output.read_bytes())["rounds"]
    roles = {"enqueue_single", "enqueue_tasks", "enqueue_bulk", "drain", "latency"}
    assert {side: set(measured) for side, measured in found.items()} == {"echomq": roles, "ceiling": roles}
    assert all(found[side]["drain"]["rate"] > 0 for side in found)
