"""A queue's whole keyspace as one value: what is there before a call can be compared with what is there after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast, final

import attrs
import redis

from echomq.protocol.keys import QueueKeys

SETS: Final = ("pending", "active", "schedule", "dead", "waiting", "done")
"""The sorted sets that hold jobs: the four of the machine and the two shelves."""

# One round trip for all values. Whoever looks must not be refused on a full server: hence no-writes.
_DUMP: Final = """#!lua flags=no-writes
local names = KEYS
if ARGV[1] then names = redis.call('KEYS', ARGV[1]) end
local out = {}
for i, key in ipairs(names) do
  local kind, value = redis.call('TYPE', key).ok, false
  if kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'stream' then value = redis.call('XRANGE', key, '-', '+')
  elseif kind == 'string' then value = redis.call('GET', key) end
  out[i] = { key, kind, redis.call('PTTL', key), value }
end
return out
"""


@final
@attrs.frozen
class Entry:
    """What is at a key."""

    kind: str
    """hash, zset, list, set, stream or string."""
    ttl: bool
    """Whether it will go by itself. How soon is no part of the value: it would differ from look to look."""
    value: Any
    """A dict for a hash (field -> text) or a sorted set (member -> score), a tuple or text otherwise."""


@final
@attrs.frozen
class Snapshot:
    """All keys of a queue, by their suffix, the part after `prefix:{queue}:`."""

    entries: dict[str, Entry]
    """Suffix -> what is there."""

    def hash(self, suffix: str) -> dict[str, str]:
        """Answer a hash, empty when there is none."""
        entry = self.entries.get(suffix)
        return cast("dict[str, str]", entry.value) if entry and entry.kind == "hash" else {}

    def zset(self, suffix: str) -> dict[str, float]:
        """Answer a sorted set in its order, empty when there is none."""
        entry = self.entries.get(suffix)
        return cast("dict[str, float]", entry.value) if entry and entry.kind == "zset" else {}

    def items(self, suffix: str) -> tuple[Any, ...]:
        """Answer a list or a stream, empty when there is none."""
        entry = self.entries.get(suffix)
        return cast("tuple[Any, ...]", entry.value) if entry and entry.kind in {"list", "stream"} else ()

    def row(self, id: str) -> dict[str, str]:
        """Answer a job's row, empty when there is none."""
        return self.hash(f"job:{id}")

    def rows(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Answer each job's id and row."""
        for suffix, entry in self.entries.items():
            if suffix.startswith("job:") and suffix.count(":") == 1 and entry.kind == "hash":
                yield suffix.removeprefix("job:"), entry.value

    def without(self, *prefixes: str) -> Snapshot:
        """Leave out keys whose suffix begins so."""
        return Snapshot({suffix: entry for suffix, entry in self.entries.items() if not suffix.startswith(prefixes)})


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _value(kind: str, raw: Any) -> Any:
    if kind in {"hash", "zset"}:
        pairs = iter(raw)
        convert = _text if kind == "hash" else float
        return {_text(name): convert(value) for name, value in zip(pairs, pairs, strict=True)}
    if kind == "string":
        return _text(raw)
    if kind == "stream":
        return tuple((_text(entry), tuple(_text(word) for word in words)) for entry, words in raw)
    return tuple(_text(item) for item in (raw or ()))


def scan(server: redis.Redis, pattern: str) -> list[bytes]:
    """Find keys by pattern, in bounded steps: the server may be somebody's own."""
    found: set[bytes] = set()
    cursor = 0
    while True:
        cursor, page = cast("tuple[int, list[bytes]]", server.scan(cursor, match=pattern, count=1000))
        found.update(page)
        if cursor == 0:
            return sorted(found)


def take(server: redis.Redis, keys: QueueKeys, *, at_once: bool = False) -> Snapshot:
    """Look at every key of a queue.

    Args:
        server: Where it is.
        keys: The queue.
        at_once: Find and read the keys in one step, so that what others do meanwhile cannot come between. The server
            then does nothing else, for a time that grows with *all* its keys: for a server of one's own. Otherwise in
            bounded steps, for a queue at rest.
    """
    if at_once:
        dump = server.eval(_DUMP, 0, f"{keys.base}*")
    else:
        names = scan(server, f"{keys.base}*")
        dump = server.eval(_DUMP, len(names), *names) if names else []
    start = len(keys.base)
    return Snapshot(
        {
            _text(name)[start:]: Entry(_text(kind), ttl >= 0, _value(_text(kind), raw))
            for name, kind, ttl, raw in cast("list[Any]", dump)
        }
    )


def differences(before: Snapshot, after: Snapshot) -> list[str]:
    """Say what changed, a line each: added, gone, or field by field."""
    lines = []
    for suffix in sorted(before.entries.keys() | after.entries.keys()):
        old, new = before.entries.get(suffix), after.entries.get(suffix)
        if old == new:
            continue
        if old is None or new is None or old.kind != new.kind or not isinstance(old.value, dict):
            lines.append(f"{suffix}: {_brief(old)} -> {_brief(new)}")
            continue
        if old.ttl != new.ttl:
            lines.append(f"{suffix}: {'has' if new.ttl else 'lost'} a TTL")
        lines += [
            f"{suffix}[{name}]: {old.value.get(name)!r} -> {new.value.get(name)!r}"
            for name in sorted(old.value.keys() | new.value.keys())
            if old.value.get(name) != new.value.get(name)
        ]
    return lines


def _brief(entry: Entry | None) -> str:
    return "nothing" if entry is None else f"{entry.kind}{' with a TTL' if entry.ttl else ''} {entry.value!r}"
