"""Tasks: functions that workers run and producers enqueue by their typed arguments.

A task is a value. The decorator `App.task` makes it, and nothing happens until its `enqueue` is awaited within
`async with app:` or a worker runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast, final

import attrs

from echomq._options import EnqueueOptions, JobOptions
from echomq._signature import NOTHING, Signature, check_findable, is_async
from echomq.backoff import DEFAULT_BACKOFF, Backoff
from echomq.batches import Batch
from echomq.errors import ArgumentsError, DecodeError, EncodeError
from echomq.middleware import NOTHING_AROUND, AroundEnqueue
from echomq.protocol._convert import sized
from echomq.protocol.codec import Codec, JsonCodec
from echomq.protocol.keys import check_queue_name, check_task_name
from echomq.protocol.newjob import MAX_COUNT
from echomq.protocol.times import to_ms, to_seconds
from echomq.redaction import NOTHING_HIDDEN, UNSAID, Redaction
from echomq.results import JobHandle

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Place = Literal["thread", "process"]
"""Where a plain function may run."""

DEFAULT_CODEC: Final = JsonCodec()
"""What encodes arguments and results unless an app or client is given another."""
PLACES: Final = ("thread", "process")
_PARTS: Final = frozenset({"args", "kwargs"})


@final
@attrs.frozen
class JobCall(Generic[R_co]):
    """A job not yet enqueued: a task and encoded arguments. Enqueueing it twice makes two jobs."""

    queue: str
    """Where it goes."""
    task: str
    """The task's name; "" for a queue with one handler."""
    payload: bytes = attrs.field(repr=sized)
    """The arguments, encoded."""
    options: JobOptions = attrs.field(repr=False)
    """When, how often, and so on."""
    read: Callable[[bytes], R_co] = attrs.field(repr=False, eq=False)
    """Decodes the result."""
    around: AroundEnqueue = attrs.field(default=NOTHING_AROUND, repr=False, eq=False)
    """The app's functions around what it enqueues."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""
        headers: Mapping[str, str] = self.options.fields.get("headers", {})
        return MappingProxyType(headers)

    def with_headers(self, headers: Mapping[str, str]) -> JobCall[R_co]:
        """Answer the same with further headers; of two with one name these count.

        Raises:
            TypeError, ValueError: They are no headers, or too large.
        """
        return attrs.evolve(self, options=self.options.with_({"headers": {**self.headers, **headers}}))

    def with_payload(self, payload: bytes) -> JobCall[R_co]:
        """Answer the same with other bytes, which a function around handling turns back (`await call(payload=...)`)."""
        return attrs.evolve(self, payload=payload)


class Sender(Protocol):
    """What enqueues calls: the app."""

    @property
    def around_enqueue(self) -> AroundEnqueue:
        """What is around that."""

    async def enqueue(self, call: JobCall[R], /) -> JobHandle[R]:
        """Enqueue one."""


@final
@attrs.frozen(eq=False)
class TaskCaller(Generic[P, R_co]):
    """The producer's side of a task, with options: what `task.options(...)` and `app.task_stub(...)` answer."""

    queue: str
    """Where its jobs go."""
    task: str
    """The task's name."""
    _sender: Sender = attrs.field(repr=False)
    _codec: Codec = attrs.field(repr=False)
    _options: JobOptions = attrs.field(repr=False)
    _signature: Signature | None = attrs.field(repr=False)
    _read: Callable[[bytes], Any] = attrs.field(repr=False)
    _redact: Redaction = attrs.field(default=NOTHING_HIDDEN, repr=False)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall[R_co]:
        """Make a job without enqueueing it: for `app.enqueue_many`, or a synchronous client.

        The arguments are encoded now: changing them later changes nothing.

        Raises:
            TypeError: They do not fit the handler's signature.
            EncodeError: They cannot be written without losing something.
        """
        payload = encode_arguments(self._codec, self._signature, args, kwargs, self._redact)
        return JobCall(self.queue, self.task, payload, self._options, self._read, self._sender.around_enqueue)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Enqueue a job. See `Queue.enqueue` for what it promises.

        Raises:
            TypeError: The arguments do not fit the handler's signature; nothing was sent.
            EncodeError: They cannot be written without losing something; nothing was sent.
            RuntimeError: The app is not open.
            EchoMQError: As `Queue.enqueue`.
        """
        return await self._sender.enqueue(self.call(*args, **kwargs))

    def options(self, **options: Unpack[EnqueueOptions]) -> TaskCaller[P, R_co]:
        """Answer the same with further options; see `EnqueueOptions` for their names.

        Raises:
            TypeError: A name is unknown, or a value of another type.
            ValueError: A value is out of range.
        """
        return attrs.evolve(self, options=self._options.with_(options))


@final
@attrs.frozen(kw_only=True, eq=False)
class Task(Generic[P, R_co]):
    """A function that workers run, and what is decided about its jobs. Made by `App.task`."""

    name: str
    """How jobs and workers name it: 1 to 128 of `A-Z a-z 0-9 . _ : -`."""
    queue: str
    """Where its jobs go."""
    function: Callable[..., Any] = attrs.field(repr=False)
    """The handler itself."""
    max_attempts: int = 3
    """How many failures bury a job, 1 to a million; a job may carry its own."""
    timeout: float | None = None
    """Seconds one attempt may run; None: as long as its lease is renewed. A job may carry its own."""
    backoff: Backoff = DEFAULT_BACKOFF
    """How long a failed job waits for its next attempt."""
    result_ttl: float | None = None
    """Seconds that an ended job and its result are kept; None: not at all. Written into each job."""
    max_stalls: int | None = None
    """How many expired leases a job survives; None: 3. Written into each job."""
    batch: Batch | None = None
    """How its jobs are gathered into batches, on a queue of its own; None: each runs by itself."""
    run_in: Place | None = None
    """Where it runs: a plain function in a `thread` or a `process`; None: a coroutine function in the event loop, a plain
    one in a thread."""
    codec: Codec = attrs.field(default=DEFAULT_CODEC, repr=False)
    """Encodes arguments and results."""
    redact: Redaction = attrs.field(default=NOTHING_HIDDEN, repr=False)
    """Names whose values no error about its arguments or result shows."""
    is_async: bool = attrs.field(init=False, repr=False)
    """Whether it is a coroutine function, run in the event loop, or a plain one."""
    signature: Signature = attrs.field(init=False, repr=False)
    """What it takes."""
    _sender: Sender = attrs.field(repr=False)
    _caller: TaskCaller[P, R_co] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check every value, and read the signature once."""
        check_task_name(self.name)
        check_queue_name(self.queue)
        if not callable(self.function):
            raise TypeError(f"task {self.name!r}: a handler is a function, not {self.function!r}")
        if not callable(self.backoff):
            raise TypeError(f"task {self.name!r}: a backoff is callable, not {self.backoff!r}")
        if self.batch is not None and type(self.batch) is not Batch:
            raise TypeError(f"task {self.name!r}: batch is a Batch, such as Batch(max_size=100), not {self.batch!r}")
        if type(self.max_attempts) is not int or not 1 <= self.max_attempts <= MAX_COUNT:
            raise ValueError(f"task {self.name!r}: max_attempts is 1 to {MAX_COUNT}, not {self.max_attempts!r}")
        for what, seconds in (("timeout", self.timeout), ("result_ttl", self.result_ttl)):
            if seconds is not None and to_ms(seconds) == 0:
                raise ValueError(f"task {self.name!r}: {what} is more than 0 seconds, or None, not {seconds!r}")
        put = object.__setattr__  # the value is frozen from here on
        if self.timeout is not None:
            put(self, "timeout", to_seconds(to_ms(self.timeout)))  # of a timedelta, too
        put(self, "is_async", is_async(self.function))
        if self.run_in is not None:
            if self.run_in not in PLACES:
                raise ValueError(f"task {self.name!r}: run_in is 'thread', 'process' or None, not {self.run_in!r}")
            if self.is_async:
                raise TypeError(
                    f"task {self.name!r}: {self.function!r} is a coroutine function, which runs in the event loop and "
                    f"not in a {self.run_in}: declare it with a plain def, or without run_in"
                )
            if self.run_in == "process":
                check_findable(self.name, self.function)
        put(self, "signature", Signature(self.name, self.function, batch=self.batch is not None))
        options = JobOptions.of({"result_ttl": self.result_ttl, "max_stalls": self.max_stalls})
        caller: TaskCaller[P, R_co] = TaskCaller(
            self.queue, self.name, self._sender, self.codec, options, self.signature, self.load_result, self.redact
        )
        put(self, "_caller", caller)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The handler, for `inspect.signature` and its like."""
        return self.function

    @property
    def job_parameter(self) -> str | None:
        """The parameter annotated `Job` (or `SyncJob`), which the worker fills; None when there is none."""
        return self.signature.job_parameter

    @property
    def injected(self) -> Mapping[str, Any]:
        """The type of each parameter whose default is `INJECTED`, which the worker fills by what the app provides.

        Raises:
            TypeError: An annotation cannot be resolved.
        """
        return self.signature.injected

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function, here and now: no queue, no retries. Its tests call it so.

        Raises:
            TypeError: A parameter that a worker would fill is not given.
        """
        self.signature.check_direct(args, kwargs)
        return self.function(*args, **kwargs)

    # --- for producers ----------------------------------------------------------------------

    def call(self, *args: P.args, **kwargs: P.kwargs) -> JobCall[R_co]:
        """Make a job without enqueueing it. See `TaskCaller.call`."""
        return self._caller.call(*args, **kwargs)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Enqueue a job. See `TaskCaller.enqueue`."""
        return await self._caller.enqueue(*args, **kwargs)

    def options(self, **options: Unpack[EnqueueOptions]) -> TaskCaller[P, R_co]:
        """Answer the task's producer side with options for the jobs it makes. See `EnqueueOptions`."""
        return self._caller.options(**options)

    # --- for workers ------------------------------------------------------------------------

    def check(self) -> None:
        """Resolve the annotations that were not known at decoration.

        Raises:
            TypeError: One cannot be resolved; the message says which.
        """
        self.signature.resolve()

    def bind_payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """Encode arguments as a payload.

        Raises:
            TypeError: They do not fit the signature.
            EncodeError: They cannot be written without losing something.
        """
        return encode_arguments(self.codec, self.signature, args, kwargs, self.redact)

    def load_arguments(self, payload: bytes, codec: Codec | None = None) -> tuple[list[Any], dict[str, Any]]:
        """Decode a payload to the handler's declared types, the job apart (see `inject`).

        Args:
            payload: What the job carries.
            codec: What decodes it; None: the task's own.

        Raises:
            DecodeError: The bytes are no call at all: not of the codec, or not `{"args": [...], "kwargs": {...}}`.
                Nothing but burying helps.
            ArgumentsError: A call, but not of this signature: what a rolling deploy looks like.
        """
        codec = codec or self.codec
        args, kwargs = self._decode(codec, payload)
        try:
            self.signature.check(tuple(args), kwargs)
        except TypeError as error:
            raise ArgumentsError(str(error), task=self.name) from None
        structure = getattr(codec, "structure", None)
        if structure is None:
            return args, kwargs  # a codec that brings back the very values
        try:
            return self.signature.structure(args, kwargs, structure)
        except DecodeError as error:
            path = error.path
            if not hides_call(self.redact, self.signature, args, kwargs):
                raise ArgumentsError(f"task {self.name!r}: {error}", task=self.name, path=path) from error
        raise ArgumentsError(f"task {self.name!r}: {path or 'a value'}: does not fit ({UNSAID})", self.name, path)

    def _decode(self, codec: Codec, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        try:
            return decode_arguments(codec, payload)
        except DecodeError:
            if not self.redact:
                raise
        # Not within: what is hidden would be its context.
        raise DecodeError(f"expected a call, got {len(payload)} bytes ({UNSAID})")

    def inject(
        self, job: Any, args: list[Any], kwargs: dict[str, Any], resources: Mapping[Any, Any] = NOTHING
    ) -> tuple[list[Any], dict[str, Any]]:
        """Add the job, and resources by their types, to loaded arguments, in place, as the handler asks for them."""
        return self.signature.inject(job, args, kwargs, resources)

    def dump_result(self, value: Any, codec: Codec | None = None) -> bytes:
        """Encode what the handler returned.

        Raises:
            EncodeError: It cannot be written without losing something.
        """
        try:
            return (codec or self.codec).encode(value)
        except EncodeError as error:
            if not self.redact.finds(value):
                raise
            path = error.path
        raise EncodeError(f"cannot be encoded ({UNSAID})", path)

    def load_result(self, data: bytes) -> R_co:
        """Decode a result to what the handler says it returns.

        Raises:
            DecodeError: It is not of that type.
        """
        try:
            return cast("R_co", self.codec.decode(data, self.signature.return_type))
        except DecodeError as error:
            if not self.redact:
                raise
            path = error.path
        raise DecodeError(f"the result of task {self.name!r}, {len(data)} bytes, does not fit ({UNSAID})", path)


def hides_call(redact: Redaction, signature: Signature | None, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether there is something hidden among the arguments of a call."""
    if not redact:
        return False
    names = () if signature is None else signature.names_of(len(args))
    return any(map(redact.covers, names)) or redact.finds(kwargs) or any(map(redact.finds, args))


def encode_arguments(
    codec: Codec,
    signature: Signature | None,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    redact: Redaction = NOTHING_HIDDEN,
) -> bytes:
    """Write arguments as `{"args": [...], "kwargs": {...}}`, empty ones omitted.

    Raises:
        TypeError: They do not fit the signature.
        EncodeError: They cannot be written without losing something.
    """
    if signature is not None:
        signature.check(args, kwargs)
    call: dict[str, Any] = {}
    if args:
        call["args"] = args
    if kwargs:
        call["kwargs"] = kwargs
    try:
        return codec.encode(call)
    except EncodeError as error:
        if not hides_call(redact, signature, args, kwargs):
            raise
        path = error.path
    raise EncodeError(f"cannot be encoded ({UNSAID})", path)


def decode_arguments(codec: Codec, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
    """Read what `encode_arguments` wrote, as plain values.

    Raises:
        DecodeError: The bytes are no call.
    """
    call = codec.decode(payload)
    if isinstance(call, dict) and call.keys() <= _PARTS:
        args, kwargs = call.get("args", ()), call.get("kwargs", {})
        if isinstance(args, (list, tuple)) and isinstance(kwargs, dict):
            return list(args), dict(kwargs)
    raise DecodeError('expected a call, {"args": [...], "kwargs": {...}}, got ' + f"{bytes(payload[:80])!r}")
