"""Jobs on their last life begin one at a time: none is buried for what another of them did.

A job that kills its process takes its neighbours' leases along, and whoever reaps them claims them together, so that they
die together again, up to `max_stalls` times. A job that one more expired lease would bury therefore begins only when no
other such job has begun in this worker in the last `ALONE` seconds and is still running, and only once the server has
taken back those that were claimed with it. What kills its process does so soon, and then it dies without the others.

Two things it does not do. A job that has not stalled often yet runs beside any: should that one be a killer, it costs the
other its last life. And it does not hold the others for as long as one runs: a handler may take hours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

import anyio

from echomq._logs import get_logger
from echomq.errors import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.protocol.records import JobRecord
    from echomq.worker.lease import Lease
    from echomq.worker.settle import Settler

DEFAULT_MAX_STALLS: Final = 3
"""How many expired leases a job survives whose row does not say: as in the scripts."""
ALONE: float = 5.0
"""Seconds that one has before the next may begin."""
PUT_OFF: float = 2.0
"""Seconds, about, for which one is given back; more, the more of them there are: a hundred more, twice as long."""
LOOK: Final = 0.5
"""Seconds between two looks at a lease while it waits."""

_log = get_logger("echomq.worker")


def on_last_life(record: JobRecord) -> bool:
    """Tell whether a job has stalled before and would be buried if it did so once more."""
    if b"stalls" not in record.row:
        return False  # nearly always
    try:
        stalls, most = record.stalls, record.max_stalls
    except DecodeError:
        return False
    return 0 < stalls >= (DEFAULT_MAX_STALLS if most is None else most)


@final
class LastLives:
    """Lets one job on its last life through at a time, and puts the others off."""

    def __init__(self, settler: Settler, *, begun: Callable[[], None]) -> None:
        """Make it.

        Args:
            settler: Gives back those that are put off.
            begun: Called when one has begun: claims may go on.
        """
        self._settler = settler
        self._begun = begun
        self._begun_at = math.inf
        self._others: set[Lease] = set()
        self._put_off = 0
        self.current: Lease | None = None
        """The one that was let through last, while its handler waits or runs."""

    @property
    def waiting(self) -> bool:
        """Whether one waits for the others to be taken back: claiming meanwhile would only bring more of them."""
        return self.current is not None and self._begun_at == math.inf

    def admits(self, lease: Lease) -> bool:
        """Tell whether a claimed job may go on; if not, it is given back for a while, spending nothing."""
        if not on_last_life(lease.claimed.record):
            return True
        if self.current is None or anyio.current_time() >= self._begun_at + ALONE:
            self.current, self._begun_at, self._put_off = lease, math.inf, 0
            _log.warning("job_on_last_life", job=lease.claimed.id, queue=lease.calls.queue)
            return True
        self._put_off += 1
        self._others.add(lease)
        self._settler.put_off(lease, PUT_OFF * (1 + self._put_off / 100))
        return False

    async def wait(self, lease: Lease) -> bool:
        """Keep the current one until the others are out of reach.

        Answers whether its handler may begin: not if its lease has ended meanwhile.

        **Cancellation**: at any moment, without effect.
        """
        while True:
            self._others = self._settler.undelivered(self._others)
            if lease.cause(anyio.current_time()) is not None:
                return False
            if not self._others:
                self._begun_at = anyio.current_time()
                self._begun()
                return True
            with anyio.move_on_after(LOOK):
                await self._settler.wait_change()

    def left(self, lease: Lease) -> None:
        """Note that a handler has ended."""
        if lease is self.current:
            self.current = None
