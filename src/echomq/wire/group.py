"""Group commit: items of one verb that are ready at the same moment leave as one call (Runtime, section 3).

Theory of operation
    No task of its own and no timer. The first item that comes while nothing is on the way puts a
    *group call* into the connection's line. The writer encodes it when its turn comes, and only
    then are the items taken: so all items of one scheduler tick ride together, and whatever comes
    while that call is on the wire goes with the next. Nothing waits for a batch to fill.
    A call is cut at `MAX_ITEMS` and `MAX_CALL_BYTES`; one larger item goes alone.

    Items are packed as they come, so that encoding a call is only joining them. If a whole call waits
    when a reply comes, it leaves before the reply's verdicts are handed out: the server is never idle
    while a bulk producer has work for it.

    One call at a time: the slot of the verb sees to it (rule 6), and the number is drawn when the
    items are taken. From then on the call's bytes are fixed. After a lost connection it is sent
    again, byte for byte, if at least one of its items still has a caller.

If you change this
    An item is waiting, riding or done. A caller who leaves takes a waiting item out; a riding one
    runs, and its verdict is dropped. `done` callbacks run in the reader: they must not raise.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar, final

import anyio.lowlevel

from echomq.errors import EchoMQError
from echomq.protocol.keys import QueueKeys
from echomq.protocol.refusals import Verdict
from echomq.transitions import MULTI
from echomq.transitions.base import MAX_CALL_BYTES, MAX_ITEMS, Call, Item
from echomq.transitions.scripts import Script
from echomq.wire.calls import WireCall, unavailable
from echomq.wire.items import Awaited, Entry, Submitted, Window
from echomq.wire.line import Line
from echomq.wire.packing import join_parts, pack_part
from echomq.wire.replies import MakeError
from echomq.wire.slots import Slot

I = TypeVar("I", bound=Item | str)  # noqa: E741 - an item
Outcome = Verdict | EchoMQError
"""What an item's caller gets: its verdict, or the error of the whole call."""


@final
class Head:
    """What all calls of a verb by one client on one queue begin with: made once, all but the number."""

    __slots__ = ("arguments", "data", "read", "remembered", "script")

    def __init__(self, verb: str, keys: QueueKeys, tag: str) -> None:
        bare = MULTI[verb](keys, Call(tag, 1), ())
        command = bare.command()
        self.script = bare.script
        self.remembered = bare.remembered
        self.read: Callable[[Any], list[Verdict]] = bare.read
        self.arguments = len(command)
        """How many arguments it is, the number included."""
        self.data = pack_part(command[:-1])
        """These, packed, without the number, which is the last."""


@final
class GroupCall(WireCall):
    """One call of a group: empty until the writer encodes it."""

    __slots__ = ("_bytes", "_group", "_riders", "label", "prompt", "queue", "remembered", "script")

    def __init__(self, group: Group[Any], *, prompt: bool) -> None:
        super().__init__()
        self._group = group
        self._riders: list[Entry] = []
        self._bytes: bytes | None = None
        self.label = group.verb
        self.prompt = prompt
        self.queue = group.keys.queue
        self.script: Script | None = group.head.script
        self.remembered = group.head.remembered

    def encode(self) -> bytes | None:
        """Take the items and the number, once; afterwards the same bytes again."""
        if self._bytes is None:
            self._riders = self._group.take()
            if not self._riders:
                return None
            self._bytes = assemble(self._group.head, self._group.draw(), self._riders)
        return self._bytes

    @property
    def wanted(self) -> bool:
        """Whether some item still has a caller; before the items are taken, always."""
        return self._bytes is None or any(not rider.gone for rider in self._riders)

    def lost(self) -> bool:
        """Always again: it is remembered, or harmless to repeat."""
        return True

    def answered(self, reply: Any) -> None:
        """Hand the verdicts out."""
        riders = self._riders
        try:
            verdicts = self._group.head.read(reply)
            if len(verdicts) != len(riders):
                raise ValueError(f"{len(verdicts)} verdicts for {len(riders)} items")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - a reply that makes no sense must not stop the reader
            what = f"the reply to {self.label} cannot be read"
            self.failed(unavailable(what, repr(error), sent=True))
            return
        self._group.next(self)
        for rider, verdict in zip(riders, verdicts, strict=True):
            rider.end(verdict)

    def failed(self, make: MakeError) -> None:
        """Tell every caller; a call that fails before it has items fails all that wait (the client is closed)."""
        if not self._riders:
            self._riders = self._group.take_all()
        for rider in self._riders:
            rider.end(make())
        self._group.next(self)

    def dropped(self) -> None:
        """Go on without it."""
        self._group.next(self)

    def sweep(self, now: float, patience: float, reason: str) -> bool:
        """Give up its items one by one: their callers may have different patience."""
        make = unavailable(f"{self.label} was given up", reason, sent=self.ran_perhaps)
        for rider in self._riders:
            if not rider.gone and rider.overdue(now, patience):
                rider.end(make())
        if self.wanted:
            return False
        self._group.next(self)
        return True


def assemble(head: Head, number: int, riders: Sequence[Entry]) -> bytes:
    """Make a call of a head, its number and the items that ride on it."""
    arguments = head.arguments + sum([rider.arguments for rider in riders])
    digits = b"%d" % number
    return join_parts(
        arguments, [head.data, b"$%d\r\n%b\r\n" % (len(digits), digits), *[rider.data for rider in riders]]
    )


@final
class Group(Generic[I]):
    """The group commit of one verb on one queue. Made by `WireClient.group`."""

    __slots__ = ("_call", "_check", "_check_home", "_line", "_slot", "head", "keys", "lone", "verb")

    def __init__(
        self,
        keys: QueueKeys,
        slot: Slot,
        tag: str,
        *,
        check: Callable[[], None],
        check_home: Callable[[], None],
    ) -> None:
        self.keys = keys
        """The queue."""
        self.verb = slot.verb
        """The verb."""
        self._slot = slot
        self.head = Head(slot.verb, keys, tag)
        """What its calls begin with."""
        self._check = check
        self._check_home = check_home
        self._line: Line[Entry] = Line()
        self._call: GroupCall | None = None
        self.lone = False
        """Whether the last call had one item. A caller who waits for each verdict before it sends the next item is then
        served without a turn of the writer, which would only wait for company that does not come."""

    async def __call__(self, item: I) -> Verdict:
        """Send the item with others and answer its verdict.

        Raises:
            EchoMQError: The whole call failed; every caller whose item rode on it gets the error.
            TypeError: The item cannot be packed; nothing was sent.

        Cancellation: an item that has not left is taken out; one that has may take effect, and its
        verdict is dropped.
        Delivery: runs at most once if the verb is remembered.
        """
        self._check()
        entry = Awaited(item)
        self._add(entry, prompt=self.lone)
        try:
            await entry.event.wait()
        except BaseException:
            self.leave(entry)
            raise
        outcome: Verdict | EchoMQError = entry.outcome
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def submit(
        self,
        item: I,
        done: Callable[[Outcome], None],
        *,
        give_up_after: float | None = None,
    ) -> None:
        """Send the item with others; `done` is called in the event loop with its verdict or error.

        Args:
            item: The item.
            done: Called once, perhaps at once: with an `UnavailableError` when the client is closed. Must not raise, and may
                submit again.
            give_up_after: Seconds from now, for which an outage is waited out; None means the
                client's `unavailable_after`. An error the server answers is handed over at once.

        Raises:
            TypeError: The item cannot be packed; nothing was sent, and `done` is not called.
        """
        self._check_home()
        give_up_at = None if give_up_after is None else time.monotonic() + give_up_after
        self._add(Submitted(item, done, give_up_at))

    async def many(self, items: Iterable[I], *, progress: Callable[[int], None] | None = None) -> list[Outcome]:
        """Send any number of items, holding only a few calls' worth of them at a time.

        Args:
            items: May be longer than memory; it is drawn from as verdicts come back.
            progress: Called with the number of outcomes known so far, after each wait.

        Returns:
            For each item, in order, its verdict or the error its call failed with. After an
            `UnavailableError` the rest is not sent, so that an outage costs one wait and not one a call.

        Cancellation: as for one item.
        """
        self._check()
        outcomes: list[Any] = []
        window = Window(outcomes)
        source = iter(items)
        try:
            while True:
                for item in source:
                    if window.broken is not None:
                        outcomes.append(window.unsent())
                        continue
                    self.enter(item, window)
                    if window.full:
                        break
                else:
                    if not window.open:
                        break
                await window.wait()
                self._check()
                if progress is not None:
                    progress(len(outcomes) - window.open)
        except BaseException:
            window.leave()
            raise
        await anyio.lowlevel.checkpoint()
        return outcomes

    def enter(self, item: I, window: Window) -> None:
        """Send the item with others; its outcome gets the next place in the window. For callers in the client's loop.

        Raises:
            TypeError: The item cannot be packed; nothing was sent.
        """
        self._line.append(window.enter(item, self))
        if self._call is None:
            self._enter()

    def leave(self, entry: Entry) -> None:
        """Take an item out, or drop the verdict of one that has left: its caller is gone."""
        # A rider is only marked: `Line.leave` of one that stands in no line would miscount.
        if entry.riding:
            entry.gone = True
        else:
            self._line.leave(entry)

    # --- for the call -----------------------------------------------------------------------

    def take(self) -> list[Entry]:
        """Take the next call's items out of the line."""
        taken: list[Entry] = []
        room = MAX_CALL_BYTES
        while len(taken) < MAX_ITEMS:
            entry = self._line.pop()
            if entry is None:
                break
            if taken and len(entry.data) > room:
                self._line.put_back(entry)
                break
            entry.riding = True
            room -= len(entry.data)
            taken.append(entry)
        self.lone = len(taken) == 1
        return taken

    def take_all(self) -> list[Entry]:
        """Take every item out of the line."""
        taken = list(self._line)
        self._line = Line()
        return taken

    def draw(self) -> int:
        """Answer the next call's number; 0 for a verb that is not remembered."""
        return self._slot.draw() if self.head.remembered else 0

    def next(self, call: GroupCall) -> None:
        """Go on after a call has ended."""
        if self._call is call:
            self._call = None
            if self._line:
                self._enter(prompt=len(self._line) >= MAX_ITEMS)
        self._slot.release(call)

    def sweep(self, now: float, patience: float, reason: str) -> None:
        """Give up items that have waited too long (see `WireCall.sweep`)."""
        for entry in self._line:
            if entry.overdue(now, patience):
                make = unavailable(f"{self.verb} was given up", reason, sent=False)
                entry.end(make())
        self._line.tidy()

    # --- inside -----------------------------------------------------------------------------

    def _add(self, entry: Entry, *, prompt: bool = False) -> None:
        self._line.append(entry)
        if self._call is None:
            self._enter(prompt=prompt)

    def _enter(self, *, prompt: bool = False) -> None:
        self._call = GroupCall(self, prompt=prompt)
        self._slot.enter(self._call)
