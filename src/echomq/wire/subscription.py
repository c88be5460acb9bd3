"""Channels: a connection of its own for subscriptions, and word when messages may have been missed.

Theory of operation
    In RESP3 a SUBSCRIBE is confirmed by a push message, but refused (NOPERM) in the line of replies:
    whether it takes a place in that line is known only afterwards. So each is followed by a PING, and
    the reply's place is the ping's. The pong comes after the confirmation, thus means success; an
    error means refusal, and the pong behind it is thrown away (`trailing`).

    The connection's watch pings, so that a dead peer is found although nothing is ever published.
    After each reconnect all channels are subscribed in one command before anything else is sent, and
    the reader gets a `Reconnected`: what was published in between is gone, and state must be read again.

If you change this
    Its own connection because the server cuts off subscribers that read too slowly; on a shared one
    that would hit commands.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self, final

import anyio
import anyio.lowlevel
import attrs

from echomq.wire.calls import CallerCall, WireCall
from echomq.wire.connection import Connection
from echomq.wire.packing import pack
from echomq.wire.replies import MakeError

BUFFER: Final = 10_000
"""Messages kept for a reader that is slow. Beyond that all are dropped: it has to read state anyway."""

_PING: Final = pack(("PING",))


@final
@attrs.frozen
class Message:
    """What was published."""

    channel: str
    """On which channel."""
    data: bytes
    """What."""


@final
@attrs.frozen
class Reconnected:
    """Messages may have been missed before this point: read the state they would have told of."""

    reason: str
    """Why, for people."""


@final
class _Subscribe(CallerCall):
    """SUBSCRIBE with its PING. Harmless to repeat."""

    __slots__ = ("_channel", "_subscription", "label")

    trailing = 1

    def __init__(self, subscription: Subscription, channel: str) -> None:
        super().__init__()
        self._subscription = subscription
        self._channel = channel
        self.label = f"SUBSCRIBE {channel}"  # an ACL's refusal does not name the channel

    def encode(self) -> bytes | None:
        """Pack both."""
        return pack(("SUBSCRIBE", self._channel)) + _PING

    def answered(self, reply: Any) -> None:
        """The channel is subscribed; from here on reconnects subscribe it again."""
        self._subscription.confirmed(self._channel)
        super().answered(reply)

    def lost(self) -> bool:
        """Again: its caller waits for the confirmation."""
        return True


@final
class _Unsubscribe(WireCall):
    """UNSUBSCRIBE with its PING; nobody waits, and a new connection needs none."""

    __slots__ = ("_data",)

    label = "UNSUBSCRIBE"
    trailing = 1

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def encode(self) -> bytes | None:
        """Answer the bytes."""
        return self._data


@final
class _Resubscribe(WireCall):
    """All channels again, on a new connection."""

    __slots__ = ("_subscription",)

    label = "SUBSCRIBE"
    trailing = 1

    def __init__(self, subscription: Subscription) -> None:
        super().__init__()
        self._subscription = subscription

    def encode(self) -> bytes | None:
        """Pack what was confirmed; an unconfirmed channel has a call of its own, and may be refused alone."""
        channels = self._subscription.confirmed_channels
        return pack(("SUBSCRIBE", *channels)) + _PING if channels else None

    def answered(self, reply: Any) -> None:
        """Everything is subscribed again."""
        self._subscription.restored(None)

    def failed(self, make: MakeError) -> None:
        """The server refuses now what it allowed before."""
        self._subscription.restored(make)

    def dropped(self) -> None:
        """All channels were removed in the meantime."""
        self._subscription.nothing_to_restore()

    def lost(self) -> bool:
        """Again, in front of everything: this very call, so that the next connection adds none."""
        return True


@final
class Subscription:
    """Channels one listens to. Made by `WireClient.open_subscription`; iterate over it in one task."""

    def __init__(self, check: Callable[[], None]) -> None:
        self._check = check
        self._connection: Connection | None = None
        self._channels: dict[str, int] = {}
        self._buffer: deque[Message | Reconnected] = deque()
        self._arrived = anyio.Event()
        self._confirmed: set[str] = set()
        self._restoring = False
        self._error: MakeError | None = None
        self._closed = False

    @property
    def channels(self) -> tuple[str, ...]:
        """The channels asked for."""
        return tuple(self._channels)

    @property
    def confirmed_channels(self) -> tuple[str, ...]:
        """Those of them that the server has confirmed on some connection."""
        return tuple(sorted(self._confirmed))

    async def add(self, channel: str) -> None:
        """Listen to a channel too; when this returns, the server has confirmed it.

        Adding one twice needs removing it twice.

        Raises:
            PermissionDeniedError: The ACL user may not listen to it.
            UnavailableError: The server could not be reached in time.

        Cancellation: the channel is removed again.
        """
        self._check()
        call = _Subscribe(self, channel)
        self._channels[channel] = self._channels.get(channel, 0) + 1
        self._link.submit(call)
        try:
            await call.result()
        except BaseException:
            self._forget(channel)
            raise

    async def remove(self, channel: str) -> None:
        """Listen to a channel no more. Takes effect at the call, also when it is cancelled.

        Messages already here are still handed out.
        """
        self._check()
        self._forget(channel)
        await anyio.lowlevel.checkpoint()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message | Reconnected:
        """Wait for the next message, or for word that some may have been missed.

        Raises:
            PermissionDeniedError: After a reconnect the server refused what it had allowed.

        Cancellation: loses nothing.
        Delivery: at most once. Channels keep nothing for who is not there.
        """
        self._check()
        await anyio.lowlevel.checkpoint()
        while not self._buffer:
            if self._error is not None:
                make, self._error = self._error, None
                raise make()
            if self._closed:
                raise StopAsyncIteration
            self._arrived = anyio.Event()
            await self._arrived.wait()
        return self._buffer.popleft()

    # --- for the connection -----------------------------------------------------------------

    def attach(self, connection: Connection) -> None:
        """Use this connection."""
        self._connection = connection

    def opening(self) -> list[WireCall]:
        """Answer what a new connection begins with."""
        if self._restoring or not self._confirmed:
            return []
        self._restoring = True
        return [_Resubscribe(self)]

    def push(self, message: list[Any]) -> None:
        """Take a push message; confirmations are known by their pong."""
        if message[0] == b"message":
            self._put(Message(message[1].decode("utf-8", "replace"), message[2]))

    def restored(self, refused: MakeError | None) -> None:
        """All channels are subscribed on a new connection, or refused."""
        self._restoring = False
        if refused is not None:
            self._error = refused
            self._arrived.set()
        else:
            self._put(Reconnected(self._link.last_loss))

    def nothing_to_restore(self) -> None:
        """There was no channel left to subscribe on a new connection."""
        self._restoring = False

    def confirmed(self, channel: str) -> None:
        """The server listens to a channel for us, unless it was given up in the meantime."""
        if channel in self._channels:
            self._confirmed.add(channel)

    def close(self) -> None:
        """End the iteration."""
        self._closed = True
        self._arrived.set()

    # --- inside -----------------------------------------------------------------------------

    @property
    def _link(self) -> Connection:
        assert self._connection is not None  # noqa: S101 - attached before anybody sees the subscription
        return self._connection

    def _put(self, item: Message | Reconnected) -> None:
        if len(self._buffer) >= BUFFER:
            self._buffer.clear()
            self._buffer.append(Reconnected(f"{BUFFER} messages were not read"))
        self._buffer.append(item)
        self._arrived.set()

    def _forget(self, channel: str) -> None:
        count = self._channels.get(channel, 0) - 1
        if count > 0:
            self._channels[channel] = count
        elif count == 0:
            del self._channels[channel]
            self._confirmed.discard(channel)
            if self._link.connected:  # a new connection begins without it
                self._link.submit(_Unsubscribe(pack(("UNSUBSCRIBE", channel)) + _PING))
