"""What the tests of faults share: data compared byte for byte, and every verb as a call that would work."""

from __future__ import annotations

from typing import Any

import redis

from echomq import transitions
from echomq.conformance.items import NOTES, SETTLING, make_item
from echomq.conformance.snapshot import scan
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import ALL_VERBS, MULTI, Call, CancelRequest, Reassignment, Transition

FENCED = (*SETTLING, *NOTES, "rate_limited")
"""The verbs on behalf of a claim."""


def frozen(server: redis.Redis, keys: QueueKeys) -> dict[bytes, Any]:
    """Answer every key of a queue as the server would serialise it, but for its memory of calls (which has a TTL)."""
    names = [name for name in scan(server, f"{keys.base}*") if b":once:" not in name]
    return {name: server.dump(name) for name in names}


def call_of(verb: str, keys: QueueKeys, call: Call, held: Claimed, other: str) -> Transition[Any]:
    """Make a call that works on a queue at rest: fenced verbs for the job that is held, the others on another."""
    if verb in FENCED:
        return MULTI[verb](keys, call, [make_item(verb, held.id, held.token, held.nonce, 1)])
    match verb:
        case "enqueue":
            return MULTI[verb](keys, call, [NewJob(payload=b"new")])
        case "cancel":
            return MULTI[verb](keys, call, [CancelRequest(other, "why")])
        case "remove" | "redrive":
            return MULTI[verb](keys, call, [other])
        case "reassign":
            return MULTI[verb](keys, call, [Reassignment(other, "lane")])
    arguments: dict[str, dict[str, Any]] = {
        "claim": {"count": 9, "lease_ms": 1000},
        "configure": {"settings": {"events": "none"}},
        "browse": {"state": "pending"},
        "read_job": {"id": other},
        "read_lanes": {"names": ["lane"]},
        "set_lane": {"lane": "lane", "settings": {"weight": "2"}},
    }
    made: Transition[Any] = getattr(transitions, verb)(keys, call, **arguments.get(verb, {}))
    return made


__all__ = ["ALL_VERBS", "FENCED", "call_of", "frozen"]
