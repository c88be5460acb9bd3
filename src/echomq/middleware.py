"""Middleware: functions around what is enqueued, and around what is handled (tracing, context, metrics, encryption).

::

    @app.around_enqueue
    def with_trace(call: echomq.JobCall[Any]) -> Iterator[echomq.JobCall[Any]]:
        yield call.with_headers({"traceparent": current_trace()})


    @app.around_handling
    async def in_trace(job: echomq.Job, call: echomq.HandlerCall) -> Any:
        with trace_of(job.headers.get("traceparent")):
            return await call()

The first one that is registered is the outermost. What is around handling runs in `echomq.worker.around`.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, _GeneratorContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

from echomq._signature import is_async
from echomq.instruments import NO_INSTRUMENTS, JobEnqueued
from echomq.protocol._convert import shown
from echomq.protocol.failures import name_of

if TYPE_CHECKING:
    from echomq.batches import BatchItem
    from echomq.instruments import Instruments
    from echomq.tasks import JobCall

T = TypeVar("T")
EnqueueFunction = TypeVar("EnqueueFunction", bound=Callable[..., Any])
HandlingFunction = TypeVar("HandlingFunction", bound=Callable[..., Any])


class HandlerCall(Protocol):
    """What a function around handling awaits once, to go on: to the next one, and at last to the handler."""

    async def __call__(self, *, payload: bytes | Mapping[BatchItem[Any], bytes] | None = None) -> Any:
        """Run the handler, and answer what it returns.

        Args:
            payload: What takes the place of the job's payload, for all that is further in: it is decoded only then. For a
                batch: a mapping of its items to their payloads; those that are not in it keep theirs. None: as it is.

        Raises:
            RuntimeError: It was called before: an attempt runs its handler once.
            TypeError: The payload is not bytes, or no such mapping.
            DecodeError, ArgumentsError: The arguments cannot be decoded, or do not fit. Let it pass: the job is then
                buried, or put off, as it would have been without a middleware.
            BaseException: What the handler raises, and its cancellation.
        """


@final
class AroundEnqueue:
    """Functions around what an app enqueues: `@app.around_enqueue` adds one.

    It takes the call and yields, once, the call that is to be sent: the same, or one with other headers or another
    payload (`JobCall.with_headers`, `with_payload`). It is a plain generator function, also for asynchronous programs,
    and must not block.

    It runs for each `JobCall` of the app's tasks and stubs, whoever enqueues it: the task, the app, a client, a
    synchronous client. Bytes that are put into a queue by hand pass it by.

    - Around a single enqueue it lasts until the server has answered: what fails is raised at its `yield`. Swallowing it
      does not help, since there is no handle to answer: the caller gets it all the same.
    - Of many (`enqueue_many`, `enqueue_stream`) it is entered and left for each call when its turn comes, before the
      call is sent: they share round trips, and thousands of contexts must not be open at a time.
    - What it raises reaches the caller. Before its `yield`, nothing is sent; of many, an `EchoMQError` is the answer for
      that call alone, and anything else ends them like an error of their source, after the answers of those before it.
      After its `yield`, a single job is queued all the same.
    """

    def __init__(self, instruments: Instruments = NO_INSTRUMENTS) -> None:
        self.instruments: Final = instruments
        """What measures the enqueues."""
        self._measured = bool(instruments)
        self._functions: list[Callable[[JobCall[Any]], AbstractContextManager[JobCall[Any]]]] = []
        for hook in instruments.hooks("around_enqueue"):
            self(hook)

    def __call__(self, function: EnqueueFunction, /) -> EnqueueFunction:
        """Add a function: a generator function, or one that answers a context manager.

        Raises:
            TypeError: It is neither, or cannot be called with one argument. Whether a plain function answers a context
                manager is seen only when it is called.
        """
        given: Any = function
        if (
            not callable(given)
            or is_async(given)
            or inspect.isasyncgenfunction(inspect.unwrap(given))
            or (isinstance(given, type) and not _is_manager(given))
        ):
            raise TypeError(
                f"what is around an enqueue is a plain generator function that yields the call, not {shown(function)}"
            )
        _check_takes(function, 1, "what is around an enqueue is called with the call")
        self._functions.append(contextmanager(function) if inspect.isgeneratorfunction(function) else function)
        return function

    def __bool__(self) -> bool:
        return self._measured or bool(self._functions)

    def __iter__(self) -> Iterator[Callable[[JobCall[Any]], AbstractContextManager[JobCall[Any]]]]:
        """Go over them, the outermost first."""
        return iter(tuple(self._functions))


NOTHING_AROUND: Final = AroundEnqueue()
"""For calls that no app has made."""


def _check_takes(function: Callable[..., Any], count: int, words: str) -> None:
    """Refuse a function that cannot be called with so many arguments; one whose signature nobody knows passes."""
    made = getattr(function, "__wrapped__", None) if _is_of_contextlib(function) else None
    given = function if made is None else made
    try:
        # Not what it wraps: a decorator may add arguments.
        signature = inspect.signature(given, follow_wrapped=False)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise TypeError(f"{words}, and {given!r} takes {signature}: {error}") from None


def _is_of_contextlib(function: Any) -> bool:
    return inspect.isfunction(function) and function.__globals__ is vars(contextlib)


def _is_manager(kind: type) -> bool:
    return hasattr(kind, "__enter__") and hasattr(kind, "__exit__")


@contextmanager
def _named(function: Callable[..., Any], manager: Any) -> Iterator[Any]:
    """Be a middleware's context manager, whose misuse is told with the name of the function that made it."""
    generator = getattr(manager, "gen", None) if isinstance(manager, _GeneratorContextManager) else None
    if not _is_manager(type(manager)) or (generator is not None and not isinstance(generator, Iterator)):
        raise TypeError(
            f"{function!r} is to be a generator function that yields the call, or to answer a context manager, not "
            f"{shown(manager if generator is None else generator)}"
        )
    try:
        with manager as made:
            yield made
    except RuntimeError as error:
        if generator is None or not _is_contextlibs_own(error):
            raise
        before = error.__context__
        times = "never yields" if isinstance(before, StopIteration) else "goes on to yield again"
        raise RuntimeError(f"{function!r} is to yield the call once, and it {times}") from (
            None if isinstance(before, StopIteration) else before
        )


def _is_contextlibs_own(error: RuntimeError) -> bool:
    """Tell contextlib's word on a generator that yields never or twice from what a generator raises."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_globals is vars(contextlib) and error.__cause__ is None


def _same_kind(function: Callable[..., Any], made: Any, call: JobCall[T]) -> JobCall[T]:
    if type(made) is not type(call):
        raise TypeError(f"{function!r} is to yield the call that is sent, a JobCall, not {shown(made)}")
    return made


@contextmanager
def outgoing(call: JobCall[T], *, alone: bool = True, counted: bool = True) -> Iterator[JobCall[T]]:
    """Take a call through what is around its app's enqueues: the value is what is to be sent, within the block.

    Args:
        call: The call.
        alone: Whether the block lasts until the server has answered. If not, only what is raised is counted here, and
            an answer by `measured`.
        counted: Whether a job is made of it now.

    Raises:
        TypeError: A middleware yields something else than a call, or answers no context manager.
        RuntimeError: A middleware's generator does not yield once.
        BaseException: What a middleware raises; and what the block raises, whatever a middleware makes of it.
    """
    around, began = call.around, time.monotonic()
    failed: BaseException | None = None
    try:
        with ExitStack() as stack:
            for function in around:
                made = stack.enter_context(_named(function, function(call)))
                call = _same_kind(function, made, call)
            try:
                yield call
            except BaseException as error:
                failed = error
                raise
    except BaseException as error:
        failed = error
        raise
    else:
        if failed is not None:
            raise failed  # a middleware has swallowed it
    finally:
        if counted and (alone or failed is not None):
            measured(call, failed, time.monotonic() - began if alone else None)


def measured(call: JobCall[Any], answer: object, seconds: float | None = None) -> None:
    """Count an enqueue: its answer is an error, or whatever else.

    Args:
        call: The call.
        answer: What its caller gets.
        seconds: How long it took; None: it was one of many.
    """
    if call.around.instruments:
        error_type = name_of(type(answer)) if isinstance(answer, BaseException) else ""
        call.around.instruments.record(JobEnqueued(call.queue, call.task, seconds, error_type))


def passed(call: JobCall[T], *, counted: bool = True) -> JobCall[T]:
    """Answer the call to be sent, when it is one of many or is kept for later: the middleware is left before that.

    What a middleware raises is counted; that it was sent is not, before `measured` says what it came to.

    Args:
        call: The call.
        counted: Whether a job is made of it now; not of what a schedule repeats.
    """
    if not call.around:
        return call
    with outgoing(call, alone=False, counted=counted) as made:
        return made


@final
class AroundHandling:
    """Functions around what an app's workers run: `@app.around_handling` adds one.

    It is a coroutine function `(job, call)`, runs in the worker's event loop within the job's lease, timeout and cancel
    scope, and awaits `call()` for what is further in. `job` is a `Job`, for plain functions too; for a task of batches it
    is the `JobBatch`, once a batch. What the outermost one returns is the job's result, and what it raises is how the
    attempt ends: so one that swallows an error completes the job, one that raises `Retry`, `Snooze`, `RateLimited` or
    `Discard` has said so for the handler, and one that never calls completes the job without having run it. A
    cancellation passes through it like any other.
    """

    def __init__(self, instruments: Instruments = NO_INSTRUMENTS) -> None:
        self._functions: list[Callable[..., Any]] = []
        for hook in instruments.hooks("around_handling"):
            self(hook)

    def __call__(self, function: HandlingFunction, /) -> HandlingFunction:
        """Add a function.

        Raises:
            TypeError: It is no coroutine function, or cannot be called with two arguments.
        """
        given: Any = function
        if not callable(given) or not is_async(given):
            raise TypeError(f"what is around handling is a coroutine function (job, call), not {shown(function)}")
        _check_takes(function, 2, "what is around handling is called with (job, call)")
        self._functions.append(function)
        return function

    def __bool__(self) -> bool:
        return bool(self._functions)

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        """Go over them, the outermost first."""
        return iter(tuple(self._functions))
