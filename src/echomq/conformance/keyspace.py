"""A queue of one's own under a random prefix, on a server that may be somebody else's."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Final, final

import redis

from echomq.conformance.driver import Driver
from echomq.conformance.invariants import leftovers
from echomq.conformance.snapshot import Snapshot, scan, take
from echomq.protocol.keys import QueueKeys
from echomq.transitions import Completion, Script

_ITEMS: Final = 256


@final
class Playground:
    """A fresh queue; nothing outside its prefix is touched, and `clear` leaves none of it behind."""

    def __init__(
        self,
        server: redis.Redis,
        *,
        prefix: str = "emq-proof",
        scripts: Mapping[str, Script] | None = None,
        keys: QueueKeys | None = None,
    ) -> None:
        self.server = server
        self.scripts = dict(scripts or {})
        self.keys = keys or QueueKeys(prefix=f"{prefix}-{secrets.token_hex(6)}", queue="proof")

    def client(self, *, numbered: bool = True, tag: str = "") -> Driver:
        """Make a client of the queue, its tag fresh unless given."""
        return Driver(self.server, self.keys, tag=tag, numbered=numbered, scripts=self.scripts)

    def look(self) -> Snapshot:
        """Look at all keys of the queue."""
        return take(self.server, self.keys)

    def end_all(self) -> None:
        """End every job by the verbs, whatever its state, and remove what was kept.

        Lanes stand on the ring until their turn, also when they are empty: hence what holds the queue back is lifted,
        and their turn comes.
        """
        driver, snap = self.client(), self.look()
        active = [(id, snap.row(id)) for id in snap.zset("active")]
        for at in range(0, len(active), _ITEMS):
            ending = active[at : at + _ITEMS]
            driver.items("complete", *(Completion(id, int(row["attempts"]), row["holder"], b"") for id, row in ending))
        ids = [id for id, _ in self.look().rows()]
        for at in range(0, len(ids), _ITEMS):
            driver.items("remove", *ids[at : at + _ITEMS])
        self.server.hdel(self.keys.meta, "paused", "limits")
        for _ in range(1000):
            if not self.server.exists(self.keys.ring) or driver.claim(16).next_ms:
                break

    def obliterate(self, driver: Driver, bound: int = 256) -> int:
        """Obliterate the queue as a client does, in rounds of so many jobs; answers how many went.

        Raises:
            AssertionError: A round got nowhere.
        """
        jobs, left = 0, -1
        while left:
            before, done = left, driver.plain("obliterate", bound=bound, force=True)
            jobs, left = jobs + done.jobs, done.left
            if left and not done.jobs and left == before:
                raise AssertionError(f"obliterate leaves {left} and goes no further")
        names = sorted(self.look().entries.keys() - {"meta"})
        for at in range(0, len(names), 256):
            driver.plain("obliterate", force=True, names=names[at : at + 256])
        driver.plain("obliterate", force=True, last=True)
        return jobs

    def expect_empty(self) -> None:
        """Hold that nothing remains but the queue's own keys.

        Raises:
            AssertionError: Something does.
        """
        left = leftovers(self.look())
        if left:
            raise AssertionError(f"left behind after all jobs have ended: {left}")

    def clear(self) -> None:
        """Delete the queue's keys."""
        names = scan(self.server, f"{self.keys.base}*")
        if names:
            self.server.delete(*names)
