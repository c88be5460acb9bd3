"""The items of a group commit: each with whoever waits for its verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import anyio

from echomq._logs import get_logger
from echomq.errors import UnavailableError
from echomq.transitions.base import MAX_CALL_BYTES, MAX_ITEMS

_AHEAD: Final = 4
"""Calls' worth of items that `many` keeps submitted: one on the wire, one ready, two of slack."""

_log = get_logger("echomq.wire")


@final
class Entry:
    """One item and who waits for its verdict."""

    __slots__ = ("done", "give_up_at", "gone", "item", "riding", "size")

    def __init__(self, item: Any, size: int, done: Callable[[Any], None], give_up_at: float | None) -> None:
        self.item = item
        self.size = size
        self.done = done
        self.give_up_at = give_up_at
        self.gone = False
        self.riding = False

    def end(self, outcome: Any) -> None:
        """Hand the outcome over, once."""
        if self.gone:
            return
        self.gone = True
        try:
            self.done(outcome)
        except Exception:  # noqa: BLE001 - somebody's callback must not stop everybody's reader
            _log.exception("a verdict's callback raised")

    def overdue(self, now: float, patience: float) -> bool:
        """Tell whether its time is up; its first sweep sets the time."""
        if self.give_up_at is None:
            self.give_up_at = now + patience
            return False
        return now >= self.give_up_at


@final
class Waiter:
    """A caller that waits for an item's outcome."""

    __slots__ = ("event", "outcome")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.outcome: Any = None

    def done(self, outcome: Any) -> None:
        """Wake the caller with the outcome."""
        self.outcome = outcome
        self.event.set()


@final
class Window:
    """How much of `many` is submitted and not answered yet."""

    __slots__ = ("_bytes", "_entries", "_event", "_outcomes", "broken", "open")

    def __init__(self, outcomes: list[Any]) -> None:
        self._outcomes = outcomes
        self._bytes = 0
        self._entries: list[Entry] = []
        self._event = anyio.Event()
        self.open = 0
        self.broken: UnavailableError | None = None

    @property
    def full(self) -> bool:
        """Whether enough is submitted for now."""
        return self.open >= _AHEAD * MAX_ITEMS or self._bytes >= _AHEAD * MAX_CALL_BYTES

    def expect(self, size: int) -> Callable[[Any], None]:
        """Reserve the next place among the outcomes; answer who fills it."""
        at = len(self._outcomes)
        self._outcomes.append(None)
        self.open += 1
        self._bytes += size

        def done(outcome: Any) -> None:
            self._outcomes[at] = outcome
            self.open -= 1
            self._bytes -= size
            if type(outcome) is UnavailableError:
                self.broken = outcome
            self._event.set()

        return done

    def add(self, entry: Entry) -> None:
        """Note a submitted item, to take it out should the caller leave."""
        self._entries.append(entry)

    def entries(self) -> list[Entry]:
        """Answer those that are still open; they are few, since the window is bounded."""
        self._entries = [entry for entry in self._entries if not entry.gone]
        return self._entries

    async def wait(self) -> None:
        """Wait for some outcome."""
        await self._event.wait()
        self._event = anyio.Event()
        self.entries()

    def unsent(self) -> UnavailableError:
        """Make the error of an item that is not sent any more."""
        return UnavailableError(f"not sent, since one before it failed: {self.broken}", sent=False)
