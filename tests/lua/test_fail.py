"""`fail`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.transitions import CancelRequest, Failure
from tests.lua.watching import assert_fenced, changes, running


def test_fail_schedules_the_next_attempt(bench: Bench) -> None:
    """One failure more, the error kept, the holder gone."""
    job = running(bench)
    item = Failure(job.id, job.token, job.nonce, 1000, 2, b"{}")
    answer, changed = changes(bench, lambda: bench.on("fail", item), A=job.id)
    assert str(answer).startswith("['retry 1")
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "schedule[A] = T", "job:A[state] = schedule", "job:A[failures] = 1", "job:A[error] = {}",
        "job:A[holder] = nothing", "counts[failed] = 1", "event failed A", "wake: 1 -> 2",
    }  # fmt: skip


def test_fail_buries_beyond_the_budget(bench: Bench) -> None:
    """The row stays in the morgue with its error; the dedup key is free."""
    job = running(bench, dedup="k")
    item = Failure(job.id, job.token, job.nonce, 1000, 1, b"{}")
    answer, changed = changes(bench, lambda: bench.on("fail", item), A=job.id)
    assert answer == ["dead"]
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "dead[A] = T", "job:A[state] = dead", "job:A[failures] = 1", "job:A[error] = {}",
        "job:A[holder] = nothing", "job:A[kind] = dead", "job:A[reason] = failed 1 of 1 times", "dedup:k: gone",
        "counts[dead] = 1", "event dead A",
    }  # fmt: skip


def test_fail_ends_a_job_whose_cancellation_was_asked_for(bench: Bench) -> None:
    """It never becomes ready again."""
    job = running(bench)
    bench.on("cancel", CancelRequest(job.id, "no"))
    answer, changed = changes(bench, lambda: bench.settle("fail", job, 1), A=job.id)
    assert answer == "cancelled no"
    assert changed == {"active: gone", "job:A: gone", "counts[cancelled] = 1", "event cancelled A"}


@pytest.mark.parametrize(("at", "name"), [(3, "delay_ms"), (4, "max_attempts")])
@pytest.mark.parametrize("bad", ["", "x", "-1", "0.5", "nan", "inf", "1e15"])
def test_fail_refuses_numbers_out_of_range(bench: Bench, at: int, name: str, bad: str) -> None:
    """Before any write."""
    job = running(bench)
    argv: list[bytes | str | int] = [job.id, job.token, job.nonce, 0, 1, b"{}"]
    argv[at] = bad
    answer, changed = changes(bench, lambda: bench.worker.bare("fail", *argv))
    assert (answer, changed) == ([f"EMQKIND {name} {bad}".encode()], set())


def test_fail_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "fail")
