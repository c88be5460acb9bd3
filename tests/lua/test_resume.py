"""`resume`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from tests.lua.watching import changes


def test_resume_lifts_pause_and_closing_and_rings(bench: Bench) -> None:
    """A token for each ready job; who resumes a running queue changes nothing but the bell."""
    bench.worker.plain("pause")
    bench.server.hset(bench.keys.meta, "closing", "1")
    answer, changed = changes(bench, lambda: bench.worker.plain("resume"))
    assert (answer, changed) == (True, {"meta[paused] = nothing", "meta[closing] = nothing", "event resumed"})
    assert changes(bench, lambda: bench.other.plain("resume")) == (False, set())


def test_resume_rings_for_at_most_64(bench: Bench) -> None:
    """However many jobs are ready."""
    bench.worker.plain("pause")
    for _ in range(70):
        bench.add()
    _, changed = changes(bench, lambda: bench.worker.plain("resume"))
    assert changed == {"meta[paused] = nothing", "event resumed", "wake: 0 -> 64"}
