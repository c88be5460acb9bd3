"""The cancel table: in each state of a job, for each kind of handler."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.errors import JobCancelledError, JobNotFoundError, JobStateError
from echomq.worker.children import Child
from tests.worker import process_jobs
from tests.worker.support import TRIO, Peek, running, until

pytestmark = pytest.mark.anyio
KINDS = pytest.mark.parametrize("kind", ["coroutine", "thread", "process"])
ALONE: dict[str, Any] = {"concurrency": 1, "lease": 600.0, "cleanup": 10.0}
"""One slot, no heartbeat: a request comes by its channel."""


@pytest.fixture
def told(tmp_path: Path) -> Path:
    """The file through which handlers tell what they do."""
    return tmp_path / "told"


def declare(app: App, queue: str, kind: str, result_ttl: float | None = 60) -> Any:
    """Make a task whose handler runs until it is cancelled, and then until it may end."""
    if kind == "coroutine":
        return app.task(name="heed", queue=queue, result_ttl=result_ttl)(process_jobs.heed_in_loop)
    decorate: Any = app.task(name="heed", queue=queue, result_ttl=result_ttl, run_in=kind)  # type: ignore[call-overload]
    return decorate(process_jobs.heed)


def lines(told: Path) -> list[str]:
    """Answer what handlers have told."""
    return told.read_text("utf-8").splitlines() if told.exists() else []


@KINDS
async def test_cancel_of_a_job_that_is_not_there_says_so(
    app: App, queue_name: str, peek: Peek, kind: str, told: Path
) -> None:
    """Unknown: no effect, and no key."""
    task = declare(app, queue_name, kind)
    async with app:
        with pytest.raises(JobNotFoundError):
            await app.handle("JOB00000000001", queue_name).cancel()
        assert not list(peek.client.scan_iter(match=f"*{{{queue_name}}}*:job:*"))
        assert task.queue == queue_name
    assert lines(told) == []


@KINDS
@pytest.mark.parametrize("state", ["pending", "schedule"])
async def test_cancel_of_a_job_that_waits_ends_it_at_once(
    app: App, queue_name: str, peek: Peek, kind: str, state: str, told: Path
) -> None:
    """Pending, scheduled: it never runs, and its key is free."""
    task = declare(app, queue_name, kind)
    later = task.options(dedup="key", delay=600 if state == "schedule" else 0)
    async with app:
        job = await later.enqueue(str(told))
        assert peek.state(job.id) == state
        assert await job.cancel(reason="not needed") == "cancelled"
        with pytest.raises(JobCancelledError, match="not needed"):
            await job.result(timeout=10)
        assert peek.empty()
        again = await later.enqueue(str(told))
        assert again.admitted
        assert again.id != job.id
        assert peek.state(again.id) == state
    assert lines(told) == []


@KINDS
async def test_cancel_of_a_job_that_runs_ends_it_after_its_handler(
    app: App, queue_name: str, peek: Peek, kind: str, told: Path
) -> None:
    """Running, in the only slot: asked at once; cancelled, and its key free, when the handler has ended. And finished."""
    task = declare(app, queue_name, kind).options(dedup="key")
    async with app, running(app, **ALONE):
        job = await task.enqueue(str(told))
        await until(lambda: lines(told))
        assert await job.cancel(reason="not needed") == "asked"
        await until(lambda: "stopped by cancelled" in lines(told))
        assert await job.cancel(reason="again") == "asked"

        assert peek.state(job.id) == "active"
        assert list(peek.active()) == [job.id]
        assert not (await task.enqueue(str(told))).admitted
        told.with_name("told.go").touch()
        with pytest.raises(JobCancelledError, match="not needed"):
            await job.result(timeout=10)
        assert lines(told)[-1] == "ended"
        record = peek.record(job.id)
        assert (record.kind, record.failures, peek.count("completed")) == ("cancelled", 0, 0)
        assert (await job.info(log=True)).log == ("bye",)

        told.with_name("told.quick").touch()
        again = await task.enqueue(str(told))
        assert again.admitted
        assert await again.result(timeout=10) == "quick"
        row = peek.record(again.id).row
        with pytest.raises(JobStateError):
            await again.cancel()
        with pytest.raises(JobStateError):
            await job.cancel()
        assert peek.record(again.id).row == row
    assert peek.count("cancelled") == 1


@KINDS
@TRIO
async def test_cancel_of_a_job_that_ended_and_is_not_kept_says_so(
    app: App, queue_name: str, peek: Peek, kind: str, told: Path
) -> None:
    """Finished, and nothing is left: no effect."""
    task = declare(app, queue_name, kind, result_ttl=None).options(dedup="key")
    told.with_name("told.quick").touch()
    async with app, running(app, **ALONE):
        job = await task.enqueue(str(told))
        await until(lambda: peek.count("completed") == 1)
        with pytest.raises(JobNotFoundError):
            await job.cancel()
        assert (await task.enqueue(str(told))).admitted
        await until(lambda: peek.count("completed") == 2)
    assert peek.count("cancelled") == 0


@TRIO
async def test_process_that_ignores_its_cancel_is_killed_and_replaced(
    app: App, queue_name: str, peek: Peek, told: Path
) -> None:
    """It has `cleanup` seconds; the job is cancelled when it is dead, and the next one runs in another process."""
    ignore = app.task(queue=queue_name, result_ttl=60, run_in="process")(process_jobs.ignore)
    pid = app.task(queue=queue_name, result_ttl=60, run_in="process")(process_jobs.pid)
    with capture_logs() as logs:
        async with app, running(app, **{**ALONE, "cleanup": 0.3}) as worker:
            job = await ignore.options(dedup="key").enqueue(str(told))
            await until(lambda: lines(told))
            (victim,) = worker._processes.pids
            assert lines(told) == [f"began {victim}"]
            assert await job.cancel(reason="not needed") == "asked"
            os.kill(victim, 0)
            assert peek.state(job.id) == "active"
            with pytest.raises(JobCancelledError, match="not needed"):
                await job.result(timeout=10)
            with pytest.raises(ProcessLookupError):
                os.kill(victim, 0)
            assert await (await pid.options(dedup="key").enqueue()).result(timeout=10) != victim
            await until(lambda: worker.statistics().counters.cancelled == 1)
    (line,) = [line for line in logs if line["event"] == "process_killed"]
    assert (line["job"], line["task"], line["reason"], line["pid"]) == (job.id, "ignore", "cancelled", victim)
    assert not [line for line in logs if line["event"] == "handler_will_not_end"]


@TRIO
async def test_job_of_a_process_that_is_slow_to_die_is_held_until_it_is_dead(
    app: App, queue_name: str, peek: Peek, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed, and the system takes its time: until then the job is active, and nobody else may have it."""
    ignore = app.task(queue=queue_name, result_ttl=60, run_in="process")(process_jobs.ignore)
    killed: list[int] = []

    def kill(child: Child) -> None:
        killed.append(child.process.pid)

    monkeypatch.setattr(Child, "kill", kill)
    with capture_logs() as logs:
        async with app, running(app, **{**ALONE, "cleanup": 0.0}) as worker:
            job = await ignore.enqueue(str(told))
            await until(lambda: lines(told))
            (victim,) = worker._processes.pids
            await job.cancel()
            await until(lambda: killed and [line for line in logs if line["event"] == "process_killed"])
            await anyio.sleep(0.1)
            os.kill(victim, 0)
            assert list(peek.active()) == [job.id]
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(JobCancelledError):
                await job.result(timeout=10)
            with pytest.raises(ProcessLookupError):
                os.kill(victim, 0)
            monkeypatch.undo()
    assert not [line for line in logs if line["event"] == "handler_will_not_end"]


@TRIO
async def test_process_that_returns_although_it_was_cancelled_has_completed(
    app: App, queue_name: str, peek: Peek, told: Path
) -> None:
    """What it returns counts, as it does for the other kinds; and it is kept."""
    finish = app.task(queue=queue_name, result_ttl=60, run_in="process")(process_jobs.finish)
    async with app, running(app, **ALONE) as worker:
        job = await finish.enqueue(str(told))
        await until(lambda: lines(told))
        assert await job.cancel() == "asked"
        assert await job.result(timeout=10) == "stopped by cancelled"
        assert lines(told) == [f"began {pid}" for pid in worker._processes.pids]
    assert peek.count("cancelled") == 0
