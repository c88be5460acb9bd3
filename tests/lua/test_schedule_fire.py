"""`schedule_fire`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.items import YEAR_MS
from echomq.conformance.scheduling import AHEAD, PAST, Schedules
from echomq.protocol.ids import mint
from echomq.transitions import Firing
from tests.lua.watching import changes


@pytest.fixture
def due(bench: Bench) -> Schedules:
    """A schedule whose slot has come."""
    schedules = Schedules(bench)
    schedules.put(overlap="skip", task="t", payload=b"x", priority=2)
    schedules.comes()
    bench.server.delete(bench.keys.wake)
    return schedules


def test_schedule_fire_makes_the_job_and_moves_the_slot(bench: Bench, due: Schedules) -> None:
    """One call, one job; the row knows where it comes from."""
    job = Firing(id=mint(), slot_ms=PAST, due_ms=PAST)
    answer, changed = changes(bench, lambda: due.fire("s", job), A=job.id)
    assert answer == ["admitted"]
    assert changed == {
        "pending[A] = -2.0", "job:A[state] = pending", "job:A[since] = T", "job:A[by] = PRODUCER", "job:A[task] = t",
        "job:A[payload] = x", "job:A[priority] = 2", "job:A[schedule] = s", f"job:A[slot] = {PAST}",
        f"schedule:s[slot] = {AHEAD}", f"schedules[s] = {float(AHEAD)}", "schedule:s[count] = 1",
        "schedule:s[last_id] = A", f"schedule:s[last_slot] = {PAST}", "schedule:s[open] = A", "wake: 0 -> 1",
        "event enqueued A",
    }  # fmt: skip


def test_schedule_fire_skips_while_the_last_job_is_open(bench: Bench, due: Schedules) -> None:
    """The slot moves on all the same."""
    due.fire("s", PAST)
    due.comes()
    answer, changed = changes(bench, lambda: due.fire("s", PAST + 1))
    assert answer == ["skipped"]
    assert changed - {"wake: 1 -> 2"} == {
        f"schedule:s[slot] = {AHEAD}", f"schedules[s] = {float(AHEAD)}", "schedule:s[skipped] = 1",
        "counts[skipped] = 1", "event skipped",
    }  # fmt: skip


def test_schedule_fire_of_no_slot_runs_now(bench: Bench, due: Schedules) -> None:
    """And moves none, not even one that has come."""
    job = Firing(id=mint(), slot_ms=7, due_ms=7)
    answer, changed = changes(bench, lambda: due.fire("s", job, slot=0, next_slot=0), A=job.id)
    assert answer == ["admitted"]
    assert not {line for line in changed if "slot] = 9" in line or "schedules" in line or "count" in line}
    assert due.stands()["slot"] == str(PAST)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"slot": PAST + 1}, f"EMQSTALE slot {PAST}"),
        ({"digest": "e"}, f"EMQSTALE slot {PAST}"),
        ({"next_slot": PAST}, "EMQSTALE next"),
        ({"next_slot": PAST + 1}, "EMQSTALE next"),
    ],
)
def test_schedule_fire_refuses_what_others_have_done(
    bench: Bench, due: Schedules, how: dict[str, int | str], words: str
) -> None:
    """Nothing changes: somebody else's fire stands."""

    def fire() -> None:
        with pytest.raises(CallRefusedError, match=words):
            due.fire("s", PAST, **how)  # type: ignore[arg-type]

    assert changes(bench, fire) == (None, set())


@pytest.mark.parametrize("what", ["paused", "gone", "closing", "full", "collision"])
def test_schedule_fire_refuses_what_cannot_be(bench: Bench, due: Schedules, what: str) -> None:
    """And keeps the slot."""
    job = Firing(id=mint(), slot_ms=PAST, due_ms=PAST)
    words = {"paused": "EMQSTALE slot paused", "gone": "EMQGONE", "closing": "EMQSTATE closing", "full": "EMQFULL 1"}
    match what:
        case "paused":
            due.pause()
        case "gone":
            due.remove()
        case "closing":
            bench.server.hset(bench.keys.meta, "closing", 1)
        case "full":
            bench.configure(max_size="1")
            bench.add()
        case _:
            job = Firing(id=bench.add(), slot_ms=PAST, due_ms=PAST)

    def fire() -> None:
        with pytest.raises(CallRefusedError, match=words.get(what, f"EMQSTATE collision {job.id}")):
            due.fire("s", job)

    assert changes(bench, fire) == (None, set())
    assert what == "gone" or due.stands()["slot"] == str(PAST)


@pytest.mark.parametrize(
    "argv",
    [
        [], ["s"], ["s", "d", PAST], ["s", "d", "x", AHEAD], ["s", "d", PAST, "x"], ["s", "d", -1, AHEAD],
        ["s", "d", PAST, AHEAD, "id"], ["s", "d", PAST, AHEAD, "id", 1], ["s", "d", PAST, AHEAD, "id", "x", 1],
        ["s", "d", PAST, AHEAD, "id", 1, "x"], ["s", "d", PAST, AHEAD, *(word for _ in range(101) for word in ("id", 1, 1))],
    ],
    ids=str,
)  # fmt: skip
def test_schedule_fire_refuses_a_malformed_call(bench: Bench, due: Schedules, argv: list[str | int]) -> None:
    """Whole, before any write."""
    assert due.stands()

    def fire() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND"):
            bench.producer.bare("schedule_fire", *argv)

    assert changes(bench, fire) == (None, set())


def test_schedule_fire_sent_again_makes_no_second_job(bench: Bench, due: Schedules) -> None:
    """Also of a run-now, whose job has ended meanwhile."""
    due.fire("s", PAST, slot=0, next_slot=0)
    bench.settle("complete", bench.take())
    answer, changed = changes(bench, lambda: [v.code for v in bench.producer.resend("schedule_fire")])
    assert (answer, changed) == (["admitted"], set())


def test_schedule_fire_of_a_lane_settles_the_rota(bench: Bench) -> None:
    """The queue's first lane may come by a schedule."""
    schedules = Schedules(bench)
    schedules.put(lane="a")
    schedules.comes()
    late = Firing(id=mint(), slot_ms=PAST + 1, due_ms=bench.clock() + YEAR_MS)
    assert schedules.fire("s", PAST, late) == ["admitted", "admitted"]
    assert (bench.ring(), bench.look().hash("meta")["laned"]) == (["a"], "1")
    assert list(bench.look().zset("schedule")) == [late.id]


def test_schedule_fire_counts_a_jobs_time_from_when_it_may_run(bench: Bench) -> None:
    """Its jitter is no part of it."""
    schedules = Schedules(bench)
    schedules.put(expires="+1000", deadline="+2000")
    schedules.comes()
    due = bench.clock() + 60_000
    assert schedules.fire("s", Firing(id=mint(), slot_ms=PAST, due_ms=due)) == ["admitted"]
    [(_, row)] = schedules.made()
    assert (row["expires_ms"], row["deadline_ms"]) == (str(due + 1000), str(due + 2000))
