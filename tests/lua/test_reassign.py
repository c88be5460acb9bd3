"""`reassign`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from echomq.transitions import Reassignment
from tests.lua.watching import changes, running


def move(bench: Bench, id: str, lane: str) -> list[str]:
    """Run the verb."""
    return bench.on("reassign", Reassignment(id, lane))


def test_reassign_moves_a_pending_job(bench: Bench) -> None:
    """From set to set; both lanes are told."""
    first, id = bench.add(lane="a"), bench.add(lane="a", priority=2)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: move(bench, id, "b"), A=id)
    assert answer == ["ok"]
    assert changed == {
        "lane:a:pending[A] = nothing",
        "lane:b:pending[A] = -2.0",
        "job:A[lane] = b",
        "lanes[b] = r0",
        "ring: 1 -> 2",
        "wake: 0 -> 1",
        "event reassigned A",
    }
    assert bench.ring() == ["a", "b"]
    assert bench.state(first) == "pending"


def test_reassign_to_no_lane_takes_the_field_away(bench: Bench) -> None:
    """The job is one of those without a lane then."""
    id = bench.add(lane="a")
    answer, changed = changes(bench, lambda: move(bench, id, ""), A=id)
    assert answer == ["ok"]
    assert {"lane:a:pending: gone", "pending[A] = 0.0", "job:A[lane] = nothing", "meta[laned] = 0"} <= changed


@pytest.mark.parametrize("state", ["schedule", "dead"])
def test_reassign_of_a_job_that_is_not_pending_writes_its_row(bench: Bench, state: str) -> None:
    """It keeps its place; the queue has a lane now."""
    id = bench.add(delay_ms=YEAR_MS if state == "schedule" else None)
    if state == "dead":
        bench.bury(id)
    answer, changed = changes(bench, lambda: move(bench, id, "b"), A=id)
    assert (answer, changed) == (["ok"], {"job:A[lane] = b", "event reassigned A", "meta[rota] = 1"})


def test_reassign_to_the_same_lane_changes_nothing(bench: Bench) -> None:
    """It is where it should be."""
    id = bench.add(lane="a")
    assert changes(bench, lambda: move(bench, id, "a")) == (["ok"], set())


def test_reassign_refuses_jobs_that_run_or_have_ended(bench: Bench) -> None:
    """Each with its state."""
    job = running(bench, lane="a", result_ttl_ms=YEAR_MS)
    assert changes(bench, lambda: move(bench, job.id, "b")) == (["EMQSTATE active"], set())
    bench.settle("complete", job)
    assert changes(bench, lambda: move(bench, job.id, "b")) == (["EMQSTATE done"], set())
    assert changes(bench, lambda: move(bench, NewJob().id, "b")) == (["EMQGONE"], set())


@pytest.mark.parametrize("lane", ["x" * 129, "a{b", "a}b", "a\tb"])
def test_reassign_refuses_a_name_that_does_not_fit(bench: Bench, lane: str) -> None:
    """It would be no key."""
    id = bench.add()
    assert changes(bench, lambda: move(bench, id, lane)) == ([f"EMQKIND lane {lane}"], set())
