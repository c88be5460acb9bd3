"""Child processes for plain functions: they can be killed (`child` is what runs in them).

Theory of operation
    A task of the pool's own holds each child from its start to its end: it reads, writes, and sees it die. A lease's task
    takes a child, or starts one, hands the job over and waits. So it is free to be cancelled at any moment, and what it
    then does is shielded: it tells the child, waits up to `cleanup`, and kills it. It ends when the function has ended or
    the process is dead, never before.

    A child whose function has ended by itself waits for the next one. Any other is dead, and another is started when a
    job needs it; there are never more than `most`.

    The handler's timeout counts from when its function is called, not from when the job queues for a process or that
    starts and imports; the lease is renewed meanwhile.

If you change this
    A lost lease kills at once: from `Lease.stop`, whoever calls that, and not from a task that must be woken first. The
    child keeps the lease's time too, and must hear of each renewal.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, final

import anyio
import anyio.abc

import echomq
from echomq._logs import get_logger
from echomq.errors import DecodeError, EncodeError, ProcessDiedError
from echomq.worker.frames import Unpacker, dump, dump_error, load, load_error, main_module, pack
from echomq.worker.notes import shielded
from echomq.worker.reasons import Raised, Reason, Returned, Unfit
from echomq.worker.signals import Signal
from echomq.worker.watchdog import boot_time

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
DRAIN: float = 0.1
"""Seconds for reading the last words of a child that is dead: what it has started may hold the pipe open."""
NOTES: Final = frozenset({"progress", "checkpoint", "log"})

_log = get_logger("echomq.worker")


def command() -> list[str]:
    """Answer how a child is started: it finds modules where this process does."""
    here = str(Path(echomq.__file__).parents[1])
    path = [os.path.abspath(each) if each == "" else each for each in sys.path]  # noqa: PTH100 - as it stands
    if here not in path:
        path.insert(0, here)
    code = f"import sys; sys.path[:] = {path!r}; from echomq.worker.child import main; main(*{main_module()!r})"
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001 - as multiprocessing
    return [sys.executable, *flags, "-c", code]


@final
class Call:
    """One job in the hands of a child. The `HeldProcess` of its lease."""

    __slots__ = ("begun", "changed", "child", "killed", "lease", "number", "outcome")

    def __init__(self, child: Child, number: int, lease: Lease) -> None:
        self.child = child
        self.number = number
        self.lease = lease
        self.begun = False
        """Whether its function has been called."""
        self.killed = False
        self.outcome: Returned | Raised | Unfit | None = None
        """How it ended; also if it did so by the death of its process."""
        self.changed = Signal()

    def until(self) -> float:
        """Tell when the lease is over, on the clock that the child sees too."""
        return boot_time() + self.lease.deadline - anyio.current_time()

    def lease_moved(self) -> None:
        """Tell the child."""
        self.child.tell("until", self.number, self.until())

    def lease_lost(self) -> None:
        """Kill the child."""
        self.kill(Reason.LEASE_LOST)

    def kill(self, reason: Reason) -> None:
        """Kill the child, and say so."""
        if self.outcome is None and not self.killed:
            self.killed = True
            claimed = self.lease.claimed
            _log.warning(
                "process_killed", queue=self.lease.calls.queue, job=claimed.id, task=claimed.record.task,
                attempt=claimed.token, reason=str(reason), pid=self.child.process.pid,
            )  # fmt: skip
            self.child.kill()

    def end(self, outcome: Returned | Raised | Unfit) -> None:
        """Note how it ended; the first word counts."""
        if self.outcome is None:
            self.outcome = outcome
            self.changed.send()


@final
class Child:
    """One child process, seen from here."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        self.ready = False
        self.gone = False
        """Whether it is dead, and that is known."""
        self.changed = Signal()
        """Sent when one of these changes."""
        self.call: Call | None = None
        """What it does now."""
        self._outbox: deque[bytes] = deque()
        self._more = Signal()
        self._leaving = False
        self._all_read = anyio.Event()
        self._tasks: TaskGroup | None = None

    def tell(self, *message: Any) -> None:
        """Send it a message; does not wait."""
        self._outbox.append(pack(*message))
        self._more.send()

    def leave(self) -> None:
        """Tell it that nothing more will come."""
        self._leaving = True
        self._more.send()

    def kill(self) -> None:
        """Kill it, if it is not dead yet."""
        if not self.gone:
            with suppress(ProcessLookupError):
                self.process.kill()

    async def hold(self) -> None:
        """Read and write until it is dead. **Cancellation**: it is killed."""
        try:
            async with anyio.create_task_group() as self._tasks:
                self._tasks.start_soon(self._read, name="echomq child reader")
                self._tasks.start_soon(self._write, name="echomq child writer")
                await self.process.wait()
                with anyio.move_on_after(DRAIN):
                    await self._all_read.wait()
                self._tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                self.kill()
                await self.process.wait()
                self.gone = True
                if self.call is not None:
                    died = ProcessDiedError(self.process.returncode or 0)
                    self.call.end(Raised(died) if self.call.begun else Unfit(died))
                self.changed.send()
                await self.process.aclose()

    async def _write(self) -> None:
        stream = self.process.stdin
        assert stream is not None  # noqa: S101 - asked for
        with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):  # its death is seen elsewhere
            while not self._leaving or self._outbox:
                while self._outbox:
                    await stream.send(self._outbox.popleft())
                if not self._leaving:
                    await self._more.wait()
            await stream.aclose()

    async def _read(self) -> None:
        stream, unpacker = self.process.stdout, Unpacker()
        assert stream is not None  # noqa: S101 - asked for
        try:
            while True:
                for message in unpacker.feed(await stream.receive(1 << 16)):
                    self._heed(*message)
        except (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._all_read.set()
        except Exception:  # noqa: BLE001 - what is no message of ours; nothing of it may end the worker
            _log.exception("process_talks_nonsense", pid=self.process.pid)
            self.kill()

    def _heed(self, kind: str, number: int = 0, *rest: Any) -> None:
        if kind == "ready":
            self.ready = True
            self.changed.send()
            return
        call = self.call
        if kind == "note":
            assert self._tasks is not None  # noqa: S101 - we run in it
            self._tasks.start_soon(self._note, call if call is not None and call.number == number else None, *rest)
        elif call is None or call.number != number:
            raise DecodeError(f"expected word of the job that runs, got {kind!r} of another")
        elif kind == "begun":
            call.begun = True
            call.changed.send()
        elif kind == "returned":
            call.end(_returned(*rest))
        else:
            data, record = rest
            error = load_error(data, record)
            call.end(Unfit(error) if kind == "unfit" else Raised(error, record))

    async def _note(self, call: Call | None, serial: int, name: str, values: bytes) -> None:
        notes = None if call is None else call.lease.notes
        try:
            if notes is None:
                answer = None  # of a thread that its function has left: the job is over, and the thread its own affair
            elif name == "load_checkpoint":
                answer = dump("the checkpoint", notes.load_checkpoint())
            else:
                assert name in NOTES  # noqa: S101 - the child has no others
                await getattr(notes, name)(*load("what is noted", values))
                answer = None
        except (KeyboardInterrupt, anyio.get_cancelled_exc_class()):
            raise
        except BaseException as error:  # noqa: BLE001 - the codec is the user's; the function hears of it
            self.tell("answer", serial, *dump_error(error))
        else:
            self.tell("answer", serial, answer, None)


def _returned(data: bytes | None) -> Returned | Raised:
    if data is None:
        return Returned(None)
    try:
        return Returned(load("the result", data))
    except DecodeError as error:
        return Raised(error.with_traceback(None))


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
            limit = None if row.get(b"result_ttl_ms", b"0") == b"0" else self._result_limit
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
                lease.process = None
                await shielded(self._give_back, call)

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
