"""Calls: what stands in a pipeline's lines, from being asked for until it is answered.

Theory of operation
    A call is an object and not bytes: it is encoded when the writer has room for it, so that a
    caller who leaves before that takes it out without a trace, and waiting callers hold no buffers.
    Its life is one of
        line -> sent -> answered or failed
        line -> sent -> (connection lost) -> line -> sent ...       if `lost()` says it may run twice
        line -> dropped                                             its caller left
    and exactly one of `answered`, `failed` and `dropped` is called at its end.

If you change this
    `dropped`, `answered` and `failed` run in the reader or under a cancelled caller: they must not
    await, and must not raise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import anyio

from echomq.errors import EchoMQError, UnavailableError
from echomq.transitions.base import Call, Transition
from echomq.transitions.scripts import Script
from echomq.wire.line import Line
from echomq.wire.packing import pack
from echomq.wire.replies import MakeError
from echomq.wire.slots import Slot


class WireCall:
    """What every call has; the subclasses say what is sent and who waits."""

    __slots__ = ("gone", "line", "loads", "not_loaded", "ran_perhaps", "size")

    not_loaded: MakeError
    """Why its script could not be loaded; set only then."""

    label: str = "a command"
    """The verb or command, for messages."""
    queue: str = ""
    """The queue it is about, for messages."""
    script: Script | None = None
    """What to load when the server does not know it."""
    remembered: bool = False
    """Whether it carries a number, by which a repetition is answered and not run (rule 6)."""
    prompt: bool = False
    """Whether it may leave at once when nothing is in flight, without waiting for others to join."""
    trailing: int = 0
    """Replies that follow an error reply all the same (see `subscription`)."""

    def __init__(self) -> None:
        self.gone = False
        self.line: Line[WireCall] | None = None
        """Where it stands; None while it is on the wire, and at its end."""
        self.ran_perhaps = False
        """Whether it was on a connection that was lost before its reply came."""
        self.size = 0
        self.loads = 0

    def encode(self) -> bytes | None:
        """Answer the bytes to send, the same ones each time; None when there is nothing left to send."""
        raise NotImplementedError

    def answered(self, reply: Any) -> None:
        """Take the reply."""

    def failed(self, make: MakeError) -> None:
        """Take the error instead of a reply."""

    def dropped(self) -> None:
        """Hear that nobody waits any more and nothing comes."""

    @property
    def wanted(self) -> bool:
        """Whether somebody still waits for the reply."""
        return True

    def lost(self) -> bool:
        """Answer whether to send it again, after its connection broke before the reply came."""
        return False

    def sweep(self, now: float, patience: float, reason: str) -> bool:
        """Give up what has waited too long for a server that is away.

        Args:
            now: `time.monotonic()`.
            patience: Seconds a caller waits who said nothing else, from its first sweep.
            reason: Why the server is away, for the message.

        Returns:
            Whether nothing is left of the call.
        """
        return False


@final
class Ignored(WireCall):
    """A reply that nobody waits for: a ping's, or the one behind a refused subscription."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes = b"") -> None:
        super().__init__()
        self._data = data

    def encode(self) -> bytes | None:
        """Answer the bytes."""
        return self._data


class CallerCall(WireCall):
    """A call with one caller, who waits in `result`."""

    __slots__ = ("_abandoned", "_error", "_event", "_give_up_at", "_reply")

    prompt = True

    def __init__(self, event: anyio.Event | None = None) -> None:
        # A round trip's cost is counted in microseconds: no chain of initialisers here.
        self.gone = False
        self.line = None
        self.ran_perhaps = False
        self.size = 0
        self.loads = 0
        self._event = anyio.Event() if event is None else event
        self._reply: Any = None
        self._error: MakeError | None = None
        self._abandoned = False
        self._give_up_at: float | None = None

    async def result(self) -> Any:
        """Wait for the raw reply; raises what `failed` was given.

        Cancellation: an unsent call is taken out; of a sent one the reply is thrown away.
        """
        try:
            await self._event.wait()
        except BaseException:
            self.abandon()
            raise
        return self.outcome()

    async def settled(self, seconds: float) -> None:
        """Wait for the end, at most so long; leaves the call where it is, also when cancelled."""
        with anyio.move_on_after(max(seconds, 0.0)):
            await self._event.wait()

    @property
    def over(self) -> bool:
        """Whether it was answered or has failed."""
        return self._event.is_set()

    def outcome(self) -> Any:
        """Answer the raw reply of a call that is over; raises what `failed` was given."""
        if self._error is not None:
            raise self._error()
        return self._reply

    def abandon(self) -> None:
        """Leave: the line if it stands in one, else the reply to whoever reads it."""
        if self.line is not None:
            line, self.line = self.line, None
            line.leave(self)
            self.dropped()
        else:
            self._abandoned = True

    def answered(self, reply: Any) -> None:
        """Wake the caller with the reply."""
        self._reply = reply
        self._event.set()

    def failed(self, make: MakeError) -> None:
        """Wake the caller with the error."""
        self._error = make
        self._event.set()

    @property
    def wanted(self) -> bool:
        """Whether the caller has not left."""
        return not self._abandoned

    def sweep(self, now: float, patience: float, reason: str) -> bool:
        """Give the call up when its caller's time is up."""
        if self._give_up_at is None:
            self._give_up_at = now + patience
        elif now >= self._give_up_at:
            self.failed(unavailable(f"{self.label} was given up", reason, sent=self.ran_perhaps))
            return True
        return False


@final
class ScriptCall(CallerCall):
    """One transition, run for one caller."""

    __slots__ = ("_transition", "label", "queue", "remembered", "script")

    def __init__(self, transition: Transition[Any], event: anyio.Event) -> None:
        super().__init__(event)
        self._transition = transition
        self.label = transition.verb
        self.queue = transition.keys.queue
        self.script = transition.script
        self.remembered = transition.remembered

    def encode(self) -> bytes | None:
        """Pack the transition's command."""
        return pack(self._transition.command())

    def lost(self) -> bool:
        """Say yes to what is remembered, what may run twice, and reads."""
        return self.remembered or may_repeat(self._transition)


@final
class RawCall(CallerCall):
    """A plain command. Unless it is a read it may not be one that can run twice, so it is sent once."""

    __slots__ = ("_args", "_repeat", "label")

    def __init__(self, args: tuple[Any, ...], event: anyio.Event, *, repeat: bool = False) -> None:
        super().__init__(event)
        self._args = args
        self._repeat = repeat
        self.label = str(args[0]) if args else "an empty command"

    def encode(self) -> bytes | None:
        """Pack the command."""
        return pack(self._args)

    def lost(self) -> bool:
        """Say yes to reads."""
        return self._repeat


@final
class NumberedCall(CallerCall):
    """A remembered transition: numbered when first encoded, one at a time for its queue and verb."""

    __slots__ = ("_build", "_bytes", "_slot", "_tag", "label", "queue", "script", "transition")

    remembered = True

    def __init__(self, slot: Slot, tag: str, build: Callable[[Call], Transition[Any]]) -> None:
        super().__init__()
        self._slot = slot
        self._tag = tag
        self._build = build
        self._bytes: bytes | None = None
        self.transition: Transition[Any] | None = None
        """What was sent; reads the reply."""
        self.label = slot.verb
        self.queue = slot.queue
        self.script: Script | None = None

    def encode(self) -> bytes | None:
        """Draw the number and pack, once; afterwards the same bytes again."""
        if self._bytes is None:
            self.transition = self._build(Call(client=self._tag, number=self._slot.draw()))
            self.script = self.transition.script
            self._bytes = pack(self.transition.command())
        return self._bytes

    async def value(self) -> Any:
        """Wait for the reply and read it; raises and may be cancelled as `result`."""
        reply = await self.result()
        assert self.transition is not None  # noqa: S101 - answered, so it was built
        return self.transition.read(reply)

    def answered(self, reply: Any) -> None:
        """Wake the caller and let the next call go."""
        super().answered(reply)
        self._slot.release(self)

    def failed(self, make: MakeError) -> None:
        """Wake the caller and let the next call go."""
        super().failed(make)
        self._slot.release(self)

    def dropped(self) -> None:
        """Let the next call go."""
        self._slot.release(self)

    def lost(self) -> bool:
        """Always: the server remembers it."""
        return True


def may_repeat(transition: Transition[Any]) -> bool:
    """Tell whether a transition without a number may be sent again although it may have run.

    A verb whose script keeps no memory of its calls needs none: reads, extend (which runs again), the
    bare rounds and the bell. One that would remember, called without a number, must not run twice.
    """
    return "once" not in transition.script.header.include


def unavailable(what: str, reason: str, *, sent: bool, cause: MakeError | None = None) -> MakeError:
    """Prepare an `UnavailableError`: a fresh one for each caller."""

    def make() -> EchoMQError:
        outcome = "it may have run" if sent else "it has not run"
        error = UnavailableError(f"{what}, {outcome}: {reason}", sent=sent)
        error.__cause__ = None if cause is None else cause()
        return error

    return make
