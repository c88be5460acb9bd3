"""Heartbeats: leases are renewed from a third of their length on, all that are due in one call.

A short job pays nothing: its first renewal is never due. A renewal counts from before it was sent. An error or silence
changes nothing, it is tried again; only the server's verdict ends a lease, or its deadline does.

All leases of a worker are of one length, so the order in which they were claimed or renewed is the order in which they
are due: a dict holds those of running handlers in it, and one timer stands for all. (A timer a lease would keep each
job of the last third of a lease in memory, long after it has ended.)
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

import anyio

from echomq._logs import get_logger
from echomq.instruments import NO_INSTRUMENTS, LeaseRenewed
from echomq.protocol.refusals import Verdict
from echomq.protocol.times import to_ms
from echomq.transitions import Renewal
from echomq.worker.reasons import Reason, reason_of_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.errors import EchoMQError
    from echomq.instruments import Instruments
    from echomq.worker.lease import Lease
    from echomq.worker.options import WorkerOptions
    from echomq.worker.timers import Timers

RETRY: float = 0.5
"""Seconds until a renewal that got an error is sent again (a tenth of the lease if that is shorter)."""

TOGETHER: float = 1 / 60
"""What is due within this part of a lease is renewed in one round."""

_log = get_logger("echomq.worker")


@final
class Heartbeat:
    """Renews leases while their handlers run."""

    def __init__(
        self,
        options: WorkerOptions,
        timers: Timers,
        *,
        renewed: Callable[[], None] = lambda: None,
        instruments: Instruments = NO_INSTRUMENTS,
    ) -> None:
        """Make a heartbeat.

        Args:
            options: The worker's options.
            timers: The worker's clock.
            renewed: Called when the server has confirmed a renewal: it serves us.
            instruments: What is told what was left of each lease.
        """
        self._due: dict[Lease, float] = {}
        self._latest = 0.0
        self._armed = False
        self._lease = options.lease
        self._margin = options.margin
        self._timers = timers
        self._renewed = renewed
        self._instruments = instruments
        self._unrenewed: set[Lease] = set()
        """Whose last renewal got an error: told once, not with each try."""
        self.renewals = 0
        """How many renewals the server confirmed."""

    def watch(self, lease: Lease, claimed_at: float) -> None:
        """Renew the lease from a third of its length on, for as long as its handler runs.

        Args:
            lease: The lease.
            claimed_at: When its claim was sent, on anyio's clock.
        """
        self._add(lease, claimed_at)

    def forget(self, lease: Lease) -> None:
        """The handler has ended: renew its lease no more."""
        self._due.pop(lease, None)
        self._unrenewed.discard(lease)

    def _add(self, lease: Lease, renewed_at: float) -> None:
        moment = renewed_at + self._lease / 3
        if moment < self._latest - self._lease * TOGETHER:
            # Its claim's reply was long on its way: it is due before others that came before it.
            self._timers.at(moment, partial(self._renew, lease))
            return
        self._latest = max(self._latest, moment)
        self._due[lease] = moment
        if not self._armed:
            self._arm(moment)

    def _arm(self, moment: float) -> None:
        self._armed = True
        self._timers.at(moment, self._round)

    def _round(self) -> None:
        """Renew what is due by now or soon."""
        self._armed = False
        soon = anyio.current_time() + self._lease * TOGETHER
        while self._due:
            lease, moment = next(iter(self._due.items()))
            if moment > soon:
                self._arm(moment)
                return
            del self._due[lease]
            self._renew(lease)

    def _renew(self, lease: Lease) -> None:
        if not lease.running or lease.reason is Reason.LEASE_LOST:
            return
        now = anyio.current_time()
        claimed = lease.claimed
        item = Renewal(claimed.id, claimed.token, claimed.nonce, to_ms(self._lease))
        lease.calls.extend.submit(item, partial(self._answered, lease, now), give_up_after=self._lease)

    def _answered(self, lease: Lease, asked_at: float, verdict: Verdict | EchoMQError) -> None:
        # Once settling has started, the heartbeat's answer means nothing: the verdict may have ended the lease itself.
        if not lease.running:
            return
        if not isinstance(verdict, Verdict):
            if lease not in self._unrenewed:
                self._unrenewed.add(lease)
                _log.warning("lease_not_renewed", job=lease.claimed.id, queue=lease.calls.queue, error=str(verdict))
            self._timers.at(anyio.current_time() + min(RETRY, self._lease / 10), partial(self._renew, lease))
            return
        if not verdict.ok:
            lease.stop(Reason.LEASE_LOST, verdict.code)
            return
        self.renewals += 1
        self._unrenewed.discard(lease)
        self._renewed()
        if self._instruments:
            left = lease.deadline - anyio.current_time()
            self._instruments.record(LeaseRenewed(lease.calls.queue, lease.claimed.record.task, max(0.0, left)))
        lease.renewed(asked_at + self._lease - self._margin)
        self._add(lease, asked_at)
        if verdict.code == "cancel":
            lease.stop(reason_of_request(verdict.detail), verdict.detail)
