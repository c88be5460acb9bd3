"""A lease is a scope: one claimed job, its deadline, and the handler that runs inside (Runtime, section 4).

Theory of operation
    The claim's lease lasts until `deadline` on this process's monotonic clock, counted from before the claim was sent
    and cut by a margin, so that it is over here before it is over on the server. The handler runs in `scope`, whose
    deadline is the lease's (or the handler's timeout, if that comes first). Whatever ends the lease ends the handler:
    there is no moment at which it runs and nobody renews, or somebody renews and it does not run.

    Only a renewal that the server confirmed moves the deadline, to what the sending moment allows. An error or silence
    moves nothing: the deadline does its work. Only the verdict "lost" ends a lease early.

If you change this
    Never count a deadline from a reply. Never renew after the handler has ended (`settle` takes the lease out first).
    A lease is one claim: a worker may claim its own reaped job anew while the old scope is still dying, and from a
    server that lost the first claim even under the same token. So leases are never looked up by job and token alone.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import anyio

from echomq.worker.reasons import Reason

if TYPE_CHECKING:
    from echomq.protocol.records import Claimed
    from echomq.transitions import Completion
    from echomq.worker.calls import QueueCalls
    from echomq.worker.execute import Handler
    from echomq.worker.notes import LeaseNotes


UNRENEWED: Final = "not renewed in time"
"""Why a lease is lost that the server has said nothing about."""


class HeldProcess(Protocol):
    """What runs in another process, and may not outlive its lease there."""

    def lease_moved(self) -> None:
        """The lease's deadline has moved."""

    def lease_lost(self) -> None:
        """The lease is lost: it must end now."""


@final
class Lease:
    """One claimed job under its lease."""

    __slots__ = (
        "at_deadline", "calls", "claimed", "completion", "coroutine", "deadline", "ended_at", "handler", "named", "notes", "now_ms", "process",
        "reason", "reason_detail", "resent", "running", "scope", "sent_at", "started_at", "stopped_at", "thread",
        "timeout", "timeout_at",
    )  # fmt: skip

    def __init__(
        self,
        calls: QueueCalls,
        claimed: Claimed,
        *,
        now_ms: int,
        sent_at: float,
        deadline: float,
        scope: Any = anyio.CancelScope,
    ) -> None:
        """Make a lease.

        Args:
            calls: The calls of its queue.
            claimed: The claim.
            now_ms: See there.
            sent_at: See there.
            deadline: See there.
            scope: The loop's class of cancel scopes, anyio's or its backend's own.
        """
        self.calls = calls
        self.claimed = claimed
        self.now_ms = now_ms
        """The server's clock at the claim, Unix ms."""
        self.sent_at = sent_at
        """When the claim was sent, on anyio's clock: `now_ms` was not before that."""
        self.deadline = deadline
        """When the lease is over here, on anyio's clock."""
        self.timeout = math.inf
        """How long the handler may run, seconds."""
        self.timeout_at = math.inf
        """When the handler's own time is over: its timeout, or the job's deadline if that comes first."""
        self.at_deadline = False
        """Whether that is the job's deadline."""
        self.scope: anyio.CancelScope = scope(deadline=deadline)
        self.reason: Reason | None = None
        self.reason_detail = ""
        self.running = True
        self.started_at = 0.0
        """When the handler began, on `time.monotonic`; for the log."""
        self.ended_at = 0.0
        """When its verdict was due, on `time.monotonic`."""
        self.stopped_at = math.inf
        """When the handler was first asked to stop, on `time.monotonic`."""
        self.named = False
        """Whether the log has told that the handler does not end."""
        self.thread: int | None = None
        """The identifier of the thread the handler runs in, for the log; None for a coroutine function."""
        self.process: HeldProcess | None = None
        """What runs the handler in another process."""
        self.notes: LeaseNotes | None = None
        """What the handler notes, if it has asked for its job."""
        self.coroutine: Any = None
        """What a coroutine function answered, for the log."""
        self.resent = False
        """Whether its verdict was sent again: one that is then refused may have counted the first time."""
        self.handler: Handler | None = None
        """Its task, once the handler has ended; None when it has none here, or none has begun."""
        self.completion: Completion | None = None
        """The verdict of a handler that returned, until it is delivered."""

    def here(self, at_ms: int) -> float:
        """Tell when a moment is, on anyio's clock.

        Counted from before the claim was sent, so that it is here before it is on the server.

        Args:
            at_ms: By the server's clock, Unix ms.
        """
        return self.sent_at + (at_ms - self.now_ms) / 1000

    def end_by(self, deadline_ms: int) -> bool:
        """Set the end of the job's time over all attempts; answer whether it has come.

        Args:
            deadline_ms: By the server's clock, Unix ms.
        """
        self.timeout_at = self.here(deadline_ms)
        self.at_deadline = True
        self.scope.deadline = min(self.deadline, self.timeout_at)
        return anyio.current_time() >= self.timeout_at

    def limit(self, timeout: float | None) -> None:
        """Start the handler's own clock: it begins now.

        Args:
            timeout: How long the handler may run, seconds; None: as long as the lease is renewed.
        """
        self.started_at = time.monotonic()
        if timeout is not None:
            self.timeout, timeout_at = timeout, anyio.current_time() + timeout
            if timeout_at < self.timeout_at:
                self.timeout_at, self.at_deadline = timeout_at, False
                self.scope.deadline = min(self.deadline, self.timeout_at)

    def renewed(self, deadline: float) -> None:
        """Move the deadline: the server confirmed a renewal. One that comes after the end changes nothing."""
        if self.running and self.reason is not Reason.LEASE_LOST and not self.over(anyio.current_time()):
            self.deadline = max(self.deadline, deadline)
            self.scope.deadline = min(self.deadline, self.timeout_at)
            if self.process is not None:
                self.process.lease_moved()

    def slept(self, seconds: float) -> None:
        """Pull the deadline in: the machine was suspended, and the clock stood still."""
        self.deadline -= seconds
        self.scope.deadline = min(self.deadline, self.timeout_at)
        if self.process is not None:
            self.process.lease_moved()

    def over(self, now: float) -> bool:
        """Tell whether the lease has ended by this process's clock."""
        return now >= self.deadline

    def stop(self, reason: Reason, detail: str = "") -> None:
        """Cancel the handler. The first reason holds, but a lost lease overrides: then nothing may be written."""
        if not self.running:
            return
        if self.reason is None or reason is Reason.LEASE_LOST:
            self.reason = reason
            self.reason_detail = detail
            self.stopped_at = min(self.stopped_at, time.monotonic())
        self.scope.cancel()
        if self.process is not None and self.reason is Reason.LEASE_LOST:
            self.process.lease_lost()

    def look(self, now: float) -> None:
        """Stop the handler if its time is over. Usually the scope's deadline has done it.

        Not if the loop was late, nor for a thread, which must be told, nor in a batch, whose leases have no such scope.

        Args:
            now: The time, on anyio's clock.
        """
        if self.over(now):
            self.stop(Reason.LEASE_LOST, UNRENEWED)
        elif now >= self.timeout_at:
            self.stop(Reason.TIMEOUT)

    def why(self) -> Reason:
        """Tell why the scope ended the handler: as asked, or by the clock."""
        if self.reason is None:
            self.reason = self._by_clock()
            if self.reason is Reason.LEASE_LOST:
                self.reason_detail = UNRENEWED
        return self.reason

    def cause(self, now: float) -> Reason | None:
        """Tell why the handler is being stopped, None while it is not. From any thread, and before its scope knows.

        Args:
            now: The time, on anyio's clock.
        """
        if self.reason is None and now >= min(self.deadline, self.timeout_at):
            return self._by_clock()
        return self.reason

    def _by_clock(self) -> Reason:
        return Reason.LEASE_LOST if self.deadline <= self.timeout_at else Reason.TIMEOUT
