"""`run_task` and `run_job`: a task's function, run as a worker runs it, without a server."""

from __future__ import annotations

import datetime as dt
import os
import re
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
import structlog

import echomq
from echomq import INJECTED, App, Job, JobCall, SyncJob
from echomq.testing import FollowUp, Noted, run_job, run_task
from tests.testing import process_jobs

pytestmark = pytest.mark.anyio


@attrs.frozen
class Size:
    """A class of a user's."""

    width: int
    height: int


class Pool:
    """What a handler asks for."""


class DeclinedError(Exception):
    """What a handler raises."""


@pytest.fixture
def app() -> App:
    """An app that has no server, and could not reach one."""
    return App("valkey://nowhere.invalid:1")


# --- the call -----------------------------------------------------------------------------------


async def test_run_task_hands_over_what_a_worker_would(app: App) -> None:
    """Arguments come back from the codec with the declared types, in place and by name; the result does, too."""

    @app.task(result_ttl=60)
    async def scale(path: Path, size: Size, *, by: int = 2) -> Size:
        assert (path, type(path)) == (Path("a.png"), type(Path()))
        return Size(size.width * by, size.height * by)

    assert await run_task(scale, Path("a.png"), Size(1, 2), by=3) == Size(3, 6)


async def test_run_task_runs_a_plain_function_in_a_thread(app: App) -> None:
    """As in a worker, its job is one that blocks."""
    noted = Noted()

    @app.task
    def where(job: SyncJob, n: int) -> int:
        job.log(f"{n}")
        job.checkpoint({"n": n}, step=4)
        job.progress(n, total=9)
        return threading.get_ident()

    assert await run_job(app, where.call(3), noted=noted) != threading.get_ident()
    assert (noted.logs, noted.checkpoints, noted.progress) == (
        ["3"], [(4, {"n": 3})], {"done": 3, "total": 9, "message": None},
    )  # fmt: skip


@pytest.mark.parametrize("anyio_backend", ["trio"])  # what runs there is the worker's, which has tests of both
async def test_run_job_runs_a_process() -> None:
    """A task of processes runs in one, which is gone afterwards, and notes through it."""
    noted = Noted()
    pid, squared = await run_job(process_jobs.app, process_jobs.square.call(7), noted=noted)
    assert squared == 49
    assert pid != os.getpid()
    assert noted.logs == ["squaring 7"]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_run_task_refuses_what_an_enqueue_refuses(app: App) -> None:
    """What cannot be encoded, and what does not fit the signature, fails before the handler runs."""
    ran = []

    @app.task
    async def take(value: Any) -> None:
        ran.append(value)

    with pytest.raises(echomq.EncodeError, match="args"):
        await run_task(take, {1, 2}.__iter__())
    with pytest.raises(TypeError, match="take"):
        await run_task(take, 1, 2)
    assert ran == []


async def test_run_task_refuses_arguments_that_the_annotations_refuse(app: App) -> None:
    """They are decoded by the annotation, as in a worker."""

    @app.task
    async def take(n: int) -> None: ...

    with pytest.raises(echomq.ArgumentsError, match=r"args\[0\]"):
        await run_task(take, "no number")  # type: ignore[arg-type]


async def test_run_task_answers_what_a_handle_would(app: App) -> None:
    """A kept result has been through the codec; one that is not kept is the handler's own."""

    @app.task(result_ttl=60)
    async def kept() -> Any:
        return (1, 2)

    @app.task
    async def not_kept() -> Any:
        return (1, 2)

    assert await run_task(kept) == [1, 2]
    assert await run_task(not_kept) == (1, 2)


async def test_run_task_refuses_a_result_that_cannot_be_written(app: App) -> None:
    """Of a job that keeps its result, that is a failure; of another nobody looks at it."""

    @app.task(result_ttl=60)
    async def kept() -> object:
        return object()

    @app.task
    async def not_kept() -> object:
        return app

    with pytest.raises(echomq.EncodeError):
        await run_task(kept)
    assert await run_task(not_kept) is app


async def test_run_job_names_what_there_is(app: App) -> None:
    """An unknown task, a batch, and nonsense are told apart."""

    @app.task(queue="batches", batch=echomq.Batch(max_size=3))
    async def gather(batch: echomq.JobBatch[int]) -> None: ...

    stub = app.task_stub("elsewhere", queue="other")
    with pytest.raises(LookupError, match="no task 'elsewhere'; it has gather"):
        await run_job(app, stub.call(1))
    with pytest.raises(TypeError, match="batches"):
        await run_job(app, gather.call(1))
    with pytest.raises(TypeError, match="task's call"):
        await run_job(app, gather)  # type: ignore[arg-type]


# --- the job ------------------------------------------------------------------------------------


async def test_run_job_tells_the_handler_its_facts(app: App) -> None:
    """Options of the call and what the test says are what the job says."""
    seen: list[Any] = []

    @app.task(queue="facts")
    async def look(job: Job, n: int) -> None:
        record = job.record
        assert record.deadline_ms is not None
        seen.extend(
            [n, job.queue, job.task, job.attempt, job.token, job.failures, job.priority, dict(job.headers), record.lane,
             job.checkpoint_state, job.checkpoint_step, record.deadline_ms - record.since, record.timeout_ms, job.cancelled]
        )  # fmt: skip

    options = look.options(headers={"a": "b"}, lane="acme", priority=7, deadline=60, timeout=dt.timedelta(seconds=5))
    await run_job(app, options.call(1), attempt=3, failures=1, checkpoint=[1, 2], step=5)
    assert seen == [1, "facts", "look", 3, 3, 1, 7, {"a": "b"}, "acme", [1, 2], 5, 60_000, 5_000, False]


@pytest.mark.parametrize(
    ("name", "value"), [("attempt", 0), ("attempt", True), ("attempt", "2"), ("failures", -1), ("step", "1")]
)
async def test_run_job_refuses_impossible_facts(app: App, name: str, value: Any) -> None:
    """The message names the value."""

    @app.task
    async def never() -> None:
        raise AssertionError

    with pytest.raises(ValueError, match=f"{name}.*{value!r}"):
        await run_job(app, never.call(), **{name: value})


@pytest.mark.parametrize(
    ("name", "value"), [("noted", {}), ("provide", []), ("provide", 3), ("children", 0), ("children", ["a"])]
)
async def test_run_job_refuses_what_is_of_another_kind(app: App, name: str, value: Any) -> None:
    """The message names the argument and the value, also of one that is empty."""

    @app.task
    async def never() -> None:
        raise AssertionError

    with pytest.raises(TypeError, match=f"{name} is a .* not {re.escape(repr(value))}"):
        await run_job(app, never.call(), **{name: value})


async def test_what_is_run_is_a_task_or_a_call_of_an_app(app: App) -> None:
    """A call is no task, a function neither, and an app is one."""

    @app.task
    async def never() -> None:
        raise AssertionError

    for wrong in (never.call(), lambda: None, 3):
        with pytest.raises(TypeError, match=r"a task is run.*run_job\(app, call\), not"):
            await run_task(wrong)  # type: ignore[arg-type]
    for wrong in (never, 3):
        with pytest.raises(TypeError, match=r"a task's call, such as report.call\(\), not"):
            await run_job(app, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="an app, not for 3"):
        await run_job(3, never.call())  # type: ignore[arg-type]


async def test_run_job_notes_what_the_handler_notes(app: App) -> None:
    """Of progress the last, of the others all, also of a handler that fails; what a server would refuse is refused."""
    noted = Noted()

    @app.task
    async def work(job: Job) -> None:
        for done in range(100):
            await job.progress(done, total=1000, message="on it")
        await job.checkpoint({"at": 1})
        await job.checkpoint({"at": 2}, step=3)
        await job.log("a line")
        with pytest.raises(echomq.JobStateError, match="step 3"):
            await job.checkpoint({"at": 3}, step=2)
        with pytest.raises(ValueError, match="2\\^53"):
            await job.progress(-1)
        raise DeclinedError

    with pytest.raises(DeclinedError):
        await run_job(app, work.call(), noted=noted)
    assert noted.progress == {"done": 99, "total": 1000, "message": "on it"}
    assert noted.checkpoints == [(0, {"at": 1}), (3, {"at": 2})]
    assert noted.logs == ["a line"]


async def test_run_job_goes_on_from_a_checkpoint(app: App) -> None:
    """What one attempt has noted is what the next is given."""

    @app.task(result_ttl=60)
    async def resume(job: Job, fail: bool) -> int:
        done = job.checkpoint_state or 0
        await job.checkpoint(done + 10, step=done + 10)
        if fail:
            raise DeclinedError
        return int(done)

    noted = Noted()
    with pytest.raises(DeclinedError):
        await run_job(app, resume.call(True), noted=noted)
    step, state = noted.checkpoints[-1]
    assert await run_job(app, resume.call(False), attempt=2, checkpoint=state, step=step) == 10


async def test_run_job_records_follow_ups_of_a_completion_only(app: App) -> None:
    """Each with its queue and decoded arguments, of tasks that the app has and of others; none of a failure."""

    @app.task(queue="bills")
    async def bill(path: Path, *, size: Size) -> None: ...

    @app.task(queue="orders")
    async def order(job: Job, fail: bool) -> None:
        job.on_complete.enqueue(bill.options(lane="acme").call(Path("x"), size=Size(1, 2)))
        job.on_complete.enqueue(app.task_stub("mail", queue="orders").call("a@b"))
        if fail:
            raise DeclinedError

    noted = Noted()
    await run_job(app, order.call(False), noted=noted)
    assert noted.follow_ups == [
        FollowUp("bills", "bill", (Path("x"),), {"size": Size(1, 2)}),
        FollowUp("orders", "mail", ("a@b",), {}),
    ]
    noted = Noted()
    with pytest.raises(DeclinedError):
        await run_job(app, order.call(True), noted=noted)
    assert noted.follow_ups == []


async def test_run_job_of_a_parent_reads_its_children(app: App) -> None:
    """Results come through the codec, with their types; failures that were ignored, too."""

    @app.task(result_ttl=60)
    async def total(job: Job) -> tuple[dict[str, Size], str, list[str]]:
        failures = await job.ignored_failures()
        return await job.children_results(Size), failures["c"].error.type, await job.outstanding()  # type: ignore[union-attr]

    given = {"a": Size(1, 2), "b": Size(3, 4), "c": DeclinedError("no")}
    found, failure, outstanding = await run_job(app, total.call(), children=given)
    assert found == {"a": Size(1, 2), "b": Size(3, 4)}
    assert failure.endswith(".DeclinedError")
    assert outstanding == []


async def test_run_job_says_that_a_nursery_needs_a_server(app: App) -> None:
    """What cannot be done here is an error that says what to do."""

    @app.task
    async def child() -> None: ...

    @app.task
    async def parent(job: Job) -> None:
        async with job.nursery() as children:
            children.enqueue(child.call())

    with pytest.raises(RuntimeError, match=r"job\.nursery\(\) needs a server.*drain"):
        await run_task(parent)


# --- how it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "verdict", "delay"),
    [
        (echomq.Retry(after=5), "failed", 5.0),
        (echomq.Snooze(30), "snoozed", 30.0),
        (echomq.RateLimited(after=7), "rate_limited", 7.0),
        (echomq.Discard("no use"), "discarded", None),
        (DeclinedError("card"), "failed", 0.25),
        (SystemExit(3), "failed", 0.25),
    ],
)
async def test_run_job_raises_what_the_handler_raises(
    app: App, error: BaseException, verdict: str, delay: float | None
) -> None:
    """The very object, from within a task group as well where it is a verdict; and what would become of the job is noted."""

    @app.task(backoff=echomq.Fixed(0.25), max_attempts=2)
    async def fail() -> None:
        raise error

    noted = Noted()
    with pytest.raises(type(error)) as caught:
        await run_job(app, fail.call(), noted=noted)
    assert caught.value is error
    assert (noted.verdict, noted.delay) == (verdict, delay)


async def test_run_job_tells_the_last_attempt(app: App) -> None:
    """A failure that spends the last of `max_attempts` buries."""

    @app.task(max_attempts=2)
    async def fail() -> None:
        raise DeclinedError

    noted = Noted()
    with pytest.raises(DeclinedError):
        await run_job(app, fail.call(), attempt=2, noted=noted)
    assert (noted.verdict, noted.delay) == ("dead", None)


async def test_run_task_unwraps_a_verdict_from_a_task_group(app: App) -> None:
    """As the worker does."""

    @app.task
    async def fail() -> None:
        async with anyio.create_task_group():
            raise echomq.Snooze(3)

    with pytest.raises(echomq.Snooze):
        await run_task(fail)


async def test_run_task_keeps_the_timeout(app: App) -> None:
    """A handler that runs too long is cancelled, and that is a failure."""
    cancelled = []

    @app.task(timeout=0.05)
    async def dawdle() -> None:
        try:
            await anyio.sleep(30)
        finally:
            cancelled.append(True)

    with pytest.raises(TimeoutError, match=r"its timeout is 0\.05 s"):
        await run_task(dawdle)
    assert cancelled == [True]


async def test_run_task_is_cancelled_like_any_function(app: App) -> None:
    """A scope of the test's own ends it, and hears nothing of that."""

    @app.task
    async def dawdle() -> None:
        await anyio.sleep(30)

    with anyio.move_on_after(0.05) as scope:
        await run_task(dawdle)
    assert scope.cancelled_caught


async def test_run_task_leaves_the_log_context_as_it_was(app: App) -> None:
    """What a worker binds for the job's time is gone afterwards."""
    inside: dict[str, Any] = {}

    @app.task
    async def look() -> None:
        inside.update(structlog.contextvars.get_contextvars())

    with structlog.contextvars.bound_contextvars(test="mine"):
        await run_task(look)
        assert structlog.contextvars.get_contextvars() == {"test": "mine"}
    assert (inside["task"], inside["test"], inside["attempt"]) == ("look", "mine", 1)


# --- what is around it --------------------------------------------------------------------------


async def test_run_job_provides_what_the_test_gives(app: App) -> None:
    """By type; no provider of the app's is opened, and one that is missing is named."""

    @app.provide
    async def open_pool() -> AsyncIterator[Pool]:
        raise AssertionError("not in a test")
        yield Pool()

    @app.task
    async def use(n: int, pool: Pool = INJECTED) -> tuple[int, Pool]:
        return n, pool

    pool = Pool()
    assert await run_job(app, use.call(1), provide={Pool: pool}) == (1, pool)
    with pytest.raises(TypeError, match=r"asks for Pool by its parameter 'pool'.*provide=\{Pool: \.\.\.\}"):
        await run_task(use, 1)


async def test_run_job_gives_a_process_nothing() -> None:
    """As a worker refuses to."""
    with pytest.raises(TypeError, match="runs in a process of its own"):
        await run_job(process_jobs.app, process_jobs.ask.call(), provide={str: "mine"})


async def test_run_job_goes_through_middleware_when_asked(app: App) -> None:
    """Around the enqueue and around the handling, in order; without being asked, neither."""
    seen: list[str] = []

    @app.around_enqueue
    def mark(call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        yield call.with_headers({"mark": "1"}).with_payload(call.payload[::-1])

    @app.around_handling
    async def read(job: Job, call: echomq.HandlerCall) -> Any:
        seen.append(job.headers["mark"])
        return await call(payload=job.payload[::-1]) + 1

    @app.task(result_ttl=60)
    async def add(a: int, b: int) -> int:
        return a + b

    assert await run_job(app, add.call(1, 2)) == 3
    assert seen == []
    assert await run_job(app, add.call(1, 2), middleware=True) == 4
    assert seen == ["1"]
