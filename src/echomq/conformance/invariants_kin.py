"""What is always true of parents and children (Protocol, sections 7 and 8), checked on snapshots of their queues.

A child may be in another queue than its parent: so all queues that a proof knows are looked at together. Of a queue
that it does not know nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from echomq.conformance.snapshot import Snapshot
from echomq.errors import DecodeError
from echomq.protocol.kin import ChildRef, ParentRef
from echomq.protocol.words import unpack_words
from echomq.transitions import Entry

_LIVE = frozenset({"pending", "active", "schedule", "waiting"})


def entries(snap: Snapshot) -> dict[str, Entry]:
    """Read the outbox of a queue.

    Raises:
        DecodeError: An entry is torn.
    """
    return {
        name: Entry.read(name.encode(), text.encode("utf-8", "surrogateescape"))
        for name, text in snap.hash("outbox:entries").items()
    }


def children(snap: Snapshot, id: str) -> dict[str, ChildRef]:
    """Read whom a job names as its children."""
    return {name: ChildRef.parse(text.encode()) for name, text in snap.hash(f"job:{id}:children").items()}


def open_children(snap: Snapshot, id: str) -> dict[str, ChildRef]:
    """Read a job's children that have not ended."""
    ended = snap.hash(f"job:{id}:results")
    return {name: child for name, child in children(snap, id).items() if name not in ended}


def _outbox(snap: Snapshot) -> Iterator[str]:
    """An entry has a moment and a content, which is of the kind that its name says."""
    scores, contents = snap.zset("outbox"), snap.hash("outbox:entries")
    for name in sorted(scores.keys() ^ contents.keys()):
        yield f"outbox entry {name!r} has {'a moment alone' if name in scores else 'no moment'}"
    if scores and "flows" not in snap.hash("meta"):
        yield "there is an outbox, and meta does not say so"
    for name, text in contents.items():
        try:
            words = unpack_words(text.encode("utf-8", "surrogateescape"))
        except DecodeError as error:
            yield f"outbox entry {name!r}: {error}"
            continue
        if len(words) < 2 or words[0].decode() != name.partition(":")[0]:
            yield f"outbox entry {name!r} says {words[:2]}"
    for name, score in scores.items():
        if score == math.inf and not name.startswith("add:"):
            yield f"outbox entry {name!r} is never due"
        elif score != math.inf and score % 1 not in (0, 0.5):
            yield f"outbox entry {name!r} has the score {score}"


def _owners(snap: Snapshot) -> Iterator[str]:
    """What is known of children belongs to a job, or to the walk that erases it; what is held, to a hold."""
    entries = snap.hash("outbox:entries")
    for suffix in snap.entries:
        head, _, rest = suffix.partition(":")
        id, _, what = rest.partition(":")
        if head != "job" or what not in {"children", "results", "held"}:
            continue
        if what == "held" and f"hold:{id}" not in entries:
            yield f"{suffix} has no hold"
        elif what != "held" and not snap.row(id) and f"sweep:{id}" not in entries:
            yield f"{suffix} has neither a row nor a sweep"
        elif what != "held" and snap.row(id) and snap.row(id).get("children") != "1":
            yield f"{suffix}: the row does not say that it has children"
        if what == "results" and not snap.hash(suffix).keys() <= snap.hash(f"job:{id}:children").keys():
            yield f"{suffix} names others than its children: {sorted(snap.hash(suffix))}"


def _waiting(snap: Snapshot) -> Iterator[str]:
    """Who waits does so for a child, a hold or a revival, and not for what would have moved it on."""
    entries = snap.hash("outbox:entries")
    for id in snap.zset("waiting"):
        row = snap.row(id)
        hold = row.get("hold")
        if hold is not None:
            entry = f"revive:{id}" if hold == "revive" else f"hold:{hold}"
            if entry not in entries:
                yield f"{id} is held, and there is no {entry}"
        elif not open_children(snap, id):
            yield f"{id} waits for nobody"
        elif "broken" in row or int(row.get("early", "0")) > int(row.get("seen", "0")):
            yield f"{id} waits, though {row.get('broken') or 'a child has failed that runs it'}"
    for id, row in snap.rows():
        if "hold" in row and row.get("state") != "waiting":
            yield f"{id} is {row.get('state')} and held"
        if "due_ms" in row and row.get("state") not in {"waiting", "dead", "done"}:
            yield f"{id} is {row.get('state')} and its delay is yet to begin"


def _news(queue: str, id: str, name: str, child: ChildRef, snaps: Mapping[str, Snapshot]) -> str:
    """Say what is wrong with a child that its parent waits for; "" when it lives, is under way, or its end is."""
    theirs = child.queue or queue
    if theirs not in snaps:
        return ""
    mine, other = snaps[queue].hash("outbox:entries"), snaps[theirs].hash("outbox:entries")
    if f"tell:{child.id}" in other or any(f"{kind}:{child.id}" in mine for kind in ("add", "redrive", "ask")):
        return ""
    row = snaps[theirs].row(child.id)
    if row.get("state") not in _LIVE:
        return f"is {row.get('state') or 'nowhere'}"
    parent = ParentRef.parse(row.get("parent", "  ").encode())
    if (parent.id, parent.queue or theirs, parent.name) != (id, queue, name):
        return f"has another parent: {row.get('parent')!r}"
    return ""


def kin_violations(snaps: Mapping[str, Snapshot]) -> list[str]:
    """Check what must hold of parents and children.

    Args:
        snaps: The keys of each queue that is known, by its name.

    Returns:
        A sentence for each violation; empty when all hold.
    """
    found = []
    for queue, snap in snaps.items():
        found += [f"{queue}: {line}" for check in (_outbox, _owners, _waiting) for line in check(snap)]
        for id in snap.zset("waiting"):
            if "hold" in snap.row(id):
                continue
            for name, child in open_children(snap, id).items():
                wrong = _news(queue, id, name, child, snaps)
                if wrong:
                    found.append(f"{queue}: {id} waits for its child {name!r}, which {wrong}")
    return found
