"""How long jobs wait: each state's first job, and each lane's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, final

import attrs

from echomq._items import check_count
from echomq._walks import Ask, Walk
from echomq.lanes import LaneInfo
from echomq.protocol.times import to_seconds
from echomq.transitions import age, read_lanes

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Head, Heads, LanePage

SAMPLE: Final = 256
"""Running jobs that are looked at for the one that has run longest."""


@final
@attrs.frozen(kw_only=True)
class StateWait:
    """A state's jobs, and the first of them."""

    jobs: int
    """How many there are."""
    id: str | None
    """The first; None when there is none."""
    seconds: float | None
    """For how many seconds it has been so; what that is, `Waits` says. None when there is none."""

    @classmethod
    def of(cls, head: Head) -> Self:
        """Read what the server answered."""
        return cls(jobs=head.jobs, id=head.id, seconds=None if head.id is None else head.ms / 1000)


@final
@attrs.frozen(kw_only=True)
class Waits:
    """How many jobs are in each state and lane, and for how long the first has waited. Answered by `Queue.waits`."""

    pending: StateWait
    """What is ready, in lanes or not: the job next in turn, and for how long it has been ready. No job while none can be
    served, since all lanes with jobs are paused or at their limits."""
    active: StateWait
    """What runs: the job that has run for longest, and for how long. Of the 256 whose leases end first, if more run."""
    schedule: StateWait
    """What is scheduled: the job that is due first, and for how long it has been due; below 0: due in so long."""
    waiting: StateWait
    """Parents that wait for children: the one that has waited for longest, and for how long."""
    dead: StateWait
    """The dead: the one that died first, and how long ago."""
    done: StateWait
    """Results that are kept: the one that goes first, and for how long its time has been over; below 0: kept so long yet."""
    lanes: tuple[LaneInfo, ...]
    """A page of the lanes that have jobs or settings, each with its `pending`, `active` and `oldest`."""
    cursor: int
    """Where the next page of lanes begins (`queue.lanes.page(cursor=...)`); 0: these were all."""


def next_in_turn(heads: Heads) -> tuple[str, float] | None:
    """Answer the job next in turn, and for how many seconds it has been ready."""
    head = heads.pending
    return None if head.id is None else (head.id, to_seconds(head.ms))


def waits_walk(keys: QueueKeys, lanes: int) -> Walk[Waits]:
    """Check how many lanes are wanted, and answer the walk that reads.

    Raises:
        ValueError: Not 1 to 256 lanes.
    """
    check_count(lanes, "lanes")
    return _read(keys, lanes)


def _read(keys: QueueKeys, lanes: int) -> Walk[Waits]:
    heads: Heads = yield Ask(lambda call: age(keys, call, sample=SAMPLE))
    page: LanePage = yield Ask(lambda call: read_lanes(keys, call, count=lanes))
    states = {field.name: StateWait.of(getattr(heads, field.name)) for field in attrs.fields(type(heads))}
    return Waits(**states, lanes=tuple(map(LaneInfo.of, page.lanes)), cursor=page.cursor)
