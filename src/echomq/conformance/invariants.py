"""What is always true of a queue's keys (Protocol, section 8), checked on a snapshot of all of them.

Everything here follows from one look, without knowing what was done before: it can be asked of any queue at rest.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Final, final

import attrs

from echomq.conformance.snapshot import SETS, Entry, Snapshot

MOST_TOKENS: Final = 64
MOST_LINES: Final = 100
MOST_LOG_BYTES: Final = 65_536
MOST_OPEN: Final = 8

_TYPES: Final = {
    "meta": "hash", "counts": "hash", "wake": "list", "events": "stream", "ring": "list", "closed": "zset",
    "lanes": "hash", "schedules": "zset", "outbox": "zset", "outbox:entries": "hash", **dict.fromkeys(SETS, "zset"),
}  # fmt: skip
_BESIDE: Final = {"log": "list", "children": "hash", "results": "hash", "held": "list"}
_NUMBERS: Final = (
    "since", "attempts", "failures", "stalls", "log_bytes", "log_lines", "expires_ms", "deadline_ms", "slot",
)  # fmt: skip
_LIVE: Final = frozenset({"pending", "active", "schedule", "waiting"})
_COUNT: Final = re.compile(r"0|[1-9][0-9]{0,15}")


_LANE_SET: Final = re.compile(r"lane:(.*):(pending|active)", re.DOTALL)
_LANE: Final = re.compile(r"([rc-])(0|[1-9][0-9]*)(?: (.*))?", re.DOTALL)
_LIMITS: Final = ("weight", "limit", "count", "per_ms", "burst", "tat", "paused", "till")


@final
@attrs.frozen
class LaneField:
    """A lane's field in `lanes`."""

    where: str
    """`r`: on the ring, `c`: closed, `-`: neither."""
    credit: int
    """What is left of its turn."""
    limits: dict[str, float]
    """Its settings by name, 0 where there is none."""


def read_limits(text: str) -> dict[str, float]:
    """Read settings as they are kept, of a lane or of the queue; "" is none.

    Raises:
        ValueError: They are malformed.
    """
    return dict(zip(_LIMITS, map(float, text.split(" ") if text else "00000000"), strict=True))


ABSENT: Final = LaneField("-", 0, read_limits(""))
"""A lane without a field."""


def read_lanes(snap: Snapshot) -> dict[str, LaneField]:
    """Read all lanes' fields.

    Raises:
        ValueError: One is malformed.
    """
    found = {}
    for name, text in snap.hash("lanes").items():
        match = _LANE.fullmatch(text)
        if match is None:
            raise ValueError(f"lane {name!r} has the field {text!r}")
        found[name] = LaneField(match[1], int(match[2]), read_limits(match[3] or ""))
    return found


def _lane_set(lane: str) -> str:
    return f"lane:{lane}:pending" if lane else "pending"


def _places(snap: Snapshot) -> Iterator[str]:
    """A row is in exactly the set that its state names, or its lane's; a member of a set has a row.

    A running job of a lane is in the lane's set of leases, too, with the same score.
    """
    sets = {name: snap.zset(name) for name in (*SETS, *filter(_LANE_SET.fullmatch, snap.entries))}
    places: dict[str, list[str]] = {}
    for name, members in sets.items():
        for id in members:
            places.setdefault(id, []).append(name)
    for id, row in snap.rows():
        state, lane = row.get("state", ""), row.get("lane", "")
        expected = [_lane_set(lane) if state == "pending" else state]
        if state == "active" and lane:
            expected.append(f"lane:{lane}:active")
        if places.get(id, []) != expected:
            yield f"{id} has state {state!r}, lane {lane!r} and is in {places.get(id) or 'no set'}"
        elif len({sets[name][id] for name in expected}) > 1:
            yield f"{id} has another lease in its lane than in `active`"
    for name, members in sets.items():
        yield from (f"{id} is in {name} and has no row" for id in members if not snap.row(id))


def _rows(snap: Snapshot) -> Iterator[str]:
    """What a row may say in its state."""
    for id, row in snap.rows():
        state = row.get("state", "")
        for name in _NUMBERS:
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
        if ("schedule" in row) != ("slot" in row):
            yield f"{id}: a schedule without a slot, or the other way round"
        if row.get("kind") == "expired" and attempts:
            yield f"{id} has expired, although it was claimed"


def _scores(snap: Snapshot) -> Iterator[str]:
    """Pending is ordered by priority; a kept job's score is when it goes."""
    for name in ("pending", *(it for it in snap.entries if _LANE_SET.fullmatch(it) and it.endswith(":pending"))):
        for id, score in snap.zset(name).items():
            if score != -int(snap.row(id).get("priority", "0")):
                yield f"{id} is pending with score {score} and priority {snap.row(id).get('priority', '0')}"
    for name in ("active", "schedule", "dead", "done", "waiting"):
        for id, score in snap.zset(name).items():
            if score % 1 or not 0 <= score < 1e14:
                yield f"{id} is in {name} with score {score}, which is no moment in ms"


def _beside(snap: Snapshot, suffix: str, entry: Entry, what: str) -> Iterator[str]:
    """Look at what a job has beside its row; whose it is when there is no row, `invariants_kin` says."""
    if entry.kind != _BESIDE[what] or entry.ttl:
        yield f"{suffix} is a {entry.kind}{' with a TTL' if entry.ttl else ''}"
    elif what == "log" and not snap.row(suffix.split(":")[1]):
        yield f"{suffix} has no row"


def _passing(head: str, rest: str) -> str | None:
    """Answer the type of a key that goes by itself; None: it is none of those."""
    if (head == "once" and rest.count(":") == 1) or (head == "delivered" and rest):
        return "string"
    if head == "worker" and rest:
        return "hash"
    return "zset" if head == "workers" and not rest else None


def _owners(snap: Snapshot) -> Iterator[str]:
    """No key is without an owner."""
    for suffix, entry in snap.entries.items():
        head, _, rest = suffix.partition(":")
        if suffix in _TYPES:
            if entry.kind != _TYPES[suffix]:
                yield f"{suffix} is a {entry.kind}"
            if entry.ttl:
                yield f"{suffix} has a TTL"
        elif _LANE_SET.fullmatch(suffix):
            if entry.kind != "zset" or entry.ttl:
                yield f"{suffix} is a {entry.kind}{' with a TTL' if entry.ttl else ''}"
        elif head == "job" and (what := rest.partition(":")[2]) in _BESIDE:
            yield from _beside(snap, suffix, entry, what)
        elif rest and (head == "schedule" or (head == "job" and ":" not in rest)):
            if entry.kind != "hash" or entry.ttl:
                yield f"{suffix} is a {entry.kind}{' with a TTL' if entry.ttl else ''}"
        elif head == "dedup" and rest:
            row = snap.row(entry.value)
            if not entry.ttl and not (row.get("dedup") == rest and row.get("state") in _LIVE):
                yield f"{suffix} names {entry.value}, which is no live job of that key, and never goes"
        elif (kind := _passing(head, rest)) is not None:
            if entry.kind != kind or not entry.ttl:
                yield f"{suffix} is a {entry.kind}{'' if entry.ttl else ' that never goes'}"
        else:
            yield f"{suffix} is a key that nobody owns"


def _meta(snap: Snapshot) -> Iterator[str]:
    """The queue's own hash is there as long as jobs are, and counters only count up from nothing."""
    meta = snap.hash("meta")
    if any(True for _ in snap.rows()) and "protocol" not in meta:
        yield "there are jobs and meta has no protocol version"
    if ("keeper" in meta) != ("keeper_until" in meta):
        yield f"half a keeper: {meta}"
    for name in ("max_size", "dead_max", "dead_age", "done_max"):
        if not _COUNT.fullmatch(meta.get(name, "1")) or meta.get(name) == "0":
            yield f"meta[{name}] is {meta[name]!r}"
    yield from (f"counts[{name}] is {n!r}" for name, n in snap.hash("counts").items() if not _COUNT.fullmatch(n))


def _schedules(snap: Snapshot) -> Iterator[str]:
    """A schedule has a definition and a slot, and stands where its slot says; one that rests is found by nobody."""
    found = snap.zset("schedules")
    defined = {suffix.partition(":")[2] for suffix in snap.entries if suffix.startswith("schedule:")}
    if bool(found) != ("schedules" in snap.hash("meta")):
        yield f"there are {len(found)} schedules, and meta.schedules is {snap.hash('meta').get('schedules')!r}"
    for name in sorted(found.keys() | defined):
        it = snap.hash(f"schedule:{name}")
        slot = it.get("slot", "")
        if name not in found or not it:
            yield f"schedule {name!r} has {'no slot' if it else 'no definition'}"
        elif not _COUNT.fullmatch(slot) or not it.get("digest") or it.get("overlap") not in {"allow", "skip", "queue"}:
            yield f"schedule {name!r} is {it}"
        elif found[name] != (math.inf if "paused" in it or slot == "0" else int(slot)):
            yield f"schedule {name!r} is found at {found[name]}, its slot is {slot}, paused {it.get('paused')!r}"
        elif len(it.get("open", "").split()) > MOST_OPEN:
            yield f"schedule {name!r} knows too many open jobs: {it['open']}"


def _logs(snap: Snapshot) -> Iterator[str]:
    """A log keeps to its bounds, and its row knows its size."""
    for id, row in snap.rows():
        lines = snap.items(f"job:{id}:log")
        size = sum(len(line.encode("utf-8", "surrogateescape")) for line in lines)
        if len(lines) > MOST_LINES or size > MOST_LOG_BYTES:
            yield f"the log of {id} has {len(lines)} lines, {size} bytes"
        if int(row.get("log_lines", "0")) < len(lines) or ("log_lines" in row) != ("log_bytes" in row):
            yield f"the log of {id} has {len(lines)} lines, and its row counts {row.get('log_lines')!r}"
        if int(row.get("log_bytes", "0")) != size:
            yield f"the log of {id} has {size} bytes, and its row says {row.get('log_bytes', '0')}"


def _rota(snap: Snapshot) -> Iterator[str]:
    """A lane with pending jobs is in exactly one of ring and closed, and its field says where (section 6)."""
    waiting = {lane for id, row in snap.rows() if (lane := row.get("lane", "")) and id in snap.zset(_lane_set(lane))}
    laned = sum(len(snap.zset(_lane_set(lane))) for lane in waiting)
    waiting |= {""} if snap.zset("pending") else set()
    meta, ring, closed, lanes = snap.hash("meta"), snap.items("ring"), snap.zset("closed"), read_lanes(snap)
    if int(meta.get("laned", "0")) != laned:
        yield f"{laned} jobs are pending in lanes, and meta.laned is {meta.get('laned')}"
    if "rota" not in meta:
        keys = [
            suffix for suffix in snap.entries if suffix in {"ring", "closed", "lanes"} or _LANE_SET.fullmatch(suffix)
        ]
        yield from (f"{suffix} is there, and the queue has no rota" for suffix in keys)
        return
    if len(set(ring)) != len(ring):
        yield f"a lane is on the ring twice: {ring}"
    for name in sorted(waiting | lanes.keys() | set(ring) | closed.keys()):
        field = lanes.get(name, ABSENT)
        where = "r" * (name in ring) + "c" * (name in closed) or "-"
        if field.where != where:
            yield f"lane {name!r} is at {where!r}, and its field says {field.where!r}"
        if name in waiting and where not in {"r", "c"}:
            yield f"lane {name!r} has jobs and is in {'both' if where == 'rc' else 'neither'} of ring and closed"
        if where == "c":
            yield from _closed(snap, name, field)
        if where != "r" and field.credit:
            yield f"lane {name!r} is not on the ring and has credit {field.credit}"
        if (
            name in lanes
            and where == "-"
            and not any(field.limits[it] for it in ("weight", "limit", "count", "paused"))
        ):
            yield f"lane {name!r} has a field that nobody owns: {field}"


def _closed(snap: Snapshot, name: str, field: LaneField) -> Iterator[str]:
    """A closed lane has jobs, and is not one that can be served; what only a moment holds back, no snapshot tells."""
    if not snap.zset(_lane_set(name)):
        yield f"lane {name!r} is closed and has no jobs"
    if (snap.zset("closed")[name] == math.inf) != bool(field.limits["paused"]):
        yield f"lane {name!r} is closed until {snap.zset('closed')[name]}, and paused at {field.limits['paused']:.0f}"


def _bell(snap: Snapshot) -> Iterator[str]:
    """Ready work implies a token, unless the queue is paused, or full (rule 10). Closed lanes are no ready work."""
    tokens, meta = len(snap.items("wake")), snap.hash("meta")
    limits, lanes = read_limits(meta.get("limits", "")), read_lanes(snap)
    if tokens > MOST_TOKENS:
        yield f"{tokens} wake tokens"
    # Whether a rate or a handler's closing is over, no snapshot tells: they are held to be not.
    shut = limits["till"] or limits["tat"] or 0 < limits["limit"] <= len(snap.zset("active"))
    if tokens or shut or "paused" in meta or "closing" in meta:
        return
    for name in snap.items("ring") if "rota" in meta else ("",):
        its = lanes.get(name, ABSENT).limits
        held = its["paused"] or its["till"] or its["tat"] or 0 < its["limit"] <= len(snap.zset(f"lane:{name}:active"))
        if snap.zset(_lane_set(name)) and not held:
            yield f"{len(snap.zset(_lane_set(name)))} jobs of lane {name!r} are ready and nobody is rung for"


_CHECKS: Final[tuple[Callable[[Snapshot], Iterator[str]], ...]] = (
    _places, _rows, _scores, _owners, _meta, _schedules, _logs, _rota,
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
    """Name what must not be there after all jobs have ended and been trimmed: all but the queue's own and TTL keys.

    Recurring schedules are the queue's own, too.
    """
    allowed = {"meta", "counts", "events", "wake"}
    if all(field.where == "-" for field in read_lanes(snap).values()):
        allowed.add("lanes")  # what is left there are settings, which survive an empty lane
    if not list(_schedules(snap)):
        allowed |= {"schedules", *(suffix for suffix in snap.entries if suffix.startswith("schedule:"))}
    return sorted(suffix for suffix, entry in snap.entries.items() if suffix not in allowed and not entry.ttl)
