"""Handlers in processes: what crosses, what they note, and how their processes end."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.backoff import Fixed
from echomq.errors import JobFailedError
from echomq.worker import processes
from echomq.worker.entry import run_worker
from echomq.worker.heartbeat import Heartbeat
from echomq.worker.reasons import Reason
from echomq.worker.run import EPSILON
from tests.worker import process_jobs
from tests.worker.support import QUICK, TRIO, Peek, running, until

pytestmark = pytest.mark.anyio
ONE: dict[str, Any] = {"pool": 1, "lease": 30.0}


def declare(app: App, queue: str, function: Any, **options: Any) -> Any:
    """Make a task of a function for processes."""
    return app.task(queue=queue, run_in="process", **{"result_ttl": 60, "backoff": Fixed(0), **options})(function)


def is_dead(pid: int) -> bool:
    """Tell whether a process is gone, and reaped."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def test_process_runs_functions_and_is_kept(
    app: App, queue_name: str, peek: Peek, capfd: pytest.CaptureFixture[str]
) -> None:
    """It starts with the first job, serves those after it, prints what it likes, notes, and is gone with the worker."""
    add, pid = declare(app, queue_name, process_jobs.add), declare(app, queue_name, process_jobs.pid)
    chatter, note = declare(app, queue_name, process_jobs.chatter), declare(app, queue_name, process_jobs.note)
    async with app:
        async with running(app, **ONE) as worker:
            assert worker._processes.pids == []
            assert await (await add.enqueue(1, right=2)).result(timeout=20) == 3
            (child,) = worker._processes.pids
            assert child != os.getpid()
            assert await (await chatter.enqueue("mumble")).result(timeout=10) == "mumble"
            job = await note.options(headers={"a": "b"}).enqueue()
            before, *rest = await job.result(timeout=10)
            assert await (await pid.enqueue()).result(timeout=10) == child
        assert is_dead(child)
        assert before == {"at": [1, 2]}
        assert rest[:5] == [3, False, None, "note", {"a": "b"}]
        assert rest[5:] == ["JobStateError", "ValueError", "done lies in 0..2^53, not -1"]
        info = await job.info(log=True)
    assert info.log == ("attempt 1", "attempt 2")
    assert info.record.progress == {"done": 2, "total": 2, "message": "half"}
    out, err = capfd.readouterr()
    assert "mumble" not in out
    assert "mumble" * 1000 in err


@TRIO
async def test_process_raises_verdicts(app: App, queue_name: str, peek: Peek) -> None:
    """They mean what they mean elsewhere."""
    task = declare(app, queue_name, process_jobs.verdict, max_attempts=3, backoff=Fixed(600))
    async with app, running(app, **ONE):
        jobs = {how: await task.enqueue(how) for how in ("retry", "snooze", "group", "discard")}
        assert await jobs["retry"].result(timeout=20) == "retry 2 1"
        assert await jobs["snooze"].result(timeout=10) == "snooze 2 0"
        assert await jobs["group"].result(timeout=10) == "group 2 1"
        with pytest.raises(JobFailedError, match="of no use"):
            await jobs["discard"].result(timeout=10)
        assert await (await task.enqueue("rate")).result(timeout=10) == "rate 2 0"
    assert peek.record(jobs["discard"].id).kind == "discarded"
    record = peek.record(jobs["retry"].id).error
    assert record is None or record.message == "in a moment"


@TRIO
@pytest.mark.parametrize(
    ("how", "type", "message"),
    [
        ("deep", "LookupError", "deep"),
        ("odd", "tests.worker.process_jobs.OddError", "1 is not 2"),
        ("error", "tests.worker.process_jobs.UnpicklableError", "what it says"),
        ("result", "echomq.errors.EncodeError", "the result cannot be pickled, and a process .* no way to write this"),
        ("huge", "echomq.errors.EncodeError", "the result has 300000.. bytes as a pickle, where the limit is 1048576"),
        ("large", "echomq.errors.EncodeError", "the result has 2000002 bytes, result_limit is 1048576"),
        ("exit", "SystemExit", "with a text"),
        ("interrupt", "KeyboardInterrupt", "after 1 attempt: KeyboardInterrupt"),
    ],
    ids=["deep", "odd", "error", "result", "huge", "large", "exit", "interrupt"],
)
async def test_process_fails_readably(app: App, queue_name: str, how: str, type: str, message: str) -> None:
    """By its own error, with its own traceback; what cannot cross is one failure, and the process goes on."""
    fail, pid = declare(app, queue_name, process_jobs.fail, max_attempts=1), declare(app, queue_name, process_jobs.pid)
    async with app, running(app, **ONE) as worker:
        with pytest.raises(JobFailedError, match=message) as caught:
            await (await fail.enqueue(how)).result(timeout=20)
        assert [await (await pid.enqueue()).result(timeout=10)] == worker._processes.pids
    assert caught.value.type == type
    assert "child.py" not in caught.value.traceback
    if how == "deep":
        assert "in fail" in caught.value.traceback
        assert "raise LookupError(how)" in caught.value.traceback


@TRIO
async def test_backoff_sees_the_error_of_a_process(app: App, queue_name: str) -> None:
    """As the exception that it was, or as one that names it if its class cannot be found."""
    seen: list[str] = []

    def policy(_failures: int, error: BaseException, _random: Any) -> float:
        seen.append(repr(error))
        return 600

    fail = declare(app, queue_name, process_jobs.fail, backoff=policy)
    with capture_logs() as logs:
        async with app, running(app, **ONE) as worker:
            for how in ("deep", "odd", "local"):
                await fail.enqueue(how)
            await until(lambda: worker.statistics().counters.failed == 3)
    assert sorted(seen) == [
        "LookupError('deep')", "OddError('1 is not 2')", "RuntimeError('tests.worker.process_jobs.LocalError: 410')",
    ]  # fmt: skip
    hints = {line["error"].split(":")[0]: line.get("hint", "") for line in logs if line["event"] == "job_failed"}
    assert {name for name, hint in hints.items() if hint} == {"tests.worker.process_jobs.LocalError"}
    assert "its type is known by name only" in hints["tests.worker.process_jobs.LocalError"]


@TRIO
async def test_result_that_nobody_keeps_need_not_cross(app: App, queue_name: str, peek: Peek) -> None:
    """What is not kept is neither pickled nor encoded, in a process as elsewhere."""
    fail = declare(app, queue_name, process_jobs.fail, result_ttl=None, max_attempts=1)
    async with app, running(app, **ONE):
        for how in ("result", "huge"):
            await fail.enqueue(how)
        await until(lambda: peek.count("completed") == 2)


@TRIO
async def test_argument_that_cannot_be_pickled_fails_the_job(server_url: str, queue_name: str) -> None:
    """It is said of the argument, and no process is started for it."""

    class Odd:
        def encode(self, _value: Any) -> bytes:
            return b"null"

        def decode(self, _data: bytes, _type: Any = Any) -> Any:
            return {"args": [process_jobs.Unpicklable()]}

    app = App(server_url, codec=Odd())
    fail = declare(app, queue_name, process_jobs.fail, max_attempts=1)
    async with app, running(app, **ONE) as worker:
        with pytest.raises(JobFailedError, match=r"an argument cannot be pickled, .* no way to write this"):
            await (await fail.enqueue("")).result(timeout=10)
        assert worker._processes.pids == []


@pytest.mark.parametrize(
    ("how", "words"), [("kill", "killed by SIGKILL"), ("exit", "exit code 3")], ids=["kill", "exit"]
)
async def test_process_that_dies_fails_its_attempt(app: App, queue_name: str, how: str, words: str) -> None:
    """It is said how it died, and the next job has another."""
    die, pid = declare(app, queue_name, process_jobs.die, max_attempts=1), declare(app, queue_name, process_jobs.pid)
    async with app, running(app, **ONE) as worker:
        with pytest.raises(JobFailedError, match=f"the handler's process died: {words}") as caught:
            await (await die.enqueue(how)).result(timeout=20)
        assert caught.value.type == "echomq.errors.ProcessDiedError"
        if how == "kill":
            assert [await (await pid.enqueue()).result(timeout=20)] == worker._processes.pids


@TRIO
async def test_idle_process_that_dies_hurts_nobody(app: App, queue_name: str) -> None:
    """Killed by the system's memory killer, say, while it waits: the next job has another."""
    pid = declare(app, queue_name, process_jobs.pid, max_attempts=1)
    async with app, running(app, **ONE) as worker:
        victim = await (await pid.enqueue()).result(timeout=20)
        os.kill(victim, 9)
        assert await (await pid.enqueue()).result(timeout=20) != victim
        assert worker.statistics().counters.failed == 0


@TRIO
async def test_process_whose_lease_is_lost_is_killed_at_once(
    app: App, queue_name: str, peek: Peek, tmp_path: Path
) -> None:
    """Whatever time its cleanup has: another attempt may run now, and nothing is written."""
    ignore, told = declare(app, queue_name, process_jobs.ignore), tmp_path / "told"
    with capture_logs() as logs:
        async with app, running(app, pool=1, lease=3.0, cleanup=60.0) as worker:
            job = await ignore.enqueue(str(told))
            await until(told.exists)
            (child,) = worker._processes.pids
            peek.expire(job.id)
            assert [each.id for each in peek.claim()] == [job.id]
            row = peek.record(job.id).row
            await until(lambda: worker.statistics().counters.lost == 1)
            assert is_dead(child)
    assert peek.record(job.id).row == row
    assert [line["reason"] for line in logs if line["event"] == "process_killed"] == ["lease_lost"]


@TRIO
async def test_process_in_its_cleanup_is_killed_when_the_lease_is_lost(
    app: App, queue_name: str, tmp_path: Path
) -> None:
    """It was cancelled and has time; then the lease goes, and the time with it."""
    ignore, told = declare(app, queue_name, process_jobs.ignore), tmp_path / "told"
    async with app, running(app, pool=1, lease=60.0, cleanup=60.0) as worker:
        job = await ignore.enqueue(str(told))
        await until(told.exists)
        (child,), (lease,) = worker._processes.pids, worker._leases
        await job.cancel()
        await until(lambda: lease.reason == "cancelled")
        await anyio.sleep(0.1)
        assert not is_dead(child)
        lease.stop(Reason.LEASE_LOST, "EMQSTALE")  # as a renewal's answer does
        await until(lambda: worker.statistics().counters.lost == 1)
        assert is_dead(child)


@TRIO
async def test_process_whose_lease_cannot_be_renewed_is_dead_by_its_deadline(
    app: App, queue_name: str, peek: Peek, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled, in its cleanup, and no renewal gets through: it is dead before the server may lease the job again."""
    ignore, told = declare(app, queue_name, process_jobs.ignore), tmp_path / "told"
    pid = declare(app, queue_name, process_jobs.pid)
    async with app, running(app, pool=1, lease=3.0, margin=1.2, cleanup=60.0):
        child = await (await pid.enqueue()).result(timeout=20)
        monkeypatch.setattr(Heartbeat, "_renew", lambda *_: None)
        job = await ignore.enqueue(str(told))
        await until(told.exists)
        await job.cancel()
        await until(lambda: is_dead(child))
        assert peek.active()[job.id] > peek.now()
        assert peek.count("cancelled") == 0


@TRIO
@pytest.mark.parametrize("place", ["process", "thread"])
async def test_timeout_counts_from_when_the_slot_is_had(app: App, queue_name: str, place: str) -> None:
    """A job that queues for a process or a thread spends nothing of its time, nor of its lease."""
    decorate: Any = app.task(queue=queue_name, run_in=place, timeout=1.0, result_ttl=60)  # type: ignore[call-overload]
    task = decorate(process_jobs.sleep)
    async with app, running(app, pool=1, threads=1, lease=1.9) as worker:
        await task.enqueue(0.0)  # its process has started
        await until(lambda: worker.statistics().counters.completed == 1)
        first = await task.options(timeout=60).enqueue(2.2)
        await until(lambda: worker.statistics().running == 1)
        jobs = [first, *[await task.enqueue(0.0) for _ in range(2)]]
        await until(lambda: worker.statistics().running == 3)
        found = [await job.result(timeout=20) for job in jobs]
        assert len(set(found)) == 1
        assert worker.statistics().counters.failed == 0
        assert worker.statistics().renewals > 0


@pytest.mark.parametrize("option", ["timeout", "deadline"])
async def test_process_that_runs_too_long_is_stopped(app: App, queue_name: str, tmp_path: Path, option: str) -> None:
    """Told at once, killed after its cleanup, failed as a handler elsewhere."""
    ignore, told = declare(app, queue_name, process_jobs.ignore, max_attempts=1), tmp_path / "told"
    pid = declare(app, queue_name, process_jobs.pid)
    limit = {"timeout": 1.0} if option == "timeout" else {"deadline": 1.5}
    async with app, running(app, **ONE, cleanup=0.1) as worker:
        await (await pid.enqueue()).result(timeout=20)
        job = await ignore.options(**limit).enqueue(str(told))
        with pytest.raises(
            JobFailedError, match="its timeout is 1 s" if option == "timeout" else "the job's deadline"
        ) as caught:
            await job.result(timeout=20)
        assert caught.value.type == "TimeoutError"
        assert told.exists()
        assert worker._processes.pids == []


@TRIO
async def test_shutdown_keeps_its_promise_with_processes(app: App, queue_name: str, peek: Peek, tmp_path: Path) -> None:
    """Grace, cleanup, epsilon: then all processes are gone and what they had is given back."""
    ignore, pid = declare(app, queue_name, process_jobs.ignore), declare(app, queue_name, process_jobs.pid)
    told = [tmp_path / "a", tmp_path / "b"]
    async with app:
        async with running(app, pool=3, lease=30.0, grace=0.2, cleanup=0.3) as worker:
            jobs = [await ignore.enqueue(str(each)) for each in told]
            await until(lambda: all(each.exists() for each in told))
            await (await pid.enqueue()).result(timeout=20)
            children = worker._processes.pids
            assert len(children) == 3
            worker.stop()
            began = time.monotonic()
        took = time.monotonic() - began
        assert all(map(is_dead, children))
    # No assertion on a promise kept by a machine that stands still: only that nothing waits for what never ends.
    assert took < 0.2 + 0.3 + EPSILON + 10
    assert [peek.state(job.id) for job in jobs] == ["pending"] * 2


async def test_processes_are_gone_when_the_worker_is_cancelled(
    app: App, queue_name: str, peek: Peek, tmp_path: Path
) -> None:
    """From outside, while one starts and another runs."""
    ignore, told = declare(app, queue_name, process_jobs.ignore), tmp_path / "told"
    async with app:
        async with anyio.create_task_group() as tasks:
            worker = await tasks.start(partial(run_worker, app, **{**QUICK, "pool": 2, "cleanup": 0.1}))
            job = await ignore.enqueue(str(told))
            await until(told.exists)
            other = await ignore.enqueue(str(told))
            await until(lambda: len(worker._processes.pids) == 2)
            children = worker._processes.pids
            tasks.cancel_scope.cancel()
        assert all(map(is_dead, children))
    assert [peek.state(each.id) for each in (job, other)] == ["pending"] * 2


@TRIO
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/nowhere/python"], "No such file"),
        ([sys.executable, "-c", "raise SystemExit(7)"], "exit code 7"),
        ([sys.executable, "-c", "import time; time.sleep(60)"], "TimeoutError"),
        ([sys.executable, "-c", "print('hello, I am a process that speaks'); input()"], "killed by SIGKILL"),
    ],
    ids=["missing", "ends", "hangs", "nonsense"],
)
async def test_process_that_cannot_start_puts_its_job_off(
    app: App, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch, command: list[str], words: str
) -> None:
    """It is not the job's fault, and another worker may do better: nothing is spent."""
    monkeypatch.setattr(processes, "command", lambda: command)
    monkeypatch.setattr(processes, "START", 0.5 if words == "TimeoutError" else 60)
    pid = declare(app, queue_name, process_jobs.pid)
    with capture_logs() as logs:
        async with app, running(app, **ONE) as worker:
            job = await pid.enqueue()
            await until(lambda: worker.statistics().counters.snoozed == 1)
            assert worker._processes.pids == []
        assert (peek.state(job.id), peek.record(job.id).failures) == ("schedule", 0)
    (line,) = [line for line in logs if line["event"] == "job_unfit"]
    assert words in line["error"]


@TRIO
async def test_function_that_its_process_cannot_find_puts_its_job_off(
    app: App, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deploy has changed the module under a running worker: another may have it."""

    def gone() -> None: ...

    monkeypatch.setattr(gone, "__qualname__", "gone")
    task = declare(app, queue_name, gone)
    with capture_logs() as logs:
        async with app, running(app, **ONE) as worker:
            await task.enqueue()
            await until(lambda: worker.statistics().counters.snoozed == 1)
            assert len(worker._processes.pids) == 1
    (line,) = [line for line in logs if line["event"] == "job_unfit"]
    assert "'tests.worker.test_processes' has no function 'gone' in its process" in line["error"]


@TRIO
async def test_thread_that_a_function_leaves_in_its_process_has_no_job(
    app: App, queue_name: str, tmp_path: Path
) -> None:
    """What it notes is refused where it stands, and the process serves the next job and leaves with the worker."""
    leave, pid = declare(app, queue_name, process_jobs.leave_thread), declare(app, queue_name, process_jobs.pid)
    told = tmp_path / "told"
    async with app, running(app, **ONE) as worker:
        await (await leave.enqueue(str(told))).result(timeout=20)
        assert [await (await pid.enqueue()).result(timeout=10)] == worker._processes.pids
        told.with_name("told.go").touch()
        await until(lambda: told.exists() and told.read_text())
    assert told.read_text() == "LeaseLostError True lease_lost\n"
