"""`counts`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from tests.lua.watching import changes, running


def test_counts_answers_every_state_and_changes_nothing(bench: Bench) -> None:
    """Members of the sets, the pause, the counters."""
    done, dead = running(bench, result_ttl_ms=YEAR_MS), running(bench)
    bench.settle("complete", done)
    bench.settle("fail", dead)
    running(bench)
    bench.add()
    bench.add()
    bench.add(delay_ms=YEAR_MS)
    counts, changed = changes(bench, lambda: bench.worker.plain("counts"))
    assert changed == set()
    names = ("pending", "active", "schedule", "dead", "waiting", "done")
    assert [getattr(counts, name) for name in names] == [2, 1, 1, 1, 0, 1]
    assert counts.totals == {"completed": 1, "dead": 1}  # type: ignore[attr-defined]
    assert not counts.paused  # type: ignore[attr-defined]


def test_counts_says_since_when_the_queue_is_paused(bench: Bench) -> None:
    """By the server's clock."""
    before = bench.clock()
    bench.worker.plain("pause")
    assert before <= bench.worker.plain("counts").paused_ms <= bench.clock()
