"""A connection that lasts: it is made again whenever it breaks, and its calls live on.

Theory of operation
    `run` is a service task. It dials; while a connection stands, three tasks serve it: the writer
    (`Pipeline.gather`, then one send), the reader (`Pipeline.feed`) and the watch. Whatever ends
    the connection cancels these three, the pipeline sorts what was unanswered, and it dials again:
    at once the first time, then with a jittered exponential pause of at most `MAX_PAUSE`.

    A call that finds nothing in flight is sent by its caller, without waiting for the writer's turn
    (`flush`): a single caller then pays one task switch less. It happens only while the writer is
    idle, so the stream's own buffer is empty and bytes cannot overtake each other; what the socket
    does not take goes to the writer as `_rest`.

    The watch finds a peer that is silent, by counting ticks and not by comparing times: a process
    that was stopped or a loop that was blocked finds all its deadlines past at once, and would
    otherwise break a healthy connection whose replies it has just not read yet.

    *Trouble* is: not connected, or connected to a server that asks to be left alone (LOADING). While
    it lasts, a sweep gives up calls whose callers have waited long enough. A caller's time begins
    with the first sweep that sees it and is not renewed when trouble comes back.

If you change this
    The service tasks are shielded: cancelling the client's body must not kill them, since settling
    under a shield still needs them. Only `close` ends them. It is synchronous on purpose.
    `lose` may be called from the reader itself: it only notes the reason and cancels.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from socket import socket
from typing import Any, Final, final

import anyio
import attrs
import hiredis
from anyio.abc import ByteStream
from redis.backoff import ExponentialWithJitterBackoff

from echomq._logs import get_logger
from echomq.errors import EchoMQError
from echomq.wire.calls import Ignored, WireCall
from echomq.wire.dial import RECEIVE, DialError, Dialled, dial
from echomq.wire.packing import pack
from echomq.wire.pipeline import Pipeline
from echomq.wire.urls import Address

MAX_PAUSE: Final = 2.0
"""Seconds between two tries to connect, at most: work goes on within seconds of the server's return."""
_FIRST_PAUSE: Final = 0.05
_MAX_HOLD: Final = 0.5
_MAX_EXPONENT: Final = 20  # 2 ** failures is an int; after 1,024 failures it no longer fits a float
_TICKS: Final = 4
_SWEEP_EVERY: Final = 0.25

_PING: Final = pack(("PING",))
_log = get_logger("echomq.wire")


@final
@attrs.frozen(kw_only=True)
class Timing:
    """How long the wire waits for what. Seconds."""

    unavailable_after: float = attrs.field(default=10.0, validator=attrs.validators.gt(0))
    """How long a caller waits for a server that is away, before it gets `UnavailableError`."""
    ping_deadline: float = attrs.field(default=5.0, validator=attrs.validators.gt(0))
    """Silence of this length while a reply is due means a dead peer; an idle connection is pinged as often."""
    connect_timeout: float = attrs.field(default=5.0, validator=attrs.validators.gt(0))
    """For connecting, TLS and the handshake together."""


@final
class Connection:
    """One connection to one server, over its reconnects."""

    def __init__(
        self,
        address: Callable[[], Address],
        *,
        name: str,
        timing: Timing,
        watched: bool = True,
        on_change: Callable[[], None] = lambda: None,
        on_push: Callable[[list[Any]], None] = lambda _message: None,
        opening: Callable[[], list[WireCall]] = list,
    ) -> None:
        """Prepare; nothing is opened before `run`.

        Args:
            address: Where to connect; asked anew each time.
            name: What CLIENT LIST shows.
            timing: See there.
            watched: Whether silence means a dead peer. A park is silent for seconds.
            on_change: Called when `connected` has changed.
            on_push: Takes push messages.
            opening: Calls to send first on each connection made.
        """
        self.pipeline = Pipeline(self)
        self.connected = False
        """Whether a connection stands."""
        self.was_connected = False
        """Whether one ever stood."""
        self.connects = 0
        """Connections made so far."""
        self.reason = "not connected yet"
        """What ended the last connection, or the last try; while one stands, what is wrong with it."""
        self.last_loss = ""
        """What ended the last connection that stood."""
        self._started = False
        self._finished = anyio.Event()
        self._address = address
        self._name = name
        self._timing = timing
        self._watched = watched
        self._on_change = on_change
        self._on_push = on_push
        self._opening = opening
        self._tried = anyio.Event()
        self._refusal: EchoMQError | None = None
        self._service = anyio.CancelScope(shield=True)
        self._session: anyio.CancelScope | None = None
        self._work = anyio.Event()
        self._idle = False
        self._left = False
        self._logged = ""
        self._hold_due = False
        self._refusals = 0
        self._trouble = anyio.Event()
        self._trouble.set()
        self._filenos: tuple[int, ...] = ()
        self._direct: socket | None = None
        self._rest = b""

    # --- for the client ---------------------------------------------------------------------

    def submit(self, call: WireCall) -> None:
        """Put a call at the end."""
        self.pipeline.submit(call)

    async def first_try(self) -> None:
        """Wait until connecting was tried once.

        Raises:
            EchoMQError: It failed in a way that trying again will not heal.
        """
        await self._tried.wait()
        if self._refusal is not None:
            raise self._refusal

    def close(self, reason: str = "it is no longer used") -> None:
        """End the service; callers that still wait fail."""
        self.pipeline.close(reason)
        self._service.cancel()

    async def closed(self) -> None:
        """Wait, whatever happens, until the socket is closed; takes no longer than that."""
        if self._started:
            with anyio.CancelScope(shield=True):
                await self._finished.wait()

    def drop_inherited(self) -> None:
        """In a forked child: let go of the socket without a word to the peer, which is the parent's.

        The descriptor is pointed at /dev/null and not closed: objects that the child inherited will
        close that number once more, by when it may be somebody else's. No event loop is told, since
        its epoll is shared with the parent and would forget the parent's socket.
        """
        null = os.open(os.devnull, os.O_RDWR)
        for fileno in self._filenos:
            os.dup2(null, fileno, inheritable=False)
        os.close(null)
        self._filenos = ()

    # --- for the pipeline -------------------------------------------------------------------

    def wake(self) -> None:
        """Let the writer look for work."""
        if self._idle:
            self._idle = False
            self._work.set()

    def flush(self) -> None:
        """Send at once if the writer is idle, else let it look for work."""
        if self._direct is None or not self._idle:
            self.wake()
            return
        data = self.pipeline.gather()
        try:
            sent = self._direct.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._broken(error)
            return
        if sent < len(data):
            self._rest = data[sent:]
            self.wake()

    def hold(self, text: str) -> None:
        """Leave the server alone for a moment."""
        self.reason = text
        self._hold_due = True
        self.pipeline.served = False
        self._trouble.set()
        self.wake()

    def lose(self, reason: str) -> None:
        """Give this connection up and make another."""
        self.reason = reason
        if self._session is not None:
            self._session.cancel()

    def leave(self, text: str) -> None:
        """Look for another server, since this one will not take our calls."""
        self._left = True
        self.lose(text)

    def push(self, message: list[Any]) -> None:
        """Pass a push message on."""
        self._on_push(message)

    # --- the service ------------------------------------------------------------------------

    async def run(self) -> None:
        """Serve until `close`."""
        self._started = True
        try:
            with self._service:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._sweep)
                    await self._serve()
        finally:
            # Also after a crash of ours: no caller may wait for a service that is gone.
            self.pipeline.close("the connection's service has ended")
            self._tried.set()
            self._finished.set()

    async def _serve(self) -> None:
        failures = 0
        while True:
            try:
                dialled = await dial(self._address(), name=self._name, timeout=self._timing.connect_timeout)
            except DialError as error:
                self._note_failure(error)
            else:
                self.pipeline.served = self._left = False
                await self._session_on(dialled)
                # A replica that serves reads and refuses writes must not be asked at full speed.
                if self.pipeline.served and not self._left:
                    failures = 0
            await anyio.sleep(pause(failures, MAX_PAUSE))
            failures += 1

    def _note_failure(self, error: DialError) -> None:
        self.reason = error.reason
        if error.permanent is not None and not self.was_connected:
            self._refusal = error.permanent
        self._tried.set()
        if error.reason != self._logged:  # once for each reason, not for each try
            self._logged = error.reason
            _log.warning("cannot_connect", connection=self._name, server=str(self._address()), reason=error.reason)

    async def _session_on(self, dialled: Dialled) -> None:
        pipeline = self.pipeline
        try:
            pipeline.connected(dialled.parser, self._opening())
            self._direct, self._filenos = dialled.direct, dialled.filenos
            self._rest = b""
            self._hold_due, self._refusals = False, 0
            self.connects += 1
            if self._logged:
                _log.info("connected_again", connection=self._name, server=str(self._address()))
            self.reason, self._logged = "the connection was lost", ""
            self._change(connected=True)
            self._tried.set()
            async with anyio.create_task_group() as tasks:
                self._session = tasks.cancel_scope
                tasks.start_soon(self._read, dialled.stream)
                if self._watched:
                    tasks.start_soon(self._watch)
                await self._write(dialled.stream)
        finally:
            self._session = None
            self._idle = False
            self._direct, self._filenos = None, ()
            self.last_loss = self.reason
            if pipeline.closed is None:
                self._logged = self.reason
                _log.warning("connection_lost", connection=self._name, reason=self.reason)
            pipeline.disconnected(self.reason)
            self._change(connected=False)
            await dialled.close()

    async def _write(self, stream: ByteStream) -> None:
        pipeline = self.pipeline
        try:
            while True:
                if self._hold_due:
                    self._hold_due = False
                    self._refusals += 1
                    await anyio.sleep(max(_FIRST_PAUSE, pause(self._refusals, _MAX_HOLD)))
                data, self._rest = self._rest, b""
                data = data or pipeline.gather()
                if data:
                    await stream.send(data)
                else:
                    self._work = anyio.Event()
                    self._idle = True
                    await self._work.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            self._broken(error)

    async def _read(self, stream: ByteStream) -> None:
        feed = self.pipeline.feed
        receive = stream.receive
        try:
            while True:
                feed(await receive(RECEIVE))
        except anyio.EndOfStream:
            self.lose("the server closed the connection")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError) as error:
            self._broken(error)
        except hiredis.ProtocolError as error:
            self.lose(str(error))

    def _broken(self, error: Exception) -> None:
        cause = error.__cause__
        self.lose(f"the connection broke: {cause or type(error).__name__}")

    async def _watch(self) -> None:
        pipeline, deadline = self.pipeline, self._timing.ping_deadline
        received, due, idle = -1, 0, 0
        while True:
            await anyio.sleep(deadline / _TICKS)
            if pipeline.received != received:
                received, due, idle = pipeline.received, 0, 0
            if not pipeline.outstanding:
                due, idle = 0, idle + 1
                if idle >= _TICKS:
                    idle = 0
                    self.submit(Ignored(_PING))
            else:
                # The oldest reply has been due since the first of these ticks, or longer.
                due += 1
                if due > _TICKS:
                    self.lose(f"no answer for {deadline:g} s")

    def _change(self, *, connected: bool) -> None:
        self.connected = connected
        self.was_connected |= connected
        if not connected:
            self._trouble.set()
        self._on_change()

    # --- giving up --------------------------------------------------------------------------

    async def _sweep(self) -> None:
        patience = self._timing.unavailable_after
        while True:
            await self._trouble.wait()
            if self.connected and (not self._refusals or self.pipeline.served):
                self._refusals = 0
                self._trouble = anyio.Event()
                continue
            self.pipeline.sweep(time.monotonic(), patience, f"{self._address()}: {self.reason}")
            await anyio.sleep(min(_SWEEP_EVERY, patience / 4))


def pause(failures: int, most: float) -> float:
    """Answer how long to wait after so many failures in a row, with jitter. Seconds."""
    backoff = ExponentialWithJitterBackoff(cap=most, base=_FIRST_PAUSE)
    return float(backoff.compute(min(failures, _MAX_EXPONENT)))
