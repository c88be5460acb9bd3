"""`promote`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.items import YEAR_MS
from tests.lua.watching import changes


def test_promote_moves_what_is_due(bench: Bench) -> None:
    """To its priority's place in pending, with a token; what is not due stays."""
    due, later = bench.add(delay_ms=YEAR_MS, priority=4), bench.add(delay_ms=YEAR_MS)
    bench.server.delete(bench.keys.wake)
    bench.due(due)
    answer, changed = changes(bench, lambda: bench.worker.plain("promote"), A=due, B=later)
    assert answer == 1
    assert changed - {"job:A[since] = T"} == {
        "schedule[A] = nothing", "pending[A] = -4.0", "job:A[state] = pending", "wake: 0 -> 1", "event promoted A",
    }  # fmt: skip


def test_promote_ends_a_row_that_carries_a_cancel_request(bench: Bench) -> None:
    """Such a row cannot come there by any verb; should one, it does not become ready."""
    id = bench.add(delay_ms=YEAR_MS)
    bench.due(id)
    bench.server.hset(bench.keys.job(id), "cancel", "no")
    answer, changed = changes(bench, lambda: bench.worker.plain("promote"), A=id)
    assert (answer, changed) == (1, {"schedule: gone", "job:A: gone", "counts[cancelled] = 1", "event cancelled A"})


def test_promote_drops_an_id_without_a_row(bench: Bench) -> None:
    """Counted, and never made a row."""
    bench.server.zadd(bench.keys.schedule, {"JOB00000000001": 1})
    answer, changed = changes(bench, lambda: bench.worker.plain("promote"), A="JOB00000000001")
    assert (answer, changed) == (1, {"schedule: gone", "counts[dropped] = 1", "event dropped A"})


def test_promote_handles_no_more_than_its_bound(bench: Bench) -> None:
    """As many as the bound means there may be more."""
    for _ in range(3):
        bench.due(bench.add(delay_ms=YEAR_MS))
    assert [bench.worker.plain("promote", bound=2) for _ in range(3)] == [2, 1, 0]


@pytest.mark.parametrize("bound", ["", "x", "0", "-1", "1.5", "nan", "10001"])
def test_promote_refuses_a_bound_out_of_range(bench: Bench, bound: str) -> None:
    """And changes nothing."""
    bench.due(bench.add(delay_ms=YEAR_MS))

    def promote() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND bound"):
            bench.worker.bare("promote", bound)

    assert changes(bench, promote) == (None, set())
