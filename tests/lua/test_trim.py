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
    bench.configure(dead_max="1")
    assert changes(bench, lambda: bench.worker.plain("trim")) == (0, set())
    bench.rescore("dead", dead.id, bench.clock() - 100 * DAY_MS)
    answer, changed = changes(bench, lambda: bench.worker.plain("trim"), A=dead.id)
    assert (answer, changed) == (1, {"dead: gone", "job:A: gone", "counts[trimmed] = 1", "event trimmed A"})


def test_trim_drops_results_that_are_too_many(bench: Bench) -> None:
    """The soonest to go first; their time was not over, so they are counted and told."""
    first, second = running(bench, result_ttl_ms=70_000), running(bench, result_ttl_ms=60_000)
    for job in (first, second):
        bench.settle("complete", job)
    bench.configure(done_max="1")
    answer, changed = changes(bench, lambda: bench.worker.plain("trim"), A=first.id, B=second.id)
    expected = {"done[B] = nothing", "job:B: gone", "counts[trimmed] = 1", "event trimmed B"}
    assert (answer, changed) == (1, expected)


def test_trim_drops_no_more_than_its_bound(bench: Bench) -> None:
    """Results and dead together; as many as the bound means there may be more."""
    jobs = [running(bench, result_ttl_ms=60_000 if n % 2 else None) for n in range(4)]
    for n, job in enumerate(jobs):
        bench.settle("complete" if n % 2 else "fail", job)
    for n, job in enumerate(jobs):
        bench.rescore("done" if n % 2 else "dead", job.id, 1000)
    assert [bench.worker.plain("trim", bound=3) for _ in range(3)] == [3, 1, 0]


def test_complete_trims_what_it_finds_over(bench: Bench) -> None:
    """Two of the oldest, for the one that it keeps."""
    old = [running(bench, result_ttl_ms=60_000) for _ in range(3)]
    for job in old:
        bench.settle("complete", job)
    for n, job in enumerate(old):
        bench.rescore("done", job.id, 1000 + n)
    job = running(bench, result_ttl_ms=60_000)
    names = {"A": old[0].id, "B": old[1].id, "C": old[2].id, "D": job.id}
    _, changed = changes(bench, lambda: bench.settle("complete", job), **names)
    assert {line for line in changed if "gone" in line and "active" not in line} == {"job:A: gone", "job:B: gone"}
    assert set(bench.look().zset("done")) == {old[2].id, job.id}


@pytest.mark.parametrize("bad", ["", "x", "0", "-1", "1.5", "nan", "1e15", "10001"])
def test_trim_refuses_a_bound_out_of_range(bench: Bench, bad: str) -> None:
    """The whole call."""
    bench.settle("fail", running(bench))

    def trim() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND trim"):
            bench.worker.bare("trim", bad)

    assert changes(bench, trim) == (None, set())
