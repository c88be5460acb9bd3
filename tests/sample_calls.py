"""A well formed call of each verb, for tests that go through all of them."""

from __future__ import annotations

from typing import Any

from echomq.conformance.items import NOTES, SETTLING
from echomq.protocol.newjob import NewJob
from echomq.transitions import (
    SPAWNER,
    CancelRequest,
    Delivery,
    Firing,
    LocalNode,
    Look,
    NewPayload,
    NewPriority,
    NewTime,
    Pulse,
    Reassignment,
)

FENCED = (*SETTLING, *NOTES, "rate_limited", "suspend")
"""The verbs on behalf of a claim."""


def items_of(verb: str, *ids: str) -> list[Any]:
    """Answer an item for each id, of a verb that carries items and is not fenced."""
    match verb:
        case "enqueue":
            return [NewJob(payload=b"new", task=id) for id in ids]
        case "remove" | "redrive":
            return list(ids)
        case "reassign":
            return [Reassignment(id, "lane") for id in ids]
        case "cancel":
            return [CancelRequest(id, "why") for id in ids]
        case "reschedule":
            return [NewTime(id, "+5") for id in ids]
        case "update":
            return [NewPayload(id, b"new") for id in ids]
        case "reprioritise":
            return [NewPriority(id, 3) for id in ids]
        case "repair":
            return [Look("job", id) for id in ids]
        case "flow_deliver":
            return [Delivery("ask", id, "parent") for id in ids]
    raise KeyError(verb)


def arguments_of(verb: str, id: str = "a") -> dict[str, Any]:
    """Answer the keyword arguments of a verb that carries no items."""
    arguments: dict[str, dict[str, Any]] = {
        "claim": {"count": 9, "lease_ms": 1000},
        "configure": {"settings": {"events": "none"}},
        "browse": {"state": "pending"},
        "find": {"state": "pending"},
        "read_job": {"id": id},
        "read_lanes": {"names": ["lane"]},
        "beat": {"pulse": Pulse(name="w", host="h", pid=1, up_ms=1, concurrency=1, running=0, jobs=())},
        "set_lane": {"lane": "lane", "settings": {"weight": "2"}},
        "obliterate": {"names": ["left"], "force": True},
        "read_schedules": {"names": ["nightly"]},
        "schedule_put": {
            "name": "nightly", "digest": "d", "spec": b"{}", "origin": "", "overlap": "allow",
            "slot_ms": 99_999_999_999_999, "job": NewJob(payload=b"x"),
        },
        "schedule_fire": {
            "name": "nightly", "digest": "d", "slot_ms": 1, "next_ms": 99_999_999_999_999, "firings": [Firing(id="JOB00000000001", slot_ms=1, due_ms=1)],
        },
        "schedule_pause": {"name": "nightly", "paused": True},
        "schedule_remove": {"name": "nightly"},
        "flow_add": {"nodes": [LocalNode(job=NewJob(payload=b"x"))]},
        "spawn": {"id": id, "token": 1, "nonce": "n.1", "nodes": [LocalNode(job=NewJob(payload=b"x"), parent=SPAWNER, name="0")]},
        "flow_done": {"till": "1.5", "done": ["tell:a"]},
        "flow_walk": {"entry": "sweep:a"},
        "read_flow": {"id": id},
    }  # fmt: skip
    return arguments.get(verb, {})
