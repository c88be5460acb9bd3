"""`complete`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from tests.lua.watching import assert_fenced, changes, running


def test_complete_retires_the_row(bench: Bench) -> None:
    """Row, log, lease and dedup key go."""
    job = running(bench, dedup="k")
    bench.settle("log", job)
    answer, changed = changes(bench, lambda: bench.settle("complete", job), A=job.id)
    assert answer == "ok"
    assert changed == {
        "active: gone", "job:A: gone", "job:A:log: gone", "dedup:k: gone", "counts[completed] = 1", "event completed A",
    }  # fmt: skip


def test_complete_keeps_the_result_that_was_asked_for(bench: Bench) -> None:
    """The row goes to the shelf, and nobody holds it any more."""
    job = running(bench, result_ttl_ms=1000)
    _, changed = changes(bench, lambda: bench.settle("complete", job), A=job.id)
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "done[A] = T", "job:A[state] = done", "job:A[kind] = completed", "job:A[result] = result 0",
        "job:A[holder] = nothing", "counts[completed] = 1", "event completed A",
    }  # fmt: skip


def test_complete_by_the_late_holder(bench: Bench) -> None:
    """A job that was reaped, and not claimed since, is done all the same."""
    job = running(bench, max_stalls=2)
    bench.expire(job.id)
    bench.other.plain("reap")
    answer, changed = changes(bench, lambda: bench.settle("complete", job), A=job.id)
    assert answer == "ok"
    assert changed == {"pending: gone", "job:A: gone", "counts[completed] = 1", "event completed A"}


def test_complete_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "complete")
