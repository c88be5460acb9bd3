"""`schedule_put`, `schedule_pause`, `schedule_remove`, `read_schedules`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.scheduling import AHEAD, PAST, Schedules, later
from echomq.transitions import ScheduleState
from tests.lua.watching import changes

GOOD: tuple[str | int, ...] = ("s", "d", "{}", "", "allow", AHEAD, 0, "", "", 0)


@pytest.fixture
def schedules(bench: Bench) -> Schedules:
    """Puts schedules on the bench's queue."""
    return Schedules(bench)


def test_schedule_put_writes_definition_slot_and_mark(bench: Bench, schedules: Schedules) -> None:
    """And rings, for its slot is the nearest."""
    answer, changed = changes(bench, lambda: schedules.put(origin="app", task="t", payload=b"x", deadline="+5000"))
    assert answer == "created"
    assert changed == {
        "schedule:s[digest] = d", "schedule:s[spec] = {}", "schedule:s[origin] = app", "schedule:s[overlap] = allow",
        "schedule:s[priority] = 0", "schedule:s[ends] = 0 +5000", "schedule:s[lane] = ", "schedule:s[f:task] = t",
        "schedule:s[f:payload] = x", f"schedule:s[slot] = {AHEAD}", f"schedules[s] = {float(AHEAD)}",
        "meta[schedules] = 1", "wake: 0 -> 1",
    }  # fmt: skip


def test_schedule_put_of_the_same_changes_nothing(bench: Bench, schedules: Schedules) -> None:
    """Whatever else is said beside the digest; but whoever says it owns it, unless it is a person."""
    schedules.put()
    assert changes(bench, lambda: schedules.put(slot=later(9), payload=b"y")) == ("same", set())
    assert changes(bench, lambda: schedules.put(slot=later(9), origin="x")) == ("same", {"schedule:s[origin] = x"})
    assert changes(bench, lambda: schedules.put(slot=later(9))) == ("same", set())
    schedules.put(digest="e", payload=b"y")
    assert schedules.stands()["origin"] == "x"


def test_schedule_put_of_another_takes_the_old_fields_away(bench: Bench, schedules: Schedules) -> None:
    """But for what the schedule has done."""
    schedules.put(task="t", overlap="skip")
    schedules.comes()
    schedules.fire("s", PAST)
    answer, changed = changes(bench, lambda: schedules.put(digest="e", slot=later(1), overlap="skip"))
    assert answer == "changed"
    assert changed - {"wake: 1 -> 2"} == {
        "schedule:s[digest] = e", "schedule:s[f:task] = nothing", f"schedule:s[slot] = {later(1)}",
        f"schedules[s] = {float(later(1))}",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("at", "bad"),
    [
        *((0, name) for name in ("", "a b", "a/b", "a{b}", "x" * 129)),
        *((5, slot) for slot in ("", "x", "-1", "0.5", "nan", "1e300")),
        *((9, count) for count in ("", "x", "-1", "1", "65")),
        (4, "sometimes"), (6, "2048"), (6, "x"), (7, "0 0"), (7, "5"), (8, "a{b"), (8, "x" * 129),
    ],
)  # fmt: skip
def test_schedule_put_refuses_what_is_malformed(bench: Bench, at: int, bad: str) -> None:
    """Whole, before any write."""
    argv = list(GOOD)
    argv[at] = bad

    def put() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND"):
            bench.producer.bare("schedule_put", *argv)

    assert changes(bench, put) == (None, set())


def test_schedule_put_takes_every_name_that_may_be(bench: Bench, schedules: Schedules) -> None:
    """Colons, too: there is nothing behind the name."""
    name = "aZ09._:-" * 16
    assert schedules.put(name) == "created"
    schedules.comes(name)
    assert schedules.fire(name, PAST) == ["admitted"]
    assert schedules.remove(name) == "ok"


def test_schedule_pause_and_resume_move_the_slot_out_and_in(bench: Bench, schedules: Schedules) -> None:
    """The definition keeps its slot meanwhile."""
    schedules.put()
    answer, changed = changes(bench, schedules.pause)
    assert (answer, changed) == ("ok", {"schedule:s[paused] = T", "schedules[s] = inf"})
    assert changes(bench, schedules.pause) == ("same", set())
    answer, changed = changes(bench, lambda: schedules.resume(slot=later(2)))
    assert (answer, changed - {"wake: 1 -> 2"}) == (
        "ok",
        {"schedule:s[paused] = nothing", f"schedule:s[slot] = {later(2)}", f"schedules[s] = {float(later(2))}"},
    )
    assert changes(bench, lambda: schedules.resume(slot=later(3))) == ("same", set())


def test_schedule_pause_refuses(bench: Bench, schedules: Schedules) -> None:
    """No schedule, another definition, a slot that is over; each changes nothing."""
    schedules.put()
    schedules.pause()
    assert changes(bench, lambda: schedules.pause("t")) == ("EMQGONE", set())
    for options in ({"digest": "e"}, {"slot": PAST}):
        answer, changed = changes(bench, lambda options=options: schedules.resume(**options))  # type: ignore[misc]
        assert (str(answer).split()[0], changed) == ("EMQSTALE", set())
    with pytest.raises(CallRefusedError, match="EMQKIND slot"):
        bench.producer.bare("schedule_pause", "s", 0, "d", "never")


def test_schedule_remove_leaves_the_jobs(bench: Bench, schedules: Schedules) -> None:
    """And nothing of the schedule."""
    schedules.put()
    schedules.comes()
    schedules.fire("s", PAST)
    answer, changed = changes(bench, schedules.remove)
    assert (answer, changed) == ("ok", {"schedule:s: gone", "schedules: gone", "meta[schedules] = nothing"})
    assert changes(bench, schedules.remove) == ("EMQGONE", set())
    assert bench.take().record.schedule == "s"


def test_read_schedules_answers_them_whole(bench: Bench, schedules: Schedules) -> None:
    """And changes nothing."""
    schedules.put(overlap="queue", lane="a", priority=3, spec=b"spec", origin="app", payload=b"x" * 100, expires="+5")
    page, changed = changes(bench, lambda: bench.worker.plain("read_schedules"))
    assert changed == set()
    assert page.total == 1  # type: ignore[attr-defined]
    (seen,) = page.schedules  # type: ignore[attr-defined]
    assert seen == ScheduleState(
        name="s", spec=b"spec", digest="d", origin="app", overlap="queue", slot_ms=AHEAD, count=0, skipped=0,
        paused_ms=0, last_id="", last_slot_ms=0, open_ids=(), priority=3, lane="a", ends="+5 0", row=seen.row,
    )  # fmt: skip
    assert seen.payload == b"x" * 100


def test_read_schedules_of_a_queue_without_any(bench: Bench) -> None:
    """No page, no due ones, none by that name."""
    for options in ({}, {"due": True}, {"names": ("s",)}):
        page = bench.worker.plain("read_schedules", **options)
        assert (page.total, page.schedules) == (0, ())
