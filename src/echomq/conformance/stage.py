"""The stage on which the state machine plays: the queue, its clients, the model, and what is checked after each step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import redis
from hypothesis.stateful import RuleBasedStateMachine, invariant

from echomq.conformance import model_verbs
from echomq.conformance.expectations import ContradictionError, compare, no_change
from echomq.conformance.keyspace import Playground
from echomq.conformance.model import Queue
from echomq.conformance.snapshot import Snapshot, take
from echomq.protocol.refusals import Verdict
from echomq.protocol.states import State
from echomq.transitions import Script

ANY: Final = 230
"""Picks (0 to 255) from here on take any job that ever was; the others, one in a state that makes sense."""


def spell(verdict: Verdict) -> str:
    """Spell a verdict as the model does."""
    return "retry" if verdict.code == "retry" else f"{verdict.code} {verdict.detail}".strip()


class Stage(RuleBasedStateMachine):
    """One queue, three clients, no clock. `machine.machine` makes the class that sets `server`."""

    server: ClassVar[redis.Redis]
    scripts: ClassVar[Mapping[str, Script]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.ground = Playground(self.server, scripts=self.scripts)
        self.keys = self.ground.keys
        self.clients = [self.ground.client() for _ in range(3)]
        self.model = Queue()
        self.known: list[str] = []
        self.leases: dict[str, list[tuple[int, str]]] = {}
        self.replies: dict[tuple[int, str], Any] = {}
        self.snap = Snapshot({})
        self.unchanged = False
        self.awake = 0
        self.steps = 0

    def teardown(self) -> None:
        """Leave nothing behind."""
        self.ground.clear()

    # --- what is checked after each step -----------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        """Look at everything once."""
        before, self.snap = self.snap, take(self.server, self.keys)
        if self.unchanged:
            no_change(before, self.snap)
        compare(self.model, self.snap, awake=self.awake)
        self.unchanged = False
        self.steps += 1

    def expect(self, what: str, seen: object, expected: object) -> None:
        """Compare an answer."""
        if seen != expected:
            raise ContradictionError(f"{what}: expected {expected!r}, seen {seen!r}")

    def run_items(self, client: int, verb: str, items: Sequence[Any], expected: list[str]) -> None:
        """Run one call and compare its verdicts."""
        seen = [spell(verdict) for verdict in self.clients[client].items(verb, *items)]
        self.expect(f"{verb} {[model_verbs.spell(item) for item in items]}", seen, expected)
        self.replies[client, verb] = seen
        self.unchanged = all(text.startswith(("EMQ", "duplicate", "collision")) for text in seen)

    def order(self, *names: str) -> list[str]:
        """Answer the ids of sets in the order in which the server meets them."""
        return [id for name in names for id in self.snap.zset(name)]

    def choose(self, pick: int, *states: State) -> str:
        """Choose a job: mostly one in a state that makes sense, now and then any that ever was."""
        fitting = [id for id in self.known if id in self.model.jobs and self.model.jobs[id].state in states]
        ids = fitting if fitting and pick < ANY else self.known
        return ids[pick % len(ids)]
