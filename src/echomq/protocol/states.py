"""Where a job can be (Protocol, section 1)."""

from __future__ import annotations

from enum import Enum
from typing import final


@final
class State(str, Enum):
    """Where a job is: the sorted set of that name holds it."""

    PENDING = "pending"
    ACTIVE = "active"
    SCHEDULE = "schedule"
    DEAD = "dead"
    WAITING = "waiting"
    DONE = "done"

    __str__ = str.__str__
