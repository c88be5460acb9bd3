"""The executable model of lanes: the rota of section 6, its limits, and which jobs a claim takes.

Theory of operation
    A queue that never met a lane has no rota. From the first on, a lane with pending jobs is on the ring or closed. Verbs
    only say which lanes they touched (`Rota.touch`); `Queue.settle`, at the end of each call, puts those back on the
    ring that can be served and closes those that cannot, in the order in which the call met them.

    There is no clock here either. A rate is a bucket that is never refilled: proofs use one start a day, so `burst` starts are
    allowed, and time passes by a mark that empties `used`. A handler's closing is the mark `told`. Whether the moment has
    come at which a closed lane is looked at again is the mark `due`.
"""

from __future__ import annotations

from typing import Final, final

import attrs

RING: Final = "r"
CLOSED: Final = "c"
AWAY: Final = "-"


@final
@attrs.define
class Limits:
    """What a lane, or the queue, was told."""

    weight: int = 0
    """Starts in a turn; 0: not set, which is 1."""
    limit: int = 0
    """How many may run; 0: any number."""
    burst: int = 0
    """How many may start in a day; 0: any number."""
    paused: bool = False
    told: bool = False
    """A handler said to wait."""
    used: int = 0
    """How many have started of the day's."""

    @property
    def settings(self) -> tuple[int, int, int, bool]:
        """What an operator has set."""
        return (self.weight, self.limit, self.burst, self.paused)

    def put(self, name: str, value: str) -> None:
        """Change a setting, as `set_lane` and `configure` name them; "" clears it."""
        match name:
            case "weight":
                self.weight = int(value or 0)
            case "limit":
                self.limit = int(value or 0)
            case "rate":
                burst = int(value.split()[2]) if value else 0
                self.burst, self.used = burst, min(self.used, burst)
            case "paused":
                self.paused = bool(value)
                self.told = self.told and self.paused
            case _:
                raise ValueError(f"{name!r} is no setting of a lane")

    def reasons(self, running: int) -> list[str]:
        """Say why nothing more may start, in the words of `read_lanes`."""
        spent = self.burst > 0 and self.used >= self.burst
        full = self.limit > 0 and running >= self.limit
        found = (("paused", self.paused), ("told to wait", self.told), ("rate", spent), ("limit", full))
        return [word for word, holds in found if holds]

    def room(self, running: int) -> int:
        """Answer how many may start; the reasons are empty."""
        return min(
            self.limit - running if self.limit else 1 << 30,
            self.burst - self.used if self.burst else 1 << 30,
        )


@final
@attrs.define
class Lane:
    """One lane; "" is that of the jobs without one."""

    name: str
    limits: Limits = attrs.Factory(Limits)
    where: str = AWAY
    credit: int = 0
    """What is left of its turn."""
    due: bool = False
    """Closed, and the moment to look at it again has come."""

    def leave(self, where: str) -> None:
        """Go off the ring. A handler's closing does not outlive the last job of a lane without settings."""
        self.where, self.credit, self.due = where, 0, False
        if where == AWAY and not any(self.limits.settings):
            self.limits = Limits()


@final
@attrs.define
class Rota:
    """The ring, and what has been touched since it was settled."""

    on: bool = False
    """Whether the queue has met a lane."""
    ring: list[str] = attrs.Factory(list)
    lanes: dict[str, Lane] = attrs.Factory(dict)
    touched: dict[str, None] = attrs.Factory(dict)
    """In the order of the first touch."""

    def lane(self, name: str) -> Lane:
        """Answer a lane, which need not have been heard of."""
        return self.lanes.setdefault(name, Lane(name))

    def begin(self) -> None:
        """Begin with the lane of the jobs without one."""
        if not self.on:
            self.on = True
            self.touch("")

    def touch(self, name: str) -> None:
        """Note a lane about which something has changed."""
        if self.on:
            self.touched.setdefault(name)

    @property
    def closed(self) -> list[str]:
        """Name the lanes that have jobs and cannot be served."""
        return sorted(name for name, lane in self.lanes.items() if lane.where == CLOSED)
