"""The executable model of one job: its state, its token, its budgets, and the row that says so.

Every change of state goes through `Job.move`, which looks it up in `MOVES`: a move that is not listed there is a bug of
the model or of the table, and fails the proof.
"""

from __future__ import annotations

from typing import Final, final

import attrs

from echomq.protocol.states import MOVES, State

_LEGAL: Final = frozenset(
    (move.verb, source, target) for move in MOVES for source in move.sources for target in move.targets
)


class IllegalMoveError(AssertionError):
    """The model made a move that the table does not list."""


@final
@attrs.define
class Job:
    """One job."""

    id: str
    by: str
    fields: dict[str, str]
    """What the producer set, by row field."""
    dedup: str | None = None
    priority: int = 0
    max_stalls: int = 3
    ttl: int = 0
    lane: str = ""
    state: State | None = None
    token: int = 0
    nonce: str | None = None
    """Who may write: the holder while active, the late holder after a reap."""
    failures: int = 0
    stalls: int = 0
    cancel: str | None = None
    notes: dict[str, str] = attrs.Factory(dict)
    """Row fields written by handlers and endings."""
    log: list[str] = attrs.Factory(list)
    expired: bool = False
    """Its lease has ended, or its time on the shelf has."""
    due: bool = False
    ends: dict[str, bool] = attrs.Factory(dict)
    """`expires_ms` and `deadline_ms`, where it has them: whether that moment is over."""
    log_lines: int = 0

    @property
    def late(self) -> str:
        """Say why it must not be claimed any more: `dead`, `expired`, or ""."""
        if self.ends.get("deadline_ms"):
            return "dead"
        return "expired" if self.ends.get("expires_ms") and not self.token else ""

    def move(self, verb: str, target: State | None) -> None:
        """Go to a state, if the table allows it."""
        if (verb, self.state, target) not in _LEGAL:
            raise IllegalMoveError(f"{verb}: {self.state} -> {target} is not in MOVES")
        self.state = target
        self.expired = self.due = False

    def row(self) -> dict[str, str]:
        """Spell the row, but for its moment of entry and reasons made up by the scripts."""
        row = {"state": str(self.state), "by": self.by, **self.fields, **self.notes}
        row |= {name: str(n) for name, n in (("attempts", self.token), ("failures", self.failures)) if n}
        if self.stalls:
            row["stalls"] = str(self.stalls)
        if self.nonce is not None:
            row["holder"] = self.nonce
        if self.cancel is not None:
            row["cancel"] = self.cancel
        if self.log:
            row["log_bytes"] = str(sum(len(line) for line in self.log))
            row["log_lines"] = str(self.log_lines)
        if self.lane:
            row["lane"] = self.lane
        return row
