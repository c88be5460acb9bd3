"""`--processes N`: the process that starts N workers, and starts one anew when it ends although nobody wanted it to.

Theory of operation
    A task holds each seat: it starts a worker, waits for its end, and decides by its exit code what follows. The first
    worker leads: the others are started when it has looked at its app, so what is wrong with that is said once.

    What is to stop gets SIGTERM, and, to skip its grace, SIGQUIT: systemd and a terminal send their signal to the whole
    group, so a worker that counted SIGTERMs would be hurried by the very first one (see `orders`). One that has not ended by
    itself when its own hard deadline is over is killed.

    Every worker holds the reading end of a pipe, whose writing end is this process's alone. So when this process is gone,
    however that came, the workers know, and shut down in order.

If you change this
    The app is never imported here: it may be large, start threads, or be broken until the next change of its files.
"""

from __future__ import annotations

import os
import platform
import random
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import attrs

from echomq._logs import get_logger
from echomq.worker.options import MAX_PORT
from echomq.worker.orders import HURRY, STOP
from echomq.worker.pauses import backoff, first_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    import anyio.abc

    from echomq.worker.options import WorkerOptions

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_REPLACE: Final = 75
"""EX_TEMPFAIL: a supervised worker has done its `max_jobs` or reached its `max_rss`, and is to be replaced."""
MAX_PROCESSES: Final = 1000
SLACK: float = 1.0
"""Seconds beyond grace and cleanup before a process stops hard."""
PATIENCE: float = 2.0
"""Seconds beyond that before it is killed: it may be stopped, or hold Python's lock for ever."""
FIRST: float = 0.5
CAP: float = 30.0
"""Seconds until a worker that has died is started again: doubling from the first to the cap, shortened by up to a half so
that many do not start in step."""
WELL: float = 60.0
"""Seconds after which a worker has run well, and the next death counts as the first."""
RELOAD_GRACE: float = 2.0
"""Seconds that handlers have to end by themselves when a file has changed: somebody is waiting."""

_log = get_logger("echomq.supervisor")


@final
@attrs.define(eq=False)
class _Seat:
    """A place for a worker, and the one that has it."""

    place: int
    name: str
    process: anyio.abc.Process | None = None
    code: int = 0
    """How the last one ended."""
    stale: bool = False
    """Whether the one that runs is to make place for one with newer code."""
    wake: anyio.Event = attrs.field(factory=anyio.Event)
    """Set when it need not wait any longer for its next worker."""

    def signal(self, number: signal.Signals) -> None:
        """Send one to its worker, if it has one."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)


@final
class Supervisor:
    """Keeps workers running. Make one, run it once."""

    def __init__(
        self,
        count: int,
        arguments: Sequence[str],
        options: WorkerOptions,
        *,
        name: str | None,
        env: Mapping[str, str] | None = None,
        changes: Callable[[anyio.Event], AsyncIterator[Sequence[str]]] | None = None,
    ) -> None:
        """Make it.

        Args:
            count: How many workers.
            arguments: The arguments of the worker command, as they were given.
            options: What they come to.
            name: What the workers are called, their number apart.
            env: The workers' environment; None: this process's.
            changes: Answers the files that change until it is told to stop: the workers are then started anew, and what
                fails waits for the next change. None: nothing is watched.

        Raises:
            ValueError: There cannot be so many.
        """
        if not 1 <= count <= MAX_PROCESSES:
            msg = f"processes is {count}; it must be 1 to {MAX_PROCESSES}"
            raise ValueError(msg)
        port = options.health_port
        if port and port + count - 1 > MAX_PORT:
            msg = f"health_port is {port}; with {count} processes it must be at most {MAX_PORT - count + 1}, one port each"
            raise ValueError(msg)
        stem = name or f"{platform.node()}.{os.getpid()}"
        self._seats = [_Seat(place, f"{stem}-{place + 1}") for place in range(count)]
        self._arguments = tuple(arguments)
        self._env = env
        self._changes = changes
        self._burst = options.burst
        self._limit = options.cleanup + SLACK + PATIENCE
        self._grace = options.grace
        self._random = random.Random()
        self._checked = anyio.Event()
        self._stopping = anyio.Event()
        self._hurried = anyio.Event()
        self._life = -1
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> int:
        """Keep them running until there is nothing left for them to do, or a signal ends them; answer the worst exit code.

        **Cancellation**: the workers are killed.
        """
        self._life, life = os.pipe()  # the reading end is the children's
        try:
            async with anyio.create_task_group() as self._tasks:
                with anyio.open_signal_receiver(*STOP) as signals:
                    self._tasks.start_soon(self._heed, signals)
                    if self._changes is not None:
                        self._tasks.start_soon(self._reload, self._changes)
                    async with anyio.create_task_group() as seats:
                        for seat in self._seats:
                            seats.start_soon(self._hold, seat)
                    self._stopping.set()  # the watch ends by it
                    self._tasks.cancel_scope.cancel()
        finally:
            os.close(life)
            os.close(self._life)
        return max(seat.code for seat in self._seats)

    # --- a worker ----------------------------------------------------------------------------------------------------

    async def _hold(self, seat: _Seat) -> None:
        """Have a worker in a seat until none is wanted there any more."""
        deaths = 0
        while True:
            while seat.place > 0 and not (self._checked.is_set() or self._stopping.is_set()):
                await first_of(self._checked.wait, self._stopping.wait)
            if self._stopping.is_set():
                return
            seat.wake, seat.stale = anyio.Event(), False
            began = anyio.current_time()
            try:
                code = await self._work(seat)
            except OSError as error:
                _log.error("worker_not_started", worker=seat.name, error=str(error))
                code = EXIT_FAILED
            ran = anyio.current_time() - began
            seat.code = 0 if code == EXIT_REPLACE else code if code >= 0 else 128 - code
            if self._stopping.is_set():
                if -code in {*STOP, HURRY}:
                    seat.code = 0  # it was told to, and had not even begun
                return
            if seat.stale:
                deaths = 0
                continue
            if code == EXIT_REPLACE:
                _log.info("worker_replaced", worker=seat.name, ran=round(ran, 1))
                continue
            if code == 0 and self._burst:
                return
            if self._changes is None and code == EXIT_USAGE:
                self._stop()  # it will not be better
                return
            deaths = 1 if ran >= WELL else deaths + 1
            await self._pause(seat, code, ran, deaths)

    async def _pause(self, seat: _Seat, code: int, ran: float, deaths: int) -> None:
        """Say how a worker has ended, and wait until the next may begin."""
        how: dict[str, Any] = {"signal": signal.Signals(-code).name} if code < 0 else {"code": code}
        if -code == signal.SIGKILL:
            how["hint"] = "if nobody here has sent it, the system did, for want of memory"
        if self._changes is not None and code in (EXIT_FAILED, EXIT_USAGE):
            _log.warning("worker_ended", worker=seat.name, **how, waits_for="a change of its files")
            await first_of(seat.wake.wait, self._stopping.wait)
            return
        delay = backoff(deaths, FIRST, CAP, self._random)
        _log.warning(
            "worker_ended", worker=seat.name, **how, ran=round(ran, 1), deaths=deaths, restart_in=round(delay, 1)
        )
        with anyio.move_on_after(delay):
            await first_of(seat.wake.wait, self._stopping.wait)

    async def _work(self, seat: _Seat) -> int:
        """Run one worker to its end; answer its exit code, or minus the signal that ended it."""
        reading, checked = os.pipe()
        try:
            try:
                flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined] # noqa: SLF001
                orders = f"{self._life},{checked},{seat.place},{seat.name}"
                command = [sys.executable, *flags, "-m", "echomq.worker", "--supervised", orders, *self._arguments]
                with anyio.CancelScope(shield=True):
                    process = seat.process = await anyio.open_process(
                        command, stdin=None, stdout=None, stderr=None, env=self._env, pass_fds=(self._life, checked)
                    )
            finally:
                os.close(checked)
            _log.debug("worker_begun", worker=seat.name, pid=process.pid)
            if self._stopping.is_set():
                assert self._tasks is not None  # noqa: S101 - running
                self._tasks.start_soon(self._end, seat, self._grace)  # the order was given while it was on its way
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_look, reading, self._checked)
                code = await process.wait()
                tasks.cancel_scope.cancel()
            return code
        finally:
            seat.signal(signal.SIGKILL)
            seat.process = None
            os.close(reading)

    # --- orders ------------------------------------------------------------------------------------------------------

    async def _heed(self, signals: AsyncIterator[signal.Signals]) -> None:
        async for number in signals:
            _log.info("signal", signal=number.name, stopping="at once" if self._stopping.is_set() else "")
            self._stop()

    def _stop(self) -> None:
        if self._stopping.is_set():
            self._hurried.set()
            return
        self._stopping.set()
        assert self._tasks is not None  # noqa: S101 - running
        for seat in self._seats:
            self._tasks.start_soon(self._end, seat, self._grace)

    async def _end(self, seat: _Seat, grace: float) -> None:
        """Have a worker end: in order, then without grace, then by force."""
        process = seat.process
        for number, seconds in ((signal.SIGTERM, grace), (HURRY, self._limit), (signal.SIGKILL, 0.0)):
            if process is None or seat.process is not process:
                return
            if number is signal.SIGKILL:
                _log.error("worker_killed", worker=seat.name, pid=process.pid, hint="it did not end in time")
            seat.signal(number)
            with anyio.move_on_after(seconds):
                if number is signal.SIGTERM:
                    await self._hurried.wait()
                else:
                    await anyio.sleep(seconds)

    async def _reload(self, changes: Callable[[anyio.Event], AsyncIterator[Sequence[str]]]) -> None:
        assert self._tasks is not None  # noqa: S101 - running
        async for files in changes(self._stopping):
            if self._stopping.is_set():
                return
            _log.info("reloading", files=list(files))
            before, self._checked = self._checked, anyio.Event()
            before.set()  # who waits for the old one goes on to wait for the new one
            for seat in self._seats:
                seat.wake.set()
                if seat.process is not None:  # one that is being started reads the new files
                    seat.stale = True
                    self._tasks.start_soon(self._end, seat, RELOAD_GRACE)


async def _look(reading: int, checked: anyio.Event) -> None:
    """Wait until a worker has looked at its app."""
    await anyio.wait_readable(reading)
    if os.read(reading, 1):
        checked.set()
