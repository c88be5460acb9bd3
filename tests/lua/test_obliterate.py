"""`obliterate`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError, connect
from echomq.conformance.scheduling import Schedules
from echomq.protocol.records import NewJob
from echomq.transitions import Obliteration
from tests.lua.watching import changes, running


def test_obliterate_closes_the_queue_and_erases_up_to_its_bound(bench: Bench) -> None:
    """The ready ones first; nothing is told of them, and nothing counted."""
    ids = [bench.add() for _ in range(3)]
    answer, changed = changes(
        bench, lambda: bench.worker.plain("obliterate", bound=2, force=True), A=ids[0], B=ids[1], C=ids[2]
    )
    assert answer == Obliteration(jobs=2, keys=0, left=1)
    gone = {line for letter in "AB" for line in (f"pending[{letter}] = nothing", f"job:{letter}: gone")}
    assert changed == gone | {"meta[closing] = T"}
    bench.worker.plain("resume")


@pytest.mark.parametrize("running_now", [False, True])
def test_obliterate_asks_for_a_pause_and_for_peace(bench: Bench, running_now: bool) -> None:
    """It is refused, and changes nothing."""
    bench.add()
    if running_now:
        bench.take()
        bench.worker.plain("pause")

    def obliterate() -> None:
        with pytest.raises(CallRefusedError, match="EMQSTATE active 1" if running_now else "EMQSTATE running"):
            bench.worker.plain("obliterate")

    assert changes(bench, obliterate) == (None, set())


def test_obliterate_leaves_nothing(bench: Bench) -> None:
    """Of jobs in every state, lanes, keys, schedules and the queue itself."""
    for lane in (None, "a"):
        for verb in ("complete", "fail", "log"):
            bench.settle(verb, running(bench, lane=lane, dedup=f"{verb} {lane}", result_ttl_ms=60_000))
        bench.add(lane=lane, delay_ms=60_000)
        bench.add(lane=lane)
    Schedules(bench).put()
    bench.set_lane("idle", weight="3")
    jobs = len(list(bench.look().rows()))
    assert bench.ground.obliterate(bench.other, 3) == jobs
    assert [suffix for suffix, entry in bench.look().entries.items() if not entry.ttl] == []


def test_obliterate_removes_names_when_no_job_is_left(bench: Bench) -> None:
    """Not before, and never `meta`."""
    bench.add()
    bench.server.set(bench.keys.base + "stray", "x")
    names = ["stray", "meta"]
    assert bench.worker.plain("obliterate", bound=1, force=True, names=names).keys == 1
    bench.worker.plain("resume")
    bench.on("enqueue", NewJob(), NewJob())
    bench.server.set(bench.keys.base + "stray", "x")
    assert bench.worker.plain("obliterate", bound=1, force=True, names=names, last=True).keys == 0
    assert "closing" in bench.look().hash("meta")
    bench.server.delete(bench.keys.base + "stray")
    bench.worker.plain("resume")


@pytest.mark.parametrize("lanes", [1, 65, 700])
def test_obliterate_gets_through_any_number_of_lanes(bench: Bench, lanes: int) -> None:
    """Each round goes on, also when hardly any are left of a large hash."""
    for at in range(0, lanes, 200):
        bench.on("enqueue", *(NewJob(lane=f"{n}") for n in range(at, min(lanes, at + 200))))
    assert bench.ground.obliterate(bench.other, 100) == lanes
    assert [suffix for suffix, entry in bench.look().entries.items() if not entry.ttl] == []


def test_obliterate_gets_through_many_lanes_on_redis_7(redis7_url: str) -> None:
    """Whose hashes stay large when little is left of them: a scan from nought would find nothing any more."""
    with connect(redis7_url) as server:
        b = Bench(server, prefix="emq-lua")
        for at in range(0, 3000, 200):
            b.on("enqueue", *(NewJob(lane=f"{n}") for n in range(at, at + 200)))
        assert b.ground.obliterate(b.other, 1000) == 3000
        b.ground.clear()


@pytest.mark.parametrize("argv", [[0, 0, 0], [1001, 0, 0], ["x", 0, 0], [], [1, 1, 0, *["n"] * 257]], ids=str)
def test_obliterate_refuses_what_is_malformed(bench: Bench, argv: list[str | int]) -> None:
    """Whole, before any write."""

    def obliterate() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND"):
            bench.worker.bare("obliterate", *argv)

    assert changes(bench, obliterate) == (None, set())
