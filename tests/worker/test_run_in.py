"""Where a handler runs, and how many do so at once."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import anyio
import pytest

from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.job import SyncJob
from echomq.worker.options import WorkerOptions
from tests.worker import process_jobs
from tests.worker.support import running, until


async def _coroutine() -> None: ...


@pytest.mark.parametrize("place", ["thread", "process"])
def test_run_in_refuses_a_coroutine_function_by_name(place: Any) -> None:
    """It runs in the event loop, and nowhere else; batches are of coroutine functions, too."""
    app = App()
    with pytest.raises(TypeError, match=f"task 'odd': .*_coroutine.* is a coroutine function, .* not in a {place}"):
        app.task(name="odd", run_in=place)(_coroutine)
    assert not app.tasks


def test_run_in_refuses_a_batch() -> None:
    """A handler of batches is a coroutine function."""
    app = App()

    async def handle(batch: JobBatch[int]) -> None: ...

    decorate: Any = app.task(queue="rows", batch=Batch(max_size=2), run_in="thread")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="coroutine function"):
        decorate(handle)


@pytest.mark.parametrize("place", ["loop", "", 1, True, ["thread"]])
def test_run_in_refuses_another_word(place: Any) -> None:
    """There are two places, and None."""
    with pytest.raises(ValueError, match="run_in is 'thread', 'process' or None"):
        App().task(run_in=place)(process_jobs.pid)


@pytest.mark.parametrize(
    "function",
    [lambda: None, functools.partial(process_jobs.add, 1), type("Callable", (), {"__call__": lambda _self: None})()],
    ids=["lambda", "partial", "object"],
)
def test_run_in_process_refuses_what_a_process_could_not_find(function: Any) -> None:
    """A function is found by its module and name; said when it is declared, not when the first job runs."""

    def within() -> None: ...

    for each in (function, within):
        with pytest.raises(TypeError, match="task 'odd': a handler that runs in a process is found there by"):
            App().task(name="odd", run_in="process")(each)
        App().task(name="odd", run_in="thread")(each)


def test_run_in_is_read_from_the_task() -> None:
    """None says nothing more than before."""
    app = App()
    assert app.task(process_jobs.pid).run_in is None
    assert app.task(name="b", run_in="process")(process_jobs.pid).run_in == "process"
    assert app.task(name="c", run_in="thread")(process_jobs.pid).run_in == "thread"


def test_options_limit_threads_and_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many threads as slots, one process a processor; whole numbers of 1 and more."""
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    options = WorkerOptions(concurrency=5)
    assert (options.threads, options.pool) == (5, 7)
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert WorkerOptions().pool == 1
    whole: Any = 3.0
    assert (WorkerOptions().threads, WorkerOptions(threads=whole).threads) == (100, 3)
    for name in ("threads", "pool"):
        for value in (0, -1, 1.5, True, "2", None, 10_001):
            given: Any = {name: value}
            with pytest.raises(ValueError, match=name):
                WorkerOptions(**given)


@pytest.mark.anyio
async def test_threads_are_limited_and_coroutines_pass_by(app: App, queue_name: str) -> None:
    """Fewer threads than slots: what waits for one holds its lease and its slot, and hinders no coroutine function."""
    most, now = [0], [0]
    lock, go = threading.Lock(), threading.Event()

    @app.task(queue=queue_name, run_in="thread", result_ttl=60)
    def block(job: SyncJob) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        go.wait(10)
        time.sleep(0.02)
        with lock:
            now[0] -= 1

    @app.task(queue=queue_name, result_ttl=60)
    async def pass_by() -> str:
        return "passed"

    async with app, running(app, concurrency=6, threads=2) as worker:
        jobs = [await block.enqueue() for _ in range(5)]
        await until(lambda: now[0] == 2)
        await until(lambda: worker.statistics().running == 5)
        assert await (await pass_by.enqueue()).result(timeout=10) == "passed"
        assert await jobs[-1].cancel() == "asked"  # it has not begun, and never does
        await until(lambda: worker.statistics().counters.cancelled == 1)
        go.set()
        await until(lambda: worker.statistics().counters.completed == 5)
    assert most == [2]


@pytest.mark.anyio
async def test_thread_slots_are_given_back(app: App, queue_name: str) -> None:
    """Also by a handler that fails, or that was cancelled while it queued."""

    @app.task(queue=queue_name, run_in="thread", max_attempts=1)
    def fail() -> None:
        raise RuntimeError

    async with app, running(app, threads=1) as worker:
        for _ in range(5):
            await fail.enqueue()
        with anyio.fail_after(10):
            await until(lambda: worker.statistics().counters.dead == 5)
