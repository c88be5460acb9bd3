"""`remove`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from tests.lua.watching import changes, running


def test_remove_erases_whatever_does_not_run(bench: Bench) -> None:
    """Rows, logs, places, dedup keys."""
    dead = running(bench)
    bench.settle("log", dead)
    bench.settle("fail", dead)
    done = running(bench, result_ttl_ms=YEAR_MS)
    bench.settle("complete", done)
    pending, later = bench.add(dedup="k"), bench.add(delay_ms=YEAR_MS)
    ids = {"A": dead.id, "B": done.id, "C": pending, "D": later}
    answer, changed = changes(bench, lambda: bench.on("remove", *ids.values()), **ids)
    assert answer == ["ok"] * 4
    assert changed == {
        "dead: gone", "done: gone", "pending: gone", "schedule: gone", "job:A:log: gone", "dedup:k: gone",
        "counts[removed] = 4", *(f"job:{name}: gone" for name in ids), *(f"event removed {name}" for name in ids),
    }  # fmt: skip


def test_remove_refuses_what_runs_and_what_is_gone(bench: Bench) -> None:
    """Cancel it instead."""
    job = running(bench)
    assert changes(bench, lambda: bench.on("remove", job.id, NewJob().id)) == (["EMQSTATE active", "EMQGONE"], set())
