"""`max_jobs` and `max_rss`: a worker that ends by itself, in good order, to be replaced."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from echomq.app import App
from echomq.job import Job
from echomq.worker import retire
from echomq.worker.entry import run_worker
from echomq.worker.options import WorkerOptions
from echomq.worker.retire import Limits, resident
from tests.worker.support import PATIENCE, Peek, until

pytestmark = pytest.mark.anyio
QUICK: dict[str, Any] = {"lease": 5.0, "grace": 0.2, "cleanup": 1.0}


async def test_worker_claims_no_more_than_its_jobs(app: App, queue_name: str, peek: Peek) -> None:
    """It takes as many as it may, whatever its slots, and returns; the others are left as they were."""

    @app.task(queue=queue_name)
    async def quick() -> None:
        await anyio.lowlevel.checkpoint()

    async with app:
        await app.enqueue_many([quick.call() for _ in range(12)])
        with anyio.fail_after(PATIENCE):
            await run_worker(app, max_jobs=5, concurrency=4, **QUICK)
        assert (peek.count("completed"), len(peek.active())) == (5, 0)


async def test_retiring_worker_waits_for_its_handlers_longer_than_its_grace(
    app: App, queue_name: str, peek: Peek
) -> None:
    """Nobody waits to kill it: a handler has the time it needs, also beyond its lease."""

    @app.task(queue=queue_name)
    async def slow() -> None:
        await anyio.sleep(1.5)

    async with app:
        await slow.enqueue()
        with anyio.fail_after(PATIENCE):
            await run_worker(app, max_jobs=1, lease=0.9, grace=0.1, cleanup=0.1)
        assert peek.count("completed") == 1


async def test_stop_ends_a_retiring_worker_as_usual(app: App, queue_name: str, peek: Peek) -> None:
    """From then on handlers have the grace, and are cancelled; a second word is not needed."""
    reasons = []

    @app.task(queue=queue_name)
    async def endless(job: Job) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            reasons.append(job.cancel_reason)

    async with app, anyio.create_task_group() as tasks:
        tasks.cancel_scope.deadline = anyio.current_time() + PATIENCE
        handle = await endless.enqueue()

        async def run(*, task_status: Any = anyio.TASK_STATUS_IGNORED) -> None:
            await run_worker(app, max_jobs=1, task_status=task_status, **QUICK)

        worker = await tasks.start(run)
        await until(lambda: bool(worker.retired))
        assert (worker.retired, worker.statistics().ready) == ("max_jobs", False)
        worker.stop()
    assert not tasks.cancel_scope.cancelled_caught
    assert reasons == ["shutdown"]
    assert peek.state(handle.id) == "pending"


async def test_worker_that_has_grown_too_large_ends(
    app: App, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory is looked at now and then; what it runs ends first."""
    size = [100]
    monkeypatch.setattr(retire, "resident", lambda: size[0])
    monkeypatch.setattr(retire, "EVERY", 0.01)

    @app.task(queue=queue_name)
    async def grow() -> None:
        size[0] = 500
        await anyio.sleep(0.3)

    async with app:
        await grow.enqueue()
        with anyio.fail_after(PATIENCE):
            await run_worker(app, max_rss=500, **QUICK)
        assert peek.count("completed") == 1


async def test_limit_that_is_passed_before_the_first_job_is_refused(app: App, queue_name: str) -> None:
    """It would be replaced for ever, and do nothing."""

    @app.task(queue=queue_name)
    async def nothing() -> None: ...

    with pytest.raises(ValueError, match=r"max_rss is 1 MiB, and the process has \d+ MiB before its first job"):
        await run_worker(app, max_rss=1)


def test_resident_memory_is_measured() -> None:
    """It grows by what is used."""
    before = resident()
    block = bytearray(b"x") * (64 << 20)
    assert 48 <= resident() - before <= 96
    del block


def test_workers_that_begin_together_leave_one_by_one() -> None:
    """Each draws between nine tenths of a limit and all of it; a small number is exact."""
    drawn = {Limits(1000, None).left(0) for _ in range(200)}
    assert len(drawn) > 20
    assert min(each for each in drawn if each) >= 900
    assert max(each for each in drawn if each) <= 1000
    assert {Limits(5, None).left(2) for _ in range(50)} == {3}
    assert Limits(None, None).left(10_000) is None


@pytest.mark.parametrize("name", ["max_jobs", "max_rss"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_limits_are_whole_numbers(name: str, value: Any) -> None:
    """The error names the option and the value."""
    with pytest.raises(ValueError, match=f"{name} is .*; it must be 1 to"):
        WorkerOptions(**{name: value})
