"""One subscription connection for all who wait for results, or follow jobs, within a client.

Theory of operation
    The first waiter starts a service task in the client's task group; it opens the subscription and rings the bells of
    the channels it hears of. `Reconnected` rings all: what was published in between is gone, and rows must be read.

If you change this
    A bell may be closed where nothing can be awaited (an iterator that is garbage), so closing only notes it; whoever
    comes next unsubscribes. A channel that stays subscribed a while longer costs a message that nobody heeds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import final

import anyio
import anyio.abc

from echomq._follow import NOTES
from echomq._logs import get_logger
from echomq.errors import EchoMQError, PermissionDeniedError
from echomq.wire.client import WireClient
from echomq.wire.subscription import Message, Subscription

_log = get_logger("echomq.results")


@final
class Bell:
    """Rings when there is word on a channel, or when some may have been missed."""

    __slots__ = ("_closed", "_owner", "channel", "deaf", "ring", "subscription")

    def __init__(
        self,
        owner: Channels,
        channel: str,
        ring: Callable[[], None],
        subscription: Subscription,
        deaf: frozenset[bytes],
    ) -> None:
        self._owner = owner
        self._closed = False
        self.channel = channel
        self.deaf = deaf
        self.ring = ring
        self.subscription = subscription

    def close(self) -> None:
        """Ring no more; may be called more than once, and in any thread."""
        if not self._closed:
            self._closed = True
            self._owner.closed(self)


@final
class Waiter:
    """A bell to wait for."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        """Wake who waits, or who will."""
        self._event.set()

    async def wait(self, seconds: float) -> None:
        """Wait until it rings or has rung since the last wait, or the time is over."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        self._event = anyio.Event()


@final
class _Service:
    """One life of the subscription."""

    __slots__ = ("error", "ready", "scope", "subscription")

    def __init__(self) -> None:
        # Shielded like the wire's own services: a waiter in a shielded cleanup still hears of its job.
        self.scope = anyio.CancelScope(shield=True)
        self.ready = anyio.Event()
        self.subscription: Subscription | None = None
        self.error: EchoMQError | None = None


@final
class Channels:
    """The channels of one client."""

    def __init__(self, wire: WireClient, tasks: anyio.abc.TaskGroup) -> None:
        self._wire = wire
        self._tasks = tasks
        self._service: _Service | None = None
        self._closed = False
        self._bells: dict[str, set[Bell]] = {}
        self._stale: list[Bell] = []

    @asynccontextmanager
    async def listen(self, channel: str) -> AsyncIterator[Waiter]:
        """Listen to a channel: when this has been entered, no later message is missed while the connection stands.

        Raises:
            PermissionDeniedError: The ACL user may not listen to it.
            UnavailableError: The server could not be reached in time.
        """
        waiter = Waiter()
        bell = await self.open_bell(channel, waiter.ring)
        try:
            yield waiter
        finally:
            bell.close()
            with anyio.CancelScope(shield=True):  # it does not wait for the server
                await self._unsubscribe()

    async def open_bell(self, channel: str, ring: Callable[[], None], *, deaf: frozenset[bytes] = NOTES) -> Bell:
        """Have `ring` called, in the event loop, at each message of a channel, until the bell is closed.

        Args:
            channel: The channel.
            ring: What is called.
            deaf: Messages that it is not called for; by default those that do not tell a job's end.

        Raises:
            PermissionDeniedError: The ACL user may not listen to it.
            UnavailableError: The server could not be reached in time.

        Cancellation: a checkpoint; nothing stays subscribed.
        """
        self._wire.check()
        await self._unsubscribe()
        subscription = await self._open()
        try:
            await subscription.add(channel)
        except PermissionDeniedError as error:
            # The server does not say which channel it means.
            raise PermissionDeniedError(error.code, f"{error.message}: {channel}") from error
        bell = Bell(self, channel, ring, subscription, deaf)
        self._bells.setdefault(channel, set()).add(bell)
        return bell

    def close(self) -> None:
        """End the service; whoever still waits looks once more, and finds the client closed."""
        self._closed = True
        if self._service is not None:
            self._service.scope.cancel()
        self._ring_all()

    def closed(self, bell: Bell) -> None:
        """Note that a bell is not needed any more."""
        self._stale.append(bell)

    # --- inside -----------------------------------------------------------------------------

    async def _open(self) -> Subscription:
        service = self._service
        if self._closed:
            raise RuntimeError("this client is closed")
        if service is None:
            service = self._service = _Service()
            self._tasks.start_soon(self._run, service)
        await service.ready.wait()
        if service.subscription is None:
            raise service.error or RuntimeError("this client is closed")
        return service.subscription

    async def _run(self, service: _Service) -> None:
        with service.scope:
            try:
                async with self._wire.open_subscription() as subscription:
                    service.subscription = subscription
                    service.ready.set()
                    async for word in subscription:
                        if isinstance(word, Message):
                            for bell in tuple(self._bells.get(word.channel, ())):
                                if word.data not in bell.deaf:
                                    bell.ring()
                        else:
                            self._ring_all()
            except EchoMQError as error:
                # Waiters go on by reading their rows; the next one tries again.
                _log.warning("results_subscription_lost", error=str(error))
                service.error = error
        if self._service is service:
            self._service = None
        service.ready.set()
        self._ring_all()

    def _ring_all(self) -> None:
        for bells in tuple(self._bells.values()):
            for bell in tuple(bells):
                bell.ring()

    async def _unsubscribe(self) -> None:
        while self._stale:
            bell = self._stale.pop()
            bells = self._bells.get(bell.channel)
            if bells is not None:
                bells.discard(bell)
                if not bells:
                    del self._bells[bell.channel]
            if self._service is not None and bell.subscription is self._service.subscription:
                await bell.subscription.remove(bell.channel)
