"""Where a job can be, and which verb takes it where (Protocol, sections 1 and 5).

`MOVES` is read by the reference's table, by the executable model and by the tests. What it does not list is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, final

import attrs


@final
class State(StrEnum):
    """Where a job is: the sorted set of that name holds it."""

    PENDING = "pending"
    """Ready to be claimed."""
    ACTIVE = "active"
    """Claimed; the score is the lease."""
    SCHEDULE = "schedule"
    """Delayed, or waiting for its next attempt."""
    DEAD = "dead"
    """Given up, kept for redrive."""
    WAITING = "waiting"
    """A parent held until its children settle."""
    DONE = "done"
    """Ended, and kept because it asked."""


@final
class Level(StrEnum):
    """At which setting of `meta.events` an event is written."""

    FAILURES = "failures"
    """By default: what whoever is on call wants to see."""
    ALL = "all"
    """When all events are asked for."""


@final
class Event(StrEnum):
    """What an event says happened: one word each, the same in the stream and on the channel."""

    ENQUEUED = "enqueued"
    REPLACED = "replaced"
    """A waiting job was given the content of another with the same dedup key."""
    CLAIMED = "claimed"
    COMPLETED = "completed"
    FAILED = "failed"
    """The handler failed and will be tried again."""
    DEAD = "dead"
    """Out of budget, buried."""
    RELEASED = "released"
    SNOOZED = "snoozed"
    STALLED = "stalled"
    """The lease expired; back to pending."""
    PROMOTED = "promoted"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    CANCEL_REQUESTED = "cancel_requested"
    EXPIRED = "expired"
    """Nobody had claimed it when its `expires` came."""
    RESCHEDULED = "rescheduled"
    """Its time is another now, by an operator."""
    SUSPENDED = "suspended"
    """A running job waits for its children; its attempt is over."""
    READY = "ready"
    """A parent's children have ended, or one has failed that lets it run: it may run."""
    LOST = "lost"
    """Nobody knows a child any more; its parent's policy applied."""
    SKIPPED = "skipped"
    """A slot of a recurring schedule made no job: the last one is not over (`overlap`)."""
    MENDED = "mended"
    """`repair` brought a job's row and its place together again."""
    REMOVED = "removed"
    REDRIVEN = "redriven"
    RATE_LIMITED = "rate_limited"
    """Back to pending, its lane or the queue closed for a while on the handler's word."""
    REPRIORITISED = "reprioritised"
    """Its priority is another now, by an operator."""
    UPDATED = "updated"
    """Its payload is another now, by an operator."""
    REASSIGNED = "reassigned"
    """Moved to another lane."""
    PAUSED = "paused"
    RESUMED = "resumed"
    PROGRESS = "progress"
    CHECKPOINT = "checkpoint"
    DROPPED = "dropped"
    """An id stood in a set without a row and was taken out (rule 5)."""
    TORN = "torn"
    """A script erred after an item's first write; `repair` mends it (rule 1)."""
    TRIMMED = "trimmed"
    """A kept or dead job was removed because of its age, or the shelf's count or bytes."""

    @property
    def level(self) -> Level:
        """At which setting it is written."""
        return Level.FAILURES if self in _FAILURES else Level.ALL


_FAILURES: Final = frozenset(
    {
        Event.FAILED, Event.DEAD, Event.STALLED, Event.EXPIRED, Event.DROPPED, Event.TORN, Event.TRIMMED, Event.MENDED,
        Event.LOST, Event.PAUSED, Event.RESUMED,
    }
)  # fmt: skip


@final
@attrs.frozen
class Move:
    """One thing that a verb does to a job, or to the queue."""

    verb: str
    """The verb's one word, everywhere."""
    sources: tuple[State | None, ...]
    """Where the job may be; None is "no row"; empty when the verb is about the queue."""
    targets: tuple[State | None, ...]
    """Where it is then, None being "no row"; an ending keeps the row in `done` if the job asked. Empty as above."""
    event: Event | None
    """What is told; None: nothing."""
    when: str = ""
    """In which case, if the verb has several; for people."""

    @property
    def level(self) -> Level | None:
        """At which setting the event is written."""
        return None if self.event is None else self.event.level


_P, _A, _S, _D, _W = State.PENDING, State.ACTIVE, State.SCHEDULE, State.DEAD, State.WAITING
_ENDED: Final = (None, State.DONE)
_ASKED: Final = "a cancel request waits"
_BY_ITS_PARENT: Final = "the same, of its parent that died"

MOVES: Final[tuple[Move, ...]] = (
    Move("enqueue", (None,), (_P,), Event.ENQUEUED),
    Move("enqueue", (None,), (_S,), Event.ENQUEUED, "with a delay or a moment ahead"),
    Move("enqueue", (_P,), (_P,), Event.REPLACED, "its content, by a job with its dedup key"),
    Move("enqueue", (_P, _S), (_S,), Event.REPLACED, "the same, and it is scheduled: mode debounce, or it was"),
    Move("claim", (_P,), (_A,), Event.CLAIMED),
    Move("claim", (_P,), _ENDED, Event.EXPIRED, "its `expires` has come, and nobody ever claimed it"),
    Move("claim", (_P,), (_D,), Event.DEAD, "its `deadline` has come"),
    Move("extend", (_A,), (_A,), None),
    Move("complete", (_A,), _ENDED, Event.COMPLETED),
    Move("complete", (_P,), _ENDED, Event.COMPLETED, "by the late holder of a reaped job"),
    Move("complete", (_P, _A), (_D,), Event.DEAD, "a child had failed that buries it"),
    Move("complete", (_A,), _ENDED, Event.CANCELLED, "the same, and a cancel request waits"),
    Move("fail", (_A,), (_S,), Event.FAILED, "budget is left"),
    Move("fail", (_A,), (_D,), Event.DEAD, "the budget is spent, or the next attempt would come after the deadline"),
    Move("fail", (_A,), _ENDED, Event.CANCELLED, _ASKED),
    Move("release", (_A,), (_P,), Event.RELEASED),
    Move("release", (_A,), _ENDED, Event.CANCELLED, _ASKED),
    Move("release", (_A,), (_D,), Event.DEAD, _BY_ITS_PARENT),
    Move("snooze", (_A,), (_S,), Event.SNOOZED),
    Move("snooze", (_A,), _ENDED, Event.CANCELLED, _ASKED),
    Move("snooze", (_A,), (_D,), Event.DEAD, _BY_ITS_PARENT),
    Move("rate_limited", (_A,), (_P,), Event.RATE_LIMITED),
    Move("rate_limited", (_A,), _ENDED, Event.CANCELLED, _ASKED),
    Move("rate_limited", (_A,), (_D,), Event.DEAD, _BY_ITS_PARENT),
    Move("end", (_A,), _ENDED, Event.CANCELLED, "kind cancelled"),
    Move("end", (_A,), _ENDED, Event.DISCARDED, "kind discarded"),
    Move("end", (_A,), (_D,), Event.DEAD, "kind cancelled, since its parent died"),
    Move("promote", (_S,), (_P,), Event.PROMOTED),
    Move("promote", (_S,), _ENDED, Event.CANCELLED, _ASKED),
    Move("reap", (_A,), (_P,), Event.STALLED),
    Move("reap", (_A,), (_D,), Event.DEAD, "more stalls than max_stalls"),
    Move("reap", (_A,), _ENDED, Event.CANCELLED, _ASKED),
    Move("progress", (_A,), (_A,), Event.PROGRESS),
    Move("checkpoint", (_A,), (_A,), Event.CHECKPOINT),
    Move("log", (_A,), (_A,), None),
    Move("cancel", (_P, _S, _W), _ENDED, Event.CANCELLED),
    Move("cancel", (_A,), (_A,), Event.CANCEL_REQUESTED),
    Move("reschedule", (_P, _S), (_S,), Event.RESCHEDULED, "for a moment ahead"),
    Move("reschedule", (_P, _S), (_P,), Event.RESCHEDULED, "for now"),
    Move("reprioritise", (_P,), (_P,), Event.REPRIORITISED),
    Move("reprioritise", (_S,), (_S,), Event.REPRIORITISED),
    Move("reprioritise", (_W,), (_W,), Event.REPRIORITISED),
    Move("reprioritise", (_D,), (_D,), Event.REPRIORITISED),
    Move("update", (_P,), (_P,), Event.UPDATED),
    Move("update", (_S,), (_S,), Event.UPDATED),
    Move("update", (_W,), (_W,), Event.UPDATED),
    Move("update", (_D,), (_D,), Event.UPDATED),
    Move("remove", (_P, _S, _W, _D, State.DONE), (None,), Event.REMOVED),
    Move("drain", (_P,), (None,), Event.REMOVED),
    Move("reassign", (_P,), (_P,), Event.REASSIGNED),
    Move("reassign", (_S,), (_S,), Event.REASSIGNED),
    Move("reassign", (_D,), (_D,), Event.REASSIGNED),
    Move("redrive", (_D,), (_P,), Event.REDRIVEN),
    Move("redrive", (_D,), (_W,), Event.REDRIVEN, "a parent, until its children have been brought back"),
    Move("flow_add", (None,), (_P, _S), Event.ENQUEUED, "a job without children"),
    Move("flow_add", (None,), (_W,), Event.ENQUEUED, "a parent, or a job of a flow that is added in rounds"),
    Move("spawn", (None,), (_P, _S, _W), Event.ENQUEUED, "as flow_add"),
    Move("suspend", (_A,), (_W,), Event.SUSPENDED, "children are open"),
    Move("suspend", (_A,), (_P,), Event.SUSPENDED, "none is open, or one has failed that lets it run"),
    Move("suspend", (_A,), (_D,), Event.SUSPENDED, "a child had failed that buries it"),
    Move("suspend", (_A,), _ENDED, Event.CANCELLED, _ASKED),
    Move("settle", (_W,), (_P,), Event.READY, "its children have ended"),
    Move("settle", (_W,), (_S,), Event.READY, "the same, and its delay is not over"),
    Move("settle", (_W,), (_D,), Event.DEAD, "a child has failed that buries it"),
    Move("follow", (None,), (_P, _S, _W), Event.ENQUEUED, "a follow-up of a job that completes"),
    Move("alert", (None,), (_P,), Event.ENQUEUED, "a job has died, and `on_dead` is set"),
    Move("flow_deliver", (), (), Event.LOST, "nobody knows a child"),
    Move("flow_deliver", (_P, _S, _W), _ENDED, Event.CANCELLED, "its parent has ended"),
    Move("flow_deliver", (_P, _S, _W), (_D,), Event.DEAD, "its parent has died"),
    Move("flow_deliver", (_A,), (_A,), Event.CANCEL_REQUESTED, "its parent is over"),
    Move("flow_deliver", (_D,), (_P, _W), Event.REDRIVEN, "its parent was redriven"),
    Move("flow_walk", (), (), Event.LOST, "nobody knows a child"),
    Move("flow_walk", (_P, _S, _W), _ENDED, Event.CANCELLED, "its parent has ended"),
    Move("flow_walk", (_P, _S, _W), (_D,), Event.DEAD, "its parent has died"),
    Move("flow_walk", (_A,), (_A,), Event.CANCEL_REQUESTED, "its parent is over"),
    Move("flow_walk", (_D,), (_P, _W), Event.REDRIVEN, "its parent was redriven"),
    Move("flow_walk", (_W,), (_P, _S), Event.READY, "a flow added in rounds is whole"),
    Move("flow_walk", (_W,), (None,), Event.REMOVED, "a flow added in rounds was given up"),
    Move("flow_take", (), (), None),
    Move("flow_done", (), (), None),
    Move("trim", (_D, State.DONE), (None,), Event.TRIMMED),
    Move("schedule_fire", (None,), (_P,), Event.ENQUEUED, "the job of a slot"),
    Move("schedule_fire", (None,), (_S,), Event.ENQUEUED, "the job of a slot, put off by its jitter"),
    Move("schedule_fire", (), (), Event.SKIPPED, "the last job is not over"),
    Move("schedule_put", (), (), None),
    Move("schedule_pause", (), (), None),
    Move("schedule_remove", (), (), None),
    Move("repair", (_P,), (_P,), Event.MENDED, "out of every set, or in a wrong one"),
    Move("repair", (_S,), (_S,), Event.MENDED, "the same"),
    Move("repair", (_D,), (_D,), Event.MENDED, "the same"),
    Move("repair", (State.DONE,), (State.DONE,), Event.MENDED, "the same"),
    Move("repair", (_A,), (_A,), Event.MENDED, "the same; its lease is over at once"),
    Move("repair", (None, _P, _A), (_D,), Event.DEAD, "a row that does not say where it belongs, or its token"),
    Move("obliterate", (_P, _A, _S, _W, _D, State.DONE), (None,), None),
    Move("pause", (), (), Event.PAUSED),
    Move("resume", (), (), Event.RESUMED),
    Move("ring", (), (), None),
    Move("beat", (), (), None),
    Move("configure", (), (), None),
    Move("set_lane", (), (), None),
)
"""Every move. A claim also makes the rounds of `reap` and `promote`, whose moves are listed under their own names; so are
those of `settle`, `follow` and `alert`: whatever ends a job may move its parent, a completion may bring follow-ups, and
whatever buries a job may tell of it."""

_ROUNDS: Final = ("settle", "follow", "alert")
VERBS: Final = tuple(dict.fromkeys(move.verb for move in MOVES if move.verb not in _ROUNDS))
"""The verbs that write, in the table's order."""


def sources(verb: str) -> frozenset[State | None]:
    """Answer the states from which a verb does anything.

    Raises:
        KeyError: There is no such verb.
    """
    if verb not in VERBS:
        raise KeyError(verb)
    return frozenset(state for move in MOVES if move.verb == verb for state in move.sources)
