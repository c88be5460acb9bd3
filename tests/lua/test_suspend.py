"""`suspend`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.flowing import Flows
from echomq.transitions import Suspension
from tests.lua.watching import assert_fenced, changes, running


def test_suspend_moves_a_job_to_where_parents_wait(bench: Bench) -> None:
    """Its lease is given back, and nothing is counted."""
    job = running(bench)
    Flows(bench).spawn(job, "0")
    item = Suspension(job.id, job.token, job.nonce)
    answer, changed = changes(bench, lambda: [v.code for v in bench.worker.items("suspend", item)], A=job.id)
    assert answer == ["waiting"]
    assert "holder" not in bench.row(job.id)
    assert {line for line in changed if not line.startswith("job:A[")} == {
        "active: gone", "waiting[A] = T", "event suspended A",
    }  # fmt: skip


def test_suspend_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "suspend")
