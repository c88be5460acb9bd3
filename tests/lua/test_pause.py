"""`pause`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from tests.lua.watching import changes


def test_pause_writes_the_moment_once(bench: Bench) -> None:
    """Who pauses a paused queue changes nothing."""
    assert changes(bench, lambda: bench.worker.plain("pause")) == (True, {"meta[paused] = T", "event paused"})
    assert changes(bench, lambda: bench.other.plain("pause")) == (False, set())


def test_pause_makes_meta(bench: Bench) -> None:
    """A queue may be paused before its first job."""
    bench.server.delete(bench.keys.meta)
    _, changed = changes(bench, lambda: bench.worker.plain("pause"))
    assert changed == {"meta[paused] = T", "meta[protocol] = 1.0", "event paused"}
