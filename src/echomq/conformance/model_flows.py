"""The executable model of flows: whom a parent waits for, what it was told, and what must become of it by policy.

Theory of operation
    It knows nothing of how the scripts do it. It is told whom producers and handlers have made whose child, what happened
    to each job (by the queues' events, which are told by other lines of the scripts than those that settle parents), and
    what stands in each parent's results; a step at a time, a step being one script. A job is in one phase, and each event
    takes it from some phases to one: so a job ends once a life, and nobody runs who has ended or waits. A parent is broken
    by the first failure of a child of the policy `fail_parent` that it is told of, and may run early once for each of
    `run_parent`.

    Where a call's verdict depends on scores or on turns, the model has no opinion: it holds the outcome against the rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final, final

import attrs

from echomq.conformance.expectations import ContradictionError
from echomq.protocol.kin import Outcome, Policy

UNBORN, WAITING, READY, RUNNING, DEAD, OVER = "unborn", "waiting", "ready", "running", "dead", "over"
ENDED: Final = frozenset({DEAD, OVER})
LIVE: Final = frozenset({WAITING, READY, RUNNING})
ENDINGS: Final = frozenset({"completed", "dead", "cancelled", "discarded", "expired", "removed"})
NEVER_CAME: Final = frozenset({"duplicate", "cancelled", "lost"})
"""How a child may end that never was in its queue."""
_FROM: Final[dict[str, AbstractSet[str]]] = {
    "ready": {WAITING}, "promoted": {READY}, "claimed": {READY}, "suspended": {RUNNING},
    "released": {RUNNING}, "failed": {RUNNING}, "stalled": {RUNNING}, "cancel_requested": {RUNNING},
    "completed": {RUNNING, READY}, "discarded": {RUNNING}, "expired": {READY}, "redriven": {DEAD},
    "dead": LIVE, "cancelled": LIVE, "removed": {WAITING, READY, DEAD, OVER},
}  # fmt: skip
"""The phases in which an event may befall a job."""


@final
@attrs.define
class Relative:
    """A job of a flow."""

    id: str
    queue: str
    parent: str = ""
    """The job that waits for it; "" when none does."""
    name: str = ""
    policy: Policy = Policy.FAIL_PARENT
    hold: str = ""
    """The root of the flow added in rounds in which it is held until the last one."""
    is_parent: bool = False
    optional: bool = False
    """Whether it may never come: its dedup key may be held by another."""
    phase: str = UNBORN
    before: str = UNBORN
    """Its phase before the step."""
    endings: list[str] = attrs.Factory(list)
    kids: dict[str, str] = attrs.Factory(dict)
    """Its children's ids, by name."""
    told: dict[str, Outcome] = attrs.Factory(dict)
    """What it was told of them."""
    broken: str = ""
    """The first failure in this life that buries it, as the reason says it."""
    broke: bool = False
    """Whether it was broken before the step: one that let it run early may have come first in the same script."""
    early: int = 0
    seen: int = 0
    """How many failures let it run early, and how many had done so when it last became ready."""
    held: bool = False
    """Whether it says that it is held: by its hold, which goes on after the last round, or for a revival."""
    reviving: bool = False
    """Whether it was redriven, and its children are being brought back."""
    gone: bool = False
    """Whether somebody has removed it."""
    by_hand: bool = False
    """Whether somebody has redriven it although its parent has done with it."""

    @property
    def open(self) -> set[str]:
        """Answer whom it waits for."""
        return self.kids.keys() - self.told.keys()


@final
class Kinship:
    """All jobs of some flows."""

    def __init__(self) -> None:
        self.jobs: dict[str, Relative] = {}
        self.refused: set[str] = set()
        """Jobs of calls that were refused, or that had no place: they must never come."""
        self.open_holds: set[str] = set()
        """The roots of flows whose last round has not come."""
        self._events: list[tuple[Relative, str, str]] = []

    def add(self, it: Relative) -> None:
        """A job is made, here or on its way; its parent knows of it in the same script."""
        self.jobs[it.id] = it
        if it.parent:
            self.jobs[it.parent].kids[it.name] = it.id
            self.jobs[it.parent].is_parent = True

    # --- what happens ------------------------------------------------------------------------

    def happens(self, event: str, id: str, reason: str) -> None:
        """Something befell a job.

        Raises:
            ContradictionError: It cannot be.
        """
        if id in self.refused:
            raise ContradictionError(f"{id} was refused, and is {event}")
        it = self.jobs.get(id)
        if it is None or event in {"lost", "trimmed"}:
            return
        if it.hold in self.open_holds and event in {"ready", "claimed"}:
            raise ContradictionError(f"{id} is {event} before the last round of {it.hold}")
        allowed = {UNBORN} if event == "enqueued" else _FROM.get(event, set())
        if event == "ready" and it.hold and not it.is_parent:
            allowed = {READY}  # it was held, which is not told of a job without children
        if it.phase not in allowed:
            raise ContradictionError(f"{id} is {event}, though it was {it.phase}, after {it.endings}")
        if event in ENDINGS and it.phase not in ENDED:
            it.endings.append(event)
        it.phase = _after(it, event)
        it.gone = it.gone or event == "removed"
        if event == "redriven":
            it.reviving = it.is_parent
            it.broken, it.broke, it.early, it.seen = "", False, 0, 0
        self._events.append((it, event, reason))

    # --- what parents are told ---------------------------------------------------------------

    def hear(self, id: str, results: Mapping[str, Outcome], hold: str) -> None:
        """Compare what a parent was told with what it had been told before the step.

        Raises:
            ContradictionError: It is no news, or wrong news.
        """
        it, reviving = self.jobs[id], hold == "revive"
        for name in sorted(it.told.keys() - results.keys()):
            if not it.reviving or it.told[name].completed:
                raise ContradictionError(f"{id} has forgotten how its child {name} ended: {it.told[name]}")
            del it.told[name]
        for name, outcome in results.items():
            had = it.told.get(name)
            if had == outcome:
                continue
            if had is not None and not (had.failed and outcome.completed):
                raise ContradictionError(f"{id} was told of {name} twice: {had}, then {outcome}")
            self._check_news(it, name, outcome)
            it.told[name] = outcome
            # What its own death did to a child is no failure in the next life: the child is brought back.
            of_last_life = outcome.reason == f"parent dead: {id}" and it.before == WAITING and reviving
            if had is None and outcome.failed and not of_last_life:
                self._fails(it, name, outcome)
        it.reviving, it.held = reviving, bool(hold)

    def _check_news(self, it: Relative, name: str, outcome: Outcome) -> None:
        child = self.jobs[it.kids[name]]
        if outcome.kind == "detached":
            right = child.policy is Policy.DETACH
        elif child.phase is UNBORN or not child.endings:
            # A child that was never sent is known in its parent's queue alone; one that never came is lost, or stopped.
            right = outcome.kind in NEVER_CAME and outcome.token == 0
        else:
            # A parent in its next life asks for a failed child once more; one that left no row is not known any more.
            asked_for = bool(it.endings) and child.phase is OVER
            right = outcome.kind in child.endings or (outcome.kind == "lost" and (child.gone or asked_for))
        if not right:
            raise ContradictionError(f"{it.id} was told that {name} ({child.id}) {outcome}; it has {child.endings}")
        if outcome.completed and outcome.body != child.id.encode():
            raise ContradictionError(f"{it.id} was told that {name} ({child.id}) returned {outcome.body!r}")

    def _fails(self, it: Relative, name: str, outcome: Outcome) -> None:
        policy = self.jobs[it.kids[name]].policy
        if policy is Policy.FAIL_PARENT and not it.broken and it.before is not DEAD:
            why = f": {outcome.reason[:512]}" if outcome.reason else ""
            it.broken = f"child {name} ({it.kids[name]}) {outcome.kind}{why}"
        elif policy is Policy.RUN_PARENT:
            it.early += 1

    # --- the rule ----------------------------------------------------------------------------

    def judge(self) -> None:
        """Hold what has become of parents in the step against the rule.

        Raises:
            ContradictionError: It is broken.
        """
        for it, event, reason in self._events:
            wrong = _wrong(it, event, reason) if it.is_parent else ""
            if event == "ready":
                it.seen = it.early
            if wrong:
                raise ContradictionError(f"{it.id} is {event} ({reason}) {wrong}: {it}")
        self._events.clear()
        for it in self.jobs.values():
            it.before, it.broke = it.phase, bool(it.broken)
            waits = it.phase == WAITING and it.is_parent and not it.held
            if waits and (it.broken or it.early > it.seen or not it.open):
                raise ContradictionError(f"{it.id} waits, though it should not: {it}")

    # --- in the end --------------------------------------------------------------------------

    def runs_on(self) -> list[str]:
        """Say who goes on although its parent is over and all has been delivered; those that run are asked to stop."""
        found = []
        for it in self.jobs.values():
            parent = self.jobs.get(it.parent)
            kept = it.by_hand or it.policy is Policy.DETACH
            if parent and parent.phase in ENDED and it.phase in {WAITING, READY} and not kept:
                found.append(f"{it.id} is {it.phase}, though {parent.id} is {parent.phase}: {parent.endings}")
        return found

    def wait_in_vain(self) -> list[str]:
        """Say who still waits when nothing moves, and not for a child that was stopped before it was there."""
        found = []
        for it in self.jobs.values():
            phases = {name: self.jobs[it.kids[name]].phase for name in it.open}
            if it.phase == WAITING and it.hold not in self.open_holds and UNBORN not in phases.values():
                found.append(f"{it.id} waits for {phases}")
        return found

    def unsettled(self) -> list[str]:
        """Say what is wrong when nothing moves any more."""
        found = []
        for it in self.jobs.values():
            parent = self.jobs.get(it.parent)
            if it.phase in LIVE:
                found.append(f"{it.id} is {it.phase}")
            elif it.phase is UNBORN and not self._may_stay_out(it, parent):
                found.append(f"{it.id} has never come: {it}")
            if parent and parent.phase == DEAD and it.endings and it.policy is not Policy.DETACH:
                told = parent.told.get(it.name)
                last = it.endings[-1]
                if told is None or (told.kind != last and (last == "completed" or told.completed)):
                    found.append(f"{parent.id} was told that {it.name} {told}, and it has {it.endings}")
        return found

    def _may_stay_out(self, it: Relative, parent: Relative | None) -> bool:
        if it.optional or it.hold in self.open_holds:
            return True
        return parent is not None and (parent.phase in {UNBORN, DEAD, OVER} or it.name in parent.told)


def _after(it: Relative, event: str) -> str:
    """Answer a job's phase after an event."""
    match event:
        case "dead":
            return DEAD
        case "suspended":
            return WAITING
        case "claimed":
            return RUNNING
        case "cancel_requested":
            return it.phase
        case "enqueued" | "redriven":
            return WAITING if it.is_parent else READY
    return OVER if event in ENDINGS else READY


def _wrong(it: Relative, event: str, reason: str) -> str:
    """Say why this must not have befallen a parent; "" when it may."""
    again = "cannot be run again" in reason
    match event:
        case "ready" | "completed" if it.broke or (it.broken and it.early <= it.seen):
            return f"though broken by {it.broken}"
        case "ready" if it.open and it.early <= it.seen:
            return f"though {sorted(it.open)} are open"
        case "completed" if it.open and not it.early:
            return f"though {sorted(it.open)} are open"
        case "dead" if reason.startswith("child ") and not again and reason != it.broken:
            return f"though what breaks it is {it.broken!r}"
        case "dead" if again and it.before != WAITING:
            return "though it was not being brought back"
    return ""
