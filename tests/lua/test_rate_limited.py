"""`rate_limited`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.transitions import CancelRequest, Closing
from echomq.transitions.rate_limited import LimitScope
from tests.lua.watching import assert_fenced, changes, running

FIELD = "0 0 0 0 0 0.000 0 T"


def tell(bench: Bench, job: object, scope: LimitScope = "lane", after: int = 60_000) -> list[str]:
    """Run the verb for a job that is held."""
    return bench.on("rate_limited", Closing(job.id, job.token, job.nonce, after, scope), driver=bench.worker)  # type: ignore[attr-defined]


def test_rate_limited_closes_the_lane_and_gives_the_job_back(bench: Bench) -> None:
    """The lane's field, its place among the closed; the job pending, with nothing spent."""
    bench.add(lane="a")
    bench.take()
    job = running(bench, lane="b")
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: tell(bench, job), A=job.id)
    assert answer == ["ok"]
    assert changed - {"job:A[since] = T"} == {
        "active[A] = nothing",
        "lane:b:active: gone",
        "lane:b:pending[A] = 0.0",
        "job:A[state] = pending",
        "job:A[holder] = nothing",
        f"lanes[b] = c0 {FIELD}",
        "closed[b] = T",
        "meta[laned] = 1",
        "wake: 0 -> 1",
        "event rate_limited A",
    }


def test_rate_limited_begins_the_rota_for_the_lane_without_a_name(bench: Bench) -> None:
    """A queue that never met a lane has one that can be closed."""
    job = running(bench)
    answer, changed = changes(bench, lambda: tell(bench, job), A=job.id)
    assert answer == ["ok"]
    assert {"meta[rota] = 1", f"lanes[] = c0 {FIELD}", "closed[] = T", "pending[A] = 0.0"} <= changed


def test_rate_limited_closes_the_queue(bench: Bench) -> None:
    """In its own limits, and nobody is rung for."""
    job = running(bench)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: tell(bench, job, "queue"), A=job.id)
    assert answer == ["ok"]
    assert changed - {"job:A[since] = T"} == {
        "active: gone",
        "pending[A] = 0.0",
        "job:A[state] = pending",
        "job:A[holder] = nothing",
        f"meta[limits] = {FIELD}",
        "event rate_limited A",
    }


def test_rate_limited_ends_a_job_that_was_asked_to_be_cancelled(bench: Bench) -> None:
    """And says so; the lane is closed, at its turn, for whoever waits in it."""
    job = running(bench, lane="a")
    bench.on("cancel", CancelRequest(job.id, "no"))
    bench.add(lane="a")
    answer, changed = changes(bench, lambda: tell(bench, job), A=job.id)
    assert answer == ["cancelled no"]
    assert {f"lanes[a] = r0 {FIELD}", "job:A: gone"} <= changed


@pytest.mark.parametrize(
    ("after", "scope"), [("0", "lane"), ("86400001", "lane"), ("x", "queue"), ("1", "all"), ("1.5", "lane")]
)
def test_rate_limited_refuses_what_cannot_be(bench: Bench, after: str, scope: str) -> None:
    """And changes nothing."""
    job = running(bench, lane="a")
    answer, changed = changes(bench, lambda: bench.worker.bare("rate_limited", job.id, 1, job.nonce, after, scope))
    word = f"scope {scope}" if scope == "all" else f"after_ms {after}"
    assert (answer, changed) == ([f"EMQKIND {word}".encode()], set())


def test_rate_limited_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "rate_limited")
