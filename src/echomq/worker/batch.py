"""Run one batch: one handler, and a lease, a scope and a verdict for each of its items (Runtime, section 4).

Theory of operation
    The handler runs in one cancel scope, within one task group; work that it starts for an item runs in that group, in
    the item's scope. An item has no task of its own: a batch of a thousand costs little more than one job.

    What stops a lease (its deadline, the heartbeat's answer, a person, the worker) does so by `Lease.stop`, as ever. In
    place of a cancel scope the leases of a batch have an `ItemScope`, which tells the batch. A lost or cancelled item is
    settled at once, or when its work has ended. One that may run again elsewhere is given back only after the handler
    has ended, like any other job. When no item is left that runs, the handler's scope is cancelled.

    One timer stands for the deadlines of all items; they are claimed and renewed together.

If you change this
    `Lease.stop` is called in the reader and in other tasks: what it leads to here must not wait and must not raise. An
    item is settled once: `open` says whether it has been. Timers outlive a batch: it must let go of its items.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import structlog

from echomq._signature import NOTHING
from echomq.batches import BatchItem, JobBatch
from echomq.errors import JobStateError
from echomq.protocol.failures import holds, unfold
from echomq.worker.around import Around, Handled
from echomq.worker.execute import admit, attempt, load, run_scoped
from echomq.worker.notes import LeaseNotes
from echomq.worker.reasons import Outcome, Poison, Raised, Reason, Returned, Stopped, Unfit
from echomq.worker.spawn import spawner

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from echomq.protocol.codec import Codec
    from echomq.worker.execute import Handler
    from echomq.worker.lease import Lease
    from echomq.worker.timers import Timers

AT_ONCE: Final = frozenset({Reason.LEASE_LOST, Reason.CANCELLED, Reason.PARENT_ENDED})
"""The reasons for which an item is settled while the handler goes on: nobody else will run it on our word."""


def _nothing() -> None: ...


@final
class ItemScope:
    """What a lease in a batch has in place of a cancel scope."""

    __slots__ = ("cancel_called", "deadline", "tell")

    def __init__(self, *, deadline: float) -> None:
        self.deadline = deadline
        """Kept by nobody: the batch has one timer for all."""
        self.cancel_called = False
        self.tell: Callable[[], None] = _nothing
        """Called with each `cancel`."""

    def cancel(self) -> None:
        """Tell the batch that the item's lease has been stopped."""
        self.cancel_called = True
        self.tell()


@final
class _Entry:
    """An item as the batch knows it."""

    __slots__ = ("function", "lease", "left", "open", "own_time", "stopped", "work", "worked")

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.open = True
        """Whether it has no verdict yet."""
        self.stopped = False
        self.left = False
        """Whether it is not the handler's any more, although that may go on."""
        self.own_time = False
        """Whether its timeout is its own, and not the task's. So is its deadline."""
        self.worked = False
        """Whether it has, or had, work of its own."""
        self.work: Any = None
        """The cancel scope of that work while it runs."""
        self.function: Callable[[], Awaitable[Any]] | None = None


@final
class BatchRun:
    """One batch, from its claim to its last verdict. The `BatchNotes` of its `JobBatch`."""

    def __init__(
        self,
        leases: Sequence[Lease],
        handler: Handler,
        *,
        codec: Codec,
        timers: Timers,
        scope: Any,
        settle: Callable[[Lease, Outcome], None],
        around: Iterable[Callable[..., Awaitable[Any]]] = (),
        resources: Mapping[Any, Any] = NOTHING,
    ) -> None:
        """Make it.

        Args:
            leases: One lease or more, of one queue, whose scopes are `ItemScope`s.
            handler: The task.
            codec: Encodes what the handler notes.
            timers: The worker's clock.
            scope: The loop's class of cancel scopes.
            settle: Ends a lease with its outcome. Called once for each, and must not raise.
            around: The middleware, the outermost first.
            resources: What the worker has opened for handlers, by type.
        """
        self._around = tuple(around)
        self._resources = {name: resources[type] for name, type in handler.injected.items()}
        self.first = leases[0]
        self._handler = handler
        self._codec = codec
        self._timers = timers
        self._settle = settle
        self._new_scope = scope
        self._scope: anyio.CancelScope = scope(deadline=math.inf)
        self._entries = [_Entry(lease) for lease in leases]
        self._by_item: dict[BatchItem[Any], _Entry] = {}
        self._works: Callable[[Callable[[_Entry], Awaitable[None]], _Entry], object] | None = None
        self._end_works: Callable[[], None] = _nothing
        self._interrupt: BaseException | None = None
        """Ctrl-C that met the work of an item."""
        self._held = self._running = len(leases)
        for entry in self._entries:
            entry.lease.scope.tell = partial(self._stopped, entry)  # type: ignore[attr-defined]

    @property
    def holds_leases(self) -> bool:
        """Whether some item has no verdict yet."""
        return self._held > 0

    def stop(self) -> None:
        """Cancel the handler, also one that has settled all of its items and goes on."""
        self._scope.cancel()

    async def run(self) -> Outcome | None:
        """Run the handler until it and all work for its items have ended; None: it was stopped.

        Raises:
            BaseException: As `run_scoped`.

        **Cancellation**: as `execute`: the items' leases end the handler; it is shielded from all else.
        """
        batch = self._make_batch()
        if not batch.items:
            return None
        structlog.contextvars.bind_contextvars(queue=batch.queue, task=self._handler.name, batch=len(batch.items))
        leases = [entry.lease for entry in self._by_item.values()]
        self._scope.deadline = max(lease.timeout_at for lease in leases)
        self._watch()
        outcome = None
        call: Callable[[], Awaitable[Handled]] = partial(self._call, batch, leases)
        if self._around:
            call = Around(self._around, batch, partial(self._decode_and_call, batch, leases), leases).run
        try:
            async with anyio.create_task_group() as works:
                self._works, self._end_works = spawner(works), works.cancel_scope.cancel
                outcome = await run_scoped(self._scope, call)
                if not isinstance(outcome, Returned):
                    works.cancel_scope.cancel()
        except BaseExceptionGroup as group:
            raise unfold(group) from group.__cause__  # as if it had come from a handler without a task group
        if self._interrupt is not None:
            raise self._interrupt
        return outcome

    def end(self, outcome: Outcome | None) -> None:
        """Settle the items that have no verdict yet, by how the handler ended; None: it was stopped."""
        for entry in self._entries:
            if entry.open:
                self._finish(entry, self._verdict(entry, outcome))
        self._entries.clear()
        self._by_item.clear()

    # --- before the handler ------------------------------------------------------------------------------------------

    def _make_batch(self) -> JobBatch[Any]:
        """Decode each item; what cannot be run is settled alone, and the handler never sees it."""
        for entry in self._entries:
            if not entry.open:
                continue  # lost before we came to it
            loaded = self._load(entry.lease)
            if isinstance(loaded, (Poison, Unfit, Stopped)):
                self._finish(entry, loaded)
                continue
            value, timeout = loaded
            claimed = entry.lease.claimed
            entry.lease.limit(timeout)
            entry.own_time = claimed.record.timeout_ms is not None
            entry.lease.notes = notes = LeaseNotes(entry.lease, self._codec, self._timers)
            queue = entry.lease.calls.queue
            self._by_item[BatchItem(queue, claimed.id, claimed.token, claimed.record, notes, value)] = entry
        calls, gathered = self.first.calls, self._handler.batch
        lane = self.first.claimed.record.lane if gathered is not None and gathered.by_lane else None
        return JobBatch(calls.queue, lane, tuple(self._by_item), self)

    def _load(self, lease: Lease) -> tuple[Any, float | None] | Poison | Unfit | Stopped:
        """Answer an item's value and how long it may take, seconds; or why it cannot be run."""
        if self._around:  # which may make the payload another first
            timeout = admit(lease, self._handler)
            return timeout if isinstance(timeout, (Poison, Unfit, Stopped)) else (None, timeout)
        loaded = load(lease, self._handler)
        return loaded if isinstance(loaded, (Poison, Unfit, Stopped)) else (loaded[0][0], loaded[2])

    async def _decode_and_call(self, batch: JobBatch[Any], leases: Iterable[Lease]) -> Handled:
        """Call the handler with what can be decoded now; what cannot is settled alone, as it is without middleware."""
        for item, entry in list(self._by_item.items()):
            if not self.is_live(item):
                continue
            loaded = attempt(partial(self._load_item, item))
            if isinstance(loaded, (Poison, Unfit)):
                del self._by_item[item]
                self._finish(entry, loaded)
        batch.items = tuple(self._by_item)
        return await self._call(batch, leases) if any(map(self.is_live, batch.items)) else Returned(None)

    def _load_item(self, item: BatchItem[Any]) -> None:
        (item.value,), _ = self._handler.load_arguments(item.payload)

    async def _call(self, batch: JobBatch[Any], leases: Iterable[Lease]) -> Returned | Raised:
        try:
            coroutine = self._handler.function(batch, **self._resources)
            for lease in leases:
                lease.coroutine = coroutine
            return Returned(await coroutine)
        except BaseException as error:  # noqa: BLE001 - `run_scoped` raises what is not the handler's
            return Raised(error)

    # --- what the handler asks for -----------------------------------------------------------------------------------

    def is_live(self, item: BatchItem[Any]) -> bool:
        """Tell whether the handler still has the item."""
        entry = self._by_item.get(item)
        return entry is not None and entry.open and not entry.left

    def settle(self, item: BatchItem[Any], result: Any, error: Exception | None) -> bool:
        """Send an item's verdict; answers whether it was still in the batch."""
        entry = self._find(item)
        if entry is None:
            return False
        self._finish(entry, Returned(result) if error is None else Raised(error))
        return True

    def start_soon(self, item: BatchItem[Any], work: Callable[[], Awaitable[Any]]) -> bool:
        """Run work for an item in a scope of its own; answers whether it was still in the batch."""
        entry = self._find(item)
        if entry is None or self._works is None:
            return False
        entry.worked, entry.function, entry.work = True, work, self._new_scope(deadline=math.inf)
        if entry.stopped:
            entry.work.cancel()
        self._works(self._work, entry)
        return True

    def _find(self, item: BatchItem[Any]) -> _Entry | None:
        entry = self._by_item.get(item)
        if entry is None:
            raise ValueError(f"{item!r} is not of this batch, or the batch is over")
        if entry.left:
            return None
        if not entry.open:
            raise JobStateError("in its batch", "settled already", item.id)
        if entry.worked:
            raise JobStateError("in its batch", "settled by the work that was started for it", item.id)
        return entry

    # --- items ---------------------------------------------------------------------------------------------------------

    async def _work(self, entry: _Entry) -> None:
        claimed = entry.lease.claimed
        structlog.contextvars.bind_contextvars(job=claimed.id, attempt=claimed.token)
        outcome: Outcome | None
        try:
            outcome = await run_scoped(entry.work, partial(self._call_work, entry))
        except BaseException as error:
            # With the batch; or Ctrl-C. What else comes, a cancellation that nobody asked for or what was left behind,
            # is this item's.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            if holds(error, KeyboardInterrupt):
                # Not from a task: asyncio would leave its loop at once.
                self._interrupt = error
                self._end_works()
                return
            outcome = Raised(error)
        finally:
            entry.work = entry.function = None
        if not entry.open:
            return
        if outcome is not None:
            self._finish(entry, outcome)
        elif entry.lease.reason in AT_ONCE:
            self._finish(entry, Stopped(entry.lease.why()))

    @staticmethod
    async def _call_work(entry: _Entry) -> Returned | Raised:
        try:
            assert entry.function is not None  # noqa: S101 - set with the work
            entry.lease.coroutine = entry.function()
            return Returned(await entry.lease.coroutine)
        except BaseException as error:  # noqa: BLE001 - as above
            return Raised(error)

    def _stopped(self, entry: _Entry) -> None:
        """An item's lease has been stopped, perhaps not for the first time."""
        if not entry.open:
            return
        reason = entry.lease.reason
        own = reason is Reason.TIMEOUT and (entry.own_time or entry.lease.at_deadline)
        entry.left = entry.left or reason in AT_ONCE or own
        if not entry.stopped:
            entry.stopped = True
            self._running -= 1
        if entry.work is not None:
            entry.work.cancel()
        elif reason in AT_ONCE:
            self._finish(entry, Stopped(entry.lease.why()))
        if self._running == 0:
            self._scope.cancel()

    def _verdict(self, entry: _Entry, outcome: Outcome | None) -> Outcome:
        """Answer how an item ended with which the handler has not dealt."""
        returned = isinstance(outcome, Returned)
        if returned and not entry.left and not entry.worked:
            return Returned(None)
        if returned or outcome is None or entry.stopped:
            return Stopped(entry.lease.why())
        return outcome

    def _finish(self, entry: _Entry, outcome: Outcome) -> None:
        entry.open = False
        self._held -= 1
        if not entry.stopped:
            entry.stopped = True  # nothing is left to be stopped
            self._running -= 1
        self._settle(entry.lease, outcome)

    # --- the clock -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look again when the time of the next item is over."""
        running = [entry.lease for entry in self._entries if entry.open and not entry.stopped]
        if running:
            self._timers.at(min(min(lease.deadline, lease.timeout_at) for lease in running), self._look)

    def _look(self) -> None:
        now = anyio.current_time()
        for entry in self._entries:
            if entry.open and not entry.stopped:
                entry.lease.look(now)
        self._watch()
