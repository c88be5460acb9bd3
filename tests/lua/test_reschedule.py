"""`reschedule`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from echomq.transitions import NewTime
from tests.lua.watching import changes, running


def test_reschedule_puts_a_pending_job_off(bench: Bench) -> None:
    """From set to set, and the timer is told."""
    id = bench.add(priority=2)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: bench.on("reschedule", NewTime(id, "+60000")), A=id)
    assert answer == ["ok"]
    assert changed - {"job:A[since] = T"} == {
        "pending: gone", "schedule[A] = T", "job:A[state] = schedule", "wake: 0 -> 1", "event rescheduled A",
    }  # fmt: skip


def test_reschedule_for_now_makes_a_job_ready(bench: Bench) -> None:
    """In its lane, with its priority."""
    id = bench.add(lane="a", priority=2, delay_ms=YEAR_MS)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: bench.on("reschedule", NewTime(id, "0")), A=id)
    assert answer == ["ok"]
    assert changed - {"job:A[since] = T"} == {
        "schedule: gone", "lane:a:pending[A] = -2.0", "job:A[state] = pending", "lanes[a] = r0", "ring: 0 -> 1",
        "meta[laned] = 1", "wake: 0 -> 1", "event rescheduled A",
    }  # fmt: skip


def test_reschedule_of_a_scheduled_job_moves_its_score_alone(bench: Bench) -> None:
    """It stays where it is; a later time rings for nobody."""
    id = bench.add(delay_ms=60_000)
    answer, changed = changes(bench, lambda: bench.on("reschedule", NewTime(id, "99999999999999")), A=id)
    assert answer == ["ok"]
    assert changed == {"schedule[A] = 99999999999999.0", "event rescheduled A"}


def test_reschedule_of_a_ready_job_for_now_takes_its_late_holder_away(bench: Bench) -> None:
    """It changes nothing else."""
    late = running(bench)
    bench.expire(late.id)
    bench.worker.plain("reap")
    answer, changed = changes(bench, lambda: bench.on("reschedule", NewTime(late.id, "1")), A=late.id)
    assert (answer, changed) == (["ok"], {"job:A[holder] = nothing", "event rescheduled A"})


def test_reschedule_refuses_what_does_not_wait(bench: Bench) -> None:
    """Each with its state, and the neighbours go on."""
    done, dead, active = running(bench, result_ttl_ms=YEAR_MS), running(bench), running(bench)
    bench.settle("complete", done)
    bench.settle("fail", dead)
    items = [NewTime(id, "+5") for id in (done.id, dead.id, active.id, NewJob().id)]
    expected = ["EMQSTATE done", "EMQSTATE dead", "EMQSTATE active", "EMQGONE"]
    assert changes(bench, lambda: bench.on("reschedule", *items)) == (expected, set())
    assert bench.on("reschedule", items[0], NewTime(bench.add(), "+5")) == ["EMQSTATE done", "ok"]


@pytest.mark.parametrize("bad", ["", "x", "-1", "0.5", "nan", "1e300", "+", "+-1", "+x", "+3162240000001"])
def test_reschedule_refuses_what_is_no_moment(bench: Bench, bad: str) -> None:
    """Before any write."""
    id = bench.add()
    assert changes(bench, lambda: bench.on("reschedule", NewTime(id, bad))) == ([f"EMQKIND due {bad}".strip()], set())


def test_reschedule_sent_again_is_answered(bench: Bench) -> None:
    """Not run: the job may have been put off once more meanwhile."""
    id = bench.add(delay_ms=YEAR_MS)
    bench.on("reschedule", NewTime(id, "0"))
    bench.on("reschedule", NewTime(id, "+60000"), driver=bench.other)
    answer, changed = changes(bench, lambda: [v.code for v in bench.producer.resend("reschedule")])
    assert (answer, changed) == (["ok"], set())
