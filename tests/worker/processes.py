"""Worker processes: started by the command, ended by real signals, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

ROOT = Path(__file__).parents[2]


class WorkerProcess:
    """One `python -m echomq.worker`, with its log."""

    def __init__(
        self, url: str, queue: str, *options: str, app: str = "tests.worker.jobs_app:app", path: Path = ROOT
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        paths = os.pathsep.join(each for each in (os.environ.get("PYTHONPATH"), str(ROOT), str(path)) if each)
        env = {**os.environ, "ECHOMQ_URL": url, "TEST_QUEUE": queue, "PYTHONPATH": paths}
        command = [sys.executable, "-X", "dev", "-W", "error", "-m", "echomq.worker", app, "--log-format", "json"]
        self.process = subprocess.Popen(
            [*command, *options], env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=self._log, start_new_session=True
        )
        self._client = redis.Redis.from_url(url)
        self._queue = queue

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a real signal."""
        self.process.send_signal(number)

    def wait(self, seconds: float = 30.0) -> int:
        """Wait for its end; answer its exit code."""
        return self.process.wait(seconds)

    def end(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._client.close()
        self._log.close()

    def text(self) -> str:
        """Answer the lines of its standard error so far; one that is being written is left for the next look."""
        written = os.pread(self._log.fileno(), 100_000_000, 0)
        if self.process.poll() is None:
            written = written[: written.rfind(b"\n") + 1]
        return written.decode()

    def log(self, event: str = "") -> list[dict[str, Any]]:
        """Answer the lines of its log, of one event or all; each is JSON, or the test fails here."""
        lines = [json.loads(line) for line in self.text().splitlines()]
        return [line for line in lines if not event or line["event"] == event]

    def wait_for(self, event: str, seconds: float = 20.0) -> dict[str, Any]:
        """Wait for a line in its log."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.process.poll() is None:
            if f'"event": "{event}"' in self.text():
                break
            time.sleep(0.02)
        found = self.log(event)
        assert found, f"no {event}: {self.text()}"
        return found[0]

    def told(self) -> list[str]:
        """Answer what its handlers said."""
        return [line.partition(" ")[2] for line in told(self._client, self._queue) if line.startswith(f"{self.pid} ")]

    def wait_told(self, start: str, seconds: float = 20.0) -> str:
        """Wait for something its handlers say."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for line in self.told():
                if line.startswith(start):
                    return line
            time.sleep(0.02)
        raise AssertionError(f"nobody said {start!r}: {self.told()}\n{self.text()}")


def told(client: redis.Redis, queue: str) -> list[str]:
    """Answer what the handlers of all processes said, with their process ids."""
    found: Any = client.lrange(f"told:{queue}", 0, -1)
    return [line.decode() for line in found]


def let_go(client: redis.Redis, queue: str) -> None:
    """Say the word for which the `gated` handlers wait."""
    client.set(f"go:{queue}", "1", ex=600)


@contextmanager
def worker_process(url: str, queue: str, *options: str, **given: Any) -> Iterator[WorkerProcess]:
    """Run a worker process for the length of the block."""
    process = WorkerProcess(url, queue, *options, **given)
    try:
        yield process
    finally:
        process.end()


def wait_until(condition: Any, seconds: float = 20.0) -> Any:
    """Wait for something that will become true, and answer it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, condition
        time.sleep(0.02)
    return found
