"""The end of a stream: a connection that carries nothing but XREAD, to hear that something was added.

Theory of operation
    An XREAD is sent for `BLOCK` seconds and left standing, as the park's BLPOP is. It takes nothing away: what it says
    is only that there is something behind a position, and its one entry is thrown away. Whoever waits reads the stream
    by a script, which sees in the same moment what was added and how far the bound has come. So a connection that was
    lost loses no event, and is no error: it says "look" like any answer.

    Who iterates may just go. The last reference to a tail closes its connection by way of the event loop, since a
    finalizer runs anywhere (`home`).

If you change this
    Never a timeout of 0: a stream that was deleted and began anew behind the position would never be heard of.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

from echomq.errors import UnavailableError
from echomq.wire.calls import CallerCall
from echomq.wire.connection import Connection
from echomq.wire.packing import pack
from echomq.wire.park import BLOCK, LATE


@final
class _Read(CallerCall):
    """One XREAD."""

    __slots__ = ("_after", "_key", "_overdue_at")

    label = "XREAD"

    def __init__(self, key: str, after: str) -> None:
        super().__init__()
        self._key = key
        self._after = after
        self._overdue_at: float | None = None

    def encode(self) -> bytes | None:
        """Pack it; its time begins."""
        self._overdue_at = time.monotonic() + BLOCK + LATE
        return pack(("XREAD", "COUNT", 1, "BLOCK", int(BLOCK * 1000), "STREAMS", self._key, self._after))

    @property
    def overdue_at(self) -> float | None:
        """By when the answer must be there; None while it stands in a line."""
        return self._overdue_at if self.line is None else None


@final
class Tail:
    """Where one waits for a stream to grow. Made by `WireClient.tail`; for one task at a time."""

    def __init__(
        self,
        connection: Connection,
        check: Callable[[], None],
        close: Callable[[], None],
        soon: Callable[[Callable[[], None]], None],
    ) -> None:
        self._connection = connection
        self._check = check
        self._close = close
        self._soon = soon
        self._read: _Read | None = None
        self._closed = False

    async def wait(self, key: str, after: str) -> None:
        """Wait until the stream should be looked at: there is something behind the position, or nobody knows.

        Args:
            key: The stream; always the same one.
            after: The position. Another one than the last time is heeded when the standing XREAD has been answered.

        Raises:
            EchoMQError: The server refused, such as `PermissionDeniedError`.

        Cancellation: the XREAD stands, and the next wait goes on with it.
        """
        self._check()
        until = time.monotonic() + BLOCK + LATE
        if self._read is None:
            self._read = _Read(key, after)
            self._connection.submit(self._read)
        read = self._read
        await read.settled(min(until, read.overdue_at or until) - time.monotonic())
        if not read.over:
            if read.overdue_at is not None and time.monotonic() >= read.overdue_at:
                self._connection.lose(f"an XREAD was not answered within {BLOCK + LATE:g} s")
            return  # a look will tell how things are
        self._read = None
        try:
            read.outcome()
        except UnavailableError:
            return

    def close(self) -> None:
        """Close the connection, without waiting for the server. In the client's event loop; may be called again."""
        if not self._closed:
            self._closed = True
            self._close()

    def __del__(self) -> None:
        if not self._closed:
            self._closed = True
            self._soon(self._close)
