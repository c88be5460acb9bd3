"""`release`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.transitions import CancelRequest
from tests.lua.watching import assert_fenced, changes, running


def test_release_gives_the_job_back(bench: Bench) -> None:
    """Nothing is spent; the holder is gone, and with it any late completion."""
    job = running(bench, priority=3)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: bench.settle("release", job), A=job.id)
    assert answer == "ok"
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "pending[A] = -3.0", "job:A[state] = pending", "job:A[holder] = nothing", "wake: 0 -> 1",
        "event released A",
    }  # fmt: skip


def test_release_ends_a_job_whose_cancellation_was_asked_for(bench: Bench) -> None:
    """It never becomes ready again."""
    job = running(bench)
    bench.on("cancel", CancelRequest(job.id, "no"))
    answer, changed = changes(bench, lambda: bench.settle("release", job), A=job.id)
    assert answer == "cancelled no"
    assert changed == {"active: gone", "job:A: gone", "counts[cancelled] = 1", "event cancelled A"}


def test_release_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "release")
