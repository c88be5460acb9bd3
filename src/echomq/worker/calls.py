"""The calls a worker makes on one queue: the wire's groups, by verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from echomq.protocol.times import to_ms
from echomq.transitions import claim

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Call, ClaimReply, Transition
    from echomq.wire.calls import NumberedCall
    from echomq.wire.client import WireClient

CAP: float = 1.0
"""Seconds: the longest a worker parks before it asks again. What a lost wake token costs, one second at most."""


@final
class QueueCalls:
    """One queue as a worker sees it."""

    def __init__(self, wire: WireClient, keys: QueueKeys) -> None:
        self.queue = keys.queue
        self.wire = wire
        self.keys = keys
        group = wire.group
        self.extend: Any = group(self.keys, "extend")
        self.complete: Any = group(self.keys, "complete")
        self.fail: Any = group(self.keys, "fail")
        self.release: Any = group(self.keys, "release")
        self.snooze: Any = group(self.keys, "snooze")
        self.end: Any = group(self.keys, "end")
        self.rate_limited: Any = group(self.keys, "rate_limited")
        self.progress: Any = group(self.keys, "progress")
        self.checkpoint: Any = group(self.keys, "checkpoint")
        self.log: Any = group(self.keys, "log")

    def start_claim(self, count: int, lease: float) -> NumberedCall:
        """Send a claim for up to `count` jobs for `lease` seconds; its `value()` is a `ClaimReply`."""

        def build(call: Call) -> Transition[ClaimReply]:
            return claim(self.keys, call, count=count, lease_ms=to_ms(lease), cap_ms=to_ms(CAP))

        return self.wire.start(self.keys, build, verb="claim")
