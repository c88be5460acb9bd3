"""The doorbell: a connection that carries nothing but BLPOP on wake lists (Runtime, section 4, intake).

Theory of operation
    A BLPOP is sent for `BLOCK` seconds and left standing; `wait` ends by the caller's own timer and
    the next `wait` goes on with the same BLPOP. So waits of a second cost one command in ten, and a
    job that is due at a moment is claimed at that moment: the server's own timeouts fire up to 90 ms
    late. A BLPOP that has had no answer `LATE` after its timeout has lost its peer. (A ping would
    queue behind it, so the connection's watch is off.)

    A token that a BLPOP took belongs to whoever reads the reply. If nobody does, the next sleeper is
    not woken for it: `may_have_eaten` tells a worker that leaves to call `ring`.

If you change this
    Never a claim behind the BLPOP: it would take jobs for a worker that died in between. Never a
    timeout of 0: that is for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from echomq.errors import UnavailableError
from echomq.wire.calls import CallerCall
from echomq.wire.connection import Connection
from echomq.wire.packing import pack

BLOCK: Final = 10.0
"""Seconds a BLPOP stands at most: the longest a half-open connection goes unnoticed, less `LATE`."""
LATE: Final = 2.0
"""Seconds beyond that in which the answer must come."""


@final
class _Block(CallerCall):
    """One BLPOP; sent once, since a repetition could take a second token."""

    __slots__ = ("_overdue_at", "keys", "on_ring")

    label = "BLPOP"

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__()
        self.keys = keys
        self.on_ring: Callable[[str], None] | None = None
        """Called with the list that rang, if somebody waits."""
        self._overdue_at: float | None = None

    def answered(self, reply: Any) -> None:
        """Tell whoever waits which list rang, at once and then by waking it."""
        if reply is not None and self.on_ring is not None:
            self.on_ring(reply[0].decode())
        super().answered(reply)

    def encode(self) -> bytes | None:
        """Pack it; its time begins."""
        self._overdue_at = time.monotonic() + BLOCK + LATE
        return pack(("BLPOP", *self.keys, BLOCK))

    @property
    def overdue_at(self) -> float | None:
        """By when the answer must be there; None while it stands in a line, also a second time."""
        return self._overdue_at if self.line is None else None

    @property
    def sent(self) -> bool:
        """Whether the server may act on it, or has."""
        return self.overdue_at is not None


@final
class Park:
    """Where an idle worker waits for work. Made by `WireClient.open_park`; for one task at a time."""

    def __init__(self, connection: Connection, check: Callable[[], None]) -> None:
        self._connection = connection
        self._check = check
        self._block: _Block | None = None
        self._lost = False

    async def wait(
        self, keys: Sequence[str], seconds: float, *, on_ring: Callable[[str], None] | None = None
    ) -> str | None:
        """Wait for a token in one of the lists, at most so long.

        Args:
            keys: The wake lists; the first that has a token serves. On one server any number of
                queues. Other keys than the last time give up the standing BLPOP and its connection.
            seconds: By our own clock.
            on_ring: Called with the list that rings, in the reader and before this returns: what it sends is on its
                way while the caller is still being woken. Must not raise.

        Returns:
            The list that rang, or None when the time is up. While there is no connection it waits
            all the same: the caller's next claim will tell how things are.

        Raises:
            UnavailableError: The connection was lost while the BLPOP stood. A token may have been
                taken: `may_have_eaten`. Wait a moment before the next try.
            EchoMQError: The server refused, such as `PermissionDeniedError`.

        Cancellation: the BLPOP stands, and the next wait goes on with it.
        Delivery: a token is handed out once, or lost with the connection.
        """
        self._check()
        self._lost = False
        wanted = tuple(keys)
        if self._block is not None and self._block.keys != wanted:
            self._give_up(self._block)
        until = time.monotonic() + max(seconds, 0.001)
        while True:
            if self._block is None:
                self._block = _Block(wanted)
                self._connection.submit(self._block)
            block = self._block
            block.on_ring = on_ring
            try:
                await block.settled(min(until, block.overdue_at or until) - time.monotonic())
            finally:
                block.on_ring = None
            now = time.monotonic()
            if block.over:
                self._block = None
                try:
                    reply = block.outcome()
                except UnavailableError:
                    self._lost = block.sent
                    raise
                if reply is not None:
                    rang: bytes = reply[0]
                    return rang.decode()
            elif block.overdue_at is not None and now >= block.overdue_at:
                self._connection.lose(f"a BLPOP was not answered within {BLOCK + LATE:g} s")
            elif now >= until:
                return None

    @property
    def may_have_eaten(self) -> bool:
        """Whether leaving now may lose a token: a BLPOP stands or was answered unread, or was just lost."""
        return self._lost or (self._block is not None and self._block.sent)

    def _give_up(self, block: _Block) -> None:
        """Other keys: a standing BLPOP cannot be taken back but by closing its socket."""
        self._block = None
        if block.sent and not block.over:
            self._lost = True
            block.abandon()
            self._connection.lose("the park waits for other keys")
        elif not block.sent:
            block.abandon()
        else:
            self._lost = True
