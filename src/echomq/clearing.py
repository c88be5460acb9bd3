"""Clearing away what waits, or is kept: `drain` and `trim`, in bounded rounds.

Theory of operation
    A drain goes the way that jobs go: what is scheduled, if that is asked for, then what is ready, so that a job whose
    time comes meanwhile is met at its next place. Of each lane as many jobs go as it had when its turn came, of the
    schedule those that stood there at the start: so it ends, also while others enqueue.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from echomq._delivery import news_walk
from echomq._walks import Ask, Each, Once, Outcomes, Query, Tell, Walk, walk_lanes, walk_set
from echomq.errors import EchoMQError
from echomq.limits import MAX_KEPT
from echomq.protocol._convert import shown
from echomq.protocol.refusals import GONE, STATE
from echomq.protocol.times import to_ms
from echomq.transitions import MAX_ROUND, Counts, counts, drain, read_lanes, trim

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Call, Found, LanePage, LaneState, Transition


def drain_walk(keys: QueueKeys, *, lane: str | None = None, scheduled: bool = False) -> Walk[int]:
    """Answer the walk that removes what waits, of a lane or of all; see `Queue.drain`."""
    total = 0

    def empty(each: LaneState) -> Walk[bool]:
        nonlocal total
        left = each.pending
        while left > 0:
            bound = min(left, MAX_ROUND)
            removed: int = yield Once("drain", _round(keys, each.name, bound))
            left -= removed
            total += removed
            if removed:
                yield Tell(total)
            if removed < bound:
                break
        return False

    def remove(ids: list[str]) -> Walk[bool]:
        nonlocal total
        before = total
        outcomes: Outcomes = yield Each("remove", ids)
        for id, outcome in zip(ids, outcomes, strict=True):
            if isinstance(outcome, EchoMQError):
                raise outcome
            if outcome.code == "ok":
                total += 1
            elif outcome.code not in {GONE, STATE}:  # else it runs by now, or has ended
                raise outcome.error(id=id, queue=keys.queue) or EchoMQError(outcome.code)
        if total > before:
            yield Tell(total)
        return False

    if scheduled:
        start: Found = yield Query(state="schedule").step(keys, 0, 1)
        query = Query(
            state="schedule", lane=lane or "", of_lane=lane is not None, reverse=True, before_ms=start.now_ms + 1
        )
        yield from walk_set(keys, query, remove)
    page: LanePage = yield Ask(lambda call: read_lanes(keys, call, names=(lane or "",)))
    yield from empty(page.lanes[0])
    if lane is None:
        yield from walk_lanes(keys, empty)
    yield from news_walk(keys)
    return total


def _round(keys: QueueKeys, lane: str, bound: int) -> Callable[[Call], Transition[int]]:
    return lambda call: drain(keys, call, lane=lane, bound=bound)


def trim_walk(
    keys: QueueKeys, *, dead_max: int | None, dead_age: float | dt.timedelta | None, done_max: int | None
) -> Walk[int]:
    """Check the limits, and answer the walk that trims; see `Queue.trim`.

    Raises:
        TypeError, ValueError: A limit does not fit.
    """
    for name, value in (("dead_max", dead_max), ("done_max", done_max)):
        if value is not None and type(value) is not int:
            raise TypeError(f"{name} is an int, not {shown(value)}")
        if value is not None and not 0 <= value <= MAX_KEPT:
            raise ValueError(f"{name} is 0 to {MAX_KEPT}, not {shown(value)}")
    try:
        age_ms = None if dead_age is None else to_ms(dead_age)
    except (TypeError, ValueError) as error:
        raise type(error)(f"dead_age: {error}") from None
    return _trims(keys, dead_max, age_ms, done_max)


def _trims(keys: QueueKeys, dead_max: int | None, dead_age_ms: int | None, done_max: int | None) -> Walk[int]:
    kept: Counts = yield Ask(lambda call: counts(keys, call))
    left, total = kept.dead + kept.done, 0
    while left > 0:
        gone: int = yield Ask(
            lambda call: trim(keys, call, done_max=done_max, dead_max=dead_max, dead_age_ms=dead_age_ms)
        )
        left -= gone
        total += gone
        if gone:
            yield Tell(total)
        if gone < MAX_ROUND:
            break
    return total
