"""How what is seen is held against what the model says."""

from __future__ import annotations

from typing import Final

from echomq.conformance.invariants import violations
from echomq.conformance.model import Queue
from echomq.conformance.snapshot import Snapshot, differences
from echomq.protocol.states import State

MADE_UP: Final = frozenset({"since", "reason", "unfit_since"})
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
        lines += [
            f"{id}[{name}]: expected {expected.get(name)!r}, seen {seen.get(name)!r}"
            for name in sorted(expected.keys() | seen.keys())
            if expected.get(name) != seen.get(name)
        ]
        if ("unfit_since" in job.notes) != ("unfit_since" in row):
            lines.append(f"{id}: unfit_since is {row.get('unfit_since')!r}")
        if list(snap.items(f"job:{id}:log")) != job.log:
            lines.append(f"{id}: its log is {snap.items(f'job:{id}:log')}, expected {job.log}")
        if (job.state in {State.DEAD, State.DONE} and job.notes.get("kind") in {"dead", "cancelled", "discarded"}) != (
            "reason" in row
        ):
            lines.append(f"{id} is {job.state} with reason {row.get('reason')!r}")
    dedup = {s.removeprefix("dedup:"): (e.value, e.ttl) for s, e in snap.entries.items() if s.startswith("dedup:")}
    if dedup != model.dedup:
        lines.append(f"dedup keys: expected {model.dedup}, seen {dedup}")
    counts = {name: int(n) for name, n in snap.hash("counts").items() if n != "0"}
    totals = {name: n for name, n in model.totals.items() if n}
    if counts != totals:
        lines.append(f"counts: expected {totals}, seen {counts}")
    if model.paused != ("paused" in snap.hash("meta")):
        lines.append(f"paused: expected {model.paused}")
    if lines:
        raise ContradictionError("\n".join(lines))
