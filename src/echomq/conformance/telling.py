"""One change, one event: what the stream says between two looks leads from the one to the other, job by job.

Theory of operation
    Events are replayed: each must be about a job that is in a state from which the table of moves lets it come, and
    takes it to one of those that the table names; the attempt that it names must be as many as were told of. At the end
    each job must be where the second look finds it, with as many attempts, so a change that was not told, and a word
    about a change that never was, both show. The counters must have gone up by just as many as there are events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

from echomq.conformance.snapshot import Snapshot
from echomq.protocol.states import MOVES, Event, State

_PAST: Final = 2000
"""Unix ms that a proof calls the past."""
COUNTED: Final = tuple(
    str(event)
    for event in (
        Event.COMPLETED, Event.CANCELLED, Event.DISCARDED, Event.EXPIRED, Event.DEAD, Event.FAILED, Event.STALLED,
        Event.REMOVED, Event.REDRIVEN, Event.TRIMMED, Event.DROPPED, Event.SKIPPED,
    )
)  # fmt: skip
"""The events that a counter of the same name counts. (`torn` and `mended` count lanes, keys and refused items, too.)"""
_STILL: Final = frozenset(map(str, (Event.TORN, Event.DROPPED, Event.MENDED, Event.LOST)))
"""What is said of a job that is not where it should be: it takes it nowhere."""


def _leads() -> dict[str, set[tuple[str, str]]]:
    """Answer which steps each event tells of, by the table of moves."""
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for move in MOVES:
        # A parent that need not wait is told of twice: it was suspended, and it is ready.
        suspended = move.event is Event.SUSPENDED
        if move.event is not None and move.verb != "repair":
            found[move.event] |= {
                (_name(source), _name(target))
                for source in move.sources
                for target in move.targets
                if not suspended or target is State.WAITING
            }
    return dict(found)


def _name(state: State | None) -> str:
    return "" if state is None else str(state)


LEADS: Final = _leads()


def _told(before: Snapshot, after: Snapshot) -> list[dict[str, str]]:
    old = {id for id, _ in before.items("events")}
    return [dict(zip(words[::2], words[1::2], strict=True)) for id, words in after.items("events") if id not in old]


def untold(before: Snapshot, after: Snapshot) -> Iterator[str]:
    """Say where what was told between two looks, with all events on, is not what has happened: a line each."""
    events = _told(before, after)
    by_job: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for event in events:
        by_job[event.get("job", "")].append(event)
    for id in sorted({id for snap in (before, after) for id, _ in snap.rows()} | by_job.keys()):
        if id:
            yield from _life(id, before, after, by_job[id])
    seen = Counter(event["event"] for event in events)
    for name in COUNTED:
        told, counted = seen[name], int(after.hash("counts").get(name, "0")) - int(before.hash("counts").get(name, "0"))
        if told != counted:
            yield f"{counted} were counted as {name}, and {told} told"


def _life(id: str, before: Snapshot, after: Snapshot, events: list[dict[str, str]]) -> Iterator[str]:
    """Replay one job's events."""
    start, end = before.row(id), after.row(id)
    states = {start.get("state", "")}
    kinds = [event["event"] for event in events]
    attempts = int(start.get("attempts", "0"))
    for at, kind in enumerate(kinds):
        attempts = attempts + 1 if kind == "claimed" else 0 if kind == "enqueued" else attempts
        token = int(events[at].get("token", attempts))
        if token != attempts:
            yield f"{id} was told as claimed {attempts} times, and then of attempt {token}: {' then '.join(kinds[: at + 1])}"
            return
        steps = LEADS.get(kind, set())
        states = states if kind in _STILL else {target for source, target in steps if source in states}
        if not states:
            yield f"{id} was {start.get('state', 'nothing')}, and cannot be {' then '.join(kinds[: at + 1])}"
            return
    if "done" in states and before.zset("done").get(id, _PAST + 1) <= _PAST:
        states.add("")  # a result whose time is over goes without a word
    if end.get("state", "") not in states:
        told = " then ".join(kinds) or "nothing"
        yield f"{id} went from {start.get('state', 'nothing')} to {end.get('state', 'nothing')}, and was told as {told}"
    if end and int(end.get("attempts", "0")) != attempts:
        yield f"{id} was claimed {end.get('attempts', '0')} times, and told of {attempts}"
