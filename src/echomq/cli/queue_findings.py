"""What `echomq doctor` looks at in a queue: facts, gathered by reads alone and within bounds, and the checks of them.

Theory of operation
    Jobs move while they are looked at. A row with its place is one read (`read_job`), so a row whose set does not have it
    is torn. A member of a set without a row is looked at twice: a script takes both away at once, so one that was without
    a row and is a member afterwards is torn. A lane's place in the rota needs several reads, between which it may go
    around: it is called stuck when it was seen so each of three times.

    The server's keys are listed once for all queues, for a listing goes through the keys of all of them.

    All that is looked at has a bound: of a large queue it is a sample, and what was seen says how much. `repair` looks at
    everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Self, final

import anyio
import attrs

from echomq.cli.findings import Finding
from echomq.cli.output import span
from echomq.errors import DecodeError, PermissionDeniedError, ProtocolMismatchError, ServerError
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_lane_name
from echomq.repairs import scan_pattern

if TYPE_CHECKING:
    from echomq.client import Client
    from echomq.queue import Queue

SCANS: Final = 64
"""Calls of SCAN at most, each of 1,000 keys of the server."""
SCAN_COUNT: Final = 1000
ROWS: Final = 200
"""Rows that are read at most."""
MEMBERS: Final = 100
"""Members of a set that are looked at, from either end."""
LANES: Final = 10_000
"""Lanes that are looked at most."""
LOOKS: Final = 3
"""Looks at a lane before it is called stuck."""
PAUSE: Final = 0.02
"""Seconds between them."""
SHOWN: Final = 3
"""Names that a finding shows."""
LONG: Final = 3600.0
"""Seconds for which a queue with jobs may be paused before somebody is reminded."""
_SETS: Final = ("pending", "active", "schedule", "dead", "waiting", "done")


@final
@attrs.define
class QueueFacts:
    """What was read of a queue."""

    name: str
    """Its name."""
    waiting: int = 0
    """Jobs that are ready."""
    running: int = 0
    """Jobs that are claimed."""
    paused_for: float | None = None
    """Seconds for which it has been paused; None: it is not."""
    exists: bool = True
    """Whether it has settings, which the first job makes."""
    closing_for: float | None = None
    """Seconds for which it has been in the state that `obliterate` begins with; None: it is not."""
    torn_before: int = 0
    """What was counted as torn or dropped since the queue began."""
    workers: int | None = None
    """Workers that are alive; None: not known."""
    rows: int = 0
    """Rows that were read."""
    torn: list[str] = attrs.field(factory=list)
    """What `repair` would mend, of what was looked at."""
    lanes: int = 0
    """Lanes that were looked at."""
    stuck: list[str] = attrs.field(factory=list)
    """Lanes with ready jobs that nobody will serve."""
    whole: bool = True
    """Whether all of its rows were looked at, not a sample."""
    unseen: str = ""
    """Why rows and lanes were not looked at; "": they were."""
    mismatch: str = ""
    """Why the queue's protocol does not fit ours; "": it does."""


@final
@attrs.frozen
class Names:
    """What a listing of keys names in one queue."""

    ids: dict[str, None] = attrs.field(factory=dict)
    """Ids of rows, in the order in which they were met."""
    lanes: set[str] = attrs.field(factory=set)
    """Lanes that have ready jobs."""


@final
@attrs.frozen
class Listing:
    """Rows and lanes of some queues, found by listing keys."""

    names: Mapping[str, Names]
    """What was found, by queue."""
    whole: bool
    """Whether all keys were listed."""
    unseen: str = ""
    """Why none were; "": they were."""

    @classmethod
    async def of(cls, client: Client, queues: Iterable[str]) -> Self:
        """List keys of the server, within bounds, and keep what is of these queues."""
        names = {queue: Names() for queue in queues}
        one = scan_pattern(client.queue(next(iter(names))).keys) if len(names) == 1 else f"{client.prefix}:{{*"
        start, cursor = len(f"{client.prefix}:{{"), 0
        for _ in range(SCANS if names else 0):
            try:
                cursor, keys = await client.wire.command("SCAN", cursor, "MATCH", one, "COUNT", SCAN_COUNT, repeat=True)
            except PermissionDeniedError as error:
                return cls(names, whole=False, unseen=f"the user may not look: {error}")
            for key in keys:
                queue, _, suffix = key[start:].decode("utf-8", "replace").partition("}:")
                head, _, rest = suffix.partition(":")
                if queue not in names:
                    continue
                if head == "job" and ":" not in rest:
                    names[queue].ids[rest] = None
                elif head == "lane" and rest.endswith(":pending"):
                    names[queue].lanes.add(rest.removesuffix(":pending"))
            if int(cursor) == 0:
                break
        return cls(names, whole=int(cursor) == 0)


def of_queue(facts: QueueFacts) -> Iterator[Finding]:
    """Check a queue."""

    def found(check: str, level: Any, text: str, advice: str = "") -> Finding:
        return Finding(queue=facts.name, check=check, level=level, text=text, advice=advice)

    if facts.mismatch:
        yield found("protocol", "problem", facts.mismatch, "let all programs that use the queue have one version")
        return
    if not facts.exists:
        advice = "is the name right, and --prefix? echomq stats shows the queues that are known"
        yield found("exists", "warning", "nothing was ever enqueued in it, or it was erased", advice)
        return
    if facts.closing_for is not None:
        advice = f"finish it: echomq obliterate -q {facts.name} --force; or let it live: echomq resume {facts.name}"
        text = f"erasing began {span(facts.closing_for)} ago and is not done: it takes no new job"
        yield found("closing", "problem", text, advice)
    if facts.paused_for is None:
        yield found("paused", "ok", "no")
    else:
        late = facts.paused_for >= LONG and facts.waiting > 0
        text = f"for {span(facts.paused_for)}; {facts.waiting:,} jobs are ready"
        yield found("paused", "warning" if late else "ok", text, f"echomq resume {facts.name}" if late else "")
    if facts.workers is not None:
        text = f"{facts.workers:,} alive; {facts.waiting:,} jobs ready, {facts.running:,} running"
        idle = facts.workers == 0 and facts.waiting > 0 and facts.paused_for is None
        advice = f"start one: python -m echomq.worker MODULE:APP --queue {facts.name}"
        yield found("workers", "problem" if idle else "ok", text, advice if idle else "")
    if facts.unseen:
        yield found("lanes", "unknown", facts.unseen)
        yield found("rows", "unknown", facts.unseen)
        return
    mend = f"echomq repair -q {facts.name}"
    if facts.stuck:
        text = f"{len(facts.stuck):,} with ready jobs that nobody will serve: {_some(facts.stuck)}"
        yield found("lanes", "problem", text, mend)
    else:
        yield found("lanes", "ok", f"{facts.lanes:,} looked at, none is stuck")
    looked = f"{facts.rows:,} rows looked at{'' if facts.whole else ', of more'}"
    if facts.torn:
        yield found("rows", "problem", f"{len(facts.torn):,} torn ({looked}): {_some(facts.torn)}", mend)
    else:
        before = f"; {facts.torn_before:,} were torn or dropped before" if facts.torn_before else ""
        yield found("rows", "ok", f"none is torn ({looked}{before})")


async def look_at(queue: Queue, now: float, listing: Listing) -> QueueFacts:
    """Gather the facts of a queue, by reads alone.

    Args:
        queue: The queue.
        now: The server's clock, Unix seconds.
        listing: Keys of it, among others.
    """
    facts = QueueFacts(queue.name)
    try:
        counts = await queue.counts()
        facts.waiting, facts.running = counts.pending, counts.active
        facts.torn_before = counts.totals.get("torn", 0) + counts.totals.get("dropped", 0)
        facts.workers = len(await queue.workers())
        if counts.paused_ms:
            facts.paused_for = max(0.0, now - counts.paused_ms / 1000)
        protocol, closing = await _read(queue, "HMGET", queue.keys.meta, "protocol", "closing")
        facts.exists = protocol is not None
        if closing is not None:
            facts.closing_for = max(0.0, now - int(closing) / 1000)
        if listing.unseen:
            facts.unseen = listing.unseen
        else:
            jobs = counts.pending + counts.active + counts.schedule + counts.dead + counts.waiting + counts.done
            await _look_within(queue, facts, listing, jobs)
    except ProtocolMismatchError as error:
        facts.mismatch = str(error)
    except PermissionDeniedError as error:
        facts.unseen = f"the user may not look: {error}"
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise
        facts.torn.append(f"a key of another type ({error})")
    return facts


async def _look_within(queue: Queue, facts: QueueFacts, listing: Listing, jobs: int) -> None:
    names = listing.names[queue.name]
    lanes = await _lanes(queue, names.lanes)
    ids = dict.fromkeys(_valid(names.ids, check_id))
    for state in _SETS:
        members, torn = await _members(queue, queue.keys.base + state)
        facts.torn += [f"{member} in {state}, without a row" for member in torn]
        if not listing.whole:  # the rows that it did not come to
            ids |= dict.fromkeys(member for member in members if member not in torn)
    facts.whole = len(ids) <= ROWS and (listing.whole or len(ids) >= jobs)
    for id in islice(ids, ROWS):
        facts.rows += 1
        if why := await _misplaced(queue, id):
            facts.torn.append(f"{id}{why}")
    ring = set(await _read(queue, "LRANGE", queue.keys.ring, 0, LANES - 1))
    closed = set(await _read(queue, "ZRANGE", queue.keys.closed, 0, LANES - 1))
    for lane in sorted(lanes):
        facts.lanes += 1
        if lane.encode() not in ring | closed and await _is_stuck(queue, lane):
            facts.stuck.append(repr(lane))


async def _lanes(queue: Queue, ready: set[str]) -> set[str]:
    """Find names of lanes: those that are known, beside those that have ready jobs."""
    lanes, cursor = set(ready), 0
    while len(lanes) < LANES:
        cursor, flat = await _read(queue, "HSCAN", queue.keys.lanes, cursor, "COUNT", SCAN_COUNT)
        lanes.update(name.decode("utf-8", "replace") for name in flat[::2])
        if int(cursor) == 0:
            break
    return set(_valid(lanes - {""}, check_lane_name)) | (lanes & {""})


async def _misplaced(queue: Queue, id: str) -> str:
    """Say what is wrong with a row; "" if nothing is, or it is gone."""
    job = await queue.job(id)
    if job is None or job.score is not None:
        return ""
    try:
        return f", which is not in {job.record.state}"
    except DecodeError as error:
        return f": {error}"


async def _members(queue: Queue, key: str) -> tuple[list[str], list[str]]:
    """Find the members of a set near its ends, and those of them that have no row."""
    ends = [await _read(queue, verb, key, 0, MEMBERS - 1) for verb in ("ZRANGE", "ZREVRANGE")]
    members = [*_valid(dict.fromkeys(name.decode("utf-8", "replace") for end in ends for name in end), check_id)]
    if not members or await _read(queue, "EXISTS", *map(queue.keys.job, members)) == len(members):
        return members, []
    return members, [
        id
        for id in members
        if not await _read(queue, "EXISTS", queue.keys.job(id)) and await _read(queue, "ZSCORE", key, id) is not None
    ]


async def _is_stuck(queue: Queue, lane: str) -> bool:
    for _ in range(LOOKS):
        if not await _read(queue, "ZCARD", queue.keys.lane_pending(lane)):
            return False
        if not lane and not await _read(queue, "HEXISTS", queue.keys.meta, "rota"):
            return False  # a queue that never met a lane serves `pending` without a rota
        if await _read(queue, "LPOS", queue.keys.ring, lane) is not None:
            return False
        if await _read(queue, "ZSCORE", queue.keys.closed, lane) is not None:
            return False
        await anyio.sleep(PAUSE)
    return True


async def _read(queue: Queue, *words: Any) -> Any:
    return await queue.wire.command(*words, keys=queue.keys, repeat=True)


def _valid(names: Iterable[str], check: Any) -> Iterator[str]:
    for name in names:
        try:
            yield check(name)
        except ValueError:
            continue  # nobody's key: `repair` names it and leaves it alone


def _some(names: list[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
