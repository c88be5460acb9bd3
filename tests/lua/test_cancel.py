"""`cancel`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest
from tests.lua.watching import changes, running


def test_cancel_ends_a_pending_job(bench: Bench) -> None:
    """The row goes, its place, its dedup key; the event and the counter stay."""
    id = bench.add(dedup="k")
    answer, changed = changes(bench, lambda: bench.on("cancel", CancelRequest(id, "no")), A=id)
    assert answer == ["cancelled no"]
    assert changed == {"pending: gone", "job:A: gone", "dedup:k: gone", "counts[cancelled] = 1", "event cancelled A"}


def test_cancel_keeps_the_row_that_asked_for_it(bench: Bench) -> None:
    """On the done shelf, with kind and reason."""
    id = bench.add(delay_ms=YEAR_MS, result_ttl_ms=1000)
    _, changed = changes(bench, lambda: bench.on("cancel", CancelRequest(id, "no")), A=id)
    assert changed - {"job:A[since] = T"} == {
        "schedule: gone", "done[A] = T", "job:A[state] = done", "job:A[kind] = cancelled", "job:A[reason] = no",
        "counts[cancelled] = 1", "event cancelled A",
    }  # fmt: skip


def test_cancel_finds_a_job_by_its_dedup_key(bench: Bench) -> None:
    """Whatever id stands beside the key; nobody is gone."""
    id, other = bench.add(dedup="k"), bench.add()
    answer, changed = changes(bench, lambda: bench.on("cancel", CancelRequest(other, "no", dedup="k")), A=id)
    assert answer == ["cancelled no"]
    assert {"job:A: gone", "dedup:k: gone"} <= changed
    assert changes(bench, lambda: bench.on("cancel", CancelRequest("", "no", dedup="k"))) == (["EMQGONE"], set())


def test_cancel_asks_a_running_job(bench: Bench) -> None:
    """Only the request is written; the lease stays."""
    job = running(bench)
    answer, changed = changes(bench, lambda: bench.on("cancel", CancelRequest(job.id, "no")), A=job.id)
    assert answer == ["asked 1"]
    assert changed == {"job:A[cancel] = no", "event cancel_requested A"}


def test_cancel_refuses_what_has_ended(bench: Bench) -> None:
    """Gone, dead, done: nothing changes."""
    dead, done = running(bench), running(bench, result_ttl_ms=YEAR_MS)
    bench.settle("fail", dead)
    bench.settle("complete", done)
    items = [CancelRequest(id, "no") for id in (NewJob().id, dead.id, done.id)]
    assert changes(bench, lambda: bench.on("cancel", *items)) == (["EMQGONE", "EMQSTATE dead", "EMQSTATE done"], set())
