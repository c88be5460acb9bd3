"""Making one connection: socket, TLS, and the handshake that makes it speak RESP3.

Some failures heal by themselves (nobody listens yet, the name does not resolve, the server loads its
data), some do not (a wrong password, a certificate for another host). `DialError.permanent` says which:
a client that was never connected is told of the latter at once.
"""

from __future__ import annotations

import os
import ssl
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from socket import SO_KEEPALIVE, SOL_SOCKET, socket
from typing import Any, Final, final

import anyio
import anyio.lowlevel
import hiredis
from anyio.abc import ByteStream, SocketAttribute

from echomq.errors import EchoMQError, ServerError, UnavailableError
from echomq.wire.packing import pack
from echomq.wire.pipeline import new_parser, next_reply
from echomq.wire.replies import Action, error_for, rule_for
from echomq.wire.urls import Address

RECEIVE: Final = 65536
"""Bytes asked of the socket at once."""
# Endings of a TLS connection that say nothing about its certificates: a proxy that restarts does this.
_TLS_CUT: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@final
class DialError(Exception):
    """A connection could not be made.

    Attributes:
        reason: What happened, without a password.
        permanent: The error to raise at once, when trying again will not help; else None.
    """

    def __init__(self, reason: str, permanent: EchoMQError | None = None) -> None:
        self.reason = reason
        self.permanent = permanent
        super().__init__(reason)


@final
class Dialled:
    """A connection that has shaken hands."""

    __slots__ = ("direct", "filenos", "parser", "stream")

    def __init__(self, stream: ByteStream, parser: hiredis.Reader, *, encrypted: bool) -> None:
        fileno = int(_socket(stream).fileno())
        self.stream = stream
        """Where bytes go and come from."""
        self.parser = parser
        """The reply parser, which may hold the beginning of a push message."""
        self.direct: socket | None = None
        """The same socket once more, to send without awaiting; None under TLS."""
        if not encrypted:
            self.direct = socket(fileno=os.dup(fileno))
            self.direct.setblocking(False)
        self.filenos = (fileno,) if self.direct is None else (fileno, self.direct.fileno())
        """The socket's file descriptors, for a forked child to drop."""

    async def close(self) -> None:
        """Close without waiting for the peer; when this returns the descriptors are free."""
        if self.direct is not None:
            self.direct.close()
        with anyio.CancelScope(shield=True), suppress(OSError):
            await anyio.aclose_forcefully(self.stream)
            await anyio.lowlevel.checkpoint()  # asyncio closes the socket in its next round


async def dial(address: Address, *, name: str, timeout: float) -> Dialled:
    """Connect and shake hands.

    Args:
        address: Where, and who we are there.
        name: What CLIENT LIST shows.
        timeout: Seconds for all of it.

    Raises:
        DialError: It did not work.

    Cancellation: closes what was opened.
    """
    stream: ByteStream | None = None
    try:
        with anyio.fail_after(timeout):
            stream = await _connect(address)
            parser = new_parser()
            await _handshake(stream, parser, address, name)
            return Dialled(stream, parser, encrypted=address.tls is not None)
    except BaseException as error:
        if stream is not None:
            await anyio.aclose_forcefully(stream)
        if isinstance(error, Exception):
            raise _explain(error, address, timeout) from error
        raise


async def _connect(address: Address) -> ByteStream:
    if address.path is not None:
        return await anyio.connect_unix(address.path)
    # anyio sets TCP_NODELAY on both backends.
    if address.tls is None:
        stream: ByteStream = await anyio.connect_tcp(address.host, address.port)
    else:
        stream = await anyio.connect_tcp(
            address.host,
            address.port,
            tls=True,
            ssl_context=address.tls.context(),
            tls_hostname=address.host,
            tls_standard_compatible=False,  # the protocol has its own framing; no closing handshake
        )
    # A park cannot ping; the kernel at least keeps its path through NATs and firewalls open.
    _socket(stream).setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
    return stream


def _socket(stream: ByteStream) -> Any:
    return stream.extra(SocketAttribute.raw_socket)  # noqa: S610 - anyio's `extra`, not Django's


async def _handshake(stream: ByteStream, parser: hiredis.Reader, address: Address, name: str) -> None:
    hello: list[Any] = ["HELLO", "3"]
    if address.password is not None or address.username is not None:
        hello += ["AUTH", address.username or "default", address.password or ""]
    commands: list[tuple[Any, ...]] = [
        (*hello, "SETNAME", name),
        ("CLIENT", "SETINFO", "LIB-NAME", "echomq"),
        ("CLIENT", "SETINFO", "LIB-VER", _version()),
    ]
    if address.db:
        commands.append(("SELECT", address.db))
    await stream.send(b"".join(pack(command) for command in commands))
    for command in commands:
        while not (found := next_reply(parser))[0]:
            parser.feed(await stream.receive(RECEIVE))
        reply = found[1]
        # Servers before 7.2 do not know SETINFO, and an ACL may forbid it: it is a courtesy.
        if isinstance(reply, hiredis.ReplyError) and command[1] != "SETINFO":
            raise _refusal(str(reply), str(command[0]))
        if command[0] == "HELLO" and not isinstance(reply, dict):
            # Trying a local port in the range of source ports again and again ends in a connection
            # to oneself, on which the command comes back as if it were its reply.
            raise DialError("the peer does not answer as a server does")


def _refusal(text: str, command: str) -> DialError:
    error = error_for(text, call=command)
    lasting = rule_for(text).action is Action.RAISE
    if lasting and command == "HELLO" and "unknown command" in text:
        error = ServerError("ERR", f"{text}: echomq needs Valkey, or Redis 7.0 or later")
    return DialError(str(error), error if lasting else None)


def _explain(error: Exception, address: Address, timeout: float) -> DialError:
    """Say in one line what went wrong; anyio's own message hides it in the cause."""
    if isinstance(error, DialError):
        return error
    if isinstance(error, TimeoutError) and not error.args:
        return DialError(f"no connection within {timeout:g} s")
    if isinstance(error, (anyio.EndOfStream, anyio.BrokenResourceError)):
        return DialError("the connection was closed during the handshake")
    if isinstance(error, hiredis.ProtocolError):
        reason = f"the peer does not speak the protocol: {error}"
        return DialError(reason, UnavailableError(f"{address}: {reason}", sent=False))
    if isinstance(error, ssl.SSLError) and not isinstance(error, _TLS_CUT):
        detail = getattr(error, "verify_message", "") or error.reason or error
        reason = f"TLS failed: {detail}"
        return DialError(reason, UnavailableError(f"{address}: {reason}", sent=False))
    causes: tuple[BaseException, ...] = ()
    if isinstance(error.__cause__, BaseExceptionGroup):
        causes = error.__cause__.exceptions
    elif error.__cause__ is not None:
        causes = (error.__cause__,)
    reason = "; ".join(sorted({_in_words(cause) for cause in causes or (error,)}))
    if address.tls is not None and isinstance(error, FileNotFoundError):
        return DialError(reason, UnavailableError(f"{address}: {reason}", sent=False))
    return DialError(reason)


def _in_words(error: BaseException) -> str:
    """Say the same on both event loops, which word a refused connection differently."""
    if type(error).__module__ == "builtins" and isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _version() -> str:
    try:
        return version("echomq")
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "0"
