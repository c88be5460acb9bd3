"""`reap`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.transitions import CancelRequest
from tests.lua.watching import changes, running


def test_reap_gives_an_ended_lease_back(bench: Bench) -> None:
    """One stall more; the late holder stays named."""
    job = running(bench)
    bench.server.delete(bench.keys.wake)
    bench.expire(job.id)
    answer, changed = changes(bench, lambda: bench.other.plain("reap"), A=job.id)
    assert answer == 1
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "pending[A] = 0.0", "job:A[state] = pending", "job:A[stalls] = 1", "counts[stalled] = 1",
        "wake: 0 -> 1", "event stalled A",
    }  # fmt: skip
    assert bench.row(job.id)["holder"] == job.nonce


def test_reap_buries_what_stalls_too_often(bench: Bench) -> None:
    """With a reason that a person can read; nobody holds it any more."""
    job = running(bench, max_stalls=0, dedup="k")
    bench.expire(job.id)
    answer, changed = changes(bench, lambda: bench.other.plain("reap"), A=job.id)
    assert answer == 1
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "dead[A] = T", "job:A[state] = dead", "job:A[stalls] = 1", "job:A[kind] = dead",
        "job:A[reason] = stalled: its lease expired 1 times, max_stalls is 0", "job:A[holder] = nothing",
        "dedup:k: gone", "counts[dead] = 1", "event dead A",
    }  # fmt: skip


def test_reap_ends_a_job_whose_cancellation_was_asked_for(bench: Bench) -> None:
    """Even when it would have been buried."""
    job = running(bench, max_stalls=0)
    bench.on("cancel", CancelRequest(job.id, "no"))
    bench.expire(job.id)
    answer, changed = changes(bench, lambda: bench.other.plain("reap"), A=job.id)
    assert (answer, changed) == (1, {"active: gone", "job:A: gone", "counts[cancelled] = 1", "event cancelled A"})


def test_reap_leaves_leases_that_stand(bench: Bench) -> None:
    """Nothing changes."""
    running(bench)
    assert changes(bench, lambda: bench.other.plain("reap")) == (0, set())


def test_reap_handles_no_more_than_its_bound(bench: Bench) -> None:
    """As many as the bound means there may be more."""
    for _ in range(3):
        bench.add()
    for job in bench.worker.claim(3).jobs:
        bench.expire(job.id)
    assert [bench.worker.plain("reap", bound=2) for _ in range(3)] == [2, 1, 0]


@pytest.mark.parametrize("bound", ["", "x", "0", "-1", "1.5", "nan", "10001"])
def test_reap_refuses_a_bound_out_of_range(bench: Bench, bound: str) -> None:
    """And changes nothing."""
    bench.expire(running(bench).id)

    def reap() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND bound"):
            bench.worker.bare("reap", bound)

    assert changes(bench, reap) == (None, set())
