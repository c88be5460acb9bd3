"""A proxy in threads, for the client that blocks: some calls run, and their replies are lost with the connection."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Self


class CuttingProxy:
    """Forwards bytes; the replies to the next `cuts` requests that hold `marker` are thrown away and their connections closed."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.url = f"valkey://127.0.0.1:{self._listener.getsockname()[1]}"
        self.marker = b"EVALSHA"
        self.cuts = 0
        self.requests: list[bytes] = []
        """What held the marker, as it was sent."""
        self.before_cut: Callable[[], object] = lambda: None
        """Called after the server has run a call, before its connection is cut."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                threading.Thread(target=self._serve, args=(client, server), daemon=True).start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        # One request, one reply: that is how redis-py talks outside of pipelines.
        with client, server, contextlib.suppress(OSError):
            while request := client.recv(1 << 20):
                server.sendall(request)
                reply = server.recv(1 << 20)
                if self.marker in request:
                    self.requests.append(request)
                    if self.cuts > 0 and not reply.startswith(b"-NOSCRIPT"):
                        self.cuts -= 1
                        self.before_cut()
                        return
                client.sendall(reply)
