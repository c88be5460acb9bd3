"""Processes of handlers whose worker is killed, stopped or interrupted; and programs that are their own main module."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import echomq
from tests.worker.processes import WorkerProcess, told, wait_until, worker_process
from tests.worker.support import Peek
from tests.worker.test_command import put

pytestmark = pytest.mark.slow
OPTIONS = ("--pool", "1", "--concurrency", "2", "--grace", "10", "--cleanup", "0.5")


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that is dead and has no parent to say so to does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def wait_child(peek: Peek, worker: WorkerProcess, start: str) -> int:
    """Wait for something that a handler says in a process of its own; answer that process."""

    def find() -> int | None:
        lines = [line.split(" ", 1) for line in told(peek.client, peek.keys.queue)]
        return next((int(pid) for pid, text in lines if text.startswith(start) and int(pid) != worker.pid), None)

    found: int = wait_until(find)
    return found


def test_processes_end_with_a_killed_worker(server_url: str, queue_name: str, peek: Peek) -> None:
    """SIGKILL for the worker: one that runs a function ends at once, one that waits for work does too."""
    options = ("--pool", "2", "--lease", "60")
    with worker_process(server_url, queue_name, *options) as worker:
        idle = put(peek, "in_process", 0)
        long = put(peek, "in_process", 60)
        children = [wait_child(peek, worker, f"began {job}") for job in (idle, long)]
        wait_until(lambda: peek.count("completed") == 1)
        assert all(map(is_running, children))
        worker.signal(signal.SIGKILL)
        worker.wait()
        try:
            wait_until(lambda: not any(map(is_running, children)))
        finally:
            for child in filter(is_running, children):  # of a broken worker; nobody else would end them
                os.kill(child, signal.SIGKILL)
    assert not [line for line in told(peek.client, queue_name) if f"ended {long}" in line]


def test_process_of_a_stopped_worker_ends_with_its_lease(server_url: str, queue_name: str, peek: Peek) -> None:
    """SIGSTOP for the worker alone: nothing is renewed, and the function ends before its job may be leased again."""
    with worker_process(server_url, queue_name, "--lease", "2", *OPTIONS) as worker:
        job = put(peek, "in_process", 60)
        child = wait_child(peek, worker, f"began {job}")
        worker.signal(signal.SIGSTOP)
        wait_until(lambda: not is_running(child))
        assert peek.active()[job] > peek.now()
        worker.signal(signal.SIGCONT)
        wait_until(lambda: worker.log("lease_lost"))
        assert not worker.log("job_failed")
        assert peek.record(job).failures == 0


def test_process_of_a_renewed_lease_goes_on(server_url: str, queue_name: str, peek: Peek) -> None:
    """It hears of each renewal, and runs for longer than one lease."""
    with worker_process(server_url, queue_name, "--lease", "2", *OPTIONS) as worker:
        job = put(peek, "in_process", 2.5)
        wait_child(peek, worker, f"ended {job} 1")
        wait_until(lambda: peek.count("completed") == 1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_whole_group_lets_processes_end(
    server_url: str, queue_name: str, peek: Peek, number: signal.Signals
) -> None:
    """Ctrl-C, and what a supervisor sends to all: the worker shuts down, and its functions have its grace."""
    with worker_process(server_url, queue_name, *OPTIONS) as worker:
        job = put(peek, "in_process", 1.0)
        child = wait_child(peek, worker, f"began {job}")
        os.killpg(worker.pid, number)
        assert worker.wait() == 0
        assert not is_running(child)
        assert worker.log("worker_stopped")
    assert [line for line in told(peek.client, queue_name) if f"ended {job}" in line]


def test_process_that_forks_is_seen_to_die(server_url: str, queue_name: str, peek: Peek) -> None:
    """What it has started does not keep its pipes open, nor the worker waiting; and it can be ended as usual."""
    with worker_process(server_url, queue_name, *OPTIONS) as worker:
        put(peek, "forker", 60, max_attempts=1)
        wait_child(peek, worker, "forked")
        wait_until(lambda: worker.log("job_dead"))
        (line,) = worker.log("job_dead")
        assert "exit code 3" in line["error"]
        (child,) = [int(each.split()[2]) for each in told(peek.client, queue_name) if "forked" in each]
        assert is_running(child)
        os.kill(child, signal.SIGTERM)
        wait_until(lambda: not is_running(child))


PROGRAM = """
import attrs, echomq, trio, os

app = echomq.App()
print("imported as", __name__)

@attrs.frozen
class Point:
    x: int

class OddError(Exception):
    pass

@app.task(queue=os.environ["TEST_QUEUE"], run_in="process", result_ttl=60, max_attempts=1)
def move(point: Point, by: int) -> Point:
    if by == 0:
        raise OddError(point)
    return Point(point.x + by)

async def main():
    async with app, trio.open_nursery() as nursery:
        await nursery.start(echomq.run_worker, app)
        print("moved:", await (await move.enqueue(Point(1), 2)).result(timeout=30))
        try:
            await (await move.enqueue(Point(1), 0)).result(timeout=30)
        except echomq.JobFailedError as error:
            print("failed:", error.type, error.message)
        nursery.cancel_scope.cancel()

if __name__ == "__main__":
    trio.run(main)
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_functions_of_the_main_module_run_in_processes(
    server_url: str, queue_name: str, tmp_path: Path, how: str
) -> None:
    """A program that is one file: the process imports it under another name, and its classes are the program's own."""
    (tmp_path / "program.py").write_text(PROGRAM, "utf-8")
    path = str(Path(echomq.__file__).parents[1])
    env: dict[str, Any] = {**os.environ, "ECHOMQ_URL": server_url, "TEST_QUEUE": queue_name, "PYTHONPATH": path}
    command = ["program.py"] if how == "script" else ["-m", "program"]
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=50, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "moved: Point(x=3)" in done.stdout
    assert "failed: __main__.OddError Point(x=1)" in done.stdout
    assert "imported as __mp_main__" in done.stderr
    assert "imported as __mp_main__" not in done.stdout
