"""Child processes for plain functions, which can be killed: `children` is one of them, `child` what runs in it.

Theory of operation
    A task of the pool's own holds each child. A lease's task takes a child, or starts one, hands the job over and waits.
    So it is free to be cancelled at any moment, and what it then does is shielded: it tells the child, waits up to
    `cleanup`, and kills it. It ends when the function has ended or the process is dead, never before.

    A child whose function has ended by itself waits for the next one. Any other is dead, and another is started when a
    job needs it; there are never more than `most`.

    The handler's timeout counts from when its function is called, not from when the job queues for a process or that
    starts and imports; the lease is renewed meanwhile.

If you change this
    A lost lease kills at once: from `Lease.stop`, whoever calls that, and not from a task that must be woken first. The
    child keeps the lease's time too, and must hear of each renewal.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from itertools import count
from typing import TYPE_CHECKING, Any, Self, final

import anyio
import anyio.abc

from echomq.errors import EncodeError, ProcessDiedError
from echomq.worker.children import Call, Child, command
from echomq.worker.frames import dump
from echomq.worker.notes import shielded
from echomq.worker.reasons import Raised, Reason, Returned, Unfit

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from echomq.worker.lease import Lease

START: float = 60.0
"""Seconds that a child may take until it runs, and then until it has imported what a job needs: there are modules that
take ten, on a busy machine."""
GOODBYE: float = 0.25
"""Seconds that idle children have to leave by themselves when the worker stops; a part of a shutdown's epsilon."""


@final
class Processes:
    """A worker's child processes. Use it as an async context manager: all are gone when it is left."""

    def __init__(self, most: int, *, cleanup: float, result_limit: int) -> None:
        """Make it; nothing is started before a job needs it.

        Args:
            most: How many there are at most.
            cleanup: Seconds that a function has to end when it is stopped, before its process is killed.
            result_limit: Bytes that an encoded result may have.
        """
        self._limiter = anyio.CapacityLimiter(most)
        self._cleanup = cleanup
        self._result_limit = result_limit
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._numbers = count(1)
        self._stack = AsyncExitStack()
        self._tasks: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            for child in self._children:
                child.leave()
            with anyio.move_on_after(GOODBYE):
                for child in list(self._children):
                    while not child.gone:
                        await child.changed.wait()
            for child in self._children:
                child.kill()
        await self._stack.aclose()

    @property
    def pids(self) -> list[int]:
        """The process ids of those that are not dead."""
        return sorted(child.process.pid for child in self._children)

    async def run(
        self, lease: Lease, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], timeout: float | None
    ) -> Returned | Raised | Unfit:
        """Run a function in a child of its own, until it has ended or its process is dead.

        **Cancellation**: the function is told, has `cleanup` seconds, and is killed; at once if the lease is lost or it
        has not begun. What it returns meanwhile is answered all the same.
        """
        try:
            arguments = dump("an argument", (args, kwargs))
        except EncodeError as error:
            return Raised(error)
        async with self._limiter:
            try:
                child = await self._take()
            except (OSError, RuntimeError, ProcessDiedError) as error:
                return Unfit(error)  # not the job's fault, and another worker may have one
            row = lease.claimed.record.row
            kept = row.get(b"result_ttl_ms", b"0") != b"0" or b"parent" in row
            limit = self._result_limit if kept else None
            child.call = call = Call(child, next(self._numbers), lease)
            child.tell("call", call.number, call.until(), function.__module__, function.__qualname__, arguments, limit)
            lease.process = call
            try:
                return await self._outcome(call, timeout)
            except anyio.get_cancelled_exc_class():
                await shielded(self._stop, call)
                if isinstance(call.outcome, Returned):
                    return call.outcome
                raise
            finally:
                await shielded(self._give_back, call)
                # Not before: until it is dead it is one that was killed, and no handler that will not end.
                lease.process = None

    async def _outcome(self, call: Call, timeout: float | None) -> Returned | Raised | Unfit:
        with anyio.move_on_after(START):
            while not (call.begun or call.outcome):
                await call.changed.wait()
        if call.begun:
            call.lease.limit(timeout)
            while call.outcome is None:
                await call.changed.wait()
            if call.child.gone:
                # Because its lease is over, perhaps: then nothing may be written, and our own clock says the same.
                call.lease.look(anyio.current_time())
        return call.outcome or Unfit(TimeoutError(f"its process did not call it within {START:g} s"))

    async def _stop(self, call: Call) -> None:
        """End a function that its lease has cancelled."""
        lease, child = call.lease, call.child
        reason = lease.cause(anyio.current_time()) or Reason.SHUTDOWN  # nobody has cancelled it: the worker dies
        if call.begun and reason is not Reason.LEASE_LOST:
            child.tell("cancel", call.number, reason.value)
            end = anyio.current_time() + self._cleanup
            while call.outcome is None and lease.reason is not Reason.LEASE_LOST:
                now = anyio.current_time()
                if lease.over(now):
                    lease.look(now)
                elif now >= end:
                    break
                else:
                    with anyio.CancelScope(deadline=min(end, lease.deadline)):
                        await call.changed.wait()
        if call.outcome is None:
            call.kill(reason)

    async def _give_back(self, call: Call) -> None:
        """Keep the child for the next job, or see it dead."""
        child = call.child
        if call.outcome is not None and not child.gone and child.process.returncode is None:
            child.call = None
            self._idle.append(child)
            return
        child.kill()
        while not child.gone:
            await child.changed.wait()

    # --- children ----------------------------------------------------------------------------------------------------

    async def _take(self) -> Child:
        """Answer a child that waits, or a new one.

        Raises:
            OSError, RuntimeError, ProcessDiedError, TimeoutError: It cannot be started.
        """
        while self._idle:
            child = self._idle.pop()
            if not child.gone:
                return child
        assert self._tasks is not None  # noqa: S101 - opened
        with anyio.fail_after(START):
            started: Child = await self._tasks.start(self._hold, name="echomq child")
        return started

    async def _hold(self, *, task_status: anyio.abc.TaskStatus[Child] = anyio.TASK_STATUS_IGNORED) -> None:
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(command(), stderr=None)
        child = Child(process)
        self._children.add(child)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(child.hold)
                while not (child.ready or child.gone):
                    await child.changed.wait()
                if child.ready:
                    task_status.started(child)
        finally:
            self._children.discard(child)
            if child in self._idle:
                self._idle.remove(child)
        if not child.ready:
            raise ProcessDiedError(process.returncode or 0)
