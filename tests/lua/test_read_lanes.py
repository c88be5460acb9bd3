"""`read_lanes`: what it answers; it changes nothing."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.transitions import LanePage, LaneState, Limits, RateLimit
from tests.lua.watching import changes


def look(bench: Bench, **options: object) -> LanePage:
    """Run the verb, which changes nothing."""
    page, changed = changes(bench, lambda: bench.worker.plain("read_lanes", **options))
    assert changed == set()
    assert isinstance(page, LanePage)
    return page


def test_read_lanes_answers_all_that_have_jobs_or_settings(bench: Bench) -> None:
    """By pages; a small queue's is one."""
    assert look(bench) == LanePage(cursor=0, lanes=())
    bench.add(lane="b")
    bench.set_lane("a", weight="3", limit="2", rate="10 1000 5")
    lanes = {it.name: it for it in look(bench).lanes}
    assert lanes["a"] == LaneState(
        name="a",
        limits=Limits(weight=3, limit=2, rate=RateLimit(count=10, per_ms=1000, burst=5)),
        pending=0,
        active=0,
        oldest_ms=0,
        closed=(),
        again_ms=None,
    )
    assert (lanes["b"].pending, lanes["b"].limits) == (1, Limits())


def test_read_lanes_says_why_a_lane_is_not_served(bench: Bench) -> None:
    """Every reason, in words, and when it is looked at again."""
    bench.set_lane("a", limit="1", rate="1 60000 1")
    bench.add(lane="a")
    job = bench.take()
    bench.add(lane="a")
    (lane,) = look(bench, names=["a"]).lanes
    assert (lane.closed, lane.pending, lane.active) == (("rate", "limit"), 1, 1)
    assert 0 < (lane.again_ms or 0) <= 600_000
    bench.settle("rate_limited", job, 1)
    assert look(bench, names=["a"]).lanes[0].closed == ("told to wait", "rate")
    bench.set_lane("a", paused="1", rate="")
    (lane,) = look(bench, names=["a"]).lanes
    assert (lane.closed, lane.again_ms) == (("paused", "told to wait"), None)


def test_read_lanes_of_a_flat_queue_knows_one(bench: Bench) -> None:
    """That of the jobs without a lane, if there are any."""
    bench.add()
    assert [(it.name, it.pending) for it in look(bench).lanes] == [("", 1)]


@pytest.mark.parametrize(("cursor", "count", "names"), [("x", 1, 0), (-1, 1, 0), (0, 0, 0), (0, 257, 0), (0, 1, 257)])
def test_read_lanes_refuses_a_page_out_of_range(bench: Bench, cursor: object, count: int, names: int) -> None:
    """And more names than 256."""
    with pytest.raises(CallRefusedError, match="EMQKIND read_lanes"):
        bench.worker.bare("read_lanes", cursor, count, *["a"] * names)  # type: ignore[arg-type]
