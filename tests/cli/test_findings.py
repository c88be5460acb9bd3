"""What a server must be like for `doctor` to complain of it: the checks, on facts written down here."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.cli.findings import Finding, ServerFacts, of_server
from echomq.cli.queue_findings import QueueFacts, of_queue

FINE = {
    "valkey_version": "9.1.2", "redis_version": "7.2.4", "role": "master", "server_mode": "standalone",
    "maxmemory_policy": "noeviction", "maxmemory": "1000", "used_memory": "10", "aof_enabled": "1",
}  # fmt: skip


def found(check: str, facts: ServerFacts) -> Finding:
    """Answer what one check says."""
    (it,) = (each for each in of_server(facts) if each.check == check)
    return it


def facts(config: dict[str, str] | None = None, *, trips: tuple[float, ...] = (0.001,), ahead: float = 0.0, **info: str) -> ServerFacts:  # fmt: skip
    """Make a server that is fine but for something."""
    given = {"appendfsync": "everysec", "save": ""} if config is None else config
    return ServerFacts(info={**FINE, **info}, config=given, trips=trips, ahead=ahead)


def test_server_that_is_fine_has_nothing_to_be_told() -> None:
    """Eight checks, no advice."""
    all_of_it = list(of_server(facts()))
    assert [(each.check, each.level, each.advice) for each in all_of_it] == [
        (name, "ok", "")
        for name in ("server", "role", "cluster", "persistence", "eviction", "memory", "clock", "latency")
    ]


@pytest.mark.parametrize(
    ("check", "level", "said", "options"),
    [
        ("server", "problem", "Redis 6.2.14", {"valkey_version": "", "redis_version": "6.2.14"}),
        ("server", "ok", "Redis 7.0.15", {"valkey_version": "", "redis_version": "7.0.15"}),
        ("role", "problem", "a replica of up:6379", {"role": "slave", "master_host": "up", "master_port": "6379"}),
        ("cluster", "problem", "cluster", {"cluster_enabled": "1", "server_mode": "cluster"}),
        ("cluster", "problem", "sentinel", {"server_mode": "", "redis_mode": "sentinel"}),
        ("persistence", "problem", "snapshot failed", {"rdb_last_bgsave_status": "err"}),
        ("persistence", "warning", "fsync no", {"config": {"appendfsync": "no"}}),
        ("persistence", "warning", "snapshots only", {"aof_enabled": "0", "config": {"save": "3600 1"}}),
        ("persistence", "warning", "a restart loses", {"aof_enabled": "0"}),
        ("eviction", "problem", "allkeys-lru", {"maxmemory_policy": "allkeys-lru"}),
        ("eviction", "warning", "volatile-ttl", {"maxmemory_policy": "volatile-ttl"}),
        ("memory", "problem", "full", {"used_memory": "1000"}),
        ("memory", "warning", "used", {"used_memory": "900"}),
        ("memory", "ok", "without a limit", {"maxmemory": "0"}),
        ("clock", "warning", "5.000 s ahead", {"ahead": 5.0}),
        ("clock", "warning", "5.000 s behind", {"ahead": -5.0}),
        ("clock", "ok", "1.500 s ahead", {"ahead": 1.5, "trips": (0.6,)}),
        ("latency", "warning", "20.0 ms", {"trips": (0.02,) * 3}),
        ("latency", "warning", "at most 1500.0 ms", {"trips": (0.001, 0.001, 1.5)}),
    ],
)
def test_server_check_says_what_is_wrong(check: str, level: str, said: str, options: dict[str, Any]) -> None:
    """And what to do about it, unless it is fine."""
    it = found(check, facts(**options))
    assert (it.level, said in it.text, bool(it.advice)) == (level, True, level != "ok"), it


def test_server_that_may_not_be_asked_is_unknown() -> None:
    """Not fine, and not a problem; its clock and latency are known all the same."""
    levels = {
        each.check: each.level for each in of_server(ServerFacts(info=None, config=None, trips=(0.001,), ahead=0.0))
    }
    assert {check for check, level in levels.items() if level == "ok"} == {"clock", "latency"}
    assert {level for level in levels.values() if level != "ok"} == {"unknown"}
    no_config = ServerFacts(info={**FINE, "aof_enabled": "0"}, config=None, trips=(0.001,), ahead=0.0)
    assert found("persistence", no_config).level == "unknown"


@pytest.mark.parametrize(
    ("check", "level", "said", "options"),
    [
        ("paused", "ok", "no", {}),
        ("paused", "ok", "10 s", {"paused_for": 10.0, "waiting": 1}),
        ("paused", "ok", "2.0 h", {"paused_for": 7200.0}),
        ("paused", "warning", "2.0 h", {"paused_for": 7200.0, "waiting": 1}),
        ("closing", "problem", "began 5 s ago", {"closing_for": 5.0}),
        ("workers", "problem", "0 alive", {"workers": 0, "waiting": 1}),
        ("workers", "ok", "0 alive", {"workers": 0, "waiting": 1, "paused_for": 1.0}),
        ("workers", "ok", "1 alive", {"workers": 1, "waiting": 1}),
        ("lanes", "problem", "'a', 'b', 'c' and 1 more", {"stuck": ["'a'", "'b'", "'c'", "'d'"]}),
        ("rows", "problem", "1 torn", {"torn": ["it"], "rows": 3}),
        ("rows", "ok", "200 rows looked at, of more", {"rows": 200, "whole": False}),
        ("rows", "ok", "4 were torn or dropped before", {"torn_before": 4}),
        ("rows", "unknown", "may not", {"unseen": "the user may not look"}),
        ("exists", "warning", "nothing was ever enqueued", {"exists": False}),
        ("protocol", "problem", "speaks 2.0", {"mismatch": "speaks 2.0"}),
    ],
)
def test_queue_check_says_what_is_wrong(check: str, level: str, said: str, options: dict[str, Any]) -> None:
    """And what to do about it, if something is."""
    (it,) = (each for each in of_queue(QueueFacts("q", **options)) if each.check == check)
    assert (it.level, said in it.text, it.queue) == (level, True, "q"), it
    assert bool(it.advice) == (level in {"warning", "problem"})
