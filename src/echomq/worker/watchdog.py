"""The watchdog: notices what a deadline on the monotonic clock cannot.

Theory of operation
    Deadlines are kept by the event loop, on a clock that stands still while the machine is suspended. So a tick in the
    loop compares the boot-time clock (which counts a suspension) with the monotonic one, and pulls the deadlines in by
    what was slept. And a thread looks at the ticks: when none comes, somebody blocks the loop. The stack of the loop's
    thread shows where, and if the frame of a handler's coroutine is in it, whose job it is.

    While the loop is late no claims are made: a worker that cannot renew must not take more.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
import traceback
from collections import deque
from types import FrameType
from typing import TYPE_CHECKING, Any, final

import anyio

from echomq._logs import get_logger
from echomq.instruments import NO_INSTRUMENTS, LoopTicked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from echomq.instruments import Instruments
    from echomq.worker.lease import Lease

DEPTH: int = 10
"""Frames of a stack that are shown."""
MOST_AWAITED: int = 10_000
"""Steps from a coroutine to what it awaits: an object of the user's may go on for ever."""
TICK: float = 0.25
"""Seconds between two looks at the clocks."""

_log = get_logger("echomq.worker")


def boot_time() -> float:
    """Read the clock that also runs while the machine is suspended; the monotonic one where there is none."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


@final
class Watchdog:
    """Watches the event loop from inside and from a thread. Use it as a context manager around the loop's work."""

    def __init__(
        self,
        leases: Callable[[], Iterable[Lease]],
        *,
        margin: float,
        cleanup: float,
        on_time: Callable[[], None] = lambda: None,
        instruments: Instruments = NO_INSTRUMENTS,
    ) -> None:
        """Make a watchdog.

        Args:
            leases: Answers the leases whose handlers run.
            margin: The leases' margin, seconds: a loop late by half of it is late.
            cleanup: Seconds a stopped handler may take before it is named in the log.
            on_time: Called when the loop is on time again.
            instruments: What is told how late the loop is.
        """
        self._leases = leases
        self._cleanup = cleanup
        self._on_time = on_time
        self._instruments = instruments
        self._late_after = max(2 * TICK, margin / 2)
        self.late = False
        """Whether the last tick came too late."""
        self.lag = 0.0
        """How late the last tick was, seconds, a suspension of the machine included."""
        self.blocked = 0
        """How often the loop was found blocked."""
        self._ticked = time.monotonic()
        self._over = threading.Event()
        self._loop_thread = threading.get_ident()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Watchdog:
        self._loop_thread = threading.get_ident()
        self._ticked = time.monotonic()
        # With our context, so that what it logs names the worker.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._watch,), name="echomq-watchdog", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    async def run(self) -> None:
        """Tick until cancelled."""
        boot, mono = boot_time(), time.monotonic()
        while True:
            await anyio.sleep(TICK)
            new_boot, new_mono = boot_time(), time.monotonic()
            self.tick(slept=(new_boot - boot) - (new_mono - mono), lag=new_mono - mono - TICK)
            boot, mono = new_boot, new_mono
            self._ticked = new_mono

    def tick(self, *, slept: float, lag: float) -> None:
        """Take one look.

        Args:
            slept: How long the machine was suspended since the last look, seconds.
            lag: How late this look is, seconds.
        """
        was_late, self.late = self.late, slept + lag > self._late_after
        self.lag = max(0.0, slept + lag)
        if self._instruments:
            self._instruments.record(LoopTicked(self.lag))
        if was_late and not self.late:
            self._on_time()
        now = anyio.current_time()
        for lease in list(self._leases()):
            if slept > TICK:
                lease.slept(slept)
            lease.look(now)
            if lease.process is not None:
                continue  # it is killed when its time is over
            if not lease.named and time.monotonic() - lease.stopped_at > self._cleanup:
                self._name(lease)
        if self.late:
            _log.warning("event_loop_late", lag=round(lag, 3), suspended=round(max(0.0, slept), 3))

    def _name(self, lease: Lease) -> None:
        """Say which handler does not end although it was stopped: nothing can make it, and its lease is renewed until then."""
        lease.named = True
        _log.error(
            "handler_will_not_end",
            queue=lease.calls.queue,
            job=lease.claimed.id,
            task=lease.claimed.record.task,
            attempt=lease.claimed.token,
            reason=str(lease.reason),
            stack=self.stack(lease.thread) if lease.thread else coroutine_stack(lease.coroutine),
        )

    def _watch(self) -> None:
        reported = looked = 0.0
        while not self._over.wait(TICK):
            ticked = self._ticked
            now, last, looked = time.monotonic(), looked, time.monotonic()
            # If this thread is late itself, the whole process stood still: no handler is to blame.
            if now - ticked < self._late_after + TICK or ticked == reported or now - last > 4 * TICK:
                continue
            reported = ticked
            self.blocked += 1
            # The names first: the loop may go on at any moment.
            names, stack = self._find_blocker(), self.stack()
            _log.warning("event_loop_blocked", **names, seconds=round(time.monotonic() - ticked, 3), stack=stack)

    def _find_blocker(self) -> dict[str, Any]:
        """Name the handler whose coroutine the loop's thread is in; nothing if it is in none. Of a batch, the first job."""
        frame = sys._current_frames().get(self._loop_thread)  # noqa: SLF001 - the only way to look
        frames: set[FrameType] = set()
        while frame is not None:
            frames.add(frame)
            frame = frame.f_back
        found = [lease for lease in list(self._leases()) if getattr(lease.coroutine, "cr_frame", None) in frames]
        if not found:
            return {}
        claimed = min(found, key=lambda lease: lease.claimed.id).claimed
        names = {
            "queue": found[0].calls.queue,
            "job": claimed.id,
            "task": claimed.record.task,
            "attempt": claimed.token,
        }
        return names if len(found) == 1 else {**names, "batch": len(found)}

    def stack(self, thread: int | None = None) -> str:
        """Show where a thread is, the event loop's unless told otherwise; the last ten frames."""
        frame = sys._current_frames().get(thread or self._loop_thread)  # noqa: SLF001 - the only way to look
        return "" if frame is None else _shown(lambda: traceback.format_stack(frame))


def coroutine_stack(awaited: Any) -> str:
    """Show where a coroutine waits; its last ten frames."""

    def lines() -> list[str]:
        nonlocal awaited
        frames: deque[tuple[FrameType, int]] = deque(maxlen=DEPTH)
        for _ in range(MOST_AWAITED):
            frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
            if type(frame) is FrameType:
                frames.append((frame, frame.f_lineno))
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
            if awaited is None:
                break
        return traceback.StackSummary.extract(iter(frames)).format()

    return _shown(lines)


def _shown(lines: Callable[[], list[str]]) -> str:
    """Answer the last ten; none if they cannot be had: an awaitable or a module's loader of the user's is looked at."""
    try:
        return "".join(lines()[-DEPTH:])
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - see above
        return ""
