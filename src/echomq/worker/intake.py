"""Intake: claims for the free slots, and a doorbell to wait at when nothing is ready (Runtime, section 4).

Theory of operation
    One claim at a time, never for more jobs than there are free slots: there is no prefetch. When no queue has anything
    ready, the intake parks on a connection that carries nothing but `BLPOP wake`. A ring, or its own timer, makes it
    send an ordinary claim. The timer is what the claims answered as `next`: one worker of a queue gets the true moment
    and wakes to the millisecond, the others get the cap of a second.

    The claim that a ring calls for leaves at once, from the reader that hears it, while this task is still being woken
    (0.2 ms of a pick-up).

    A queue whose jobs are gathered into batches is asked, and its bell is followed, when `gather` says so.

    A park that ends in an error backs off and claims all the same, so a broken doorbell costs latency and nothing else.

If you change this
    The lease's deadline counts from before the claim is sent. A claim that comes back while the worker is stopping has
    taken jobs: they are released, not begun; also those of a claim that a ring has sent off. A worker that leaves a
    park may have eaten a token: it calls `ring`.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, final

import anyio
import anyio.lowlevel
import attrs

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError, ProtocolMismatchError
from echomq.transitions import Call, ring
from echomq.worker.calls import CAP
from echomq.worker.gather import Gathering
from echomq.worker.pauses import backoff
from echomq.worker.signals import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from echomq.transitions import ClaimReply
    from echomq.wire.calls import NumberedCall
    from echomq.wire.park import Park
    from echomq.worker.calls import QueueCalls
    from echomq.worker.options import WorkerOptions

BACKOFF_FIRST: float = 0.05
BACKOFF_CAP: float = 1.0
"""Seconds between claims or parks that end in an error: doubling from the first to the cap, with jitter."""
QUIET: float = 0.05
"""Seconds for which a queue that had nothing is passed over while another has work: an idle queue must not cost a busy
one a round trip each time. What a new job there may wait on a worker that is busy elsewhere."""
PORTIONS: int = 2
PORTION_LEAST: int = 16
"""A claim asks for this part of the slots at most, but for this many at least: the server then works on one portion
while the handlers of another run, where one claim for all slots would let the two wait for each other in turn. More
portions cost the worker more than they win: with four a job took a fifth more of its processor."""
RING_WITHIN: float = 1.0
"""Seconds that ringing may take when the intake leaves its park for good."""

_PARK: str = "the park"  # no queue has such a name
_log = get_logger("echomq.worker")


@final
@attrs.frozen
class _Started:
    """A claim on its way."""

    calls: QueueCalls
    count: int
    sent_at: float
    """From before it was sent, on anyio's clock: what its leases count from."""
    call: NumberedCall


@final
class Intake:
    """Claims jobs and hands them over."""

    def __init__(
        self,
        queues: Sequence[QueueCalls],
        options: WorkerOptions,
        *,
        free: Callable[[], int],
        begin: Callable[[QueueCalls, ClaimReply, float], None],
        claimed: Callable[[], None],
        parked: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Make an intake.

        Args:
            queues: The queues to claim from, in rotating order.
            options: The worker's options.
            free: How many jobs may be claimed now.
            begin: Takes claimed jobs: their queue, the claim's reply, and when the claim was sent.
            claimed: Called after each claim that succeeded.
            parked: Called with the seconds of each stay at the doorbell.
        """
        self._queues = deque(queues)
        self._quiet: dict[QueueCalls, float] = {}
        self._busy = False
        self._options = options
        self._free = free
        self._gathering = {calls: Gathering(calls.batch) for calls in queues if calls.batch is not None}
        self._needed = 0
        """How many slots some queue waits for to be free; 0: none does."""
        self._portion = max(PORTION_LEAST, options.concurrency // PORTIONS)
        self._begin = begin
        self._claimed = claimed
        self._parked = parked
        self._slot = Signal()
        self._random = random.Random()
        self._failing: dict[QueueCalls, tuple[int, float]] = {}
        """Queues whose last claim failed: how often in a row, and until when they are left alone."""
        self._told = Told()
        self._park_errors = 0
        self._bells: dict[str, QueueCalls] = {}
        self._ahead: _Started | None = None
        """The claim that a ring has sent off."""
        self.stopping = False
        self.idle = False
        """Whether the last look found nothing to claim in any queue."""
        self._park_scope: anyio.CancelScope | None = None
        self._awake = anyio.Event()

    @property
    def refused(self) -> bool:
        """Whether every queue's last claim has failed: nothing can be got, though the connection may stand."""
        return len(self._failing) == len(self._queues)

    def slot_freed(self) -> None:
        """A slot is free: claim for it."""
        self._slot.send()
        if self._needed and self._park_scope is not None and self._free() >= self._needed:
            self._park_scope.cancel()  # the doorbell does not tell of room for a batch

    def stop(self) -> None:
        """Claim no more. A claim on its way is read, and what it took is given back."""
        self.stopping = True
        self._slot.send()
        self._awake.set()
        if self._park_scope is not None:
            self._park_scope.cancel()

    async def run(self) -> None:
        """Claim until stopped."""
        wire = self._queues[0].wire
        async with wire.open_park() as park:
            while self._ahead is not None or not self.stopping:
                if self._ahead is None and self._free() <= 0:
                    await self._slot.wait()
                    continue
                wait = await self._round()
                if wait <= 0:
                    continue
                for _ in range(2):  # the handlers of what was claimed begin first, whatever order tasks are run in
                    await anyio.lowlevel.checkpoint()
                if self.refused:
                    await self._pause(wait)
                else:
                    await self._wait(park, wait)

    async def _round(self) -> float:
        """Offer the free slots to each queue in turn. Answers how long nothing else can become ready, seconds."""
        wait, busy = CAP, self._busy
        self._busy = False
        self._needed = 0
        if self._ahead is not None:
            self._queues.rotate(-self._queues.index(self._ahead.calls))
        for _ in range(len(self._queues)):
            free = self._free()
            if self._ahead is None and (free <= 0 or self.stopping):
                return 0.0
            calls = self._queues[0]
            self._queues.rotate(-1)
            started, self._ahead = self._ahead, None
            if started is None:
                now = anyio.current_time()
                if busy and now < self._quiet.get(calls, 0.0):
                    wait = min(wait, QUIET)
                    continue
                if calls in self._failing and now < self._failing[calls][1]:
                    wait = min(wait, self._failing[calls][1] - now)
                    continue
                closed = self._closed_for(calls, free, now)
                if closed > 0:
                    wait = min(wait, closed)
                    continue
                started = self._start(calls, free)
            try:
                reply = await started.call.value()
            except ProtocolMismatchError:
                raise
            except EchoMQError as error:
                if self._told.is_new(str(error), calls.queue):
                    _log.warning("claim_failed", queue=calls.queue, error=str(error))
                failures = self._failing.get(calls, (0, 0.0))[0] + 1
                pause = backoff(failures + 1, BACKOFF_FIRST, BACKOFF_CAP, self._random)
                self._failing[calls] = (failures, anyio.current_time() + pause)
                wait = min(wait, pause)
                continue
            if self._failing.pop(calls, None):
                self._told.over(calls.queue)
            self._begin(calls, reply, started.sent_at)
            self._claimed()
            more = reply.next_ms / 1000 if len(reply.jobs) < started.count else 0.0
            if calls in self._gathering:
                self._gathering[calls].answered(anyio.current_time(), jobs=bool(reply.jobs), wait=more)
            self._busy = self._busy or bool(reply.jobs)
            self._quiet[calls] = anyio.current_time() + min(more, QUIET)
            wait = min(wait, more)
        self.idle = not self._busy and wait > 0 and not self._failing
        # Queues that were passed over are asked before anything waits: their bell may have rung unheard.
        return 0.0 if busy and not self._busy and len(self._queues) > 1 else wait

    def _start(self, calls: QueueCalls, free: int) -> _Started:
        sent_at = anyio.current_time()
        gathering = self._gathering.get(calls)
        count = min(free, self._portion) if gathering is None else gathering.begin(free)
        return _Started(calls, count, sent_at, calls.start_claim(count, self._options.lease))

    def _rang(self, bell: str) -> None:
        """Send off the claim that a ring calls for."""
        free, calls = self._free(), self._bells[bell]
        if calls in self._gathering:
            self._gathering[calls].rang()
        if free > 0 and not self.stopping:
            if self._deaf_for(calls, free) > 0:
                return
            self._ahead = self._start(calls, free)

    def _closed_for(self, calls: QueueCalls, free: int, now: float) -> float:
        """Answer for how long a queue is not to be asked, seconds."""
        gathering = self._gathering.get(calls)
        if gathering is None:
            return 0.0
        if free < gathering.size:
            self._needed = min(self._needed or gathering.size, gathering.size)
        return gathering.closed_for(free, now)

    def _deaf_for(self, calls: QueueCalls, free: int) -> float:
        """Answer for how long a queue's bell means nothing, seconds."""
        gathering = self._gathering.get(calls)
        return 0.0 if gathering is None else gathering.deaf_for(free, anyio.current_time())

    async def _wait(self, park: Park, wait: float) -> None:
        """Park until the bell rings or the timer is over."""
        if wait >= CAP:
            wait *= self._random.uniform(0.8, 1.0)  # only shortens: idle workers must not ask in step
        # Not at a queue that refuses us: a token eaten there would be missing where somebody could serve it.
        self._bells = {calls.keys.wake: calls for calls in self._queues if calls not in self._failing}
        try:
            with anyio.CancelScope() as self._park_scope:
                if self.stopping:
                    return
                if self._needed and self._free() >= self._needed:
                    return  # since the round
                began = anyio.current_time()
                try:
                    rang = await self._listen(park, wait)
                finally:
                    self._parked(anyio.current_time() - began)
                self._park_errors = 0
                self._told.over(_PARK)
                if rang is not None:
                    self._quiet.pop(self._bells[rang], None)
        except EchoMQError as error:
            if self._told.is_new(str(error), _PARK):
                _log.warning("park_failed", error=str(error))
            self._park_errors += 1
            await self._pause(backoff(self._park_errors + 1, BACKOFF_FIRST, BACKOFF_CAP, self._random))
        finally:
            self._park_scope = None

    async def _listen(self, park: Park, wait: float) -> str | None:
        """Wait for a ring that can be answered now, and for no other."""
        until = anyio.current_time() + wait
        while True:
            free = self._free()
            left = until - anyio.current_time()
            if all(self._deaf_for(calls, free) > 0 for calls in self._bells.values()):
                await anyio.sleep(max(0.0, left))  # each arrival would cost a BLPOP, and its token
                return None
            rang = await park.wait(sorted(self._bells), left, on_ring=self._rang)
            if rang is None or self._ahead is not None:
                return rang
            deaf = self._deaf_for(self._bells[rang], self._free())
            if deaf <= 0:
                return rang
            until = min(until, anyio.current_time() + deaf)

    async def _pause(self, seconds: float) -> None:
        """Wait, whatever the doorbell says: neither one that rings nor work that waits may make an error spin."""
        with anyio.move_on_after(seconds):
            await self._awake.wait()

    async def ring(self) -> None:
        """Ring for the others: the park that was left may have been served."""
        with anyio.move_on_after(RING_WITHIN):
            for calls in self._queues:
                try:
                    await calls.wire.run(ring(calls.keys, Call(calls.wire.tag)), route="control")
                except (EchoMQError, RuntimeError) as error:  # RuntimeError: the client was closed before we were done
                    _log.debug("ring_failed", queue=calls.queue, error=str(error))
