"""`repair`: the whole keyspace before and after."""

from __future__ import annotations

import math

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.invariants import violations
from echomq.transitions import Look
from tests.lua.watching import changes, running
from tests.sample_calls import arguments_of


def test_repair_of_a_sound_queue_changes_nothing(bench: Bench) -> None:
    """Jobs, keys and lanes."""
    id = bench.add(lane="a", dedup="k")
    looks = [Look("job", id), Look("job", id, "b"), Look("dedup", "k"), Look("lane", "a"), Look("lane", "")]
    assert changes(bench, lambda: bench.on("repair", *looks)) == (["ok"] * 5, set())


def test_repair_puts_a_job_back(bench: Bench) -> None:
    """And rings for it."""
    id = bench.add(priority=2)
    bench.server.zrem(bench.keys.pending, id)
    bench.server.delete(bench.keys.wake)
    answer, changed = changes(bench, lambda: bench.on("repair", Look("job", id)), A=id)
    assert answer == ["mended pending"]
    assert changed == {"pending[A] = -2.0", "wake: 0 -> 1", "counts[mended] = 1", "event mended A"}


def test_repair_of_a_lost_lease_is_for_reap(bench: Bench) -> None:
    """The lease is over: whoever holds it is stalled, or completes in time."""
    job = running(bench, lane="a")
    bench.server.zrem(bench.keys.active, job.id)
    answer, changed = changes(bench, lambda: bench.on("repair", Look("job", job.id)), A=job.id)
    assert answer == ["mended active"]
    assert changed == {"active[A] = T", "lane:a:active[A] = T", "counts[mended] = 1", "event mended A"}
    assert bench.settle("complete", job) == "ok"


@pytest.mark.parametrize("state", [None, "", "lost", "wait"])
def test_repair_buries_a_row_without_a_state(bench: Bench, state: str | None) -> None:
    """Out of every set, with a reason to read."""
    job = running(bench, lane="a")
    bench.server.hdel(bench.keys.job(job.id), "state")
    if state is not None:
        bench.server.hset(bench.keys.job(job.id), "state", state)
    word = "no state" if state is None else state
    answer, changed = changes(bench, lambda: bench.on("repair", Look("job", job.id)), A=job.id)
    assert answer == [f"buried {word}".strip()]
    assert changed - {"job:A[since] = T"} == {
        "active: gone", "lane:a:active: gone", "dead[A] = T", "job:A[state] = dead", "job:A[kind] = dead",
        "job:A[reason] = torn: its row did not say where it belongs", "job:A[holder] = nothing", "counts[dead] = 1",
        "event dead A",
    }  # fmt: skip


def test_repair_drops_an_id_without_a_row(bench: Bench) -> None:
    """From a lane's sets, too, when it is said which."""
    id = bench.add(lane="a")
    bench.server.delete(bench.keys.job(id))
    bench.server.rpush(bench.keys.log(id), "a line")
    answer, changed = changes(bench, lambda: bench.on("repair", Look("job", id, "a")), A=id)
    assert answer == ["dropped 1"]
    assert changed - {"lanes: gone", "ring: gone"} == {
        "lane:a:pending: gone", "job:A:log: gone", "meta[laned] = 0", "counts[dropped] = 1", "event dropped A",
    }  # fmt: skip


def test_repair_takes_a_row_away_that_is_none(bench: Bench) -> None:
    """Nobody could ever read it."""
    id = bench.add()
    bench.server.delete(bench.keys.job(id))
    bench.server.set(bench.keys.job(id), "no hash")
    answer, changed = changes(bench, lambda: bench.on("repair", Look("job", id)), A=id)
    assert answer == ["dropped 1"]
    assert changed == {"pending: gone", "job:A: gone", "counts[dropped] = 1", "event dropped A"}


def test_repair_of_dedup_keys(bench: Bench) -> None:
    """One that names nobody goes; one that is owed is taken."""
    id = bench.add(dedup="mine")
    bench.server.delete(bench.keys.dedup("mine"))
    bench.server.set(bench.keys.dedup("lost"), "JOB00000000001")
    answer, changed = changes(bench, lambda: bench.on("repair", Look("job", id), Look("dedup", "lost")), A=id)
    assert answer == ["mended pending", "dropped key"]
    assert changed == {"dedup:mine = A", "dedup:lost: gone", "counts[mended] = 2", "event mended A"}


def test_repair_does_not_take_a_window_again_that_is_over(bench: Bench) -> None:
    """Its job lives on, and others with its key may come."""
    id = bench.add(dedup="k", dedup_window_ms=1000)
    bench.server.delete(bench.keys.dedup("k"))
    assert changes(bench, lambda: bench.on("repair", Look("job", id))) == (["ok"], set())


def test_repair_puts_a_lane_back(bench: Bench) -> None:
    """With its settings, and what a handler has said of it."""
    bench.set_lane("a", weight="3")
    bench.add(lane="a")
    bench.server.delete(bench.keys.ring, bench.keys.wake)
    answer, changed = changes(bench, lambda: bench.on("repair", Look("lane", "a")))
    assert (answer, changed) == (["mended lane"], {"ring: 0 -> 1", "wake: 0 -> 1", "counts[mended] = 1"})


def test_repair_keeps_a_lane_closed_that_a_handler_has_closed(bench: Bench) -> None:
    """It has no settings, only that word."""
    bench.add(lane="a"), bench.add(lane="a")
    bench.settle("rate_limited", bench.take(), 1)
    assert bench.worker.claim(1).jobs == []
    closed = bench.closed()
    assert list(closed) == ["a"]
    bench.server.delete(bench.keys.closed)
    assert bench.on("repair", Look("lane", "a")) == ["mended lane"]
    assert bench.closed() == closed


def test_repair_counts_the_jobs_in_lanes_anew(bench: Bench) -> None:
    """By the lane without a name."""
    bench.add(lane="a")
    bench.server.hset(bench.keys.meta, "laned", 17)
    answer, changed = changes(bench, lambda: bench.on("repair", Look("lane", "")))
    assert (answer, changed) == (["mended laned"], {"meta[laned] = 1", "counts[mended] = 1"})


def test_repair_refuses_what_it_does_not_know(bench: Bench) -> None:
    """An item; a malformed call whole."""
    looks = [Look("queue", "a"), Look("lane", "a{b")]  # type: ignore[arg-type]
    assert changes(bench, lambda: bench.on("repair", *looks)) == (["EMQKIND queue a", "EMQKIND lane a{b"], set())
    with pytest.raises(CallRefusedError, match="EMQKIND malformed"):
        bench.worker.bare("repair", "job", "a")


def test_repair_puts_a_schedule_where_its_slot_is(bench: Bench) -> None:
    """One that is not found by its slot fires no more; a slot without a definition would be told to every claim."""
    put = arguments_of("schedule_put") | {"name": "s", "slot_ms": bench.clock() + 60_000}
    bench.producer.plain("schedule_put", **put)
    look = Look("schedule", "s")
    assert changes(bench, lambda: bench.on("repair", look)) == (["ok"], set())
    bench.server.zrem(bench.keys.schedules, "s")
    bench.server.hdel(bench.keys.meta, "schedules")
    _, changed = changes(bench, lambda: bench.on("repair", look))
    assert {"schedules[s] = T", "meta[schedules] = 1", "counts[mended] = 1"} <= changed
    bench.producer.plain("schedule_pause", name="s", paused=True)
    bench.server.zadd(bench.keys.schedules, {"s": 5})
    assert bench.on("repair", look) == ["mended slot"]
    assert bench.look().zset("schedules") == {"s": math.inf}
    bench.server.delete(bench.keys.schedule_of("s"))
    assert bench.on("repair", look, look) == ["dropped slot", "ok"]
    assert "schedules" not in bench.look().hash("meta")
    assert violations(bench.look()) == []


def test_repair_buries_a_row_whose_token_cannot_be_read(bench: Bench) -> None:
    """A claim drops such a job: put back among the others it would be dropped again; redriven, it runs."""
    id = bench.add()
    bench.server.hset(bench.keys.job(id), "attempts", "many")
    assert bench.on("repair", Look("job", id)) == ["buried pending"]
    assert bench.on("redrive", id) == ["ok"]
    assert [job.token for job in bench.worker.claim(1).jobs] == [1]
    assert violations(bench.look()) == []
