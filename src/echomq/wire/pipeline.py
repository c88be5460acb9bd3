"""The pipeline: which call goes next, and whose reply this is. No I/O, no await, no clock.

Theory of operation
    Three places hold a connection's calls:
        `_outbox`   not sent yet, in the order they came
        `_again`    to be sent before those: unanswered when a connection broke, refused for a while
                    (LOADING), or waiting behind the SCRIPT LOAD that a NOSCRIPT made necessary
        `_flight`   sent and unanswered; the server answers in this order
    `gather` moves calls from the first two to the third and answers their bytes; `feed` takes what
    was received and hands replies to the head of the third. `disconnected` moves the third to the
    front of the second, except what may not run twice (it fails, as perhaps run) and what nobody
    wants any more (it is dropped: who gave up must not find the call running minutes later).

    The bound. `gather` stops encoding while `ROOM` bytes are unanswered. Callers behind it wait in
    the outbox as objects, not as bytes, so neither our memory nor the socket's buffer grows with the
    number of callers. 1 MiB is four full group calls: enough to keep a 100 Mbit/s link of 80 ms
    busy, little enough that a call waits at most 80 ms behind it there.

If you change this
    Everything runs between two awaits of the reader or the writer. A call is in exactly one place;
    `call.line` is None exactly while it is in flight or has ended.
    Only one caller's own calls are ordered: NOSCRIPT, LOADING and READONLY reorder independent ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, final

import hiredis

from echomq.errors import EchoMQError
from echomq.transitions.scripts import Script
from echomq.wire.calls import Ignored, WireCall, unavailable
from echomq.wire.line import Line
from echomq.wire.packing import pack
from echomq.wire.replies import Action, MakeError, error_for, rule_for

ROOM: Final = 1 << 20
"""Bytes that may be unanswered before the writer stops encoding."""
_MAX_LOADS: Final = 3
"""SCRIPT LOADs for one call: a server that forgets a script faster than that is broken."""

_NOT_YET: Final = object()
_Push: Final = hiredis.PushNotification
_Error: Final = hiredis.ReplyError


class Sweepable(Protocol):
    """What else holds waiting callers: slots and groups."""

    def sweep(self, now: float, patience: float, reason: str) -> None:
        """Give up what has waited too long (see `WireCall.sweep`)."""


class Driver(Protocol):
    """What the pipeline asks of the connection that drives it."""

    def wake(self) -> None:
        """There is something to gather."""

    def flush(self) -> None:
        """There is something to gather, and no reason to wait for more."""

    def hold(self, text: str) -> None:
        """The server asks for a moment: gather nothing for a while."""

    def leave(self, text: str) -> None:
        """The server says that it is the wrong one: make another connection."""

    def push(self, message: list[Any]) -> None:
        """Take a push message."""


def new_parser() -> hiredis.Reader:
    """Make a reply parser; a connection has its own."""
    return hiredis.Reader(notEnoughData=_NOT_YET)


def next_reply(parser: hiredis.Reader) -> tuple[bool, Any]:
    """Answer whether a reply is complete, and the reply."""
    reply = parser.gets(False)
    return reply is not _NOT_YET, reply


@final
class Load(WireCall):
    """SCRIPT LOAD, sent in front of the call that was answered NOSCRIPT."""

    __slots__ = ("_call", "_pipeline", "_source")

    label = "SCRIPT LOAD"

    def __init__(self, pipeline: Pipeline, script: Script, call: WireCall) -> None:
        super().__init__()
        self._pipeline = pipeline
        self._source = script
        self._call = call

    def encode(self) -> bytes | None:
        """Pack the script."""
        return pack(("SCRIPT", "LOAD", self._source.source))

    def answered(self, reply: Any) -> None:
        """Note that the script is there."""
        self._pipeline.loaded(self._source)

    def failed(self, make: MakeError) -> None:
        """Keep the error for the call behind this one, which is answered NOSCRIPT once more."""
        self._call.not_loaded = make
        self._pipeline.loaded(self._source)


@final
class Pipeline:
    """The calls of one connection, over its reconnects."""

    __slots__ = (
        "_again",
        "_driver",
        "_flight",
        "_loading",
        "_outbox",
        "_parser",
        "_unanswered",
        "closed",
        "received",
        "resent",
        "sent",
        "served",
        "sources",
    )

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._outbox: Line[WireCall] = Line()
        self._again: Line[WireCall] = Line()
        self._flight: deque[WireCall] = deque()
        self._parser = new_parser()
        self._unanswered = 0
        self._loading: set[str] = set()
        self.sources: list[Sweepable] = []
        """What else holds callers that wait for this connection."""
        self.closed: MakeError | None = None
        """Set when no call will be sent any more."""
        self.received = 0
        """Counts receptions: a number that stands still is a silent peer."""
        self.served = False
        """Whether a call was answered with success since this was last set to False."""
        self.sent = 0
        """Calls sent so far."""
        self.resent = 0
        """Calls sent again after a lost connection, of those."""

    @property
    def outstanding(self) -> bool:
        """Whether a reply is due."""
        return bool(self._flight)

    @property
    def unanswered_bytes(self) -> int:
        """Bytes sent, or handed to the socket, whose replies have not come."""
        return self._unanswered

    @property
    def waiting(self) -> int:
        """Calls that have not been sent."""
        return len(self._again) + len(self._outbox)

    # --- towards the server -----------------------------------------------------------------

    def submit(self, call: WireCall) -> None:
        """Put a call at the end."""
        if self.closed is not None:
            call.failed(self.closed)
            return
        call.line = self._outbox
        self._outbox.append(call)
        if call.prompt and not self._flight:
            self._driver.flush()
        else:
            self._driver.wake()

    def gather(self) -> bytes:
        """Take calls, in order, while there is room; answer their bytes. They count as sent from here on."""
        if self._unanswered >= ROOM:
            return b""
        again, outbox, flight = self._again, self._outbox, self._flight
        chunks: list[bytes] = []
        while self._unanswered < ROOM:
            call = (again.pop() if again else None) or outbox.pop()
            if call is None:
                break
            call.line = None
            try:
                data = call.encode()
            except Exception as error:  # noqa: BLE001 - an argument that cannot be packed is its caller's, not ours
                call.failed(_same(error))
                continue
            if data is None:
                call.dropped()
                continue
            call.size = len(data)
            self._unanswered += call.size
            flight.append(call)
            chunks.append(data)
        self.sent += len(chunks)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    # --- from the server --------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Hand out the replies in what was received.

        Raises:
            hiredis.ProtocolError: The peer does not speak the protocol, or answers what was not asked.
        """
        self.received += 1
        was_full = self._unanswered >= ROOM
        parser, flight = self._parser, self._flight
        parser.feed(data)
        while (reply := parser.gets(False)) is not _NOT_YET:
            kind = type(reply)
            if kind is _Push:
                self._driver.push(reply)
                continue
            if not flight:
                raise hiredis.ProtocolError(f"an answer to nothing: {reply!r:.200}")
            call = flight.popleft()
            self._unanswered -= call.size
            if kind is _Error:
                self._refused(call, str(reply))
            else:
                self.served = True
                call.answered(reply)
        if was_full and self._unanswered < ROOM:
            self._driver.wake()

    def _refused(self, call: WireCall, text: str) -> None:
        for _ in range(call.trailing):
            self._flight.appendleft(Ignored())
        action = rule_for(text).action
        if action is Action.RAISE:
            self._fail(call, text)
        elif not call.wanted:
            call.dropped()  # it has not run, and nobody asks for it any more
        elif action is Action.RELOAD:
            self._reload(call, text)
        else:
            self._put_again(call)
            if action is Action.RECONNECT:
                self._driver.leave(text)
            else:
                self._driver.hold(text)

    def _fail(self, call: WireCall, text: str) -> None:
        queue, label = call.queue, call.label

        def make() -> EchoMQError:
            return error_for(text, queue=queue, call=label)

        if call.ran_perhaps and call.remembered:
            # Rule 6: the first sending may have run, and this answer does not say.
            make_unknown = unavailable(f"{label} was sent again", text, sent=True, cause=make)
            call.failed(make_unknown)
        else:
            call.failed(make)

    def _reload(self, call: WireCall, text: str) -> None:
        script = call.script
        if script is None:
            self._fail(call, text)
            return
        refused = getattr(call, "not_loaded", None)
        call.loads += 1
        if refused is not None or call.loads > _MAX_LOADS:
            call.failed(refused) if refused is not None else self._fail(call, text)
            return
        if script.sha not in self._loading:
            self._loading.add(script.sha)
            self._put_again(Load(self, script, call))
        self._put_again(call)
        self._driver.wake()

    def _put_again(self, call: WireCall) -> None:
        call.line = self._again
        self._again.append(call)

    def loaded(self, script: Script) -> None:
        """Note the end of a SCRIPT LOAD."""
        self._loading.discard(script.sha)

    # --- when the server is away ------------------------------------------------------------

    def connected(self, parser: hiredis.Reader, opening: Iterable[WireCall] = ()) -> None:
        """Go on with a new connection.

        Args:
            parser: The one that read the handshake.
            opening: Calls that go before all others on this connection.
        """
        self._parser = parser
        self._again = Line([*opening, *self._again])
        for call in self._again:
            call.line = self._again

    def disconnected(self, reason: str) -> None:
        """Sort what was unanswered: sent again, failed as perhaps run, or dropped."""
        flight, self._flight = self._flight, deque()
        self._unanswered = 0
        self._loading.clear()
        first: list[WireCall] = []
        for call in flight:
            if isinstance(call, Load):
                continue  # no verdict on the call behind it, which asks the next connection again
            if not call.wanted:
                call.dropped()
            elif call.lost():
                call.ran_perhaps = True
                first.append(call)
            else:
                call.failed(unavailable(f"the connection broke under {call.label}", reason, sent=True))
        waiting = [call for call in self._again if not isinstance(call, Load)]
        self.resent += len(first)
        self._again = Line([*first, *waiting])
        for call in self._again:
            call.line = self._again
            call.loads = 0  # it counts what one server forgets, and not what was lost on the way to it
            if hasattr(call, "not_loaded"):
                del call.not_loaded

    def sweep(self, now: float, patience: float, reason: str) -> None:
        """Give up what has waited too long (see `WireCall.sweep`)."""
        # Sources first: a slot whose holder ends would otherwise send its next one only to see it end too.
        for source in self.sources:
            source.sweep(now, patience, reason)
        for line in (self._again, self._outbox):
            for call in line:
                if call.sweep(now, patience, reason):
                    call.line = None
                    line.leave(call)

    def close(self, reason: str) -> None:
        """Fail every caller that still waits, here and in the sources; take no more calls."""
        self.disconnected(reason)
        self.closed = unavailable("the client was closed", reason, sent=False)
        self.sweep(float("inf"), 0.0, reason)  # the first sweep sets a time, the second finds it over
        self.sweep(float("inf"), 0.0, reason)
        for line in (self._again, self._outbox):  # what callers have asked for meanwhile
            while (call := line.pop()) is not None:
                call.line = None
                call.failed(self.closed)


def _same(error: Exception) -> Callable[[], Any]:
    return lambda: error
