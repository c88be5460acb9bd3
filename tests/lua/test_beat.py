"""`beat` and `read_workers`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.transitions import Pulse
from tests.lua.rights import Ground
from tests.lua.watching import changes

PULSE = Pulse(name="w", host="h", pid=7, up_ms=5, concurrency=9, running=0, jobs=())


def test_beat_writes_what_goes_by_itself(bench: Bench) -> None:
    """Two keys with a time to live, also in a queue that never had a job; nothing else."""
    answer, changed = changes(bench, lambda: bench.worker.plain("beat", pulse=PULSE))
    assert answer is True
    fields = {
        "name": "w",
        "host": "h",
        "pid": "7",
        "concurrency": "9",
        "running": "0",
        "jobs": "[]",
        "since": "T",
        "beat": "T",
    }
    assert changed == {"workers[WORKER] = T", *(f"worker:WORKER[{name}] = {value}" for name, value in fields.items())}
    entries = bench.look().entries
    assert all(entries[suffix].ttl for suffix in entries if suffix.startswith("worker"))


def test_beat_without_a_pulse_takes_all_back(bench: Bench) -> None:
    """Only its own."""
    bench.worker.plain("beat", pulse=PULSE)
    bench.other.plain("beat", pulse=PULSE)
    answer, changed = changes(bench, lambda: bench.worker.plain("beat", pulse=None))
    assert (answer, changed) == (False, {"workers[WORKER] = nothing", "worker:WORKER: gone"})


@pytest.mark.parametrize("ttl", [-1, 0.5, 600_001, "x"])
def test_beat_refuses_what_is_no_time(bench: Bench, ttl: object) -> None:
    """Before any write."""

    def malformed() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND beat"):
            bench.worker.bare("beat", str(ttl), "w", "h", 1, 1, 1, 1, "[]")

    assert changes(bench, malformed) == (None, set())


@pytest.mark.parametrize("command", ["pexpire", "zadd", "hset", "zrem", "del"])
def test_beat_without_a_right_leaves_nothing_that_stays(ground: Ground, command: str) -> None:
    """Whatever the server refuses in the middle of it."""
    limited = ground.lacking(command)
    for pulse in (PULSE, PULSE, None):
        ground.attempt(lambda pulse=pulse: limited.plain("beat", pulse=pulse))  # type: ignore[misc]
    for key in ground.admin.scan_iter(f"{ground.keys.base}worker*"):
        assert ground.admin.pttl(key) > 0, f"{key!r} stays, without {command}"


def test_read_workers_answers_what_they_said(bench: Bench) -> None:
    """And changes nothing."""
    bench.worker.plain("beat", pulse=PULSE)
    page, changed = changes(bench, lambda: bench.producer.plain("read_workers"))
    assert changed == set()
    ((tag, said),) = page.workers  # type: ignore[attr-defined]
    assert (tag, said[b"name"]) == (bench.worker.tag, b"w")


@pytest.mark.parametrize("page", [(-1, 1), (0, 0), (0, 257), ("x", 1)])
def test_read_workers_refuses_what_is_no_page(bench: Bench, page: tuple[object, object]) -> None:
    """Before it looks."""
    with pytest.raises(CallRefusedError, match="EMQKIND read_workers"):
        bench.worker.bare("read_workers", *map(str, page))
