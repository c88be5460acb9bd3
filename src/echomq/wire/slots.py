"""Slots: at most one call in flight for each client, queue and verb (Protocol, section 4 rule 6).

The server remembers a client's *last* call of a verb. A second one in flight would overwrite that
memory before the first is known to be answered, and a resend of the first would then be refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from echomq.wire.line import Line

if TYPE_CHECKING:
    from echomq.wire.calls import WireCall


class Sink(Protocol):
    """Where a call goes when it is its turn."""

    def submit(self, call: WireCall) -> None:
        """Take the call."""


@final
class Slot:
    """The turn-taking of one verb on one queue, and its numbers."""

    __slots__ = ("_holder", "_line", "_number", "_sink", "queue", "verb")

    def __init__(self, sink: Sink, queue: str, verb: str) -> None:
        self._sink = sink
        self._line: Line[WireCall] = Line()
        self._holder: WireCall | None = None
        self._number = 0
        self.queue = queue
        """The queue's name."""
        self.verb = verb
        """The verb."""

    def draw(self) -> int:
        """Answer the next number; the holder draws it when it is first encoded, so numbers go out in order."""
        self._number += 1
        return self._number

    def enter(self, call: WireCall) -> None:
        """Send the call when all before it have ended."""
        if self._holder is None:
            self._holder = call
            self._sink.submit(call)
        else:
            call.line = self._line
            self._line.append(call)

    def release(self, call: WireCall) -> None:
        """Let the next one go; says nothing if the call was not the one in flight."""
        if self._holder is not call:
            return
        self._holder = self._line.pop()
        if self._holder is not None:
            self._holder.line = None
            self._sink.submit(self._holder)

    def sweep(self, now: float, patience: float, reason: str) -> None:
        """Give up what has waited too long in this line (see `WireCall.sweep`)."""
        for call in self._line:
            if call.sweep(now, patience, reason):
                call.line = None
                self._line.leave(call)
