"""One child process of a worker, and the job in its hands, seen from here (`processes` has them all).

Theory of operation
    A task holds each child from its start to its end: it reads, writes, and sees it die. Nobody else waits for the pipes:
    what is told to a child is put into its outbox, and what it says changes its call, or is done for it.

If you change this
    `Call.kill` and `tell` are called by `Lease.stop` and by renewals, in the reader: they must not wait and must not raise.
    The death of a process is known from the system, not from its pipe's end: what it has started may hold that open.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import anyio.abc

import echomq
from echomq._logs import get_logger
from echomq.errors import DecodeError, ProcessDiedError
from echomq.worker.carried import dump_error, load_error
from echomq.worker.family import ASKABLE
from echomq.worker.frames import Unpacker, dump, load, main_module, pack
from echomq.worker.reasons import Raised, Reason, Returned, Unfit
from echomq.worker.signals import Signal
from echomq.worker.watchdog import boot_time

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from echomq.worker.lease import Lease

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
            elif name == "stage":
                notes.stage.stage(*load("a follow-up", values))
                answer = None
            elif name in ASKABLE:
                answer = dump("the answer", await getattr(notes.family, name)(*load("what is asked", values)))
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
