"""`read_settings`: what it answers; it changes nothing."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.transitions import Limits, RateLimit, Settings
from tests.lua.watching import changes


def test_read_settings_answers_what_was_set(bench: Bench) -> None:
    """And what holds where nothing was."""
    bench.configure(events="")
    seen, changed = changes(bench, lambda: bench.worker.plain("read_settings"))
    assert changed == set()
    assert isinstance(seen, Settings)
    assert seen == Settings(
        now_ms=seen.now_ms, events="failures", max_size=None, paused_ms=0, limits=Limits(), closed=(), again_ms=None
    )
    bench.configure(events="none", max_size="7", limit="3", rate="10 1000 5")
    bench.worker.plain("pause")
    seen = bench.worker.plain("read_settings")
    assert (seen.events, seen.max_size, seen.paused_ms > 0) == ("none", 7, True)
    assert seen.limits == Limits(limit=3, rate=RateLimit(count=10, per_ms=1000, burst=5))


def test_read_settings_says_why_nothing_may_start(bench: Bench) -> None:
    """And in how long that is looked at again."""
    bench.configure(limit="1", rate="1 60000 1")
    bench.add()
    bench.take()
    seen = bench.worker.plain("read_settings")
    assert seen.closed == ("rate", "limit")
    assert 59_000 < seen.again_ms <= 600_000
    bench.configure(limit="", rate="")
    seen = bench.worker.plain("read_settings")
    assert (seen.closed, seen.again_ms) == ((), None)
