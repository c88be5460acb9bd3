"""Worker processes that do not outlive their block."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import anyio
import anyio.abc

CONCURRENCY: Final = 8
"""Files that a worker reads at once."""
LEASE: Final = 2.0
"""Seconds that a worker's claim holds unless it is renewed: so long the jobs of a killed one wait."""
_STOP_SECONDS: Final = 10.0
_POLL: Final = 0.02


@final
class Worker:
    """A worker process. Made by `open_worker`."""

    def __init__(self, process: anyio.abc.Process, log: Path) -> None:
        self._process = process
        self._log = log
        self.killed = False
        """Whether it was killed on purpose."""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def freeze(self) -> None:
        """Stop it where it is (SIGSTOP); its leases go on running."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on (SIGCONT)."""
        self._send(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL: it gets no chance to say or save anything."""
        self.killed = True
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def until_ready(self) -> None:
        """Wait until it says that it takes work. Waits for ever if it has ended: see `until_ended`."""
        while "worker_started" not in self._log.read_text(errors="replace"):  # noqa: ASYNC110 - another process's word
            await anyio.sleep(_POLL)

    async def until_ended(self) -> str:
        """Wait for its end; answer the code and the end of its log."""
        code = await self._process.wait()
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join([f"worker {self.pid} ended with code {code}; its log:", *lines[-15:]])

    async def stop(self) -> None:
        """End it in order, or by force when it takes too long."""
        self._send(signal.SIGTERM)
        self.thaw()
        with anyio.move_on_after(_STOP_SECONDS):
            await self._process.wait()
        self._send(signal.SIGKILL)
        await self._process.wait()


@asynccontextmanager
async def open_worker(url: str) -> AsyncIterator[Worker]:
    """Run a worker of the demonstration's app for the length of the block.

    It has a session of its own: Ctrl-C is the demonstration's, which ends it in order.
    """
    arguments = ["--url", url, "--concurrency", str(CONCURRENCY), "--lease", str(LEASE), "--grace", "1"]
    arguments += ["--cleanup", "1"]
    number, name = tempfile.mkstemp(prefix="echomq-demo-worker-", suffix=".log")
    log = Path(name)
    try:
        with os.fdopen(number, "wb") as output, anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                [sys.executable, "-m", "echomq.worker", "echomq.demo.jobs:app", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        worker = Worker(process, log)
        try:
            yield worker
        finally:
            with anyio.CancelScope(shield=True):
                await worker.stop()
    finally:
        log.unlink(missing_ok=True)  # noqa: ASYNC240 - a moment's work, also when cancelled
