"""The beat: a worker says every ten seconds that it is alive and what it runs, and at last that it goes.

It is for people who look. Nothing waits for it, and no lease depends on it: a worker whose beats are refused works on.
"""

from __future__ import annotations

import heapq
import os
import platform
import time
from typing import TYPE_CHECKING, Final, final

import anyio

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError
from echomq.transitions import Call, Pulse, Running, beat

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from echomq.worker.calls import QueueCalls
    from echomq.worker.lease import Lease
    from echomq.worker.options import WorkerOptions

EVERY: float = 10.0
"""Seconds between two beats: a third of how long one counts."""
FAREWELL: float = 1.0
"""Seconds that saying goodbye may take; without it the worker is listed for half a minute more."""
MOST_JOBS: Final = 64
"""Jobs that a beat names."""
MAX_NAME: Final = 256
"""Characters of a name that are told."""

_log = get_logger("echomq.worker")


@final
class Beats:
    """What a worker's queues hear of it."""

    def __init__(
        self, queues: Iterable[QueueCalls], options: WorkerOptions, leases: Callable[[], Collection[Lease]]
    ) -> None:
        """Make it.

        Args:
            queues: The queues.
            options: Who the worker is.
            leases: Answers what it runs.
        """
        self._queues = tuple(queues)
        self._options = options
        self._leases = leases
        self._told = Told()
        self._began = time.monotonic()
        self._gone = False

    async def run(self) -> None:
        """Beat until cancelled, or until it has gone."""
        while not self._gone:
            for calls in self._queues:
                calls.wire.note_use(calls.keys)
                await self._say(calls, self._pulse(calls))
            await anyio.sleep(EVERY)

    async def go(self) -> None:
        """Say goodbye to all queues; given up after a second."""
        self._gone = True
        with anyio.move_on_after(FAREWELL):
            async with anyio.create_task_group() as tasks:
                for calls in self._queues:
                    tasks.start_soon(self._say, calls, None)

    async def _say(self, calls: QueueCalls, pulse: Pulse | None) -> None:
        try:
            await calls.wire.run(beat(calls.keys, Call(calls.wire.tag), pulse=pulse))
            self._told.over(calls.queue)
        except RuntimeError:
            if pulse is not None:
                raise
            # The client was closed before we were done.
        except EchoMQError as error:
            if self._told.is_new(str(error), calls.queue):
                _log.warning("beat_failed", queue=calls.queue, error=str(error))

    def _pulse(self, calls: QueueCalls) -> Pulse:
        now = anyio.current_time()
        running = [lease for lease in self._leases() if lease.calls is calls]
        named = heapq.nsmallest(MOST_JOBS, running, key=lambda lease: (lease.sent_at, lease.claimed.id))
        return Pulse(
            name=str(self._options.name)[:MAX_NAME].encode("utf-8", "replace").decode(),
            host=platform.node()[:MAX_NAME],
            pid=os.getpid(),
            up_ms=round((time.monotonic() - self._began) * 1000),
            concurrency=self._options.concurrency,
            running=len(running),
            jobs=[
                Running(
                    lease.claimed.id,
                    lease.claimed.record.task,
                    lease.claimed.token,
                    max(0, round((now - lease.sent_at) * 1000)),
                )
                for lease in named
            ],
        )
