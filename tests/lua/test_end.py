"""`end`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.items import YEAR_MS
from echomq.transitions import Ending
from tests.lua.watching import assert_fenced, changes, running


@pytest.mark.parametrize("kind", ["cancelled", "discarded"])
def test_end_retires_the_row(bench: Bench, kind: str) -> None:
    """As complete does, under another name."""
    job = running(bench, dedup="k")
    item = Ending(job.id, job.token, job.nonce, kind, "why")
    answer, changed = changes(bench, lambda: bench.on("end", item), A=job.id)
    assert answer == ["ok"]
    assert changed == {"active: gone", "job:A: gone", "dedup:k: gone", f"counts[{kind}] = 1", f"event {kind} A"}


def test_end_keeps_the_reason_for_who_asked(bench: Bench) -> None:
    """On the shelf."""
    job = running(bench, result_ttl_ms=YEAR_MS)
    bench.on("end", Ending(job.id, job.token, job.nonce, "discarded", "why"))
    row = bench.row(job.id)
    assert (row["state"], row["kind"], row["reason"], row.get("holder")) == ("done", "discarded", "why", None)


@pytest.mark.parametrize("kind", ["", "dead", "completed", "removed"])
def test_end_refuses_other_kinds(bench: Bench, kind: str) -> None:
    """Those have verbs of their own, or none."""
    job = running(bench)
    item = Ending(job.id, job.token, job.nonce, kind, "why")
    assert changes(bench, lambda: bench.on("end", item)) == ([f"EMQKIND kind {kind}".strip()], set())


def test_end_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "end")
