"""Jobs on their last life run one at a time: none is buried for what another did.

A job that kills its process takes its neighbours' leases along, and whoever reaps them claims them together, so that they
die together again, up to `max_stalls` times. A job that one more expired lease would bury therefore begins only while no
other such job runs in this worker, and only once the server has taken back those that came with it: then the killer dies
alone, and the others are completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import anyio

from echomq.errors import DecodeError

if TYPE_CHECKING:
    from echomq.protocol.records import JobRecord
    from echomq.worker.lease import Lease
    from echomq.worker.settle import Settler

DEFAULT_MAX_STALLS: Final = 3
"""How many expired leases a job survives whose row does not say: as in the scripts."""
LOOK: Final = 0.5
"""Seconds between two looks at a lease while it waits."""


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

    def __init__(self, settler: Settler) -> None:
        self._settler = settler
        self.current: Lease | None = None
        """The one that was let through."""
        self._others: set[Lease] = set()

    def admits(self, lease: Lease) -> bool:
        """Tell whether a claimed job may go on; if not, it is given back for a while, spending nothing."""
        if not on_last_life(lease.claimed.record):
            return True
        if self.current is None:
            self.current = lease
            return True
        self._others.add(lease)
        self._settler.put_off(lease)
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
                return True
            with anyio.move_on_after(LOOK):
                await self._settler.wait_change()

    def left(self, lease: Lease) -> None:
        """Note that a handler has ended."""
        if lease is self.current:
            self.current = None
