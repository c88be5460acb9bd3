"""`read_job`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.protocol.records import NewJob
from tests.lua.watching import changes, running


def test_read_job_answers_row_place_and_log(bench: Bench) -> None:
    """The log only if asked; nothing changes."""
    job = running(bench, payload=b"x" * 200)
    bench.settle("log", job)
    full, changed = changes(bench, lambda: bench.worker.plain("read_job", job.id, with_log=True))
    assert changed == set()
    assert full.record.payload == b"x" * 200  # type: ignore[attr-defined]
    assert full.score == bench.score("active", job.id)  # type: ignore[attr-defined]
    assert full.log == ("line 0",)  # type: ignore[attr-defined]
    assert bench.worker.plain("read_job", job.id).log == ()


def test_read_job_of_an_absent_job_is_none(bench: Bench) -> None:
    """Finished, or never existed."""
    assert changes(bench, lambda: bench.worker.plain("read_job", NewJob().id)) == (None, set())


def test_read_job_shows_a_torn_row(bench: Bench) -> None:
    """A row in no set has no score."""
    bench.torn = True
    id = bench.add()
    bench.server.zrem(bench.keys.pending, id)
    assert bench.worker.plain("read_job", id).score is None
