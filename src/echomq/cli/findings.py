"""What `echomq doctor` finds: one value a check, and the checks of the server, from facts that were gathered before.

The checks are pure: what a server would have to be like to fail one can be written down in a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Final, Literal, final

import attrs

Level = Literal["ok", "warning", "problem", "unknown"]
"""`warning`: it works, and may not for long. `unknown`: it was not looked at, as when the user may not."""

OLDEST_REDIS: Final = (7, 0)
"""Scripts declare flags by a first line that older servers do not know."""
NEARLY_FULL: Final = 0.9
"""Share of `maxmemory` from which on somebody should be told."""
APART: Final = 1.0
"""Seconds that two clocks may differ: times that users choose (`at`, `expires`) are kept to that."""
SLOW: Final = 0.010
"""Seconds of a usual round trip above which a worker that handles short jobs mostly waits."""
STOPS: Final = 1.0
"""Seconds of a single round trip that say that something stops: a lease is renewed every ten seconds by default."""

SAVES: Final = {
    "rdb_last_bgsave_status": "snapshot",
    "aof_last_write_status": "write to the log",
    "aof_last_bgrewrite_status": "rewrite of the log",
}
"""What INFO tells of the last try to save, by its fields."""


@final
@attrs.frozen(kw_only=True)
class Finding:
    """What one check has found."""

    check: str
    """Its name."""
    level: Level
    """How bad it is."""
    text: str
    """What was seen."""
    advice: str = ""
    """What to do; empty where nothing is to be done."""
    queue: str = ""
    """The queue it is about; "" for the server."""


@final
@attrs.frozen(kw_only=True)
class ServerFacts:
    """What was read of a server."""

    info: Mapping[str, str] | None
    """What INFO says, by name; None: the user may not ask."""
    config: Mapping[str, str] | None
    """What CONFIG GET says of persistence; None: the user may not ask."""
    trips: tuple[float, ...]
    """Seconds of some round trips, at least one."""
    ahead: float
    """Seconds by which the server's clock is ahead of ours, to half a round trip."""


def of_server(facts: ServerFacts) -> Iterator[Finding]:
    """Check a server."""
    if facts.info is None:
        advice = "let the user run INFO (ACL SETUSER ... +info), or look yourself: docs/how-to/tls-and-acl"
        for check in BY_INFO:
            yield Finding(check=check, level="unknown", text="the user may not run INFO", advice=advice)
    else:
        for check, look in BY_INFO.items():
            yield attrs.evolve(look(facts.info, facts), check=check)
    yield _clock(facts)
    yield _latency(facts)


def _version(info: Mapping[str, str], _: ServerFacts) -> Finding:
    valkey = info.get("valkey_version")
    name, version = ("Valkey", valkey) if valkey else ("Redis", info.get("redis_version", "?"))
    numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if not valkey and numbers < OLDEST_REDIS:
        return _found(
            "problem", f"{name} {version}", "use Valkey, or Redis 7.0 or later: older ones do not run the scripts"
        )
    return _found("ok", f"{name} {version}")


def _role(info: Mapping[str, str], _: ServerFacts) -> Finding:
    if info.get("role") == "slave":
        up = f"{info.get('master_host', '?')}:{info.get('master_port', '?')}"
        return _found("problem", f"a replica of {up}", "name the primary in the URL: a replica takes no jobs")
    return _found("ok", f"a primary with {info.get('connected_slaves', '0')} replicas")


def _cluster(info: Mapping[str, str], _: ServerFacts) -> Finding:
    mode = info.get("redis_mode") or info.get("server_mode") or "standalone"
    if info.get("cluster_enabled") == "1" or mode != "standalone":
        return _found(
            "problem", f"it runs as {mode}", "name a single server: neither a cluster nor Sentinel is supported yet"
        )
    return _found("ok", "a single server")


def _persistence(info: Mapping[str, str], facts: ServerFacts) -> Finding:
    failed = [what for field, what in SAVES.items() if info.get(field, "ok") != "ok"]
    if failed:
        return _found(
            "problem",
            f"the last {' and '.join(failed)} failed",
            "make room on its disk: the server may refuse every write until it can save",
        )
    config = facts.config or {}
    if info.get("aof_enabled") == "1":
        fsync = config.get("appendfsync", "")
        text = f"append-only log{f', fsync {fsync}' if fsync else ''}"
        if fsync == "no":
            return _found(
                "warning", text, "set appendfsync everysec: a crash of the machine may lose half a minute of jobs"
            )
        return _found("ok", text)
    if facts.config is None:
        return _found(
            "unknown",
            "no append-only log; the user may not see whether there are snapshots",
            "set appendonly yes, unless jobs may be lost",
        )
    if config.get("save"):
        return _found(
            "warning",
            f"snapshots only (save {config['save']})",
            "set appendonly yes: a crash loses the jobs since the last snapshot",
        )
    return _found("warning", "none: a restart loses every job", "set appendonly yes, unless jobs may be lost")


def _eviction(info: Mapping[str, str], _: ServerFacts) -> Finding:
    policy = info.get("maxmemory_policy", "?")
    if policy == "noeviction":
        return _found("ok", policy)
    advice = "set maxmemory-policy noeviction"
    if policy.startswith("allkeys"):
        return _found("problem", f"{policy}: a full server drops jobs, and workers do not start on it", advice)
    if policy.startswith("volatile"):
        return _found("warning", f"{policy}: a full server drops dedup keys and the memory of calls", advice)
    return _found("unknown", f"policy {policy}", advice)


def _memory(info: Mapping[str, str], _: ServerFacts) -> Finding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        return _found("ok", f"{_mib(used)} used, without a limit (maxmemory 0): the kernel sets it")
    text = f"{_mib(used)} of {_mib(most)} used"
    if used >= most:
        return _found(
            "problem",
            f"full: {text}",
            "raise maxmemory, or add workers: new jobs are refused, those that are there can be done",
        )
    if used >= most * NEARLY_FULL:
        return _found("warning", text, "raise maxmemory, or find the queue that grows: echomq stats")
    return _found("ok", text)


def _clock(facts: ServerFacts) -> Finding:
    text = f"the server's is {abs(facts.ahead):.3f} s {'ahead of' if facts.ahead >= 0 else 'behind'} ours"
    if abs(facts.ahead) - min(facts.trips) <= APART:
        return Finding(check="clock", level="ok", text=text)
    advice = "set both by NTP: leases are measured on one clock each and hold, but times such as --at are off by that"
    return Finding(check="clock", level="warning", text=text, advice=advice)


def _latency(facts: ServerFacts) -> Finding:
    usual, most = median(facts.trips), max(facts.trips)
    text = f"{usual * 1000:.1f} ms, at most {most * 1000:.1f} ms ({len(facts.trips)} round trips)"
    if most >= STOPS:
        advice = "see what stops it (SLOWLOG GET, swapping, a snapshot's fork), or the network"
        return Finding(check="latency", level="warning", text=text, advice=advice)
    if usual >= SLOW:
        return Finding(
            check="latency", level="warning", text=text, advice="run workers near the server, or with more slots"
        )
    return Finding(check="latency", level="ok", text=text)


BY_INFO: Final[Mapping[str, Callable[[Mapping[str, str], ServerFacts], Finding]]] = {
    "server": _version,
    "role": _role,
    "cluster": _cluster,
    "persistence": _persistence,
    "eviction": _eviction,
    "memory": _memory,
}  # fmt: skip
"""The checks that rest on INFO, by name, in the order in which they are told."""


def _found(level: Level, text: str, advice: str = "") -> Finding:
    return Finding(check="", level=level, text=text, advice=advice)


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
