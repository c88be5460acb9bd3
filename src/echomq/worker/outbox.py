"""The outbox pump: delivers what the queues have to tell other queues, or to do in bounded steps (Protocol, section 7).

Theory of operation
    Every worker may deliver every entry of its queues' outboxes, and none is the leader: an entry is taken for half a
    minute, may be delivered any number of times, and is struck off after that. A claim's reply says that one is due; so
    does this process when it has itself spawned, or followed up, into another queue. After each round the server says
    when the next entry is due. A worker whose slots are all taken claims nothing, so there is a round every few seconds
    besides for each queue that ever owed something. Queues that never did pay nothing.

    What another queue refuses is put back for a while, entry by entry, and keeps no other back. A queue whose own outbox
    cannot be read is left alone, with backoff.

If you change this
    Nothing that an entry holds, or that a queue answers, may end the worker or be tried without a pause. A round may be
    left at any await: what was taken is there again half a minute later.
"""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING, Final, final

import anyio
import attrs

from echomq._delivery import Delivered, deliver_walk
from echomq._logs import Told, get_logger
from echomq._walks import drive
from echomq.errors import EchoMQError
from echomq.worker.pauses import backoff
from echomq.worker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from echomq.worker.calls import QueueCalls

EVERY: float = 5.0
"""Seconds between two rounds that nobody asked for, shortened by up to a half so that workers do not go in step."""
ROUNDS: Final = 10
"""Times that entries are taken before another queue has its turn."""
BACKOFF_FIRST: float = 0.1
BACKOFF_CAP: float = 5.0
"""Seconds for which a queue is left alone whose outbox cannot be read: doubling from the first to the cap, with jitter."""
QUIET_FIRST: float = 0.05
QUIET_CAP: float = 1.0
"""The same of a queue that is said to owe something, and where nothing is found: others were there first."""

_log = get_logger("echomq.worker")


@final
@attrs.define(eq=False)
class _Line:
    """One queue's rounds."""

    calls: QueueCalls
    called: bool = False
    """Whether somebody said that an entry is due, since the last round."""
    known: bool = False
    """Whether it ever owed something."""
    next_at: float = math.inf
    """When the next entry is due, on anyio's clock, as far as is known."""
    until: float = 0.0
    """Until when it is left alone, on anyio's clock."""
    failures: int = 0
    """How many rounds in a row have failed."""
    empty: int = 0
    """How many rounds in a row found nothing although somebody had called."""
    told: Told = attrs.field(factory=Told)
    lock: anyio.Lock = attrs.field(factory=anyio.Lock)

    def wanted_at(self) -> float:
        """Answer when it is to be looked at, on anyio's clock."""
        return max(self.until, 0.0 if self.called else self.next_at)


@final
class OutboxPump:
    """Delivers the outboxes of some queues."""

    def __init__(self, queues: Iterable[QueueCalls]) -> None:
        self._lines = {calls: _Line(calls) for calls in queues}
        self._signal = Signal()
        self._random = random.Random()
        for calls in self._lines:
            calls.owes = partial(self.owes, calls)

    def owes(self, calls: QueueCalls) -> None:
        """Look at a queue's outbox: an entry is due."""
        line = self._lines[calls]
        line.called = line.known = True
        self._signal.send()

    async def run(self) -> None:
        """Deliver what is due, when called, when an entry's time has come, and every few seconds. Runs until cancelled."""
        while True:
            usual = anyio.current_time() + EVERY * self._random.uniform(0.5, 1.0)
            while (now := anyio.current_time()) < usual:
                soonest = min(line.wanted_at() for line in self._lines.values())
                if soonest > now:
                    with anyio.move_on_after(min(usual, soonest) - now):
                        await self._signal.wait()
                    continue
                for line in self._lines.values():
                    if line.wanted_at() <= anyio.current_time():
                        await self._round(line)
            for line in self._lines.values():
                if line.known and line.until <= anyio.current_time():
                    await self._round(line)

    async def is_clear(self) -> bool:
        """Deliver what is due; answer whether nothing was, in any queue."""
        found = [await self._round(line) for line in self._lines.values()]
        return all(each == 0 for each in found)

    async def _round(self, line: _Line) -> int | None:
        """Deliver what is due in one queue, and decide when it is looked at again. Answers how much it was; None: unknown."""
        async with line.lock:
            called, line.called = line.called, False
            taken: int | None = None
            pause = 0.0
            try:
                did: Delivered = await drive(line.calls, deliver_walk(line.calls.keys, rounds=ROUNDS))
            except (EchoMQError, ValueError) as error:  # ValueError: an entry that is torn
                line.failures += 1
                pause = backoff(line.failures, BACKOFF_FIRST, BACKOFF_CAP, self._random)
                line.called = line.called or called
                if line.told.is_new(str(error)):  # "": of the queue itself
                    _log.warning("outbox_left_alone", queue=line.calls.queue, error=str(error))
            else:
                taken = did.entries + did.put_back + did.torn
                line.failures = 0
                next_at = anyio.current_time() + did.next_ms / 1000
                line.told.over()
                line.known = line.known or taken > 0
                line.next_at = next_at if line.known else math.inf
                line.empty = line.empty + 1 if called and not taken else 0
                if line.empty > 1:
                    pause = backoff(line.empty - 1, QUIET_FIRST, QUIET_CAP, self._random)
            line.until = anyio.current_time() + pause
            return taken
