"""Run one handler inside its lease, and say how it ended."""

from __future__ import annotations

import math
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import anyio
import anyio.to_thread
import attrs
import structlog

from echomq._signature import NOTHING
from echomq.errors import DecodeError
from echomq.job import Job, SyncJob
from echomq.protocol.failures import holds
from echomq.protocol.times import to_seconds
from echomq.worker.around import Around, Handled
from echomq.worker.frames import JobFacts
from echomq.worker.notes import LeaseNotes, ThreadNotes
from echomq.worker.reasons import Outcome, Poison, Raised, Reason, Returned, Stopped, Unfit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from echomq.backoff import Backoff
    from echomq.batches import Batch
    from echomq.protocol.codec import Codec
    from echomq.protocol.records import JobRecord
    from echomq.tasks import Place
    from echomq.worker.lease import Lease
    from echomq.worker.processes import Processes
    from echomq.worker.timers import Timers

T = TypeVar("T")


class Handler(Protocol):
    """What the worker needs to know of a task."""

    @property
    def name(self) -> str:
        """The task's name."""

    @property
    def function(self) -> Callable[..., Any]:
        """The function to call."""

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function; a plain one runs in a thread, or as `run_in` says."""

    @property
    def run_in(self) -> Place | None:
        """Where a plain function runs; None: in a thread."""

    @property
    def job_parameter(self) -> str | None:
        """The parameter that gets the job; None when there is none."""

    @property
    def injected(self) -> Mapping[str, Any]:
        """The types of the parameters that get what the worker has opened."""

    @property
    def max_attempts(self) -> int:
        """How many failures bury a job that has no word of its own."""

    @property
    def timeout(self) -> float | None:
        """Seconds an attempt may run, if the job has no word of its own."""

    @property
    def backoff(self) -> Backoff:
        """How long a failed job waits."""

    @property
    def batch(self) -> Batch | None:
        """How its jobs are gathered; None: each is run by itself."""

    def load_arguments(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Decode the arguments.

        Raises:
            DecodeError: The bytes are not the codec's: nothing but burying helps.
            Exception: They do not fit this handler; another version of it may take them.
        """

    def inject(
        self, job: Any, args: list[Any], kwargs: dict[str, Any], resources: Mapping[Any, Any], /
    ) -> tuple[list[Any], dict[str, Any]]:
        """Add the job and resources to the arguments, as the handler asks for them."""

    def dump_result(self, value: Any) -> bytes:
        """Encode what the handler returned."""


def effective_timeout(handler: Handler, lease: Lease) -> float | None:
    """Tell how long this attempt may run, seconds: the job's own word, else the task's, else no limit."""
    own = lease.claimed.record.timeout_ms
    return handler.timeout if own is None else to_seconds(own)


def is_foreign(error: BaseException) -> bool:
    """Tell Ctrl-C and a cancellation from what handlers raise. All else, also SystemExit, ends nothing but its job."""
    return holds(error, KeyboardInterrupt) or issubclass(type(error), anyio.get_cancelled_exc_class())


_UNLIMITED: Final = math.inf


@final
@attrs.frozen(kw_only=True)
class Means:
    """What a worker runs handlers with."""

    codec: Codec
    """Encodes what they note."""
    timers: Timers
    """The worker's clock."""
    processes: Processes
    """Where some of the plain functions run."""
    threads: anyio.CapacityLimiter
    """Admits plain functions to threads."""
    unlimited: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(_UNLIMITED))
    """Admits those that have been admitted: a thread is asked for when its slot is had."""
    around: Iterable[Callable[..., Awaitable[Any]]] = ()
    """The middleware, the outermost first; looked at again for each job."""
    resources: Mapping[Any, Any] = NOTHING
    """What is open for handlers, by type."""


async def execute(lease: Lease, name: str, handler: Handler | None, means: Means) -> Outcome:
    """Run the handler of a claimed job, by its task's name, until it has ended; None: there is none of that name.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a group that holds it.
        BaseException: A cancellation of the lease's own task; anything else is for `run` to make a failure of the job.

    **Cancellation**: the lease's scope cancels the handler; this function itself runs shielded and ends only after the
    handler has. A thread cannot be interrupted: its lease is renewed until it returns. A process is killed when
    `cleanup` is over.
    """
    claimed = lease.claimed
    if handler is None:
        return Unfit(LookupError(f"unknown task {name!r} on queue {lease.calls.queue!r}"))
    run: Callable[[], Awaitable[Handled]]
    if means.around:
        timeout = admit(lease, handler)
        if isinstance(timeout, (Poison, Unfit, Stopped)):
            return timeout
        if handler.is_async:
            lease.limit(timeout)  # else when its thread or process is had
        lease.notes = LeaseNotes(lease, means.codec, means.timers)
        job = Job(lease.calls.queue, claimed.id, claimed.token, claimed.record, lease.notes)
        call = partial(_load_and_call, lease, handler, job, timeout, means)
        run = Around(tuple(means.around), job, call, (lease,)).run
    else:
        loaded = load(lease, handler)
        if isinstance(loaded, (Poison, Unfit, Stopped)):
            return loaded
        args, kwargs, timeout = loaded
        if handler.job_parameter is not None or handler.injected:
            _inject(lease, handler, claimed.record, args, kwargs, means)
        run = partial(_call, lease, handler, args, kwargs, timeout, means)
    structlog.contextvars.bind_contextvars(queue=lease.calls.queue, job=claimed.id, task=name, attempt=claimed.token)
    outcome = await run_scoped(lease.scope, run)
    return Stopped(lease.why()) if outcome is None else outcome


def _inject(
    lease: Lease, handler: Handler, record: JobRecord, args: list[Any], kwargs: dict[str, Any], means: Means
) -> None:
    """Add to the arguments what the handler asks for: the job, by its row, and resources."""
    if lease.notes is None:
        lease.notes = LeaseNotes(lease, means.codec, means.timers)
    facts = (lease.calls.queue, lease.claimed.id, lease.claimed.token, record)
    job: Job | SyncJob | JobFacts
    if handler.is_async:
        job = Job(*facts, lease.notes)
    elif handler.run_in == "process":
        job = JobFacts(*facts)
    else:
        job = SyncJob(*facts, ThreadNotes(lease.notes))
    handler.inject(job, args, kwargs, means.resources)


async def _load_and_call(lease: Lease, handler: Handler, job: Job, timeout: float | None, means: Means) -> Handled:
    """Call the handler as `_call`, with the arguments that the job has when the middleware has seen it."""
    loaded = attempt(lambda: handler.load_arguments(job.payload))
    if isinstance(loaded, (Poison, Unfit)):
        return loaded
    _inject(lease, handler, job.record, *loaded, means)
    return await _call(lease, handler, *loaded, timeout, means)


def load(lease: Lease, handler: Handler) -> tuple[list[Any], dict[str, Any], float | None] | Poison | Unfit | Stopped:
    """Answer a job's arguments and how long it may run, seconds; or why it cannot be run. Its deadline counts from here.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    timeout = admit(lease, handler)
    if isinstance(timeout, (Poison, Unfit, Stopped)):
        return timeout
    loaded = attempt(lambda: handler.load_arguments(lease.claimed.record.payload))
    return loaded if isinstance(loaded, (Poison, Unfit)) else (*loaded, timeout)


def admit(lease: Lease, handler: Handler) -> float | Poison | Unfit | Stopped | None:
    """Answer how long a job may run, seconds; or why it cannot be run. Its deadline counts from here.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    late = attempt(partial(_is_late, lease))
    if isinstance(late, (Poison, Unfit)):
        return late
    if late:
        lease.stop(Reason.TIMEOUT)
        return Stopped(lease.why())
    return attempt(partial(effective_timeout, handler, lease))


def _is_late(lease: Lease) -> bool:
    record = lease.claimed.record
    return b"deadline_ms" in record.row and record.deadline_ms is not None and lease.end_by(record.deadline_ms)


def attempt(look: Callable[[], T]) -> T | Poison | Unfit:
    """Look at something of a job; answer why it cannot be run, if that fails.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    try:
        return look()
    except DecodeError as error:
        return Poison(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a signature, a codec or a structure hook of the user's
        return Unfit(error)  # also a CancelledError: nothing was awaited, so nobody has cancelled


async def run_scoped(scope: anyio.CancelScope, call: Callable[[], Awaitable[Handled]]) -> Handled | None:
    """Run a handler's code in a cancel scope of its own, until it has ended; None: it was stopped.

    Args:
        scope: The scope, not entered yet.
        call: Calls the code; whatever that raises is answered, a cancellation too.

    Raises:
        BaseException: A cancellation from outside the scope, or Ctrl-C. Or what leaving the scope raised.
    """
    outcome: Handled | None = None
    with scope:
        # What it raises is kept from the scope, which would look for cancellations in it, however deep it is.
        outcome = await call()
        left = close_left_scopes(scope)
        if isinstance(outcome, Raised):
            if is_foreign(outcome.error):
                raise outcome.error
        elif left:
            outcome = Raised(RuntimeError("the handler has left a cancel scope or a task group open"))
        else:
            return outcome
    # What it raised while it was being stopped is noise of its cleanup; what was asked of it counts.
    return None if scope.cancel_called else outcome


async def _call(
    lease: Lease, handler: Handler, args: list[Any], kwargs: dict[str, Any], timeout: float | None, means: Means
) -> Returned | Raised | Unfit:
    """Call the handler; whatever it raises is answered, a cancellation too."""
    try:
        if handler.is_async:
            lease.limit(timeout)
            lease.coroutine = handler.function(*args, **kwargs)
            return Returned(await lease.coroutine)
        if handler.run_in == "process":
            return await means.processes.run(lease, handler.function, args, kwargs, timeout)
        work = partial(_call_in_thread, lease, handler.function, args, kwargs)
        async with means.threads:
            lease.limit(timeout)
            return await anyio.to_thread.run_sync(work, limiter=means.unlimited)
    except BaseException as error:  # noqa: BLE001 - `execute` raises what is not the handler's
        if not handler.is_async and lease.thread is None and type(error) is RuntimeError:
            return Unfit(error)  # no thread to be had: not the job's fault, and another worker may have one
        return Raised(error)


def _call_in_thread(
    lease: Lease, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> Returned | Raised:
    lease.thread = threading.get_ident()
    try:
        return Returned(function(*args, **kwargs))
    except BaseException as error:  # noqa: BLE001 - a future would choke on some: GeneratorExit, CancelledError
        return Raised(error)


def close_left_scopes(scope: Any) -> bool:
    """Close the scopes that a handler has entered and not left; answer whether there were any.

    On asyncio they would make every scope around them fail to close, up to the worker's own. Trio has no such attribute
    and does this itself: the lease's scope raises, and the job has failed.
    """
    left = [each for each in getattr(scope, "_child_scopes", ()) if each._host_task is scope._host_task]  # noqa: SLF001
    for each in left:
        close_left_scopes(each)
        each.__exit__(None, None, None)
    return bool(left)
