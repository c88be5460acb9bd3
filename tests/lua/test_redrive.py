"""`redrive`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from tests.lua.watching import changes, running


def test_redrive_begins_a_new_life(bench: Bench) -> None:
    """Budgets and the story of the old life go, the dedup key is taken again."""
    job = running(bench, dedup="k", priority=1, expires="+60000", deadline="+60000")
    bench.settle("progress", job)
    bench.settle("fail", job)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: bench.on("redrive", job.id), A=job.id)
    assert answer == ["ok"]
    gone = {f"job:A[{name}] = nothing" for name in ("failures", "error", "kind", "reason", "progress")}
    gone |= {"job:A[expires_ms] = nothing", "job:A[deadline_ms] = nothing"}
    assert changed - {"job:A[since] = T"} == gone | {
        "dead: gone", "pending[A] = -1.0", "job:A[state] = pending", "dedup:k = A", "wake: 0 -> 1",
        "counts[redriven] = 1", "event redriven A",
    }  # fmt: skip


def test_redrive_refuses_what_is_not_dead(bench: Bench) -> None:
    """And says which state it found."""
    done, active = running(bench, result_ttl_ms=YEAR_MS), running(bench)
    bench.settle("complete", done)
    ids = [NewJob().id, bench.add(), bench.add(delay_ms=YEAR_MS), active.id, done.id]
    expected = ["EMQGONE", *(f"EMQSTATE {state}" for state in ("pending", "schedule", "active", "done"))]
    assert changes(bench, lambda: bench.on("redrive", *ids)) == (expected, set())


def test_redrive_refuses_a_taken_dedup_key(bench: Bench) -> None:
    """And names the holder."""
    job = running(bench, dedup="k")
    bench.settle("fail", job)
    holder = bench.add(dedup="k")
    assert changes(bench, lambda: bench.on("redrive", job.id)) == ([f"duplicate {holder}"], set())
