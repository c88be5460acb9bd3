"""The items of a group commit: each spelled for the wire, with whoever waits for its verdict."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, final

import anyio

from echomq._logs import get_logger
from echomq.errors import UnavailableError
from echomq.transitions.base import MAX_CALL_BYTES, MAX_ITEMS, Item
from echomq.wire.packing import pack_item

if TYPE_CHECKING:
    from echomq.wire.group import Group

_AHEAD: Final = 4
"""Calls' worth of items that a window keeps submitted: one on the wire, one ready, two of slack."""

_log = get_logger("echomq.wire")


class Entry:
    """One item in line; the subclasses say who gets its verdict.

    It is packed when it enters and not when its call leaves: that work is then done while the call before it is on the
    wire, and an item that cannot be packed is its caller's affair, not its neighbours'.
    """

    __slots__ = ("arguments", "data", "give_up_at", "gone", "riding")

    def __init__(self, item: Item | str, give_up_at: float | None = None) -> None:
        """Spell the item.

        Raises:
            TypeError: It cannot be packed.
        """
        self.arguments, self.data = pack_item(item)
        """How many arguments it is, and these, packed."""
        self.give_up_at = give_up_at
        self.gone = False
        self.riding = False

    def end(self, outcome: Any) -> None:
        """Hand the outcome over, once."""
        if not self.gone:
            self.gone = True
            self.deliver(outcome)

    def deliver(self, outcome: Any) -> None:
        """Give the outcome to whoever waits; must not raise."""

    def overdue(self, now: float, patience: float) -> bool:
        """Tell whether its time is up; its first sweep sets the time."""
        if self.give_up_at is None:
            self.give_up_at = now + patience
            return False
        return now >= self.give_up_at


@final
class Awaited(Entry):
    """An item whose caller waits for the outcome."""

    __slots__ = ("event", "outcome")

    def __init__(self, item: Item | str) -> None:
        super().__init__(item)
        self.event = anyio.Event()
        self.outcome: Any = None

    def deliver(self, outcome: Any) -> None:
        """Wake the caller with the outcome."""
        self.outcome = outcome
        self.event.set()


@final
class Submitted(Entry):
    """An item whose outcome goes to a callback."""

    __slots__ = ("done",)

    def __init__(self, item: Item | str, done: Callable[[Any], None], give_up_at: float | None) -> None:
        super().__init__(item, give_up_at)
        self.done = done

    def deliver(self, outcome: Any) -> None:
        """Call back."""
        try:
            self.done(outcome)
        except Exception:  # noqa: BLE001 - somebody's callback must not stop everybody's reader
            _log.exception("a verdict's callback raised")


@final
class Windowed(Entry):
    """One of many items: its outcome has a place among theirs."""

    __slots__ = ("at", "group", "window")

    def __init__(self, item: Item | str, window: Window, at: int, group: Group[Any]) -> None:
        # Sixty thousand a second: no chain of initialisers here.
        self.arguments, self.data = pack_item(item)
        self.give_up_at = None
        self.gone = self.riding = False
        self.window = window
        self.at = at
        self.group = group

    def end(self, outcome: Any) -> None:
        """Put the outcome in its place, once."""
        if not self.gone:
            self.gone = True
            self.window.fill(self, outcome)


@final
class Window:
    """How much of many items is submitted and not answered yet, to one group or to several."""

    __slots__ = ("_bytes", "_entries", "_event", "_most", "_most_bytes", "_outcomes", "broken", "open")

    def __init__(self, outcomes: list[Any]) -> None:
        self._outcomes = outcomes
        self._bytes = 0
        self._entries: deque[Windowed] = deque()
        self._event: anyio.Event | None = None
        self.open = 0
        self.broken: UnavailableError | None = None
        self.widen(1)

    def widen(self, groups: int) -> None:
        """Let so many groups' worth of items be submitted: each makes calls of its own."""
        self._most = groups * _AHEAD * MAX_ITEMS
        self._most_bytes = groups * _AHEAD * MAX_CALL_BYTES

    @property
    def full(self) -> bool:
        """Whether enough is submitted for now."""
        return self.open >= self._most or self._bytes >= self._most_bytes

    def enter(self, item: Item | str, group: Group[Any]) -> Windowed:
        """Reserve the next place among the outcomes for an item."""
        entry = Windowed(item, self, len(self._outcomes), group)
        self._outcomes.append(None)
        self._entries.append(entry)
        self.open += 1
        self._bytes += len(entry.data)
        return entry

    def fill(self, entry: Windowed, outcome: Any) -> None:
        """Put an outcome in its place, and wake who waits."""
        self._outcomes[entry.at] = outcome
        self.open -= 1
        self._bytes -= len(entry.data)
        if type(outcome) is UnavailableError:
            self.broken = outcome
        if self._event is not None:
            self._event.set()
            self._event = None

    def leave(self) -> None:
        """Take out those that are still open: the caller leaves."""
        for entry in self._entries:
            if not entry.gone:
                entry.group.leave(entry)

    async def wait(self) -> None:
        """Wait for some outcome."""
        self._event = anyio.Event()
        await self._event.wait()
        entries = self._entries  # answered in the order they went in, or nearly so
        while entries and entries[0].gone:
            entries.popleft()

    def unsent(self) -> UnavailableError:
        """Make the error of an item that is not sent any more."""
        return UnavailableError(f"not sent, since one before it failed: {self.broken}", sent=False)
