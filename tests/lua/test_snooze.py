"""`snooze`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.transitions import CancelRequest, Snoozed
from tests.lua.watching import assert_fenced, changes, running


@pytest.mark.parametrize("unfit", [False, True])
def test_snooze_puts_the_job_off(bench: Bench, unfit: bool) -> None:
    """Nothing is spent; an unfit worker is noted once."""
    job = running(bench)
    bench.server.delete(bench.keys.wake)
    item = Snoozed(job.id, job.token, job.nonce, 5000, unfit=unfit)
    answer, changed = changes(bench, lambda: bench.on("snooze", item), A=job.id)
    assert answer == ["ok"]
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "schedule[A] = T", "job:A[state] = schedule", "job:A[holder] = nothing", "wake: 0 -> 1",
        "event snoozed A", *(["job:A[unfit_since] = T"] if unfit else []),
    }  # fmt: skip


def test_snooze_ends_a_job_whose_cancellation_was_asked_for(bench: Bench) -> None:
    """It never becomes ready again."""
    job = running(bench)
    bench.on("cancel", CancelRequest(job.id, "no"))
    answer, changed = changes(bench, lambda: bench.settle("snooze", job), A=job.id)
    assert answer == "cancelled no"
    assert changed == {"active: gone", "job:A: gone", "counts[cancelled] = 1", "event cancelled A"}


@pytest.mark.parametrize("delay", ["", "x", "-1", "0.5", "nan", "inf", "3162240000001"])
def test_snooze_refuses_a_delay_out_of_range(bench: Bench, delay: str) -> None:
    """Nought to a century."""
    job = running(bench)
    answer, changed = changes(bench, lambda: bench.worker.bare("snooze", job.id, 1, job.nonce, delay, 0))
    assert (answer, changed) == ([f"EMQKIND delay_ms {delay}".encode()], set())


def test_snooze_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "snooze")
