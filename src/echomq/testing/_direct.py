"""`run_task` and `run_job`: one attempt of a job, without a server.

Theory of operation
    The arguments are encoded as an enqueue encodes them, and become a row. A lease on that row, whose calls lead to
    `StandIn`, goes through `echomq.worker.execute` and `echomq.worker.settle` as it does in a worker. So what a handler
    may do, how its arguments and its job come to it, and what its end means is decided there and nowhere else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast, final

import anyio
import attrs
import orjson
import structlog

from echomq.app import App
from echomq.middleware import passed
from echomq.protocol._convert import shown, type_name
from echomq.protocol.failures import unfold
from echomq.protocol.ids import mint
from echomq.protocol.records import Claimed, JobRecord
from echomq.protocol.times import to_seconds
from echomq.protocol.words import unpack_words
from echomq.resources import Providers
from echomq.tasks import JobCall, Task, decode_arguments
from echomq.testing._stand_in import FollowUp, StandIn, children_of
from echomq.verdicts import HandlerVerdict
from echomq.worker.execute import Means, execute
from echomq.worker.lease import Lease
from echomq.worker.options import WorkerOptions
from echomq.worker.processes import Processes
from echomq.worker.reasons import Poison, Raised, Returned, Unfit
from echomq.worker.settle import Settler
from echomq.worker.statistics import Counters
from echomq.worker.timers import Timers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from echomq.worker.reasons import Outcome

P = ParamSpec("P")
R = TypeVar("R")


@final
@attrs.define
class Noted:
    """What a job that was run by `run_job` has noted, and how its attempt ended. Make an empty one and hand it over."""

    progress: dict[str, Any] | None = None
    """The last progress note, `{"done": ..., "total": ..., "message": ...}`."""
    checkpoints: list[tuple[int, Any]] = attrs.field(factory=list)
    """The checkpoints, each its step and its state, as the next attempt would read it."""
    logs: list[str] = attrs.field(factory=list)
    """The lines of its log."""
    follow_ups: list[FollowUp] = attrs.field(factory=list)
    """The jobs that its completion would enqueue; none if it has not completed."""
    verdict: str = ""
    """How the attempt ended: `completed`; `failed`, and there is another attempt; `dead`; `snoozed`; `rate_limited`;
    `discarded`."""
    delay: float | None = None
    """Seconds until the next attempt, if there is one; for `rate_limited`, how long nothing starts."""


async def run_task(task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Run a task's function once, as a worker would, without a server.

    As in `await run_task(thumbnail, path, size=64)`. Arguments and result go through the codec, so that what could not be enqueued fails here, too. See `run_job`, which
    says more about the job.

    Raises:
        TypeError: The arguments do not fit the signature, the task is one of batches, or it asks for what nobody provides.
        EncodeError: The arguments or the result cannot be written without losing something.
        BaseException: What the handler raises; what it says by `Retry`, `Snooze`, `RateLimited` or `Discard`, too.
        TimeoutError: It took longer than the task's `timeout`.

    **Cancellation**: passes to the handler, as in any function.
    """
    if not isinstance(task, Task):
        raise TypeError(
            f"a task is run, as in run_task(report, 7), or its call by run_job(app, call), not {shown(task)}"
        )
    return await _run(task, task.call(*args, **kwargs), _Given())


async def run_job(
    app: App,
    call: JobCall[R],
    *,
    attempt: int = 1,
    failures: int | None = None,
    checkpoint: Any = None,
    step: int | None = None,
    children: Mapping[str, Any] | None = None,
    provide: Mapping[Any, Any] | None = None,
    middleware: bool = False,
    noted: Noted | None = None,
) -> R:
    """Run one attempt of a job as a worker would, without a server, and answer its result.

    As in `await run_job(app, thumbnail.options(lane="acme").call(path), attempt=2, checkpoint={"done": 3}, noted=noted)`.
    Nothing is enqueued, claimed or tried again. Of what the handler may do with its job, all works but `job.nursery()`:
    a job that waits for children which it spawns itself needs a queue (see `drain`).

    Args:
        app: The app, which need not be open.
        call: The job: a task's call, with options or without.
        attempt: Which attempt it is, from 1: `job.attempt`, `job.token`.
        failures: How often it has failed before; None: once for each attempt before this one.
        checkpoint: What an earlier attempt has kept; None: nothing.
        step: That checkpoint's step; None: 0.
        children: The children of a parent in a flow, by name: what each has returned; or an exception, for one that has
            failed and whose failure was to be ignored.
        provide: What the handler's parameters get whose default is `INJECTED`, by type. No provider is opened.
        middleware: Whether what is around the app's enqueues and its handling is run, too.
        noted: Is filled with what the handler notes, however it ends.

    Returns:
        What the handler returns. If the job keeps its result: what `handle.result()` would answer, decoded again.

    Raises:
        LookupError: The app has no such task.
        TypeError, ValueError: An argument does not fit, the task is one of batches, or asks for what is not in `provide`.
        EncodeError: The result, or a checkpoint, cannot be written without losing something.
        BaseException: What the handler or a middleware raises; what it says by `Retry`, `Snooze`, `RateLimited` or
            `Discard`, too.
        TimeoutError: It took longer than its `timeout`, or than its `deadline`.

    **Cancellation**: passes to the handler, as in any function.
    """
    if not isinstance(app, App):
        raise TypeError(f"a job is run for an app, not for {shown(app)}")
    if not isinstance(call, JobCall):
        raise TypeError(f"a job is a task's call, such as report.call(), not {shown(call)}")
    task = app.get_task(call.task)
    if task is None:
        raise LookupError(f"the app has no task {call.task!r}; it has {', '.join(app.tasks) or 'none'}")
    given = _Given(
        attempt=attempt, failures=failures, checkpoint=checkpoint, step=step, children=children,
        provide={} if provide is None else provide, middleware=app if middleware else None,
        noted=Noted() if noted is None else noted,
    )  # fmt: skip
    return cast("R", await _run(task, call, given))


def _count(least: int) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[int], value: Any) -> None:
        if type(value) is not int or value < least:
            raise ValueError(f"{attribute.name} is an int of at least {least}, not {shown(value)}")

    return check


def _kind(kind: type, what: str) -> Any:
    def check(_instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{attribute.name} is {what}, not {shown(value)}")

    return check


@attrs.frozen(kw_only=True)
class _Given:
    """What a test says of the job beside its call."""

    attempt: int = attrs.field(default=1, validator=_count(1))
    failures: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count(0)))
    checkpoint: Any = None
    step: int | None = attrs.field(default=None, validator=attrs.validators.optional(_count(0)))
    children: Mapping[str, Any] | None = attrs.field(
        default=None, validator=attrs.validators.optional(_kind(Mapping, "a mapping of names to results"))
    )
    provide: Mapping[Any, Any] = attrs.field(factory=dict, validator=_kind(Mapping, "a mapping of types to values"))
    middleware: App | None = None
    noted: Noted = attrs.field(factory=Noted, validator=_kind(Noted, "a Noted"))


async def _run(task: Task[..., R], call: JobCall[Any], given: _Given) -> R:
    _check(task, given)
    if given.middleware is not None:
        call = passed(call)
    calls = StandIn(call.queue, _step(given), children_of(given.children or {}, task.codec))
    lease = _lease(task, call, given, calls)
    options, timers = WorkerOptions(), Timers()
    errors: list[BaseException] = []
    settler = Settler(
        options, timers, Counters(), on_settled=lambda: None, on_failure=lambda _, error: errors.append(error)
    )
    async with AsyncExitStack() as stack:
        processes = Processes(1, cleanup=options.cleanup, result_limit=options.result_limit)
        if task.run_in == "process":
            await stack.enter_async_context(processes)
        means = Means(
            codec=task.codec, timers=timers, processes=processes, threads=anyio.CapacityLimiter(1),
            around=() if given.middleware is None else given.middleware.around_handling, resources=given.provide,
        )  # fmt: skip
        try:
            with _log_context():
                outcome = await execute(lease, task.name, task, means)
                settler.settle(lease, outcome, task)
        finally:
            _note(given.noted, lease, calls, task)
    return cast("R", _answer(task, outcome, errors, calls))


def _check(task: Task[..., Any], given: _Given) -> None:
    """Refuse what cannot be run here."""
    task.check()
    if task.batch is not None:
        raise TypeError(f"task {task.name!r} takes its jobs in batches: run it through a queue, by drain(app)")
    for parameter, type in task.injected.items():
        if type not in given.provide:
            raise TypeError(
                f"task {task.name!r} asks for {type_name(type)} by its parameter {parameter!r}: give it, as in "
                f"run_job(app, call, provide={{{type_name(type)}: ...}})"
            )
    Providers().with_values(given.provide).plan((task,))


def _step(given: _Given) -> int | None:
    return given.step if given.checkpoint is None or given.step is not None else 0


def _lease(task: Task[..., Any], call: JobCall[Any], given: _Given, calls: StandIn) -> Lease:
    """Make the job's row, as enqueue and claim would, and a lease on it that does not end."""
    now_ms = round(time.time() * 1000)
    job = call.options.model(call.task, call.payload)
    flat = [*job.fields(), "state", "active", "since", now_ms, "attempts", given.attempt]
    if job.lane:
        flat += ["lane", job.lane]
    if job.deadline is not None:
        flat += ["deadline_ms", now_ms + int(job.deadline[1:]) if job.deadline.startswith("+") else job.deadline]
    failures = given.attempt - 1 if given.failures is None else given.failures
    if failures:
        flat += ["failures", failures]
    if given.checkpoint is not None:
        flat += ["checkpoint", task.codec.encode(given.checkpoint), "step", _step(given) or 0]
    if given.children is not None:
        flat += ["children", "1"]
    words = [word if isinstance(word, bytes) else str(word).encode() for word in flat]
    record = JobRecord(job.id, dict(zip(words[::2], words[1::2], strict=True)))
    claimed = Claimed(job.id, given.attempt, mint(), record)
    return Lease(cast("Any", calls), claimed, now_ms=now_ms, sent_at=anyio.current_time(), deadline=math.inf)


@contextmanager
def _log_context() -> Iterator[None]:
    """Put back what loggers know of the context: a worker's task ends with its job, and this one does not."""
    before = structlog.contextvars.get_contextvars()
    try:
        yield
    finally:
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(**before)


def _note(noted: Noted, lease: Lease, calls: StandIn, task: Task[..., Any]) -> None:
    """Tell what was said."""
    items = calls.items
    if items["progress"]:
        noted.progress = orjson.loads(items["progress"][-1].data)
    noted.checkpoints += [(each.step, task.codec.decode(each.state, Any)) for each in items["checkpoint"]]
    noted.logs += [each.line.decode() for each in items["log"]]
    for each in items["complete"]:
        noted.verdict = "completed"
        noted.follow_ups += _follow_ups(each.follow, lease.calls.queue, task)
    for each in items["fail"]:
        again = lease.claimed.record.failures + 1 < each.max_attempts
        noted.verdict, noted.delay = ("failed", to_seconds(each.delay_ms)) if again else ("dead", None)
    for each in items["snooze"]:
        noted.verdict, noted.delay = "snoozed", to_seconds(each.delay_ms)
    for each in items["rate_limited"]:
        noted.verdict, noted.delay = "rate_limited", to_seconds(each.after_ms)
    for each in items["end"]:
        noted.verdict = each.kind


def _answer(task: Task[..., Any], outcome: Outcome, errors: list[BaseException], calls: StandIn) -> Any:
    """Answer the result, or raise why there is none."""
    if isinstance(outcome, (Raised, Poison, Unfit)):
        leaf = unfold(outcome.error)
        raise leaf if isinstance(leaf, HandlerVerdict) else outcome.error
    if errors:  # it was stopped by its timeout, or its result cannot be written
        raise errors[0]
    assert isinstance(outcome, Returned)  # noqa: S101 - else its verdict was a failure
    (completion,) = calls.items["complete"]
    return task.load_result(completion.result) if completion.result else outcome.value


def _follow_ups(packed: bytes, queue: str, task: Task[..., Any]) -> Iterator[FollowUp]:
    """Read the follow-ups as the script that completes the job would."""
    words = iter(unpack_words(packed))
    for _parent, _name, _policy, _kids, elsewhere, _id in zip(*[words] * 6, strict=False):
        if elsewhere:
            yield from _follow_ups(next(words), elsewhere.decode(), task)
            continue
        *_, fields = (next(words) for _ in range(7))  # the last of them says how many fields there are
        row = {next(words): next(words) for _ in range(int(fields))}
        record = JobRecord("", row)
        yield _follow_up(queue, record.task, record.payload, task)


def _follow_up(queue: str, name: str, payload: bytes, task: Task[..., Any]) -> FollowUp:
    app = task._sender  # noqa: SLF001
    known = app.get_task(name) if isinstance(app, App) else None
    args, kwargs = decode_arguments(task.codec, payload) if known is None else known.load_arguments(payload)
    return FollowUp(queue, name, tuple(args), kwargs)
