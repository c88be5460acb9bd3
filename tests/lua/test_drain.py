"""`drain`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from tests.lua.watching import changes


def test_drain_erases_a_lanes_pending_jobs(bench: Bench) -> None:
    """Rows, dedup keys and logs; the lane's place on the ring stays until its turn."""
    first, second, other = bench.add(lane="a", dedup="k"), bench.add(lane="a"), bench.add(lane="b")
    answer, changed = changes(bench, lambda: bench.worker.plain("drain", lane="a", bound=1), A=first, B=second)
    assert answer == 1
    assert changed == {
        "lane:a:pending[A] = nothing",
        "job:A: gone",
        "dedup:k: gone",
        "meta[laned] = 2",
        "counts[removed] = 1",
        "event removed A",
    }
    answer, changed = changes(bench, lambda: bench.worker.plain("drain", lane="a", bound=1), A=first, B=second)
    assert answer == 1
    assert changed == {
        "lane:a:pending: gone", "job:B: gone", "meta[laned] = 1", "counts[removed] = 2", "event removed B",
    }  # fmt: skip
    assert bench.state(other) == "pending"


def test_drain_of_a_closed_lane_leaves_nothing_closed(bench: Bench) -> None:
    """Its settings stay."""
    bench.set_lane("a", paused="1")
    id = bench.add(lane="a")
    _, changed = changes(bench, lambda: bench.worker.plain("drain", lane="a"), A=id)
    assert {"closed: gone", "lanes[a] = -0 0 0 0 0 0 0.000 T 0", "lane:a:pending: gone"} <= changed


def test_drain_of_a_flat_queue_erases_what_is_pending(bench: Bench) -> None:
    """The jobs without a lane are the lane without a name."""
    id = bench.add()
    answer, changed = changes(bench, lambda: bench.worker.plain("drain"), A=id)
    assert (answer, changed) == (1, {"pending: gone", "job:A: gone", "counts[removed] = 1", "event removed A"})


def test_drain_of_nothing_changes_nothing(bench: Bench) -> None:
    """And answers none."""
    bench.add(lane="b")
    assert changes(bench, lambda: bench.worker.plain("drain", lane="a")) == (0, set())


@pytest.mark.parametrize(("lane", "bound"), [("a", "0"), ("a", "10001"), ("a", "x"), ("a{", "1"), ("x" * 129, "1")])
def test_drain_refuses_what_cannot_be(bench: Bench, lane: str, bound: str) -> None:
    """Whole, before anything is erased."""
    bench.add(lane="a")

    def drain() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND drain"):
            bench.worker.bare("drain", lane, bound)

    assert changes(bench, drain) == (None, set())
