"""A waiting line whose members may leave from the middle.

Leaving marks the member (`gone`), and the marked are passed over when their turn comes. That is O(1),
where taking one out of a deque is O(n): ten thousand callers cancelled at once would otherwise cost
fifty million comparisons. Once half of the line is marked it is rebuilt, so that callers who come
and leave again during an outage do not make it grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, Generic, Protocol, TypeVar, final

_REBUILD_AT: Final = 64
"""Fewer leavers than this are not worth a rebuild."""


class Leaver(Protocol):
    """What can stand in a line: it says whether it has left."""

    gone: bool


L = TypeVar("L", bound=Leaver)


@final
class Line(Generic[L]):
    """First come, first served, with leaving allowed."""

    __slots__ = ("_items", "_left")

    def __init__(self, items: Iterable[L] = ()) -> None:
        self._items: deque[L] = deque(items)
        self._left = 0

    def append(self, item: L) -> None:
        """Stand at the end."""
        self._items.append(item)

    def leave(self, item: L) -> None:
        """Leave the line; the item must stand in it."""
        if item.gone:
            return
        item.gone = True
        self._left += 1
        if self._left > _REBUILD_AT and self._left * 2 > len(self._items):
            self.tidy()

    def tidy(self) -> None:
        """Drop all who have left."""
        self._items = deque(item for item in self._items if not item.gone)
        self._left = 0

    def pop(self) -> L | None:
        """Take who is next out of the line."""
        items = self._items
        while items:
            item = items.popleft()
            if not item.gone:
                return item
            self._left -= 1
        return None

    def put_back(self, item: L) -> None:
        """Let who was taken out be the next again."""
        self._items.appendleft(item)

    def __iter__(self) -> Iterator[L]:
        """Go through a copy: who is visited may leave."""
        return (item for item in tuple(self._items) if not item.gone)

    def __len__(self) -> int:
        return len(self._items) - self._left

    def __bool__(self) -> bool:
        return len(self._items) > self._left
