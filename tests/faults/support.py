"""What the tests of faults share: data compared byte for byte, and every verb as a call that would work."""

from __future__ import annotations

from typing import Any

import redis

from echomq import transitions
from echomq.conformance.items import make_item
from echomq.conformance.snapshot import scan
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed
from echomq.transitions import ALL_VERBS, MULTI, Call, Transition
from tests.sample_calls import FENCED, arguments_of, items_of


def frozen(server: redis.Redis, keys: QueueKeys) -> dict[bytes, Any]:
    """Answer every key of a queue as the server would serialise it, but for its memory of calls (which has a TTL)."""
    names = [name for name in scan(server, f"{keys.base}*") if b":once:" not in name]
    return {name: server.dump(name) for name in names}


def call_of(verb: str, keys: QueueKeys, call: Call, held: Claimed, other: str) -> Transition[Any]:
    """Make a call that works on a queue at rest: fenced verbs for the job that is held, the others on another."""
    if verb in FENCED:
        return MULTI[verb](keys, call, [make_item(verb, held.id, held.token, held.nonce, 1)])
    if verb in MULTI:
        return MULTI[verb](keys, call, items_of(verb, other))
    arguments = arguments_of(verb, other)
    if verb == "spawn":
        arguments |= {"id": held.id, "token": held.token, "nonce": held.nonce}
    made: Transition[Any] = getattr(transitions, verb)(keys, call, **arguments)
    return made


__all__ = ["ALL_VERBS", "FENCED", "call_of", "frozen"]
