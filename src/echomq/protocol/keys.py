"""The names of a queue's keys, and what may be in a name (Protocol, section 2)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, final

import attrs

_QUEUE: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")
_TASK: Final = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_PREFIX: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BRACES: Final = re.compile(r"[{}]")
_MAX_DEDUP_BYTES: Final = 256
_MAX_LANE_BYTES: Final = 128


def _fits(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _refuse(what: str, rule: str, value: object) -> ValueError:
    return ValueError(f"{what} is {rule}, not {value!r}")


@lru_cache(maxsize=1024)
def check_queue_name(name: str) -> str:
    """Answer the name if a queue may have it.

    Raises:
        ValueError: Not 1 to 128 of `A-Z a-z 0-9 . _ -`.
    """
    if not _fits(_QUEUE, name):
        raise _refuse("a queue's name", "1 to 128 of A-Z a-z 0-9 . _ -", name)
    return name


@lru_cache(maxsize=1024)
def check_task_name(name: str) -> str:
    """Answer the name if a task may have it.

    Raises:
        ValueError: Not 1 to 128 of `A-Z a-z 0-9 . _ : -`.
    """
    if not _fits(_TASK, name):
        raise _refuse("a task's name", "1 to 128 of A-Z a-z 0-9 . _ : -", name)
    return name


@lru_cache(maxsize=1024)
def check_schedule_name(name: str) -> str:
    """Answer the name if a recurring schedule may have it.

    Raises:
        ValueError: Not 1 to 128 of `A-Z a-z 0-9 . _ : -`.
    """
    if not _fits(_TASK, name):
        raise _refuse("a schedule's name", "1 to 128 of A-Z a-z 0-9 . _ : -", name)
    return name


def check_dedup_key(key: str) -> str:
    """Answer the key if jobs may be deduplicated by it.

    Raises:
        ValueError: Not 1 to 256 bytes of UTF-8 without control characters.
    """
    return _check_text("a dedup key", key, _MAX_DEDUP_BYTES, "control characters", _CONTROL)


def check_lane_name(name: str) -> str:
    """Answer the name if a lane may have it; the jobs without one are the lane with the empty name.

    Raises:
        ValueError: Not 1 to 128 bytes of UTF-8 without control characters and braces.
    """
    return _check_text("a lane's name", name, _MAX_LANE_BYTES, "control characters and braces", _CONTROL, _BRACES)


def _check_text(what: str, value: str, most: int, without: str, *refused: re.Pattern[str]) -> str:
    rule = f"1 to {most} bytes of UTF-8 without {without}"
    try:
        size = len(str.encode(value))
    except (TypeError, UnicodeEncodeError):  # not text, or a lone surrogate
        raise _refuse(what, rule, value) from None
    if not 1 <= size <= most or any(pattern.search(value) for pattern in refused):
        raise _refuse(what, rule, value)
    return value


def check_prefix(prefix: str) -> str:
    """Answer the prefix if keys may begin with it; braces would move the hash tag.

    Raises:
        ValueError: Not 1 to 64 of `A-Z a-z 0-9 . _ : -`.
    """
    if not _fits(_PREFIX, prefix):
        raise _refuse("a key prefix", "1 to 64 of A-Z a-z 0-9 . _ : -", prefix)
    return prefix


def known_queues(prefix: str) -> str:
    """Name the sorted set of the queues known under a prefix."""
    return f"{prefix}:queues"


@final
@attrs.frozen(kw_only=True)
class QueueKeys:
    """Every key of one queue: `emq:{<queue>}:<suffix>`; the braces make it one cluster slot.

    Raises:
        ValueError: The prefix or the queue's name does not fit; nothing was sent.
    """

    prefix: str = attrs.field(default="emq", validator=lambda _i, _a, value: check_prefix(value))
    """What the keys begin with, configurable per client."""
    queue: str = attrs.field(validator=lambda _i, _a, value: check_queue_name(value))
    """The queue's name."""
    base: str = attrs.field(init=False, repr=False, eq=False)
    """`emq:{<queue>}:`, with which every key of the queue begins."""
    meta: str = attrs.field(init=False, repr=False, eq=False)
    """Hash: protocol version, pause, keeper; KEYS[1] of every script."""
    void: str = attrs.field(init=False, repr=False, eq=False)
    """Never written: KEYS[2] of every script (rule 11)."""
    pending: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: ready to be claimed."""
    active: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: claimed, scored by lease deadline."""
    schedule: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: due later."""
    dead: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: the morgue."""
    waiting: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: flow parents held until their children settle."""
    done: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: kept results, scored by expiry."""
    wake: str = attrs.field(init=False, repr=False, eq=False)
    """List: the wake tokens that parked workers block on."""
    events: str = attrs.field(init=False, repr=False, eq=False)
    """Stream: what happened, bounded."""
    ring: str = attrs.field(init=False, repr=False, eq=False)
    """List: the rota of lanes that can be served; its head is next."""
    closed: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: lanes that have jobs and cannot be served now, scored by when to look again."""
    lanes: str = attrs.field(init=False, repr=False, eq=False)
    """Hash: each lane's place in the rota, credit and settings."""
    schedules: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: recurring schedules, scored by their next slot."""
    counts: str = attrs.field(init=False, repr=False, eq=False)
    """Hash: how many jobs ended, by kind."""
    outbox: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: what is to be told to other queues, scored by the next try."""
    outbox_entries: str = attrs.field(init=False, repr=False, eq=False)
    """Hash: what each entry of the outbox says."""
    workers: str = attrs.field(init=False, repr=False, eq=False)
    """Sorted set: the workers that are alive, by their clients' tags, scored by when they are no longer."""
    cancel_channel: str = attrs.field(init=False, repr=False, eq=False)
    """Channel on which cancel requests for running jobs are told."""

    def __attrs_post_init__(self) -> None:
        """Spell out the fixed keys once, so that the hot path only reads them."""
        put = object.__setattr__
        base = f"{self.prefix}:{{{self.queue}}}:"
        put(self, "base", base)
        for suffix in (
            "meta", "void", "pending", "active", "schedule", "dead", "waiting", "done", "wake", "events", "ring",
            "closed", "lanes", "schedules", "counts", "outbox", "workers",
        ):  # fmt: skip
            put(self, suffix, base + suffix)
        put(self, "outbox_entries", base + "outbox:entries")
        put(self, "cancel_channel", base + "cancel")

    def job(self, id: str) -> str:
        """Name the job's row."""
        return f"{self.base}job:{id}"

    def log(self, id: str) -> str:
        """Name the job's log."""
        return f"{self.base}job:{id}:log"

    def children(self, id: str) -> str:
        """Name the hash of a job's children."""
        return f"{self.base}job:{id}:children"

    def results(self, id: str) -> str:
        """Name the hash of how a job's children ended."""
        return f"{self.base}job:{id}:results"

    def held(self, id: str) -> str:
        """Name the list of the jobs of a flow that is being added in rounds, by its root."""
        return f"{self.base}job:{id}:held"

    def delivered(self, entry: str) -> str:
        """Name the mark that an entry of another queue's outbox has come."""
        return f"{self.base}delivered:{entry}"

    def worker(self, tag: str) -> str:
        """Name the hash of what a worker said of itself, by its client's tag."""
        return f"{self.base}worker:{tag}"

    @property
    def known(self) -> str:
        """Name the sorted set of all queues known under the prefix, by when they were last used; in no queue's slot."""
        return known_queues(self.prefix)

    def schedule_of(self, name: str) -> str:
        """Name a recurring schedule's definition.

        Raises:
            ValueError: The name does not fit.
        """
        return f"{self.base}schedule:{check_schedule_name(name)}"

    def lane_pending(self, lane: str) -> str:
        """Name the set of a lane's ready jobs; "" is the lane of the jobs without one.

        Raises:
            ValueError: The name does not fit.
        """
        return f"{self.base}lane:{check_lane_name(lane)}:pending" if lane else self.pending

    def lane_active(self, lane: str) -> str:
        """Name the set of a lane's leases.

        Raises:
            ValueError: The name does not fit.
        """
        return f"{self.base}lane:{check_lane_name(lane)}:active"

    def dedup(self, key: str) -> str:
        """Name a deduplication key's holder.

        Raises:
            ValueError: The key does not fit.
        """
        return f"{self.base}dedup:{check_dedup_key(key)}"

    def once(self, client: str, verb: str) -> str:
        """Name the memory of a client's last call of a verb (rule 6)."""
        return f"{self.base}once:{client}:{verb}"

    def result_channel(self, id: str) -> str:
        """Name the channel on which the job's ending is told: that of its row."""
        return self.job(id)
