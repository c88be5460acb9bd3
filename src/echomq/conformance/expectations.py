"""How what is seen is held against what the model says."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from typing import Final

from echomq.conformance.invariants import ABSENT, read_lanes, read_limits, violations
from echomq.conformance.model import Queue
from echomq.conformance.model_lanes import Limits
from echomq.conformance.snapshot import Snapshot, differences
from echomq.protocol.states import State

_PAST: Final = 2000
"""Unix ms that a proof calls the past."""
MADE_UP: Final = frozenset({"since", "reason", "unfit_since", "expires_ms", "deadline_ms"})
"""Row fields whose text the scripts make: a moment, and a sentence for people."""


class ContradictionError(AssertionError):
    """The server did something else than the protocol says."""


def no_change(before: Snapshot, after: Snapshot) -> None:
    """Hold that a call changed nothing but the memory of calls.

    Raises:
        ContradictionError: Something changed.
    """
    changed = differences(before.without("once:"), after.without("once:"))
    if changed:
        raise ContradictionError("nothing was to change, but:\n" + "\n".join(changed))


def differing(what: str, expected: Mapping[str, str], seen: Mapping[str, str]) -> list[str]:
    """Say which fields differ, a line each."""
    return [
        f"{what}[{name}]: expected {expected.get(name)!r}, seen {seen.get(name)!r}"
        for name in sorted(expected.keys() | seen.keys())
        if expected.get(name) != seen.get(name)
    ]


def _limits(what: str, expected: Limits, seen: dict[str, float]) -> Iterator[str]:
    told, used = seen["till"] > _PAST, seen["tat"] > _PAST
    facts = (int(seen["weight"]), int(seen["limit"]), int(seen["burst"]), seen["paused"] > 0)
    if expected.settings != facts or (expected.told, expected.used > 0) != (told, used):
        yield f"{what}: expected {expected}, seen {seen}"


def _lanes(model: Queue, snap: Snapshot) -> Iterator[str]:
    """Hold ring, closed lanes, credit and settings against the model.

    An empty lane may stand on the ring until its turn, and whether a claim notices that it took a lane's last job is
    the script's own affair: of empty lanes the model takes over where they stand.
    """
    rota = model.rota
    if rota.on != ("rota" in snap.hash("meta")):
        yield f"rota: expected {rota.on}"
    ring, closed, seen = list(snap.items("ring")), sorted(snap.zset("closed")), read_lanes(snap)
    waiting = {job.lane for job in model.ready()} if rota.on else set()
    lines = ([name for name in it if name in waiting] for it in (ring, rota.ring))
    if operator.ne(*lines):
        yield f"ring: expected {rota.ring}, seen {ring}; jobs wait in {sorted(waiting)}"
    if closed != rota.closed:
        yield f"closed: expected {rota.closed}, seen {closed}"
    rota.ring = ring
    for name in sorted(seen.keys() | rota.lanes.keys()):
        lane, it = rota.lane(name), seen.get(name, ABSENT)
        if name in waiting and (lane.where, lane.credit) != (it.where, it.credit):
            yield f"lane {name!r}: expected {lane.where}{lane.credit}, seen {it.where}{it.credit}"
        lane.where, lane.credit = it.where, it.credit
        yield from _limits(f"lane {name!r}", lane.limits, it.limits)


def compare(model: Queue, snap: Snapshot, *, awake: int = 0) -> None:
    """Hold all invariants, and every row, log, dedup key and counter against the model.

    Raises:
        ContradictionError: They differ; the message has a line for each difference.
    """
    lines = violations(snap, awake=awake)
    rows = dict(snap.rows())
    for id in sorted(model.jobs.keys() | rows.keys()):
        job, row = model.jobs.get(id), rows.get(id)
        if job is None or row is None:
            lines.append(f"{id}: the model says {job and job.state}, the row {row}")
            continue
        expected = {name: value for name, value in job.row().items() if name not in MADE_UP}
        seen = {name: value for name, value in row.items() if name not in MADE_UP}
        if job.log or "log_bytes" in seen:
            expected.setdefault("log_bytes", "0")
            expected.setdefault("log_lines", str(job.log_lines))
        lines += differing(id, expected, seen)
        ends = {name: int(row[name]) <= _PAST for name in ("expires_ms", "deadline_ms") if name in row}
        if ends != job.ends:
            lines.append(f"{id}: of its moments are over: {ends}, expected {job.ends}")
        if ("unfit_since" in job.notes) != ("unfit_since" in row):
            lines.append(f"{id}: unfit_since is {row.get('unfit_since')!r}")
        if list(snap.items(f"job:{id}:log")) != job.log:
            lines.append(f"{id}: its log is {snap.items(f'job:{id}:log')}, expected {job.log}")
        if (
            job.state in {State.DEAD, State.DONE}
            and job.notes.get("kind") in {"dead", "cancelled", "discarded", "expired"}
        ) != ("reason" in row):
            lines.append(f"{id} is {job.state} with reason {row.get('reason')!r}")
    dedup = {s.removeprefix("dedup:"): (e.value, e.ttl) for s, e in snap.entries.items() if s.startswith("dedup:")}
    if dedup != model.dedup:
        lines.append(f"dedup keys: expected {model.dedup}, seen {dedup}")
    counts = {name: int(n) for name, n in snap.hash("counts").items() if n != "0"}
    totals = {name: n for name, n in model.totals.items() if n}
    if counts != totals:
        lines.append(f"counts: expected {totals}, seen {counts}")
    meta = snap.hash("meta")
    if model.paused != ("paused" in meta):
        lines.append(f"paused: expected {model.paused}")
    if model.max_size != int(meta.get("max_size", "0")):
        lines.append(f"max_size: expected {model.max_size}, seen {meta.get('max_size')}")
    shelves = [int(meta.get(name, "0")) for name in ("dead_max", "dead_age", "done_max")]
    if shelves != [*model.shelves.settings]:
        lines.append(f"dead_max, dead_age, done_max: expected {model.shelves.settings}, seen {shelves}")
    lines += _limits("the queue", model.limits, read_limits(meta.get("limits", "")))
    lines += _lanes(model, snap)
    if not (model.paused or model.closed() or awake or snap.items("wake")) and model.serviceable():
        lines.append(f"lanes {model.serviceable()} can be served and nobody is rung for")
    if lines:
        raise ContradictionError("\n".join(lines))
