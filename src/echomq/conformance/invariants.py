"""What is always true of a queue's keys (Protocol, section 8), checked on a snapshot of all of them.

Everything here follows from one look, without knowing what was done before: it can be asked of any queue at rest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from echomq.conformance.snapshot import SETS, Snapshot

MOST_TOKENS: Final = 64
MOST_LINES: Final = 100
MOST_LOG_BYTES: Final = 65_536

_TYPES: Final = {
    "meta": "hash", "counts": "hash", "wake": "list", "events": "stream", **dict.fromkeys(SETS, "zset"),
}  # fmt: skip
_LIVE: Final = frozenset({"pending", "active", "schedule", "waiting"})
_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,15}")


def _places(snap: Snapshot) -> Iterator[str]:
    """A row is in exactly the set that its state names; a member of a set has a row."""
    sets = {name: snap.zset(name) for name in SETS}
    for id, row in snap.rows():
        state = row.get("state", "")
        where = [name for name in SETS if id in sets[name]]
        if where != [state]:
            yield f"{id} has state {state!r} and is in {where or 'no set'}"
    for name, members in sets.items():
        yield from (f"{id} is in {name} and has no row" for id in members if not snap.row(id))


def _rows(snap: Snapshot) -> Iterator[str]:
    """What a row may say in its state."""
    for id, row in snap.rows():
        state = row.get("state", "")
        for name in ("since", "attempts", "failures", "stalls", "log_bytes"):
            if not _COUNT.fullmatch(row.get(name, "0")):
                yield f"{id}: {name} is {row[name]!r}"
        attempts, stalls = int(row.get("attempts", "0")), int(row.get("stalls", "0"))
        if "by" not in row or "since" not in row:
            yield f"{id}: no producer, or no moment of entry"
        if state == "active" and ("holder" not in row or attempts < 1):
            yield f"{id} is active without a holder, or was never claimed"
        if "holder" in row and not (state == "active" or (state == "pending" and stalls > 0 and attempts > 0)):
            yield f"{id} is {state} and still names a holder, and was not reaped"
        if "cancel" in row and state != "active":
            yield f"{id} is {state} with a cancel request, which must have ended it"
        if ("kind" in row) != (state in {"dead", "done"}):
            yield f"{id} is {state} with kind {row.get('kind')!r}"
        if state == "done" and int(row.get("result_ttl_ms", "0")) <= 0:
            yield f"{id} is kept and did not ask for it"
        if ("step" in row) != ("checkpoint" in row):
            yield f"{id}: a step without a checkpoint, or the other way round"


def _scores(snap: Snapshot) -> Iterator[str]:
    """Pending is ordered by priority; a kept job's score is when it goes."""
    for id, score in snap.zset("pending").items():
        if score != -int(snap.row(id).get("priority", "0")):
            yield f"{id} is pending with score {score} and priority {snap.row(id).get('priority', '0')}"
    for name in ("active", "schedule", "dead", "done"):
        for id, score in snap.zset(name).items():
            if score % 1 or not 0 <= score < 1e14:
                yield f"{id} is in {name} with score {score}, which is no moment in ms"


def _owners(snap: Snapshot) -> Iterator[str]:
    """No key is without an owner."""
    for suffix, entry in snap.entries.items():
        head, _, rest = suffix.partition(":")
        if suffix in _TYPES:
            if entry.kind != _TYPES[suffix]:
                yield f"{suffix} is a {entry.kind}"
            if entry.ttl:
                yield f"{suffix} has a TTL"
        elif head == "job" and rest.endswith(":log"):
            if entry.kind != "list" or not snap.row(rest.removesuffix(":log")):
                yield f"{suffix} has no row, or is no list"
        elif head == "job" and rest and ":" not in rest:
            if entry.kind != "hash" or entry.ttl:
                yield f"{suffix} is a {entry.kind}{' with a TTL' if entry.ttl else ''}"
        elif head == "dedup" and rest:
            row = snap.row(entry.value)
            if not entry.ttl and not (row.get("dedup") == rest and row.get("state") in _LIVE):
                yield f"{suffix} names {entry.value}, which is no live job of that key, and never goes"
        elif head == "once" and rest.count(":") == 1:
            if entry.kind != "string" or not entry.ttl:
                yield f"{suffix} never goes"
        else:
            yield f"{suffix} is a key that nobody owns"


def _meta(snap: Snapshot) -> Iterator[str]:
    """The queue's own hash is there as long as jobs are, and counters only count up from nothing."""
    meta = snap.hash("meta")
    if any(True for _ in snap.rows()) and "protocol" not in meta:
        yield "there are jobs and meta has no protocol version"
    if ("keeper" in meta) != ("keeper_until" in meta):
        yield f"half a keeper: {meta}"
    yield from (f"counts[{name}] is {n!r}" for name, n in snap.hash("counts").items() if not _COUNT.fullmatch(n))


def _logs(snap: Snapshot) -> Iterator[str]:
    """A log keeps to its bounds, and its row knows its size."""
    for id, row in snap.rows():
        lines = snap.items(f"job:{id}:log")
        size = sum(len(line.encode("utf-8", "surrogateescape")) for line in lines)
        if len(lines) > MOST_LINES or size > MOST_LOG_BYTES:
            yield f"the log of {id} has {len(lines)} lines, {size} bytes"
        if int(row.get("log_bytes", "0")) != size:
            yield f"the log of {id} has {size} bytes, and its row says {row.get('log_bytes', '0')}"


def _bell(snap: Snapshot) -> Iterator[str]:
    """Ready work implies a token, unless the queue is paused (rule 10)."""
    tokens = len(snap.items("wake"))
    if tokens > MOST_TOKENS:
        yield f"{tokens} wake tokens"
    if snap.zset("pending") and not tokens and "paused" not in snap.hash("meta"):
        yield f"{len(snap.zset('pending'))} jobs are ready and nobody is rung for"


_CHECKS: Final[tuple[Callable[[Snapshot], Iterator[str]], ...]] = (
    _places, _rows, _scores, _owners, _meta, _logs,
)  # fmt: skip


def violations(snap: Snapshot, *, awake: int = 0) -> list[str]:
    """Check all invariants.

    Args:
        snap: The queue's keys.
        awake: How many workers took a wake token and have not claimed since: they stand in for a token.

    Returns:
        A sentence for each violation; empty when all hold.
    """
    found = [line for check in _CHECKS for line in check(snap)]
    return found if awake else [*found, *_bell(snap)]


def leftovers(snap: Snapshot) -> list[str]:
    """Name what must not be there after all jobs have ended and been trimmed: all but the queue's own and TTL keys."""
    allowed = {"meta", "counts", "events", "wake"}
    return sorted(suffix for suffix, entry in snap.entries.items() if suffix not in allowed and not entry.ttl)
