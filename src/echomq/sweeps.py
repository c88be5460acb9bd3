"""Cancelling by task and by lane: walks over the places where such jobs may be, in bounded steps.

Theory of operation
    A pass goes the way that jobs go: `schedule`, then what is ready, then what runs, so that a job which moves on
    meanwhile is met at its next place. Scheduled and ready jobs are walked from the far end: they leave at the near one,
    which then shifts nothing. Passes are made until one finds nothing new; a job that went the other way (a retry), or
    that the walk has stepped over because others took jobs out behind it, is met by the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from echomq._delivery import news_walk
from echomq._items import check_reason
from echomq._walks import Each, Outcomes, Query, Tell, Walk, walk_lanes, walk_set
from echomq.errors import EchoMQError
from echomq.limits import lane_name
from echomq.protocol.keys import check_task_name
from echomq.protocol.refusals import GONE, STATE
from echomq.transitions import CancelRequest

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import LaneState

MOST_PASSES: Final = 8
"""Passes at most: a queue to which others add such jobs all the time is left at some point."""


@final
@attrs.frozen(kw_only=True)
class CancelReport:
    """What a walk has cancelled."""

    cancelled: int
    """How many were not running, and have ended."""
    asked: int
    """How many run, and whose workers have been told; each counts once."""


def cancel_walk(keys: QueueKeys, *, task: str | None, lane: str | None, reason: str) -> Walk[CancelReport]:
    """Check what is asked, and answer the walk that does it; see `Queue.cancel_where`.

    Raises:
        ValueError: Neither a task nor a lane is named, or one cannot have that name; or the reason is too long.
        TypeError: The reason is not text.
    """
    if task is None and lane is None:
        raise ValueError("cancel_where wants a task, a lane, or both")
    if task is not None:
        task = str.__str__(check_task_name(task))
    if lane is not None:
        lane = lane_name(lane)
    return _Sweep(keys, task, lane, check_reason(reason)).walk()


@final
class _Sweep:
    """One walk, and what it has done."""

    def __init__(self, keys: QueueKeys, task: str | None, lane: str | None, reason: str) -> None:
        self._keys = keys
        self._task = task or ""
        self._lane = lane
        self._reason = reason
        self._cancelled = 0
        self._asked: set[str] = set()
        self._problem: EchoMQError | None = None

    def walk(self) -> Walk[CancelReport]:
        """Make passes until one finds nothing new."""
        for _ in range(MOST_PASSES):
            before = self._count
            yield from self._one_pass()
            if self._count == before:
                break
        yield from news_walk(self._keys)
        if self._problem is not None:
            raise self._problem
        return CancelReport(cancelled=self._cancelled, asked=len(self._asked))

    @property
    def _count(self) -> int:
        return self._cancelled + len(self._asked)

    def _one_pass(self) -> Walk[None]:
        lane, task = self._lane, self._task
        of_lane = lane is not None
        named = lane or ""
        yield from self._each(Query(state="schedule", lane=named, of_lane=of_lane, reverse=True, task=task))
        yield from self._each(Query(state="pending", lane=named, reverse=True, task=task))
        if lane is None:
            yield from walk_lanes(self._keys, self._of_lane)
        if lane:
            yield from self._each(Query(state="active", lane=lane, task=task))
        else:
            yield from self._each(Query(state="active", of_lane=of_lane, task=task))

    def _of_lane(self, each: LaneState) -> Walk[bool]:
        yield from self._each(Query(state="pending", lane=each.name, reverse=True, task=self._task))
        return False

    def _each(self, query: Query) -> Walk[None]:
        yield from walk_set(self._keys, query, self._cancel)

    def _cancel(self, ids: list[str]) -> Walk[bool]:
        new = [id for id in ids if id not in self._asked]
        if not new:
            return False
        outcomes: Outcomes = yield Each("cancel", [CancelRequest(id, self._reason) for id in new])
        before = self._count
        for id, outcome in zip(new, outcomes, strict=True):
            if isinstance(outcome, EchoMQError):
                raise outcome
            if outcome.code == "cancelled":
                self._cancelled += 1
            elif outcome.code == "asked":
                self._asked.add(id)
            elif outcome.code not in {GONE, STATE}:  # else it has ended meanwhile
                self._problem = self._problem or outcome.error(id=id, queue=self._keys.queue)
        if self._count > before:
            yield Tell(self._count)
        return False
