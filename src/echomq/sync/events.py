"""A queue's events, for programs that block: `for event in queue.events(since=..., timeout=...)`."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import TYPE_CHECKING, Final, Self, final

from echomq._events import Event, EventReader, Gap
from echomq.errors import UnavailableError
from echomq.events import NOT_OFTENER, TRY_AGAIN

if TYPE_CHECKING:
    from types import TracebackType

    from echomq.sync.runner import Runner

_BLOCK: Final = 2.0
"""Seconds that the server lets a read stand; less where replies must come within less than twice that."""


@final
class EventStream:
    """A queue's events, one after the other. Made by `Queue.events`; iterate over it in one thread.

    It holds nothing but while it waits, when it has one of the client's connections.
    """

    def __init__(self, runner: Runner, key: str, reader: EventReader, *, follow: bool, timeout: float) -> None:
        self._runner = runner
        self._key = key
        self._reader = reader
        self._follow = follow
        self._timeout = timeout
        self._block = min(_BLOCK, (runner.pool.connection_kwargs.get("socket_timeout") or math.inf) / 2)
        self._found: deque[Event | Gap] = deque()
        self._given = reader.position
        self._begun = False
        self._closed = False
        self._looked = -math.inf

    @property
    def position(self) -> str:
        """Up to where it has been iterated; see `echomq.EventStream.position`."""
        return self._given if self._found else self._reader.position

    def __enter__(self) -> Self:
        """Begin: without `since`, what happens from here on is told."""
        if not self._begun:
            self._look()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event | Gap:
        """Wait for the next one. When `timeout` is over the iteration ends; a later one goes on where it was.

        Raises:
            UnavailableError: As for `echomq.EventStream`. Once it has begun and follows, a server that is away is waited
                for until `timeout` is over, beside a try that is under way: up to five seconds if the server is silent.
        """
        until = time.monotonic() + self._timeout
        while not self._found:
            if self._closed or (self._begun and not self._follow and self._reader.done):
                raise StopIteration
            try:
                if not self._reader.behind:
                    left = until - time.monotonic()
                    if left <= 0:
                        raise StopIteration
                    self._wait(min(left, self._block), self._within(until))
                self._look(self._within(until))
            except UnavailableError:
                if not self._follow or not self._begun:
                    raise
                left = until - time.monotonic()
                if left <= 0:
                    raise StopIteration from None
                # It was there, and will be again: then what has been missed meanwhile is read, or told.
                time.sleep(min(left, TRY_AGAIN))
        event = self._found.popleft()
        self._given = event.id if isinstance(event, Event) else event.after
        return event

    def close(self) -> None:
        """End it."""
        self._closed = True

    def _within(self, until: float) -> float:
        """For how long a call is tried again: where its failure is no error, not past the end of the iteration."""
        return max(0.0, until - time.monotonic()) if self._follow and self._begun else math.inf

    def _wait(self, seconds: float, within: float) -> None:
        """Wait until the stream has grown, or the time is over."""
        ms = max(1, int(seconds * 1000))
        position = self._reader.position
        self._runner.command("XREAD", "COUNT", 1, "BLOCK", ms, "STREAMS", self._key, position, within=within)
        time.sleep(max(0.0, self._looked + NOT_OFTENER - time.monotonic()))

    def _look(self, within: float = math.inf) -> None:
        page = self._runner.run(self._reader.ask(self._runner.call()), within=within)
        self._begun = True
        self._looked = time.monotonic()
        self._found.extend(self._reader.take(page))
