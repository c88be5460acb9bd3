"""The executable model of the shelves: how many results and dead a call takes off them.

Theory of operation
    Whoever puts jobs on a shelf takes twice as many off it that are over; `trim` takes what its bound lets it. The model
    says how many must go. Which ones they are follows from the scores, which the model does not know: results go soonest
    to end first, the dead oldest first. So the one who plays looks which are gone, and holds that none of them was behind
    one that stays.

    There is no clock: `expired` of a kept job means that its time is over, of a dead one that it died in 1970. So a dead
    job that is `expired` is older than any `dead_age` but the longest, and one that is not is younger than a day.
"""

from __future__ import annotations

from typing import Final, final

import attrs

AGELESS: Final = 3_162_240_000_000
"""The longest `dead_age`, a century: nothing is as old as that."""


@final
@attrs.define
class Shelves:
    """The bounds of `done` and `dead`, and what the present call has put there."""

    dead_max: int = 0
    """How many dead are kept; 0: the default, which no proof reaches."""
    dead_age: int = 0
    """How long they are, ms; 0: the default."""
    done_max: int = 0
    """How many results are kept; 0: the default."""
    done: int = 0
    """How many results this call has shelved."""
    dead: int = 0
    """How many jobs it has buried."""

    @property
    def settings(self) -> tuple[int, int, int]:
        """What an operator has set."""
        return (self.dead_max, self.dead_age, self.done_max)

    def begin(self) -> None:
        """Another call begins."""
        self.done = self.dead = 0

    def leaving(self, results: tuple[int, int], dead: tuple[int, int], bound: int | None = None) -> tuple[int, int]:
        """Answer how many results and how many dead go.

        Args:
            results: How many there are, and how many of them are over.
            dead: How many there are, and how many died long ago.
            bound: Of a `trim`; None: what this call has put there bounds it.
        """
        kept, over = results
        most = 2 * self.done if bound is None else bound
        of_done = min(most, max(over, kept - (self.done_max or kept)))
        buried, old = dead
        most = 2 * self.dead if bound is None else bound - of_done
        too_many = old if self.dead_age != AGELESS else max(0, buried - (self.dead_max or buried))
        return of_done, min(most, old, too_many)
