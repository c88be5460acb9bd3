"""`update`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from echomq.transitions import NewPayload
from tests.lua.watching import changes, running


@pytest.mark.parametrize("where", ["pending", "lane", "schedule", "dead"])
def test_update_changes_the_payload_alone(bench: Bench, where: str) -> None:
    """Wherever the job waits; pieces that the new one does not have go."""
    id = bench.add(
        payload=b"o" * 200, lane="a" if where == "lane" else None, delay_ms=YEAR_MS if where == "schedule" else None
    )
    if where == "dead":
        bench.bury(id)
    answer, changed = changes(bench, lambda: bench.on("update", NewPayload(id, b"n" * 65)), A=id)
    assert answer == ["ok"]
    assert changed == {
        "job:A[payload] = " + "n" * 64, "job:A[payload.1] = n", "job:A[payload.2] = nothing", "job:A[payload.3] = nothing",
        "event updated A",
    }  # fmt: skip


def test_update_takes_a_late_holder_away(bench: Bench) -> None:
    """It has seen another payload than the job has."""
    late = running(bench)
    bench.expire(late.id)
    bench.worker.plain("reap")
    answer, changed = changes(bench, lambda: bench.on("update", NewPayload(late.id, b"")), A=late.id)
    assert (answer, changed) == (["ok"], {"job:A[holder] = nothing", "event updated A"})


def test_update_refuses_what_runs_or_has_ended(bench: Bench) -> None:
    """Each with its state, and the neighbours go on."""
    done, active = running(bench, result_ttl_ms=YEAR_MS), running(bench)
    bench.settle("complete", done)
    items = [NewPayload(id, b"x") for id in (done.id, active.id, NewJob().id)]
    expected = ["EMQSTATE done", "EMQSTATE active", "EMQGONE"]
    assert changes(bench, lambda: bench.on("update", *items)) == (expected, set())
    assert bench.on("update", items[0], NewPayload(bench.add(), b"x")) == ["EMQSTATE done", "ok"]


def test_update_refuses_a_malformed_call(bench: Bench) -> None:
    """Whole."""
    id = bench.add()

    def malformed() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND malformed"):
            bench.worker.bare("update", id, b"x")

    assert changes(bench, malformed) == (None, set())


def test_update_sent_again_is_answered(bench: Bench) -> None:
    """Not run: the payload may be yet another one by now."""
    id = bench.add()
    bench.on("update", NewPayload(id, b"1"))
    bench.on("update", NewPayload(id, b"2"), driver=bench.other)
    answer, changed = changes(bench, lambda: [v.code for v in bench.producer.resend("update")])
    assert (answer, changed) == (["ok"], set())
