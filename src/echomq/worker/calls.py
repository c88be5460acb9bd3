"""The calls a worker makes on one queue: the wire's groups, by verb."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

from echomq.flows import DEFAULT_LIMITS, FlowLimits
from echomq.protocol.times import to_ms
from echomq.transitions import claim

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.batches import Batch
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Call, ClaimReply, Transition
    from echomq.wire.calls import NumberedCall
    from echomq.wire.client import WireClient

CAP: float = 1.0
"""Seconds: the longest a worker parks before it asks again. What a lost wake token costs, one second at most."""
MAX_DEPTH: Final = 64
"""How many jobs may be above one that a handler spawns, unless told otherwise: handlers that spawn themselves end."""


def _nothing() -> None: ...


@final
class QueueCalls:
    """One queue as a worker sees it."""

    def __init__(
        self,
        wire: WireClient,
        keys: QueueKeys,
        batch: Batch | None = None,
        *,
        max_depth: int = MAX_DEPTH,
        flow_limits: FlowLimits = DEFAULT_LIMITS,
    ) -> None:
        self.batch = batch
        """How its jobs are gathered; None: they are not."""
        self.max_depth = max_depth
        """How many jobs may be above one that a handler spawns."""
        self.flow_limits = flow_limits
        """How large what a handler spawns may be."""
        self.owes: Callable[[], None] = _nothing
        """To be called when something was put into the queue's outbox, for another queue."""
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
        self.suspend: Any = group(self.keys, "suspend")
        self.rate_limited: Any = group(self.keys, "rate_limited")
        self.progress: Any = group(self.keys, "progress")
        self.checkpoint: Any = group(self.keys, "checkpoint")
        self.log: Any = group(self.keys, "log")

    def start_claim(self, count: int, lease: float) -> NumberedCall:
        """Send a claim for up to `count` jobs for `lease` seconds; its `value()` is a `ClaimReply`."""
        batch = self.batch
        linger = 0 if batch is None else to_ms(batch.linger)
        # Whatever fills the room there is need not wait for a whole batch.
        least = 1 if batch is None or not linger else min(batch.min_size or batch.max_size, count)

        def build(call: Call) -> Transition[ClaimReply]:
            return claim(
                self.keys, call, count=count, lease_ms=to_ms(lease), cap_ms=to_ms(CAP),
                min_size=least, linger_ms=linger, by_lane=batch is not None and batch.by_lane,
            )  # fmt: skip

        return self.wire.start(self.keys, build, verb="claim")
