"""Mending a queue whose keys were torn, and erasing one: walks over all keys under a queue's prefix.

Theory of operation
    Scripts may not scan (Protocol, section 4, rule 4), so the keys are listed here, by plain reads, and what may be torn
    is handed to the script `repair`, which looks again and mends it, each piece at once. A job that is made, moved or
    ended meanwhile is sound whenever the script looks at it: a queue may be repaired while it works.

    First the keys that every queue may have, for one of a wrong type would stop all that follows. Then every row, log and set: a set's members are looked at if one of some has no row, a lane's in any case, for only
    its name says which lane it is. Then dedup keys, which name jobs, and lanes, whose place in the rota hangs on what is
    in them; the lane of the jobs without one, where what is ready in lanes is counted anew; and schedules, by their slots.

    To obliterate a queue is to ask for rounds of the script `obliterate` until no set has a job; what the keys' list then
    has is without an owner, and is named to the script; at last the queue's own keys go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq._delivery import Delivered, deliver_walk
from echomq._walks import Aside, Ask, Each, Outcomes, Plain, Tell, Wait, Walk, chunks
from echomq.errors import EchoMQError, JobStateError, ServerError
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_lane_name, check_schedule_name
from echomq.protocol.refusals import KIND
from echomq.transitions import MAX_ROUND, Look, Obliteration, flow_walk, obliterate

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict

SCAN_COUNT: Final = 512
"""Keys of the server that one SCAN looks at."""
LOOKS: Final = 48
"""Jobs that one call looks at: each is looked for in every set, which costs three times what other verbs do."""
ROUND: Final = MAX_ROUND
"""Jobs that one round erases, and keys that it is told of, at most."""
MOST_UNKNOWN: Final = 100
"""Keys without an owner that a report names at most."""
MOST_SCANS: Final = 8
"""How often the keys of a queue that goes are listed at most: others may still add some."""
PAUSE: Final = 0.25
"""Seconds between two rounds that found nothing to erase."""
PATIENCE: Final = 64
"""Rounds without progress after which obliterating is given up."""
PATIENCE_OWING: Final = 180
"""The same while other queues have to be told something: whoever died delivering it has it for half a minute."""
_SETS: Final = ("pending", "active", "schedule", "dead", "waiting", "done")
_TYPED: Final = (
    *_SETS,
    "ring",
    "closed",
    "lanes",
    "schedules",
    "wake",
    "events",
    "counts",
    "outbox:entries",
    "outbox",
    "workers",
)
_OWN: Final = frozenset(
    {"meta", "void", "wake", "events", "ring", "closed", "lanes", "counts", "schedules", "workers", "outbox"}
)
_OWN_HEADS: Final = frozenset({"once", "delivered", "worker", "outbox"})
_LANE_SET: Final = re.compile(r"lane:(.+):(pending|active)", re.DOTALL)
_GLOB: Final = re.compile(r"([*?\[\]\\^])")


@final
@attrs.frozen(kw_only=True)
class RepairReport:
    """What `Queue.repair` has found."""

    looked: int
    """How many jobs, dedup keys, lanes and schedules were looked at; one that was met in several places counts for each."""
    mended: int
    """How many were put right, and are where they belong."""
    buried: int
    """How many jobs went to the morgue, for their row did not say where they belong."""
    dropped: int
    """How many were cleared away: places, logs and keys of jobs that are gone, rows that are no rows, and keys of
    the queue that were of another type."""
    lost: int = 0
    """How many children, for which parents waited, nobody knew any more; the parents go on by their policies."""
    unknown: tuple[str, ...]
    """Keys, and members of sets, that are nobody's, and definitions of schedules that are none, a hundred at most. They
    were left alone."""


def scan_pattern(keys: QueueKeys) -> str:
    """Answer the pattern that the queue's keys, and no others, fit."""
    return _GLOB.sub(r"\\\1", keys.base) + "*"


def suspect(suffix: str) -> Look | str | None:
    """Tell what a key is, by what follows the queue's prefix.

    Returns:
        What may be torn; or the name of a set whose members are to be looked at; or None: one that is the queue's own.

    Raises:
        ValueError: It is nobody's.
    """
    head, _, rest = suffix.partition(":")
    if suffix in _SETS or _LANE_SET.fullmatch(suffix):
        return suffix
    if suffix in _OWN or (rest and head in _OWN_HEADS):
        return None
    if head == "job":
        return Look("job", check_id(rest.partition(":")[0]))
    if head == "dedup" and rest:
        return Look("dedup", rest)
    if head == "schedule" and rest:
        return Look("schedule", check_schedule_name(rest))
    raise ValueError(suffix)


def repair_walk(keys: QueueKeys) -> Walk[RepairReport]:
    """Answer the walk that mends a queue; see `Queue.repair`."""
    return _Repair(keys).walk()


@final
class _Repair:
    """One walk, and what it has found."""

    def __init__(self, keys: QueueKeys) -> None:
        self._keys = keys
        self._looked = 0
        self._did = {"mended": 0, "buried": 0, "dropped": 0}
        self._unknown: dict[str, None] = {}
        self._lanes: set[str] = set()
        self._any_dedup = False
        self._problem: EchoMQError | None = None

    def walk(self) -> Walk[RepairReport]:
        """Look at everything."""
        yield from _check_meta(self._keys)
        yield from self._own()
        yield from _scan(self._keys, scan_pattern(self._keys), self._jobs_of)
        if self._any_dedup:
            yield from _scan(self._keys, scan_pattern(self._keys)[:-1] + "dedup:*", self._dedups_of)
        yield from self._rota()
        yield from self._look(Look("lane", name) for name in sorted(self._lanes - {""}))
        yield from self._look([Look("lane", "")])
        yield from self._through("ZSCAN", "schedules", lambda flat: self._slots(_texts(flat[::2])))
        did: Delivered = yield from deliver_walk(self._keys)
        if self._problem is not None:
            raise self._problem
        return RepairReport(looked=self._looked, lost=did.lost, unknown=tuple(self._unknown), **self._did)

    def _own(self) -> Walk[None]:
        looks = [Look("key", name) for name in _TYPED]
        outcomes: Outcomes = yield Each("repair", looks)
        for look, outcome in zip(looks, outcomes, strict=True):
            if isinstance(outcome, EchoMQError):
                raise outcome
            self._note(look, outcome)

    def _slots(self, names: list[str | None]) -> Walk[None]:
        yield from self._look(Look("schedule", name) for name in names if name is not None)

    def _jobs_of(self, suffixes: list[str]) -> Walk[None]:
        looks: dict[Look, None] = {}
        for suffix in suffixes:
            try:
                what = suspect(suffix)
            except ValueError:
                self._nobodys(suffix)
                continue
            if isinstance(what, str):
                yield from self._members(what)
            elif what is not None and what.what == "dedup":
                self._any_dedup = True
            elif what is not None:
                looks[what] = None
        yield from self._look(looks)

    def _dedups_of(self, suffixes: list[str]) -> Walk[None]:
        yield from self._look(Look("dedup", suffix.removeprefix("dedup:")) for suffix in suffixes)

    def _members(self, suffix: str) -> Walk[None]:
        """Look at what is in a set."""
        match = _LANE_SET.fullmatch(suffix)
        lane = match[1] if match else ""
        if match is not None:
            try:
                self._lanes.add(check_lane_name(lane))
            except ValueError:
                self._nobodys(suffix)
                return
        yield from self._through("ZSCAN", suffix, lambda flat: self._looks_of(lane, suffix, _texts(flat[::2])))

    def _looks_of(self, lane: str, suffix: str, members: list[str | None]) -> Walk[None]:
        ids = []
        for member in members:
            try:
                ids.append(check_id(member))  # type: ignore[arg-type]  # which refuses None
            except (TypeError, ValueError):
                self._nobodys(f"{suffix}: {member}")
        for some in chunks(ids, ROUND):
            if lane or (yield Plain(("EXISTS", *map(self._keys.job, some)))) < len(some):
                yield from self._look(Look("job", id, lane) for id in some)

    def _rota(self) -> Walk[None]:
        """Gather the lanes that the rota names, in whatever place."""
        yield from self._through("HSCAN", "lanes", lambda flat: self._name(flat[::2]))
        yield from self._through("ZSCAN", "closed", lambda flat: self._name(flat[::2]))
        start = 0
        while True:
            try:
                names = yield Plain(("LRANGE", self._keys.ring, start, start + ROUND - 1))
            except ServerError as error:
                self._other_type(error, "ring")
                return
            yield from self._name(names)
            if len(names) < ROUND:
                return
            start += ROUND

    def _name(self, names: Sequence[bytes]) -> Walk[None]:
        self._lanes.update(name for name in _texts(names) if name is not None)
        yield from ()

    def _through(self, command: str, suffix: str, visit: Any) -> Walk[None]:
        """Go through a hash or a set by cursor."""
        cursor: bytes | int = 0
        while True:
            try:
                cursor, flat = yield Plain((command, self._keys.base + suffix, cursor, "COUNT", ROUND))
            except ServerError as error:
                self._other_type(error, suffix)
                return
            yield from visit(flat)
            if int(cursor) == 0:
                return

    def _other_type(self, error: ServerError, suffix: str) -> None:
        if error.code != "WRONGTYPE":
            raise error
        if not _LANE_SET.fullmatch(suffix):  # which goes when its lane is looked at
            self._nobodys(suffix)

    def _nobodys(self, name: str) -> None:
        if len(self._unknown) < MOST_UNKNOWN:
            self._unknown[name] = None

    def _look(self, looks: Iterable[Look]) -> Walk[None]:
        for some in chunks(list(looks), LOOKS):
            outcomes: Outcomes = yield Each("repair", some)
            for look, outcome in zip(some, outcomes, strict=True):
                if isinstance(outcome, EchoMQError):
                    raise outcome
                self._looked += 1
                self._note(look, outcome)
            yield Tell(self._looked)

    def _note(self, look: Look, verdict: Verdict) -> None:
        if verdict.code in self._did:
            self._did[verdict.code] += 1
        elif verdict.code == KIND:
            self._nobodys(f"{look.what}:{look.name}")
        elif not verdict.ok:
            self._problem = self._problem or verdict.error(id=look.name, queue=self._keys.queue)


def obliterate_walk(keys: QueueKeys, *, force: bool) -> Walk[int]:
    """Answer the walk that erases a queue; see `Queue.obliterate`."""
    jobs, idle, least = 0, 0, None
    yield from _check_meta(keys)
    while True:
        done: Obliteration = yield from _round(keys, force=force)
        jobs += done.jobs
        if done.jobs:
            yield Tell(jobs)
        if done.left == 0:
            break
        owes = done.jobs == 0 and (yield from _tell_others(keys))
        idle = 0 if least is None or done.left < least else idle + 1
        least = done.left if least is None else min(least, done.left)
        if idle >= (PATIENCE_OWING if owes else PATIENCE):
            what = "words for other queues cannot be delivered" if owes else "jobs or schedules cannot be erased"
            way_out = " (force=True gives them up)" if owes else ""
            raise ServerError("EMQTORN", f"queue {keys.queue!r}: {done.left} {what}{way_out}")
    for _ in range(MOST_SCANS):
        leftovers: dict[str, None] = {}

        def visit(suffixes: list[str], leftovers: dict[str, None] = leftovers) -> Walk[None]:
            left = [suffix for suffix in suffixes if suffix != "meta"]
            leftovers.update(dict.fromkeys(left))
            for some in chunks(left, ROUND):
                yield from _round(keys, force=force, names=some)

        yield from _scan(keys, scan_pattern(keys), visit)
        if not leftovers:
            break
    yield from _round(keys, force=force, last=True)
    yield Aside(("ZREM", keys.known, keys.queue))
    return jobs


def _tell_others(keys: QueueKeys) -> Walk[bool]:
    """Deliver what other queues must hear before it is forgotten. Answers whether there is some yet."""
    names: list[bytes] = yield Plain(("ZRANGE", keys.outbox, 0, ROUND - 1))
    for name in names:
        if name.startswith(b"hold:"):  # a flow that is being added: nobody can go on with it
            walk = name.decode("utf-8", "replace")
            while (yield Ask(lambda call, walk=walk: flow_walk(keys, call, entry=walk))).more:  # type: ignore[misc]
                pass
    if not names:
        return False
    did = yield from deliver_walk(keys)
    if not did.entries:
        yield Wait(PAUSE)  # somebody else has taken it, or the other queue is away
    return True


def _check_meta(keys: QueueKeys) -> Walk[None]:
    """Without it no script runs, and what it should say is nowhere else.

    Raises:
        ServerError: It is of another type.
    """
    try:
        yield Plain(("HMGET", keys.meta, "protocol"))
    except ServerError as error:
        if error.code != "WRONGTYPE":
            raise
        raise ServerError(
            "WRONGTYPE",
            f"{keys.meta!r} holds the settings of queue {keys.queue!r} and is no hash: rename it or delete it, then call "
            "again; settings and a pause have to be made anew",
        ) from None


def _round(keys: QueueKeys, *, force: bool, names: Sequence[str] = (), last: bool = False) -> Walk[Obliteration]:
    try:
        done: Obliteration = yield Ask(
            lambda call: obliterate(keys, call, bound=ROUND, force=force, names=names, last=last)
        )
    except JobStateError as error:
        expected = "paused, and without a running job (or force=True)"
        raise JobStateError(expected, error.actual, queue=keys.queue) from None
    return done


def _scan(keys: QueueKeys, pattern: str, visit: Any) -> Walk[None]:
    """Hand out the suffixes of the queue's keys, some at a time; a key may come twice."""
    cursor: bytes | int = 0
    base = len(keys.base.encode())
    while True:
        cursor, names = yield Plain(("SCAN", cursor, "MATCH", pattern, "COUNT", SCAN_COUNT))
        suffixes = [suffix for name in names if (suffix := _text(name[base:])) is not None]
        if suffixes:
            yield from visit(suffixes)
        if int(cursor) == 0:
            return


def _texts(names: Iterable[bytes]) -> list[str | None]:
    return list(map(_text, names))


def _text(name: bytes) -> str | None:
    """Answer a name as text; None when it is none, so that nobody of ours has written it."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
