"""`progress`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from tests.lua.watching import assert_fenced, changes, running


def test_progress_replaces_the_note(bench: Bench) -> None:
    """One field of the row."""
    job = running(bench)
    for pick in (1, 2):
        answer, changed = changes(bench, lambda pick=pick: bench.settle("progress", job, pick), A=job.id)  # type: ignore[misc]
        assert (answer, changed) == ("ok", {f"job:A[progress] = {pick}", "event progress A"})


def test_progress_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "progress")
