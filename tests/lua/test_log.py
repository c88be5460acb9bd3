"""`log`: the whole keyspace before and after."""

from __future__ import annotations

from echomq.conformance.bench import Bench
from echomq.transitions import LogLine
from tests.lua.watching import assert_fenced, changes, running


def test_log_appends_a_line(bench: Bench) -> None:
    """A list beside the row, whose size the row knows."""
    job = running(bench)
    answer, changed = changes(bench, lambda: bench.settle("log", job), A=job.id)
    assert (answer, changed) == ("ok", {"job:A:log: 0 -> 1", "job:A[log_bytes] = 6", "job:A[log_lines] = 1"})
    assert bench.look().items(f"job:{job.id}:log") == ("line 0",)


def test_log_keeps_a_hundred_lines(bench: Bench) -> None:
    """The oldest go first, one for one."""
    job = running(bench)
    bench.on("log", *(LogLine(job.id, job.token, job.nonce, b"%03d" % n) for n in range(100)))
    assert len(bench.look().items(f"job:{job.id}:log")) == 100
    bench.on("log", LogLine(job.id, job.token, job.nonce, b"100"))
    lines = bench.look().items(f"job:{job.id}:log")
    assert (len(lines), lines[0], lines[-1]) == (100, "001", "100")
    assert bench.row(job.id)["log_bytes"] == "300"


def test_log_keeps_64_kib(bench: Bench) -> None:
    """A byte more, and the oldest line goes."""
    job = running(bench)
    half = b"x" * 32_768
    bench.on("log", *(LogLine(job.id, job.token, job.nonce, half) for _ in range(2)))
    assert len(bench.look().items(f"job:{job.id}:log")) == 2
    bench.on("log", LogLine(job.id, job.token, job.nonce, b"y"))
    assert [len(line) for line in bench.look().items(f"job:{job.id}:log")] == [32_768, 1]
    assert bench.row(job.id)["log_bytes"] == "32769"


def test_log_refuses_a_line_beyond_the_bound(bench: Bench) -> None:
    """It would push out all others, and itself."""
    job = running(bench)
    item = LogLine(job.id, job.token, job.nonce, b"x" * 65_537)
    answer, changed = changes(bench, lambda: bench.on("log", item))
    assert (answer, changed) == (["EMQKIND line of 65537 bytes, the limit is 65536"], set())


def test_log_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "log")
