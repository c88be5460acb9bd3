"""A child process of a worker, in which plain functions run one after another (`children` is its other side).

Theory of operation
    The main thread runs the functions. A second one reads what the worker says: a job, that it is cancelled, how long its
    lease lasts, what came of a note. A third keeps the lease's time, on the clock that all processes of a machine share,
    and ends the process when the lease is over: the worker would do so itself, unless it is stopped, or its event loop
    is blocked. So nothing runs under a lost lease.

    Messages go through the pipes that were standard input and output. The functions get the null device for the one and
    standard error for the other, so that what they print breaks nothing.

    When the worker is gone, however that came, its pipe ends, and so does this process, whatever its function does.

If you change this
    Ctrl-C and a supervisor's SIGTERM go to the whole group. They are the worker's to hear, which lets the function end in
    order: here they do nothing. But they must do their work again in whatever the function starts.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.machinery
import importlib.util
import math
import os
import queue
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final

from echomq.errors import EncodeError, LeaseLostError
from echomq.job import SyncJob
from echomq.tasks import Task
from echomq.worker.carried import dump_error, load_error
from echomq.worker.family import AskedFamily
from echomq.worker.frames import MAIN, JobFacts, dump, load, pack, read, write
from echomq.worker.notes import MAX_NOTE
from echomq.worker.reasons import Reason
from echomq.worker.watchdog import boot_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.protocol.failures import ErrorRecord

EXIT_ORPHAN: Final = 76
"""The worker is gone: nobody hears of what the function does."""
EXIT_LEASE_OVER: Final = 75
"""The lease is over, and the worker has said nothing."""
LOOK: Final = 1.0
"""Seconds between two looks at the clock, which goes on while the machine is suspended."""
LINGER: Final = 1.0
"""Seconds that threads which functions have left may keep the process when it is told to go."""
QUIET: Final = (signal.SIGINT, signal.SIGTERM)


@final
class ChildNotes:
    """The notes of one job: each is a message to the worker, and blocks until its answer."""

    __slots__ = ("_child", "_facts", "_number")

    def __init__(self, child: Child, number: int, facts: JobFacts) -> None:
        self._child = child
        self._number = number
        self._facts = facts

    @property
    def reason(self) -> str | None:
        """Why the function is being stopped."""
        return self._child.reason_of(self._number)

    def load_checkpoint(self) -> Any:
        """Decode the state that the last attempt kept. The worker does: the codec is its client's."""
        return None if self._facts.record.checkpoint is None else self._ask("load_checkpoint")

    def progress(self, done: Any, total: Any, message: Any) -> None:
        """Send a progress note, now or soon."""
        self._ask("progress", done, total, message)

    def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""
        self._ask("checkpoint", state, step)

    def log(self, line: str) -> None:
        """Send a log line."""
        self._ask("log", line)

    @property
    def family(self) -> AskedFamily:
        """The job's children: the worker reads them, and decodes their results."""
        return AskedFamily(self._ask, partial(self._ask, "stage"))

    @property
    def stage(self) -> AskedFamily:
        """What keeps follow-ups."""
        return self.family

    def _ask(self, name: str, *values: Any) -> Any:
        data = dump(f"what is noted with {name}", values, MAX_NOTE)
        if not self._child.runs(self._number):
            facts = self._facts
            raise LeaseLostError("its handler has ended", facts.id, facts.token)
        return self._child.ask(self._number, name, data)


@final
class Child:
    """The process."""

    def __init__(self, source: int, sink: int, need_main: Callable[[], None]) -> None:
        """Make it.

        Args:
            source: Where the worker's messages come from.
            sink: Where ours go.
            need_main: Loads the worker's main module.
        """
        self._source = source
        self._sink = sink
        self._need_main = need_main
        self._writing = threading.Lock()
        self._calls: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._answers: dict[int, queue.SimpleQueue[tuple[Any, ...]]] = {}
        self._serial = count(1)
        self._changed = threading.Condition()
        self._number = 0
        """The call that runs; 0: none."""
        self._until = math.inf
        """When its lease is over, by `boot_time`."""
        self._reason: str | None = None
        """Why it is being stopped."""

    def run(self) -> None:
        """Run what the worker sends, until it says that it is enough."""
        for part in (self._listen, self._keep_time):
            threading.Thread(target=part, name=f"echomq{part.__name__}", daemon=True).start()
        self._send("ready")
        while (call := self._calls.get()) is not None:
            self._run(*call)

    # --- one call ----------------------------------------------------------------------------------------------------

    def _run(self, number: int, module: str, name: str, arguments: bytes, limit: int | None) -> None:
        try:
            function = find(module, name, self._need_main)
            args, kwargs = load("the arguments", arguments, self._need_main)
            args = [self._filled(number, each) for each in args]
            kwargs = {key: self._filled(number, each) for key, each in kwargs.items()}
        except BaseException as error:  # noqa: BLE001 - the user's module may raise anything
            answer = ("unfit", number, *dump_error(error))
        else:
            self._send("begun", number)
            answer = self._call(number, function, args, kwargs, limit)
        with self._changed:
            self._number = 0
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # it may be full, closed, or not there at all
                stream.flush()
        self._send(*answer)

    @staticmethod
    def _call(
        number: int, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], limit: int | None
    ) -> tuple[Any, ...]:
        try:
            value = function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - all of it is the job's, as it is in a thread
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next  # not our own frame
            return ("raised", number, *dump_error(error))
        try:
            # What nobody keeps need not be of a kind that can be sent.
            return ("returned", number, None if limit is None else dump("the result", value, limit))
        except EncodeError as error:
            return ("raised", number, *dump_error(error.with_traceback(None)))

    def _filled(self, number: int, value: Any) -> Any:
        if type(value) is not JobFacts:
            return value
        return SyncJob(value.queue, value.id, value.token, value.record, ChildNotes(self, number, value))

    # --- what its job asks -------------------------------------------------------------------------------------------

    def runs(self, number: int) -> bool:
        """Tell whether a call is the one that runs."""
        return number == self._number

    def reason_of(self, number: int) -> str | None:
        """Tell why a call is being stopped, None while it is not. One that has ended has no lease any more."""
        return self._reason if self.runs(number) else Reason.LEASE_LOST.value

    def ask(self, number: int, name: str, values: bytes) -> Any:
        """Have the worker do something for the call, and wait for what comes of it."""
        serial, answer = next(self._serial), queue.SimpleQueue[tuple[Any, ...]]()
        self._answers[serial] = answer
        self._send("note", number, serial, name, values)
        value: bytes | None
        record: ErrorRecord | None
        value, record = answer.get()
        if record is not None:
            raise load_error(value, record)
        return None if value is None else load("the answer", value, self._need_main)

    # --- what the worker says ----------------------------------------------------------------------------------------

    def _listen(self) -> None:
        while (message := read(self._source)) is not None:
            match message:
                case "call", number, until, *call:
                    with self._changed:
                        self._number, self._until, self._reason = number, until, None
                        self._changed.notify()
                    self._calls.put((number, *call))
                case "cancel", number, reason:
                    if self.runs(number):
                        self._reason = reason
                case "until", number, until:
                    with self._changed:
                        if self.runs(number):
                            self._until = until
                            self._changed.notify()
                case "answer", serial, value, record:
                    self._answers.pop(serial).put((value, record))
        if self._number:
            os._exit(EXIT_ORPHAN)
        self._calls.put(None)
        time.sleep(LINGER)
        os._exit(0)

    def _keep_time(self) -> None:
        with self._changed:
            while True:
                left = self._until - boot_time() if self._number else math.inf
                if left <= 0:
                    os._exit(EXIT_LEASE_OVER)
                self._changed.wait(min(left, LOOK) if self._number else None)

    def _send(self, *message: Any) -> None:
        with self._writing:
            try:
                write(self._sink, pack(*message))
            except OSError:
                os._exit(EXIT_ORPHAN)


def find(module: str, name: str, need_main: Callable[[], None]) -> Callable[..., Any]:
    """Find a function by its module and qualified name; what stands there is usually the task that was made of it.

    Raises:
        BaseException: Whatever the module raises, or LookupError: it has no such function.
    """
    if module == "__main__":
        need_main()
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    while isinstance(found, Task):
        found = found.function
    if not callable(found):
        msg = f"module {module!r} has no function {name!r} in its process"
        raise LookupError(msg)  # noqa: TRY004 - it is not there
    return found  # type: ignore[no-any-return]


def load_main(file: str | None, package: str | None) -> None:
    """Run the worker's main module under another name, once: what stands below its `__main__` guard is not for us."""
    if MAIN in sys.modules:
        return
    if file is None:
        msg = "the worker's main module has no file, and nothing of it can be found in a process"
        raise LookupError(msg)
    loader = importlib.machinery.SourceFileLoader(MAIN, file)
    spec = importlib.util.spec_from_file_location(MAIN, file, loader=loader)
    assert spec is not None  # noqa: S101 - there is a loader
    module = importlib.util.module_from_spec(spec)
    if package is not None:
        module.__package__ = package
    before = sys.modules["__main__"]
    sys.modules["__main__"] = sys.modules[MAIN] = module
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[MAIN]
        sys.modules["__main__"] = before
        raise


def _take_pipes() -> tuple[int, int]:
    """Keep the pipes for ourselves, and put other streams where they were."""
    pipes = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        os.dup2(null, 1)
    os.close(null)
    return pipes


def main(file: str | None, package: str | None) -> None:
    """Be a child.

    Args:
        file: The worker's main module.
        package: The package it is in.
    """
    source, sink = _take_pipes()
    for number in QUIET:
        signal.signal(number, lambda *_: None)

    def forked() -> None:
        # What the function forks must end when it is told to, and must not keep the pipes open.
        for number in QUIET:
            signal.signal(number, signal.SIG_DFL)
        os.close(source)
        os.close(sink)

    os.register_at_fork(after_in_child=forked)
    Child(source, sink, lambda: load_main(file, package)).run()
    # Not by the long way, which takes a module apart after the other, and waits for threads that functions have left.
    atexit._run_exitfuncs()  # noqa: SLF001 - as multiprocessing does
    with suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    os._exit(0)
