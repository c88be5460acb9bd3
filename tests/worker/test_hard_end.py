"""The command ends in time, says what is wrong in a line, and works whatever its standard streams are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.worker.processes import ROOT, told, wait_until, worker_process
from tests.worker.support import Peek
from tests.worker.test_command import QUICK, put

WORKER = [sys.executable, "-m", "echomq.worker"]


def test_signal_during_a_blocked_loop_ends_the_process_hard(server_url: str, queue_name: str, peek: Peek) -> None:
    """The deadline is armed although the event loop does not hear of the signal."""
    with worker_process(server_url, queue_name, *QUICK) as worker:
        worker.wait_for("worker_started")
        job = put(peek, "blocker", 60)
        worker.wait_for("event_loop_blocked")
        worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 70
        (line,) = worker.log("hard_exit")
        assert line["worker"]
    assert list(peek.active()) == [job]


@pytest.mark.parametrize("burst", [False, True])
def test_thread_that_a_handler_leaves_keeps_no_process(
    server_url: str, queue_name: str, peek: Peek, burst: bool
) -> None:
    """The interpreter waits for it, and the deadline does not; one that ends in time is waited for."""
    put(peek, "leaver", 60)
    with worker_process(server_url, queue_name, *QUICK, *(["--burst"] if burst else [])) as worker:
        worker.wait_told("left")
        if not burst:
            worker.signal(signal.SIGTERM)
        assert worker.wait(20) == 70
        assert worker.log("worker_stopped")
        assert worker.log("hard_exit")
    if burst:
        put(peek, "leaver", 0.5)
        with worker_process(server_url, queue_name, "--burst", *QUICK) as worker:
            assert worker.wait(20) == 0


def _without(*numbers: int) -> Callable[[], None]:
    def close() -> None:
        for number in numbers:
            os.close(number)

    return close


def _start(url: str, queue: str, **given: Any) -> subprocess.Popen[bytes]:
    env = {**os.environ, "ECHOMQ_URL": url, "TEST_QUEUE": queue, "PYTHONPATH": str(ROOT)}
    command = [*WORKER, "tests.worker.jobs_app:app", "--grace", "10"]
    return subprocess.Popen(command, env=env, cwd=ROOT, start_new_session=True, **given)


@pytest.mark.parametrize("closed", [(1,), (2,), (1, 2), (0, 1, 2)], ids=str)
def test_worker_without_standard_streams_works(
    server_url: str, queue_name: str, peek: Peek, closed: tuple[int, ...]
) -> None:
    """It runs jobs, and ends in order."""
    done = put(peek, "sleeper", 0.1, result_ttl_ms=60_000)
    worker = _start(server_url, queue_name, preexec_fn=_without(*closed))
    try:
        wait_until(lambda: peek.state(done) == "done")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize("kind", ["full", "broken"])
def test_log_that_cannot_be_written_costs_neither_grace_nor_verdicts(
    server_url: str, queue_name: str, peek: Peek, kind: str
) -> None:
    """On a full disk, or when the log's reader has gone: failures are told, handlers have their grace, code 0."""
    if kind == "full":
        log = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, log = os.pipe()
        os.close(reader)
    failing, sleeper = put(peek, "failing", max_attempts=1), put(peek, "sleeper", 1.0, result_ttl_ms=60_000)
    worker = _start(server_url, queue_name, stdout=subprocess.DEVNULL, stderr=log)
    os.close(log)
    try:
        wait_until(lambda: peek.state(failing) == "dead")
        wait_until(lambda: [line for line in told(peek.client, queue_name) if f"began {sleeper}" in line])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(20) == 0
    finally:
        worker.kill()
        worker.wait()
    assert peek.state(sleeper) == "done"
    assert peek.count("stalled") == 0


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("import no_such_dependency\n", "ModuleNotFoundError: No module named 'no_such_dependency'"),
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)\n", "SystemExit: 0"),
    ],
)
def test_module_that_cannot_be_imported_shows_its_own_lines_only(tmp_path: Path, text: str, last: str) -> None:
    """Code 1; the traceback begins in the module, not in the import machinery or the command."""
    (tmp_path / "broken_jobs.py").write_text(text, "utf-8")
    done = subprocess.run(
        [*WORKER, "broken_jobs:app"], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    lines = done.stderr.strip().splitlines()
    assert lines[0] == "Error: 'broken_jobs' cannot be imported"
    assert lines[-1] == last
    assert len(lines) <= 7
    assert "click" not in done.stderr
    assert "importlib" not in done.stderr


def test_worker_in_a_deleted_directory_finds_what_is_installed(tmp_path: Path) -> None:
    """The current directory is only the first place to look."""
    code = "import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, '-m', 'echomq.worker', *sys.argv[1:]])"
    here = tmp_path / "gone"
    for app, words in (
        ("no_such_module:app", "there is no module"),
        ("tests.worker.jobs_app:nothing", "no echomq App"),
    ):
        here.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", code, app], cwd=here, capture_output=True, text=True, timeout=30, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr
        assert words in done.stderr
