"""`trim`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from tests.lua.watching import changes, running

DAY_MS = 86_400_000


def test_trim_drops_results_past_their_time(bench: Bench) -> None:
    """Row and log; the others stay."""
    old, young = running(bench, result_ttl_ms=1000), running(bench, result_ttl_ms=60_000)
    for job in (old, young):
        bench.settle("log", job)
        bench.settle("complete", job)
    bench.rescore("done", old.id, 1000)
    answer, changed = changes(bench, lambda: bench.worker.plain("trim"), A=old.id, B=young.id)
    assert (answer, changed) == (1, {"done[A] = nothing", "job:A: gone", "job:A:log: gone"})


def test_trim_drops_the_dead_that_are_too_old(bench: Bench) -> None:
    """Counted and told, for somebody may have wanted them."""
    dead = running(bench)
    bench.settle("fail", dead)
    assert changes(bench, lambda: bench.worker.plain("trim", dead_max=0)) == (0, set())
    bench.rescore("dead", dead.id, bench.clock() - 100 * DAY_MS)
    answer, changed = changes(bench, lambda: bench.worker.plain("trim"), A=dead.id)
    assert (answer, changed) == (1, {"dead: gone", "job:A: gone", "counts[trimmed] = 1", "event trimmed A"})


def test_trim_drops_no_more_than_its_bound(bench: Bench) -> None:
    """Results and dead together; as many as the bound means there may be more."""
    for _ in range(2):
        done, dead = running(bench, result_ttl_ms=1000), running(bench)
        bench.settle("complete", done)
        bench.settle("fail", dead)
        bench.rescore("done", done.id, 1000)
    options = {"dead_max": 0, "dead_keep_ms": 0}
    assert [bench.worker.plain("trim", bound=2, **options) for _ in range(3)] == [2, 2, 0]


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("bad", ["", "x", "-1", "1.5", "nan", "1e15"])
def test_trim_refuses_numbers_out_of_range(bench: Bench, at: int, bad: str) -> None:
    """bound, dead_max, dead_age_ms, dead_keep_ms: the whole call."""
    argv: list[bytes | str | int] = [10, 0, 0, 0]
    argv[at] = bad
    bench.settle("fail", running(bench))

    def trim() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND trim"):
            bench.worker.bare("trim", *argv)

    assert changes(bench, trim) == (None, set())
