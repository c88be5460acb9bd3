"""What each of several processes does to one schedule: it upserts, removes and puts it back, in a loop, and keeps a diary.

They go by the clock: for half a second they do their worst, and then for two they only upsert, so that there are slots
at which the schedule verifiably stands.
"""

from __future__ import annotations

import random
import time
from typing import Literal

import attrs

from echomq import sync

NAME = "beat"
EVERY = 0.1
PERIOD = 2.5
STORM = 0.5
"""Seconds of each period in which the schedule is removed, too."""


@attrs.frozen
class Entry:
    """One call, seconds of the machine's clock, which is the server's too."""

    began: float
    ended: float
    verb: Literal["put", "remove"]
    outcome: str


def churn(url: str, queue: str, seed: int, until: float) -> list[Entry]:
    """Do it until a moment; answer what was done."""
    chance = random.Random(seed)
    diary: list[Entry] = []
    with sync.Client(url) as client:
        schedules = client.queue(queue).schedules
        while (began := time.time()) < until:
            # A call that began before the storm is over may end after it: the diary tells.
            if began % PERIOD < STORM and chance.random() < 0.5:
                outcome = str(schedules.remove(NAME))
                diary.append(Entry(began, time.time(), "remove", outcome))
                began = time.time()
            priority = chance.randrange(2)
            outcome = schedules.put(NAME, b"{}", every=EVERY, missed="all", task="quick", priority=priority)
            diary.append(Entry(began, time.time(), "put", outcome))
            time.sleep(chance.uniform(0, 0.04))
    return diary
