"""`read_schedules`: recurring schedules by their next slot (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from echomq.transitions.base import Call, Transition
from echomq.transitions.schedules import ScheduleState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys


@final
@attrs.frozen(kw_only=True)
class SchedulePage:
    """Some of a queue's schedules."""

    now_ms: int
    """The server's clock when they were read, Unix ms."""
    total: int
    """How many schedules the queue has."""
    schedules: tuple[ScheduleState, ...]
    """The schedules, next slot first; those paused or ended last."""


def read_schedules(
    keys: QueueKeys, call: Call, *, offset: int = 0, count: int = 100, due: bool = False, names: Sequence[str] = ()
) -> Transition[SchedulePage]:
    """Read a page of schedules, or those named (up to 256; unknown ones are left out).

    Args:
        keys: The queue.
        call: Who calls.
        offset: How many to skip.
        count: How many to read, 1 to 256.
        due: Those only whose slot has come.
        names: The schedules to read instead.
    """

    def read(reply: Any) -> SchedulePage:
        now, total, *found = reply
        schedules = tuple(ScheduleState.parse(name.decode("utf-8", "replace"), flat) for name, flat in found)
        return SchedulePage(now_ms=int(now), total=int(total), schedules=schedules)

    return Transition("read_schedules", keys, (call.client, 0, offset, count, 1 if due else 0, *names), read)
