"""`configure`: the queue's settings (Protocol, section 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from echomq.transitions.base import Call, Transition
from echomq.transitions.settings import pairs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.protocol.keys import QueueKeys

EventLevel = Literal["none", "failures", "all"]


def configure(
    keys: QueueKeys, call: Call, *, settings: Mapping[str, str], only_unset: bool = False
) -> Transition[bool]:
    """Change the queue's settings; those not named stay. Answers whether anything changed.

    Args:
        keys: The queue.
        call: Who calls.
        settings: `events` (none, failures, all), `events_max` (about how many events are kept, 1 to 10^9), `limit` (jobs running at once, 1 to a million), `rate`
            (`RateLimit.spell`), `max_size` (jobs waiting at once, 1 to 10^12), `dead_max` and `done_max` (dead jobs, and
            results, that are kept, 1 to 10^9), `dead_age` (how long the dead are kept, 1 ms to a century, in ms), `on_dead` (the task
            that is told of each death, as a job of this queue); ""
            clears one.
        only_unset: Leave what is set already as it is: the word of a program, where the operator's wins.
    """
    argv = (call.client, call.number, 1 if only_unset else 0, *pairs(settings))
    return Transition("configure", keys, argv, bool, call.number > 0)
