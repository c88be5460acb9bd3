"""`age`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.transitions import Head, Heads
from tests.lua.watching import changes


def test_age_answers_the_job_next_in_turn(bench: Bench) -> None:
    """The id and how long it has been ready; nothing changes."""
    bench.add()
    first = bench.add(priority=1)
    bench.server.hset(bench.keys.job(first), "since", bench.clock() - 5000)
    answer, changed = changes(bench, lambda: bench.worker.plain("age"))
    assert isinstance(answer, Heads)
    assert (answer.pending.jobs, answer.pending.id) == (2, first)
    assert 5000 <= answer.pending.ms < 60_000
    assert changed == set()


def test_age_is_never_negative(bench: Bench) -> None:
    """A job that became ready in the future, because the clock stepped back, has no age."""
    id = bench.add()
    bench.server.hset(bench.keys.job(id), "since", bench.clock() + 60_000)
    assert bench.worker.plain("age").pending == Head(1, id, 0)


def test_age_of_an_empty_queue_is_none(bench: Bench) -> None:
    """Nothing is ready."""
    assert changes(bench, lambda: bench.worker.plain("age")) == (Heads(*[Head(0, None, 0)] * 6), set())
