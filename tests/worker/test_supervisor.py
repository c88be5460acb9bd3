"""`--processes`: workers that are killed, stopped, replaced and told to end, and a supervisor that is killed itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from echomq.worker import supervisor
from echomq.worker.options import WorkerOptions
from echomq.worker.orders import HURRY, urgency
from echomq.worker.supervisor import Supervisor
from tests.worker.processes import ROOT, WorkerProcess, told, worker_process
from tests.worker.processes import wait_until as wait_so_long
from tests.worker.support import Peek
from tests.worker.test_command import QUICK, put
from tests.worker.test_process_orphans import is_running

pytestmark = pytest.mark.timeout(120)
CODE = 128 + signal.SIGKILL
PATIENCE = 45.0
"""Seconds for what takes several processes that start one after another, on a busy machine."""


def wait_until(condition: Callable[[], Any]) -> Any:
    """Wait for something that will become true, and answer it."""
    return wait_so_long(condition, PATIENCE)


def workers_of(peek: Peek) -> dict[str, int]:
    """Answer what handlers of all processes have said, with the process that said it last."""
    lines = [line.split(" ", 1) for line in told(peek.client, peek.keys.queue)]
    return {text: int(pid) for pid, text in lines}


def wait_told(peek: Peek, text: str) -> int:
    """Wait for what a handler of any worker says; answer its process."""
    wait_until(lambda: text in workers_of(peek))
    return workers_of(peek)[text]


# --- real processes --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_supervisor_starts_a_killed_worker_anew_and_no_job_is_lost(
    server_url: str, queue_name: str, peek: Peek
) -> None:
    """SIGKILL for one of two: its job runs again when its lease is over, a new one takes its place; SIGTERM ends all."""
    options = ("--processes", "2", "--name", "web", "--lease", "1.5", "--cleanup", "5")
    with worker_process(server_url, queue_name, *options) as worker:
        wait_until(lambda: len(worker.log("worker_started")) == 2)
        job = put(peek, "second_time")
        killed = wait_told(peek, f"began {job} 1")
        os.kill(killed, signal.SIGKILL)
        (ended,) = wait_until(lambda: worker.log("worker_ended"))
        assert (ended["signal"], ended["deaths"]) == ("SIGKILL", 1)
        assert "memory" in ended["hint"]
        wait_until(lambda: len(worker.log("worker_started")) == 3)
        again = wait_told(peek, f"ended {job} 2")
        names = Counter(line["worker"] for line in worker.log("worker_started"))
        assert names == {"web-1": 1, "web-2": 1} | {ended["worker"]: 2}
        worker.signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
        assert len(worker.log("worker_stopped")) == 2
        assert again != killed
        assert not is_running(again)
    assert peek.count("completed") == 1


@pytest.mark.slow
def test_workers_end_in_order_when_their_supervisor_is_killed(server_url: str, queue_name: str, peek: Peek) -> None:
    """SIGKILL for the supervisor: no orphan stays, and what they had is given back at once."""
    with worker_process(server_url, queue_name, "--processes", "2", "--concurrency", "1", *QUICK) as worker:
        jobs = [put(peek, "sleeper", 60) for _ in range(2)]
        pids = [wait_told(peek, f"began {job} 1") for job in jobs]
        worker.signal(signal.SIGKILL)
        worker.wait(PATIENCE)
        try:
            wait_until(lambda: not any(map(is_running, pids)))
        finally:
            for pid in filter(is_running, pids):  # of a broken supervisor; nobody else would end them
                os.kill(pid, signal.SIGKILL)
    assert [peek.state(job) for job in jobs] == ["pending", "pending"]
    assert {f"stopped {job} shutdown" for job in jobs} <= workers_of(peek).keys()


@pytest.mark.slow
def test_signal_to_the_whole_group_takes_no_grace_away(server_url: str, queue_name: str, peek: Peek) -> None:
    """As systemd and a terminal send it: a worker hears it again and again, and its handler ends by itself all the same."""
    with worker_process(server_url, queue_name, "--processes", "1", "--grace", "30") as worker:
        job = put(peek, "sleeper", 2)
        pid = wait_told(peek, f"began {job} 1")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker_stopping", PATIENCE)  # two that come at the same moment could be one
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        assert worker.wait(PATIENCE) == 0
    assert f"ended {job} 1" in workers_of(peek)


@pytest.mark.slow
def test_second_signal_skips_the_grace_of_all_workers(server_url: str, queue_name: str, peek: Peek) -> None:
    """The supervisor hears two SIGTERMs, and the worker gives its job back."""
    with worker_process(server_url, queue_name, "--processes", "1", "--grace", "600") as worker:
        job = put(peek, "sleeper", 60)
        wait_told(peek, f"began {job} 1")
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker_stopping", PATIENCE)
        worker.signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    assert peek.state(job) == "pending"
    assert f"stopped {job} shutdown" in workers_of(peek)


@pytest.mark.prove
def test_worker_that_does_not_end_in_time_is_killed(server_url: str, queue_name: str, peek: Peek) -> None:
    """One that is stopped cannot end itself: SIGKILL after its own deadline, and the supervisor's code says so."""
    with worker_process(server_url, queue_name, "--processes", "1", *QUICK) as worker:
        job = put(peek, "sleeper", 60)
        pid = wait_told(peek, f"began {job} 1")
        os.kill(pid, signal.SIGSTOP)
        try:
            worker.signal(signal.SIGTERM)
            assert worker.wait(PATIENCE) == CODE
            assert worker.log("worker_killed")[0]["pid"] == pid
            assert not is_running(pid)
        finally:
            if is_running(pid):  # of a broken supervisor; nobody else would end it
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_worker_that_has_done_its_jobs_is_replaced(server_url: str, queue_name: str, peek: Peek) -> None:
    """`--max-jobs 2`: three workers after one another do five jobs, none more than two; `--burst` ends the last one."""
    jobs = [put(peek, "quick") for _ in range(5)]
    with worker_process(
        server_url, queue_name, "--processes", "1", "--max-jobs", "2", "--burst", "--health-port", "0", *QUICK
    ) as worker:
        assert worker.wait(PATIENCE) == 0
        done = workers_of(peek)
        assert sorted(done) == sorted(f"ran {job} 1" for job in jobs)
        assert sorted(Counter(done.values()).values()) == [1, 2, 2]
        assert len(worker.log("worker_replaced")) == 2
        assert not worker.log("worker_ended")


@pytest.mark.slow
def test_supervisor_gives_up_on_bad_arguments(server_url: str) -> None:
    """What is wrong with the app is said by one worker, once, and the code is 2."""
    command = [sys.executable, "-m", "echomq.worker", "no_such_module:app", "--processes", "3"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False, env={**os.environ, "ECHOMQ_URL": server_url}
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("Error: there is no module 'no_such_module'") == 1


PROGRAM = """
import os
import echomq

app = echomq.App()

@app.task(queue=os.environ["TEST_QUEUE"])
def told() -> None:
    import redis
    client = redis.Redis.from_url(os.environ["ECHOMQ_URL"])
    client.rpush("told:" + os.environ["TEST_QUEUE"], f"{os.getpid()} version 1")
    client.close()
"""


@pytest.fixture
def program(tmp_path: Path, server_url: str, queue_name: str) -> Iterator[tuple[Path, WorkerProcess]]:
    """A program that is watched."""
    file = tmp_path / "reloaded.py"
    file.write_text(PROGRAM, "utf-8")
    with worker_process(
        server_url, queue_name, "--reload", "--reload-dir", str(tmp_path), *QUICK, app="reloaded:app", path=tmp_path
    ) as worker:
        yield file, worker


@pytest.mark.slow
def test_reload_takes_a_changed_file(program: tuple[Path, WorkerProcess], queue_name: str, peek: Peek) -> None:
    """A syntax error is shown and waited out, the next change is taken, and the new code runs."""
    file, worker = program
    worker.wait_for("worker_started", PATIENCE)
    file.write_text("app = (\n", "utf-8")
    wait_until(lambda: '"waits_for": "a change of its files"' in worker.text())
    assert "SyntaxError: '(' was never closed" in worker.text()
    file.write_text(PROGRAM.replace("version 1", "version 2"), "utf-8")
    put(peek, "told")
    wait_told(peek, "version 2")
    worker.signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert worker.text().count('"event": "reloading"') == 2


# --- the rules, without processes ------------------------------------------------------------------------------------


def play(monkeypatch: pytest.MonkeyPatch, ends: list[tuple[int, float]], count: int = 1, **options: Any) -> Any:
    """Make a supervisor whose workers have these exit codes, after so many seconds; answer it and when each began."""
    began: list[float] = []

    async def work(self: Any, seat: Any) -> int:
        began.append(anyio.current_time())
        code, seconds = ends.pop(0)
        if code != supervisor.EXIT_USAGE:
            self._checked.set()
        await anyio.sleep(seconds)
        if not ends:
            self._stop()
        return code

    monkeypatch.setattr(Supervisor, "_work", work)
    return Supervisor(count, (), WorkerOptions(**options), name="web"), began


@pytest.mark.trio
async def test_supervisor_waits_longer_after_each_death(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """Half a second, then double, up to half a minute; one that has run well begins anew; its end is the exit code."""
    dying, began = play(monkeypatch, [*[(-9, 0.0)] * 9, (70, 100.0), (1, 0.0), (1, 0.0)])
    assert await dying.run() == 1
    waits = [later - before for before, later in pairwise(began)]
    limits = [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 100.5, 1]
    assert all(limit * 0.5 <= wait <= limit for wait, limit in zip(waits, limits, strict=True)), waits


@pytest.mark.trio
async def test_supervisor_replaces_at_once_and_ends_with_burst(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """Code 75 means: another one, now. Code 0 is the end with `--burst`, and a death without."""
    worker, began = play(monkeypatch, [(75, 1.0), (75, 1.0), (0, 1.0), (9, 0.0)], burst=True)
    assert await worker.run() == 0
    assert [later - before for before, later in pairwise(began)] == [1.0, 1.0]
    worker, began = play(monkeypatch, [(0, 1.0), (75, 1.0)])
    assert await worker.run() == 0
    assert began[1] - began[0] > 1.0


@pytest.mark.trio
async def test_supervisor_gives_up_on_a_usage_error(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """The others are not even started."""
    worker, began = play(monkeypatch, [(2, 1.0), (0, 0.0)], count=3)
    assert await worker.run() == 2
    assert len(began) == 1


@pytest.mark.trio
async def test_reload_starts_those_that_waited_for_the_first(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: Any
) -> None:
    """The app is broken before the second was ever started; mended, both begin."""
    began = []

    async def work(self: Any, seat: Any) -> int:
        began.append(seat.name)
        if len(began) == 1:
            return supervisor.EXIT_USAGE
        self._checked.set()
        await self._stopping.wait()
        return 0

    async def changes(stop: anyio.Event) -> AsyncIterator[list[str]]:
        await anyio.sleep(5)
        yield ["app.py"]
        await anyio.sleep(5)
        reloading._stop()

    monkeypatch.setattr(Supervisor, "_work", work)
    reloading = Supervisor(2, (), WorkerOptions(), name="web", changes=changes)
    with anyio.fail_after(60):
        assert await reloading.run() == 0
    assert began == ["web-1", "web-1", "web-2"]


@pytest.mark.trio
async def test_supervisor_tells_the_worst_of_its_workers(monkeypatch: pytest.MonkeyPatch, autojump_clock: Any) -> None:
    """What a signal has ended counts 128 more than the signal; SIGTERM, which it was told, counts nothing."""
    for codes, worst in (([0, 75, -15], 0), ([0, 75, -15, 70], 70), ([0, 75, -15, 70, -11], 139)):
        worker, _ = play(monkeypatch, [(code, 3.0) for code in codes], count=len(codes))
        assert await _stopped(worker) == worst


async def _stopped(worker: Supervisor) -> int:
    code = -1
    async with anyio.create_task_group() as tasks:

        async def run() -> None:
            nonlocal code
            code = await worker.run()

        tasks.start_soon(run)
        await anyio.sleep(1)
        worker._stop()
    return code


def test_supervisor_refuses_what_cannot_be() -> None:
    """Before anything is started."""
    with pytest.raises(ValueError, match="processes is 0; it must be 1 to 1000"):
        Supervisor(0, (), WorkerOptions(), name=None)
    with pytest.raises(ValueError, match="health_port is 65534; with 3 processes it must be at most 65533"):
        Supervisor(3, (), WorkerOptions(health_port=65_534), name=None)
    Supervisor(3, (), WorkerOptions(health_port=0), name=None)


def test_signals_of_a_supervised_worker_do_not_add_up() -> None:
    """Any number of SIGTERMs is one order; only SIGQUIT skips the grace. Alone, a second one does."""
    term = signal.SIGTERM
    assert [urgency(each, supervised=True) for each in ([], [term], [term, term], [term, HURRY])] == [0, 1, 1, 2]
    assert [urgency(each, supervised=False) for each in ([], [term], [term, signal.SIGINT])] == [0, 1, 2]
