"""`ring`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from tests.lua.watching import changes


def test_ring_pushes_a_token_for_ready_work(bench: Bench) -> None:
    """One, whatever is there."""
    bench.add()
    bench.add()
    assert changes(bench, lambda: bench.worker.plain("ring")) == (True, {"wake: 2 -> 3"})


def test_ring_is_silent_when_nothing_is_ready_or_the_queue_is_paused(bench: Bench) -> None:
    """Nothing changes."""
    assert changes(bench, lambda: bench.worker.plain("ring")) == (False, set())
    bench.add()
    bench.worker.plain("pause")
    assert changes(bench, lambda: bench.worker.plain("ring")) == (True, set())


def test_ring_never_goes_beyond_64_tokens(bench: Bench) -> None:
    """The list is bounded."""
    bench.add()
    for _ in range(70):
        bench.worker.plain("ring")
    assert bench.tokens() == 64
