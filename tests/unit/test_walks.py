"""Walks without a server: which steps they want, at which pace, and what keys are."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest

from echomq import Rate
from echomq._walks import STEP, Ask, At, Each, Query, Rows, Tell, Wait, walk_set
from echomq.finding import find_walk
from echomq.morgue import Pacer, dead_walk
from echomq.protocol.ids import mint
from echomq.protocol.keys import QueueKeys
from echomq.protocol.refusals import Verdict
from echomq.repairs import scan_pattern, suspect
from echomq.sweeps import cancel_walk
from echomq.transitions import Call, Found, Look, Taken

KEYS = QueueKeys(queue="q")


class Set:
    """A sorted set that answers `find`."""

    def __init__(self, ids: list[str]) -> None:
        self.ids = ids

    def answer(self, step: Any) -> Found:
        """Answer a step as the script would."""
        assert isinstance(step, Ask)
        argv = step.build(Call("x" * 11)).argv
        offset, bound, reverse = int(argv[5]), int(argv[6]), argv[7] == 1
        ids = self.ids[::-1] if reverse else self.ids
        part = tuple(ids[offset : offset + bound])
        return Found(now_ms=0, total=len(self.ids), examined=len(part), ids=part)


def run(walk: Any, shelf: Set) -> Any:
    """Run a walk over one set."""
    answer = None
    while True:
        try:
            step = walk.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = shelf.answer(step)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("taken", ["all", "none", "half"])
def test_walk_meets_each_job_once_whatever_is_taken_out(taken: str, reverse: bool) -> None:
    """It moves on by what is still there."""
    every = [f"{n:05}" for n in range(3 * STEP + 7)]
    shelf = Set(list(every))
    met: list[str] = []

    def visit(ids: list[str]) -> Any:
        met.extend(ids)
        gone = set(ids if taken == "all" else () if taken == "none" else ids[::2])
        shelf.ids = [id for id in shelf.ids if id not in gone]
        return False
        yield

    assert run(walk_set(KEYS, Query(state="dead", reverse=reverse), visit), shelf) is False
    assert met == (every[::-1] if reverse else every)


def test_walk_against_the_order_misses_nothing_while_others_come_and_go() -> None:
    """Jobs are taken at the near end, and arrive at the far one: those that stay are all met."""
    every = [f"{n:05}" for n in range(1000)]
    shelf = Set(list(every))
    met: set[str] = set()

    def visit(ids: list[str]) -> Any:
        met.update(ids)
        shelf.ids = [*shelf.ids[50:], *(f"1{len(met):05}{n}" for n in range(20))]
        return False
        yield

    run(walk_set(KEYS, Query(state="pending", reverse=True), visit), shelf)
    stayed = set(every) & set(shelf.ids)
    assert len(stayed) >= 400
    assert met >= stayed


def test_walk_ends_though_others_add_as_fast() -> None:
    """After a number of steps that hangs on how many there were."""
    shelf = Set([f"{n:05}" for n in range(STEP)])
    steps = 0

    def visit(ids: list[str]) -> Any:
        nonlocal steps
        steps += 1
        shelf.ids = [*shelf.ids, *(f"1{steps:04}{n:04}" for n in range(2 * STEP))]
        return False
        yield

    run(walk_set(KEYS, Query(state="schedule"), visit), shelf)
    assert steps <= 8


def test_walk_ends_when_it_is_enough() -> None:
    """The visitor says so."""
    met: list[str] = []

    def visit(ids: list[str]) -> Any:
        met.extend(ids)
        return True
        yield

    assert run(walk_set(KEYS, Query(state="dead"), visit), Set([f"{n:05}" for n in range(2 * STEP)])) is True
    assert len(met) == STEP


@pytest.mark.parametrize(
    ("rate", "seconds", "most"),
    [(Rate(10), 3.0, 31), (Rate(10, burst=5), 3.0, 35), (Rate(1000), 1.0, 1001), (Rate(1, per=60), 130.0, 3)],
)
def test_pacer_keeps_the_rate(rate: Rate, seconds: float, most: int) -> None:
    """Never more than the rate allows, and nearly as many; at high rates some at once."""
    now, done, calls = 0.0, 0, 0
    pacer = Pacer(rate, lambda: now)
    while now <= seconds:
        wait = pacer.wait()
        if wait > 0:
            now += wait
            continue
        done += pacer.take(10_000)
        calls += 1
    assert most * 0.95 - 1 <= done <= most + (50 if rate.count == 1000 else 0)
    assert calls <= 40


def test_pacer_takes_no_more_than_are_wanted() -> None:
    """What was not taken is there later, up to the burst."""
    now = 0.0
    pacer = Pacer(Rate(10, burst=5), lambda: now)
    assert [pacer.wait(), pacer.take(2), pacer.take(100)] == [0.0, 2, 3]
    assert pacer.wait() == pytest.approx(0.1)
    now = 60.0
    assert pacer.take(100) == 5


def test_redrive_walk_waits_between_its_jobs() -> None:
    """A third of a second apart, and no more than the limit."""
    now = 0.0
    ids = [mint() for _ in range(5)]
    walk = dead_walk(KEYS, "redrive", {}, 3, Rate(3), lambda: now)
    wanted: list[Any] = []
    answer: Any = None
    done = 0
    while True:
        try:
            step = walk.send(answer)
        except StopIteration as stop:
            done = stop.value
            break
        answer = None
        match step:
            case Ask():
                answer = Found(now_ms=1000, total=5, examined=5, ids=tuple(ids))
            case Wait(seconds):
                now += seconds
                wanted.append(round(seconds, 3))
            case Tell(count):
                wanted.append(f"told {count}")
            case Each(items=items):
                wanted.append(len(items))
                answer = [Verdict("ok") for _ in items]
            case At(queue):
                wanted.append(f"outbox of {queue}")
                answer = Taken(next_ms=60_000, till="1.5", entries=())
    assert done == 3
    assert wanted == [1, "told 1", 0.333, 1, "told 2", 0.333, 1, "told 3", "outbox of q"]


def test_find_walk_reads_only_what_was_dead_at_its_beginning() -> None:
    """By the server's clock, the filter's age taken off."""
    walk = find_walk(KEYS, "dead", {"task": "t", "error": "x", "older": 2})
    next(walk)
    step = walk.send(Found(now_ms=10_000, total=1, examined=1, ids=()))
    assert isinstance(step, Ask)
    assert step.build(Call("x" * 11)).argv[8:] == ("t", "x", 8001)
    rows = walk.send(Found(now_ms=10_001, total=1, examined=1, ids=(mint(),)))
    assert isinstance(rows, Rows)


@pytest.mark.parametrize(
    ("filters", "error", "shown"),
    [
        ({"task": "a b"}, ValueError, "task"),
        ({"error": 5}, TypeError, "5"),
        ({"error": ""}, ValueError, "error"),
        ({"error": "x" * 1025}, ValueError, "1024"),
        ({"older": -1}, ValueError, "older: .*-1"),
        ({"older": "1h"}, TypeError, "older: .*1h"),
        ({"lane": "a"}, TypeError, "'lane'.*task, error, older"),
    ],
)
def test_filters_that_do_not_fit_are_refused(filters: Any, error: type[Exception], shown: str) -> None:
    """Before anything is sent."""
    with pytest.raises(error, match=shown):
        find_walk(KEYS, "dead", filters)
    with pytest.raises(error, match=shown):
        dead_walk(KEYS, "redrive", filters, None, None, lambda: 0.0)


def test_limits_of_a_redrive_are_checked() -> None:
    """A number of 1 or more, a rate that is one."""
    for limit in (0, -1, True, 1.5, "3"):
        with pytest.raises(ValueError, match="limit"):
            dead_walk(KEYS, "redrive", {}, limit, None, lambda: 0.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Rate\(5\)"):
        dead_walk(KEYS, "redrive", {}, None, 5, lambda: 0.0)  # type: ignore[arg-type]


def test_cancelling_needs_a_task_or_a_lane() -> None:
    """Nobody means all jobs of a queue by saying nothing."""
    with pytest.raises(ValueError, match="a task, a lane, or both"):
        cancel_walk(KEYS, task=None, lane=None, reason="")
    with pytest.raises(ValueError, match="task"):
        cancel_walk(KEYS, task="", lane=None, reason="")
    with pytest.raises(ValueError, match="lane"):
        cancel_walk(KEYS, task=None, lane="{}", reason="")
    with pytest.raises(ValueError, match="reason"):
        cancel_walk(KEYS, task="t", lane=None, reason="x" * 1025)


def test_keys_are_told_by_their_names() -> None:
    """Rows and their logs, sets, dedup keys, what is the queue's own, and what is nobody's."""
    id = mint()
    assert [suspect(f"job:{id}"), suspect(f"job:{id}:log")] == [Look("job", id)] * 2
    assert suspect("dedup:a:b") == Look("dedup", "a:b")
    for name in ("pending", "dead", "lane:a:b:pending", "lane:Zoë:active"):
        assert suspect(name) == name
    for name in (
        "meta",
        "wake",
        "counts",
        "events",
        "lanes",
        "ring",
        "closed",
        "once:x:claim",
        "schedules",
    ):
        assert suspect(name) is None
    assert suspect("schedule:s") == Look("schedule", "s")
    for name in ("job:", "job:short", "dedup:", "lane:a", "lane:a:other", "stranger", "once:", "", "worker:"):
        with pytest.raises(ValueError, match=r".*"):
            suspect(name)


@pytest.mark.parametrize("queue", ["q", "a.b-c_d"])
def test_pattern_fits_the_queues_keys_alone(queue: str) -> None:
    """What a pattern reads as more than itself is escaped."""
    keys = QueueKeys(prefix="emq", queue=queue)
    assert scan_pattern(keys) == f"emq:{{{queue}}}:*"
    assert fnmatch.fnmatchcase(keys.meta, scan_pattern(keys))
