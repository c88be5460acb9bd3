"""`reprioritise`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from echomq.transitions import NewPriority
from tests.lua.watching import changes, running


@pytest.mark.parametrize("lane", [None, "a"])
def test_reprioritise_moves_a_ready_job(bench: Bench, lane: str | None) -> None:
    """In its set, and nobody is rung for: it was ready before."""
    id = bench.add(lane=lane)
    where = "pending" if lane is None else "lane:a:pending"
    answer, changed = changes(bench, lambda: bench.on("reprioritise", NewPriority(id, 5)), A=id)
    assert answer == ["ok"]
    assert changed == {f"{where}[A] = -5.0", "job:A[priority] = 5", "event reprioritised A"}
    answer, changed = changes(bench, lambda: bench.on("reprioritise", NewPriority(id, 0)), A=id)
    assert answer == ["ok"]
    assert changed == {f"{where}[A] = 0.0", "job:A[priority] = nothing", "event reprioritised A"}


def test_reprioritise_of_what_is_not_ready_changes_its_row(bench: Bench) -> None:
    """Scheduled and dead."""
    later, dead = bench.add(delay_ms=YEAR_MS), bench.add()
    bench.bury(dead)
    items = [NewPriority(id, -5) for id in (later, dead)]
    answer, changed = changes(bench, lambda: bench.on("reprioritise", *items), A=later, B=dead)
    assert answer == ["ok", "ok"]
    assert changed == {
        "job:A[priority] = -5", "job:B[priority] = -5", "event reprioritised A", "event reprioritised B",
    }  # fmt: skip


def test_reprioritise_takes_a_late_holder_away(bench: Bench) -> None:
    """With a priority, and without one."""
    for priority in (0, 3):
        late = running(bench)
        bench.expire(late.id)
        bench.worker.plain("reap")
        bench.on("reprioritise", NewPriority(late.id, priority))
        assert "holder" not in bench.row(late.id)
        bench.on("remove", late.id)


def test_reprioritise_refuses_what_runs_or_has_ended(bench: Bench) -> None:
    """Each with its state, and the neighbours go on."""
    done, active = running(bench, result_ttl_ms=YEAR_MS), running(bench)
    bench.settle("complete", done)
    items = [NewPriority(id, 1) for id in (done.id, active.id, NewJob().id)]
    expected = ["EMQSTATE done", "EMQSTATE active", "EMQGONE"]
    assert changes(bench, lambda: bench.on("reprioritise", *items)) == (expected, set())
    assert bench.on("reprioritise", items[0], NewPriority(bench.add(), 1)) == ["EMQSTATE done", "ok"]


@pytest.mark.parametrize("bad", ["", "x", "0.5", "nan", "2048", "-2048", "1e300"])
def test_reprioritise_refuses_what_is_no_priority(bench: Bench, bad: str) -> None:
    """Before any write."""
    id = bench.add()
    answer, changed = changes(bench, lambda: bench.worker.bare("reprioritise", id, bad))
    assert (answer, changed) == ([f"EMQKIND priority {bad}".encode()], set())


def test_reprioritise_never_puts_a_job_where_it_was_not(bench: Bench) -> None:
    """A row that says ready, and a set that lacks it: that is for `repair`."""
    id = bench.add()
    bench.server.zrem(bench.keys.pending, id)
    _, changed = changes(bench, lambda: bench.on("reprioritise", NewPriority(id, 1)), A=id)
    assert changed == {"job:A[priority] = 1", "event reprioritised A"}
    bench.torn = True


def test_reprioritise_sent_again_is_answered(bench: Bench) -> None:
    """Not run: it may have yet another one by now."""
    id = bench.add()
    bench.on("reprioritise", NewPriority(id, 1))
    bench.on("reprioritise", NewPriority(id, 2), driver=bench.other)
    answer, changed = changes(bench, lambda: [v.code for v in bench.producer.resend("reprioritise")])
    assert (answer, changed) == (["ok"], set())
