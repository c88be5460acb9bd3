"""Run one handler inside its lease, and say how it ended."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import anyio
import anyio.to_thread
import structlog

from echomq.errors import DecodeError, EncodeError, LeaseLostError
from echomq.job import Job, SyncJob
from echomq.protocol._convert import shown
from echomq.protocol.codec import Codec
from echomq.protocol.failures import holds, name_of
from echomq.protocol.times import to_seconds
from echomq.transitions import Checkpoint, LogLine, Progress
from echomq.worker.reasons import Outcome, Poison, Raised, Reason, Returned, Stopped, Unfit

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from echomq.backoff import Backoff
    from echomq.batches import Batch
    from echomq.worker.lease import Lease

MAX_NOTE: Final = 1 << 20
"""Bytes of a progress note or a checkpoint, as for payloads: each claim of the job reads them."""


MAX_LINE: Final = 64 << 10
"""Bytes of a log's line, and of the whole log."""
MAX_STEP: Final = 10**14 - 1
"""The largest step: scripts write integers above 10^14 without their last digits (Protocol, section 4, rule 3)."""


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
        """Whether it is a coroutine function; a plain one runs in a thread."""

    @property
    def job_parameter(self) -> str | None:
        """The parameter that gets the job; None when there is none."""

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

    def inject(self, job: Job | SyncJob, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Add the job to the arguments, if the handler asks for it."""

    def dump_result(self, value: Any) -> bytes:
        """Encode what the handler returned."""


def check_step(step: Any) -> int:
    """Answer the step if it may be one: packing a huge one would end the process.

    Raises:
        TypeError: Not an int itself: a bool, or a number of another class.
        ValueError: Below 0, or above 99,999,999,999,999: beyond it a script loses digits.
    """
    if type(step) is not int:
        msg = f"a step is an int, not {shown(step)} of type {name_of(type(step))}"
        raise TypeError(msg)
    if not 0 <= step <= MAX_STEP:
        msg = f"a step lies in 0..{MAX_STEP}, not {shown(step)}"
        raise ValueError(msg)
    return step


def cut_line(line: Any) -> bytes:
    """Encode a log's line; of one that is longer than a log, the beginning, and how much was cut.

    Raises:
        TypeError: Not text.
    """
    if not isinstance(line, str):
        msg = f"a log's line is text, not {shown(line)}"
        raise TypeError(msg)
    data = str.encode(line, "utf-8", "replace")
    if len(data) <= MAX_LINE:
        return data
    room = MAX_LINE - len(f" ... {len(data)} bytes cut")
    head = data[:room].decode("utf-8", "ignore").encode()
    return head + f" ... {len(data) - len(head)} bytes cut".encode()


@final
class LeaseNotes:
    """What a job's methods do: fenced notes, sent under the lease."""

    __slots__ = ("_clock", "_codec", "_lease")

    def __init__(self, lease: Lease, codec: Codec) -> None:
        self._lease = lease
        self._codec = codec
        # A thread cannot read the event loop's clock; both run alike.
        self._clock = anyio.current_time() - time.monotonic()

    @property
    def reason(self) -> str | None:
        """Why the handler is being stopped."""
        reason = self._lease.cause(time.monotonic() + self._clock)
        return None if reason is None else reason.value

    async def _send(self, group: Any, item: Any) -> None:
        verdict = await group(item)
        error = verdict.error(id=item.id, token=item.token, queue=self._lease.calls.queue)
        if isinstance(error, LeaseLostError):
            # The same word as a renewal's. The handler need not wait for that to hear it.
            self._lease.stop(Reason.LEASE_LOST, verdict.code)
        if error is not None:
            raise error

    def _encode(self, what: str, value: Any) -> bytes:
        data = self._codec.encode(value)
        if type(data) is not bytes:
            msg = f"the codec made {name_of(type(data))} of it, not bytes"
            raise EncodeError(msg, what)
        if len(data) > MAX_NOTE:
            msg = f"it has {len(data)} bytes, the limit is {MAX_NOTE}"
            raise EncodeError(msg, what)
        return data

    async def progress(self, value: Any) -> None:
        """Send a progress note."""
        c = self._lease.claimed
        await self._send(self._lease.calls.progress, Progress(c.id, c.token, c.nonce, self._encode("progress", value)))

    async def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""
        c = self._lease.claimed
        at = (c.record.step or 0) if step is None else check_step(step)
        data = self._encode("checkpoint", state)
        await self._send(self._lease.calls.checkpoint, Checkpoint(c.id, c.token, c.nonce, at, data))

    async def log(self, line: str) -> None:
        """Send a log line."""
        c = self._lease.claimed
        data = cut_line(line)
        await self._send(self._lease.calls.log, LogLine(c.id, c.token, c.nonce, data))

    def load_checkpoint(self) -> Any:
        """Decode the state that the last attempt kept."""
        data = self._lease.claimed.record.checkpoint
        return None if data is None else self._codec.decode(data, Any)


def effective_timeout(handler: Handler, lease: Lease) -> float | None:
    """Tell how long this attempt may run, seconds: the job's own word, else the task's, else no limit."""
    own = lease.claimed.record.timeout_ms
    return handler.timeout if own is None else to_seconds(own)


def is_foreign(error: BaseException) -> bool:
    """Tell Ctrl-C and a cancellation from what handlers raise. All else, also SystemExit, ends nothing but its job."""
    return holds(error, KeyboardInterrupt) or issubclass(type(error), anyio.get_cancelled_exc_class())


async def execute(
    lease: Lease, name: str, handler: Handler | None, codec: Codec, *, threads: anyio.CapacityLimiter
) -> Outcome:
    """Run the handler of a claimed job, by its task's name, until it has ended; None: there is none of that name.

    Raises:
        KeyboardInterrupt: Ctrl-C, or a group that holds it.
        BaseException: A cancellation of the lease's own task; anything else is for `run` to make a failure of the job.

    **Cancellation**: the lease's scope cancels the handler; this function itself runs shielded and ends only after the
    handler has. A thread cannot be interrupted: its lease is renewed until it returns.
    """
    claimed = lease.claimed
    if handler is None:
        return Unfit(LookupError(f"unknown task {name!r} on queue {lease.calls.queue!r}"))
    loaded = load(lease, handler)
    if isinstance(loaded, (Poison, Unfit)):
        return loaded
    args, kwargs, timeout = loaded
    if handler.job_parameter is not None:
        notes = LeaseNotes(lease, codec)
        kind = Job if handler.is_async else SyncJob
        job = kind(lease.calls.queue, claimed.id, claimed.token, claimed.record, notes)
        args, kwargs = handler.inject(job, args, kwargs)
    structlog.contextvars.bind_contextvars(queue=lease.calls.queue, job=claimed.id, task=name, attempt=claimed.token)
    lease.limit(timeout)
    outcome = await run_scoped(lease.scope, partial(_call, lease, handler, args, kwargs, threads))
    return Stopped(lease.why()) if outcome is None else outcome


def load(lease: Lease, handler: Handler) -> tuple[list[Any], dict[str, Any], float | None] | Poison | Unfit:
    """Answer a job's arguments and how long it may run, seconds; or why it cannot be run.

    Raises:
        KeyboardInterrupt: Ctrl-C.
    """
    try:
        args, kwargs = handler.load_arguments(lease.claimed.record.payload)
        return args, kwargs, effective_timeout(handler, lease)
    except DecodeError as error:
        return Poison(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a signature, a codec or a structure hook of the user's
        return Unfit(error)  # also a CancelledError: nothing was awaited, so nobody has cancelled


async def run_scoped(
    scope: anyio.CancelScope, call: Callable[[], Awaitable[Returned | Raised | Unfit]]
) -> Returned | Raised | Unfit | None:
    """Run a handler's code in a cancel scope of its own, until it has ended; None: it was stopped.

    Args:
        scope: The scope, not entered yet.
        call: Calls the code; whatever that raises is answered, a cancellation too.

    Raises:
        BaseException: A cancellation from outside the scope, or Ctrl-C. Or what leaving the scope raised.
    """
    outcome: Returned | Raised | Unfit | None = None
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
    lease: Lease, handler: Handler, args: list[Any], kwargs: dict[str, Any], threads: anyio.CapacityLimiter
) -> Returned | Raised | Unfit:
    """Call the handler; whatever it raises is answered, a cancellation too."""
    try:
        if not handler.is_async:
            work = partial(_call_in_thread, lease, handler.function, args, kwargs)
            return await anyio.to_thread.run_sync(work, limiter=threads)
        lease.coroutine = handler.function(*args, **kwargs)
        return Returned(await lease.coroutine)
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
