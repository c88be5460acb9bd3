"""A TCP proxy that breaks connections in the ways networks do, for tests.

It stands between a client and a server, on both event loops, and fails on command: cut everything,
refuse newcomers, swallow replies (the command runs, the answer is lost), freeze (half-open: nothing
moves and nothing is closed), be slow. The flags may be changed at any time and act on living
connections too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import final

import anyio
from anyio.abc import ByteStream, SocketAttribute

_RECEIVE = 65536


@final
class FaultProxy:
    """Made by `open_proxy`. Every attribute but `port` may be set by the test."""

    def __init__(self, host: str, port: int) -> None:
        self.port = 0
        """Where it listens, on 127.0.0.1."""
        self.refusing = False
        """Newcomers are closed at once, before a byte of the server's."""
        self.dropping_replies = False
        """What the server says is thrown away; what clients say gets there."""
        self.frozen = False
        """Nothing moves in either direction, and nothing is closed: half-open."""
        self.delay = 0.0
        """Seconds each chunk of the server's waits."""
        self.accepted = 0
        """Connections accepted so far, refused ones too."""
        self.dropped_bytes = 0
        """Bytes of the server's thrown away so far."""
        self._target = (host, port)
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"valkey://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections that stand now."""
        return len(self._scopes)

    def cut(self) -> None:
        """Close every connection now."""
        for scope in tuple(self._scopes):
            scope.cancel()

    async def handle(self, client: ByteStream) -> None:
        """Serve one connection."""
        self.accepted += 1
        try:
            if not self.refusing:
                await self._pass_on(client)
        finally:
            with suppress(OSError):
                await anyio.aclose_forcefully(client)

    async def _pass_on(self, client: ByteStream) -> None:
        try:
            server = await anyio.connect_tcp(*self._target)
        except OSError:
            return
        try:
            async with anyio.create_task_group() as tasks:
                self._scopes.add(tasks.cancel_scope)
                tasks.start_soon(self._pump, client, server, False, tasks.cancel_scope)
                tasks.start_soon(self._pump, server, client, True, tasks.cancel_scope)
        finally:
            self._scopes.discard(tasks.cancel_scope)
            with suppress(OSError):
                await anyio.aclose_forcefully(server)

    async def _pump(
        self,
        source: ByteStream,
        sink: ByteStream,
        replies: bool,  # noqa: FBT001 - start_soon takes positions only
        scope: anyio.CancelScope,
    ) -> None:
        with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            while True:
                data = await source.receive(_RECEIVE)
                while self.frozen:  # noqa: ASYNC110 - a flag that a test may set at any time
                    await anyio.sleep(0.01)
                if replies and self.delay:
                    await anyio.sleep(self.delay)
                if replies and self.dropping_replies:
                    self.dropped_bytes += len(data)
                    continue
                await sink.send(data)
        scope.cancel()


@asynccontextmanager
async def open_proxy(host: str, port: int) -> AsyncIterator[FaultProxy]:
    """Listen on a free port of 127.0.0.1 and pass on to the server, until the block ends."""
    proxy = FaultProxy(host, port)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy.port = int(listener.extra(SocketAttribute.local_port))  # noqa: S610 - anyio's `extra`, not Django's
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.handle)
        try:
            yield proxy
        finally:
            tasks.cancel_scope.cancel()
