"""An app: a program's tasks by name, and the server they go to. Importing it does no I/O.

A program's `jobs.py`, and then what it does::

    app = echomq.App("valkey://localhost:6379")


    @app.task(queue="thumbnails", max_attempts=5, timeout=30)
    async def thumbnail(job: echomq.Job, path: Path, size: int = 128) -> int: ...


    async with app:
        handle = await thumbnail.enqueue(Path("a.png"), size=64)
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import AsyncIterable, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeVar, final, overload

import attrs

from echomq._alerts import OnDead
from echomq._app_schedules import AppSchedules, check_origin
from echomq._bulk import EnqueueStream
from echomq._options import JobOptions
from echomq.backoff import DEFAULT_BACKOFF, Backoff
from echomq.batches import Batch, JobBatch
from echomq.client import Client, open_client
from echomq.errors import EchoMQError
from echomq.flow_handles import Flows
from echomq.flows import DEFAULT_LIMITS, FlowLimits
from echomq.instruments import Instrument, Instruments
from echomq.job import Job, SyncJob
from echomq.limits import Rate, spell_queue
from echomq.middleware import AroundEnqueue, AroundHandling
from echomq.protocol.codec import Codec
from echomq.protocol.keys import QueueKeys, check_prefix, check_queue_name, check_task_name
from echomq.queue import Queue
from echomq.recurrence import Missed, Recurrence
from echomq.redaction import Redaction
from echomq.resources import Providers
from echomq.results import JobHandle, Results
from echomq.tasks import DEFAULT_CODEC, JobCall, Place, Task, TaskCaller

if TYPE_CHECKING:
    from echomq._channels import Channels
    from echomq.transitions.configure import EventLevel
    from echomq.transitions.schedules import Overlap
    from echomq.transitions.settings import Named
    from echomq.wire.client import WireClient

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class TaskDecorator(Protocol):
    """What `app.task(...)` answers: it makes a function a task, typed by the function's arguments, the job apart."""

    @overload
    def __call__(self, function: Callable[Concatenate[Job, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[SyncJob, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R]: ...


class BatchTaskDecorator(Protocol):
    """What `app.task(batch=...)` answers: it makes a handler of batches a task, typed by the batch's items."""

    def __call__(self, function: Callable[[JobBatch[T]], Coroutine[Any, Any, None]], /) -> Task[[T], Any]:
        """Make it a task, each of whose jobs is an item."""


@final
class App:
    """A program's tasks, and its client while it is open."""

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str = "emq",
        unavailable_after: float = 10.0,
        codec: Codec | None = None,
        name: str = "",
        origin: str = "app",
        flow_limits: FlowLimits = DEFAULT_LIMITS,
        redact: Iterable[str] = (),
        instruments: Iterable[Instrument] = (),
    ) -> None:
        """Make an app. Nothing is opened, and the environment is not looked at, before `async with app:`.

        Args:
            url: Where the server is; None means what the environment variable `ECHOMQ_URL` says when it is opened.
            prefix: What all keys begin with; programs that share queues share it.
            unavailable_after: Seconds a call waits for a server that is away.
            codec: What encodes arguments and results; None means JSON.
            name: Shown in the server's CLIENT LIST.
            origin: What its schedules are signed with, such as the program's name: up to 128 of `A-Z a-z 0-9 . _ : -`.
                `app.schedules.sync(prune=True)` removes what has this origin and is not declared any more, so programs
                that share queues have origins of their own.
            flow_limits: How large its flows may be.
            redact: Names of arguments and fields whose values are not to be seen: no error about a job's arguments or
                result shows a value if one of them is among them, and the worker command logs `[redacted]` for them.
                Case does not matter. What a handler itself says, prints or raises is its own affair.
            instruments: What measures its enqueues and its workers; see `echomq.instruments`. What they have around
                enqueues and handling is outermost.

        Raises:
            TypeError: `redact` is not several names, or `instruments` not several instruments.
            ValueError: Another argument is not what it must be.
        """
        self.url = url
        """Where the server is, as given."""
        self.prefix = check_prefix(prefix)
        """What all keys begin with."""
        self.codec: Codec = DEFAULT_CODEC if codec is None else codec
        """What encodes arguments and results."""
        self.redact = Redaction.of(redact)
        """What hides them; `app.redact.hide(value)` does it for a log of your own."""
        self.origin = check_origin(origin)
        """What its schedules are signed with; "" when it has no name."""
        self.schedules = AppSchedules(self)
        """The schedules that it declares: `await app.schedules.sync()`."""
        self.flow_limits = flow_limits
        self.flows = Flows(lambda: self.client, flow_limits)
        """Flows: `await app.flows.add(flow(...))`."""
        self.instruments: Final = Instruments(instruments)
        """What measures it."""
        self.around_enqueue: Final = AroundEnqueue(self.instruments)
        """Functions around what is enqueued: `@app.around_enqueue` adds one. See `AroundEnqueue`."""
        self.around_handling: Final = AroundHandling(self.instruments)
        """Functions around what is handled: `@app.around_handling` adds one. See `AroundHandling`."""
        self.provide: Final = Providers()
        """What workers open for handlers that ask for it: `@app.provide` adds one. See `Providers`."""
        self.on_dead: Final = OnDead(self)
        """Tasks that are told of dead jobs: `@app.on_dead` declares one. See `OnDead`."""
        self._unavailable_after = unavailable_after
        self._name = name
        self._tasks: dict[str, Task[Any, Any]] = {}
        self._declared: dict[str, _DeclaredQueue] = {}
        self._opening: AbstractAsyncContextManager[Client] | None = None
        self._client: Client | None = None
        self._pid = 0

    def __repr__(self) -> str:
        return f"<App of {len(self._tasks)} tasks on {', '.join(self.queues) or 'no queue'}>"

    # --- tasks ------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[Concatenate[Job, P], Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[SyncJob, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int = 3,
        timeout: float | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        result_ttl: float | None = None,
        max_stalls: int | None = None,
        batch: None = None,
        run_in: Place | None = None,
    ) -> TaskDecorator: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int = 3,
        timeout: float | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        result_ttl: float | None = None,
        max_stalls: int | None = None,
        batch: Batch,
    ) -> BatchTaskDecorator: ...
    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        queue: str = "default",
        max_attempts: int = 3,
        timeout: float | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        result_ttl: float | None = None,
        max_stalls: int | None = None,
        batch: Batch | None = None,
        run_in: Place | None = None,
    ) -> Any:
        """Make a function a task: `@app.task`, or `@app.task(...)` with options.

        A coroutine function runs in the worker's event loop, and gets the job if a parameter is annotated `Job`; a
        plain function runs in a thread, or in a process, and a parameter annotated `SyncJob` gets it. Put that parameter
        first, so that type checkers know what `enqueue` takes.

        Args:
            function: The handler.
            name: How jobs name it; None means the function's own name. Renaming it orphans queued jobs.
            queue: Where its jobs go.
            max_attempts: How many failures bury a job.
            timeout: Seconds one attempt may run; None: no limit.
            backoff: How long a failed job waits for its next attempt.
            result_ttl: Seconds that an ended job and its result are kept; None: not at all.
            max_stalls: How many expired leases a job survives; None: 3.
            batch: How its jobs are gathered into batches: the handler then takes one `JobBatch`, a producer enqueues
                one argument an item, and no other task may be on its queue. None: each job runs by itself.
            run_in: Where a plain function runs: `thread`, or `process`: one of its own, which can be killed, and keeps a
                processor busy without holding the worker up. It is found there by its module and name, and what it is
                given and returns is pickled. None: in a thread.

        Raises:
            ValueError: The name is taken, a value is out of range, or a task of batches would share its queue.
            TypeError: The function cannot be a handler, or not there: a coroutine function in a thread or process, or one
                that a process could not find.
        """

        def decorate(function: Callable[..., Any]) -> Task[Any, Any]:
            chosen = getattr(function, "__name__", None) if name is None else name
            if chosen is None:
                raise TypeError(f"{function!r} has no name of its own: give one, as in app.task(name=...)")
            task: Task[Any, Any] = Task(
                name=chosen,
                queue=queue,
                function=function,
                max_attempts=max_attempts,
                timeout=timeout,
                backoff=backoff,
                result_ttl=result_ttl,
                max_stalls=max_stalls,
                batch=batch,
                run_in=run_in,
                codec=self.codec,
                redact=self.redact,
                sender=self,
            )
            if task.name in self._tasks:
                taken = self._tasks[task.name].function
                raise ValueError(f"the task name {task.name!r} is taken by {taken!r}: give {function!r} another")
            if task.name in self.on_dead.names:
                raise ValueError(f"the task name {task.name!r} is taken by one of on_dead: give {function!r} another")
            for other in self._tasks.values():
                if other.queue == task.queue and (other.batch or task.batch):
                    owner, guest = (other, task) if other.batch else (task, other)
                    raise ValueError(
                        f"task {owner.name!r} takes the jobs of queue {queue!r} in batches, whatever task they are for: "
                        f"give {guest.name!r} another queue"
                    )
            self._tasks[task.name] = task
            return task

        return decorate if function is None else decorate(function)

    def task_stub(
        self, name: str, *, queue: str, result_ttl: float | None = None, max_stalls: int | None = None
    ) -> TaskCaller[..., Any]:
        """Answer the producer's side of a task whose handler lives elsewhere: its code need not be importable here.

        Nothing checks the arguments before a worker does; results come as the codec decodes them without a type.

        Args:
            name: The task's name there.
            queue: Its queue there.
            result_ttl: Seconds that an ended job and its result are kept; None: not at all.
            max_stalls: How many expired leases a job survives; None: 3.

        Raises:
            ValueError: A value is out of range.
        """
        options = JobOptions.of({"result_ttl": result_ttl, "max_stalls": max_stalls})
        return TaskCaller(
            check_queue_name(queue),
            check_task_name(name),
            self,
            self.codec,
            options,
            None,
            self.codec.decode,
            self.redact,
        )

    def schedule(
        self,
        name: str,
        call: JobCall[Any],
        /,
        *,
        every: float | dt.timedelta | None = None,
        cron: str | None = None,
        tz: str = "UTC",
        start: dt.datetime | None = None,
        end: dt.datetime | None = None,
        limit: int | None = None,
        missed: Missed = "last",
        overlap: Overlap = "allow",
        jitter: float | dt.timedelta | None = None,
    ) -> None:
        """Declare a recurring job: `app.schedule("nightly", report.call(), cron="30 2 * * *", tz="Europe/Berlin")`.

        Nothing is sent. A worker of the app defines it when it starts, and so does `await app.schedules.sync()`. Which
        arguments there are says `Schedules.put`; options of its jobs come with the call, as in
        `report.options(lane="slow").call()`.

        Raises:
            TypeError, ValueError: An argument does not fit, or the name is taken.
        """
        recurrence = Recurrence.of(
            every=every, cron=cron, tz=tz, start=start, end=end, limit=limit, missed=missed, jitter=jitter
        )
        self.schedules.declare(name, call, recurrence, overlap=overlap)

    @property
    def tasks(self) -> Mapping[str, Task[Any, Any]]:
        """Its tasks by name, a live view."""
        return MappingProxyType(self._tasks)

    def get_task(self, name: str) -> Task[Any, Any] | None:
        """Answer a task by name, or None."""
        return self._tasks.get(name)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that its tasks use, in the order of their first task."""
        return tuple(dict.fromkeys(task.queue for task in self._tasks.values()))

    # --- open and closed --------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Open the client. See `open_client` for what it raises and promises.

        Raises:
            RuntimeError: It is open already, here or in another event loop. Open it once, where the program starts, and
                share it among the tasks there.
            TypeError: A task's annotation cannot be resolved.
        """
        if self._opening is not None and self._pid == os.getpid():
            raise RuntimeError("this app is open already: open it once, where the program starts, and share it")
        for task in (*self._tasks.values(), *self.on_dead.tasks):
            task.check()
        opening = open_client(
            self.url,
            prefix=self.prefix,
            unavailable_after=self._unavailable_after,
            codec=self.codec,
            name=self._name,
        )
        self._opening, self._client, self._pid = opening, None, os.getpid()
        try:
            self._client = await opening.__aenter__()
        except BaseException:
            self._opening = None
            raise
        for name, declared in self._declared.items():
            self._client.declare(name, declared.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Close the client.

        Raises:
            RuntimeError: It was opened in another event loop or thread, and stays open.
        """
        opening = self._opening
        if opening is None:
            return None
        if self.is_open:
            self.client.wire.check_home()  # else it would be torn from under its owner
        try:
            return await opening.__aexit__(kind, error, traceback)
        finally:
            self._opening = self._client = None

    @property
    def is_open(self) -> bool:
        """Whether `async with app:` is entered, in this process: a forked child opens its own."""
        return self._client is not None and self._pid == os.getpid()

    @property
    def client(self) -> Client:
        """Its client.

        Raises:
            RuntimeError: The app is not open.
        """
        if self._client is None or self._pid != os.getpid():
            raise RuntimeError("this app is not open: put the call within `async with app:`")
        return self._client

    # --- for producers ----------------------------------------------------------------------

    def queue(
        self,
        name: str,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        max_size: int | None = None,
        events: EventLevel | None = None,
    ) -> Queue:
        """Answer a queue of the open client; or, with settings, declare these, whether the app is open or not.

        As in::

            mails = app.queue("mails", limit=10, rate=echomq.Rate(100, per=60))


            @app.task(queue=mails.name)
            async def send(to: str) -> None: ...

        Declaring does no I/O. When the queue is first used while the app is open (a job is enqueued, `app.queue(name)`
        asked for it, a worker begins to serve it), the settings go to the server, in front of the first job; as long as
        it is away, they are sent again and again, and nobody waits for that. (A server that does not know the script yet
        may let a few jobs overtake.) They fill **only what is not set on the server yet**: the operator's word wins, and
        so does what an earlier version of the program declared. To change a setting that stands, there is
        `queue.configure(limit=20)`; for a program without an app, or a synchronous one, `only_unset=True`.

        Args:
            name: The queue.
            limit: How many of its jobs may run at once, over all workers; None: nothing is declared.
            rate: How many may start in a time, over all workers; None: nothing is declared.
            max_size: How many jobs may wait before enqueues are refused; None: nothing is declared.
            events: Which events it keeps in its stream; None: nothing is declared.

        Returns:
            The queue. One with declared settings is there before the app is opened, and works while it is open.

        Raises:
            TypeError, ValueError: A value does not fit, or another one was declared for this queue before.
            RuntimeError: The app is not open, and nothing is declared for the queue.
        """
        given = {"limit": limit, "rate": rate, "max_size": max_size, "events": events}
        settings = {what: value for what, value in given.items() if value is not None}
        if settings:
            self._declare(name, spell_queue(settings))
        declared = self._declared.get(name)
        if declared is None:
            return self.client.queue(name)
        if self.is_open:
            self.client.queue(name)  # which sends the settings
        return declared.queue

    def _declare(self, name: str, settings: Named) -> None:
        declared = self._declared.get(name)
        if declared is None:
            keys = QueueKeys(prefix=self.prefix, queue=name)
            declared = _DeclaredQueue(Queue(_Door(self, name), keys, self.codec))
        before = declared.settings
        for what, value in settings.items():
            if before.get(what, value) != value:
                raise ValueError(f"queue {name!r}: {what} is declared twice, as {before[what]} and as {value}")
        before.update(settings)
        self._declared[name] = declared
        if self.is_open:
            self.client.declare(name, settings)

    def handle(self, id: str, queue: str) -> JobHandle[Any]:
        """Make a handle for a job that was enqueued earlier, or elsewhere. See `Client.handle`."""
        return self.client.handle(id, queue)

    async def enqueue(self, call: JobCall[T], /) -> JobHandle[T]:
        """Enqueue one call of a task. See `Queue.enqueue` for what it promises."""
        return await self.client.enqueue(call)

    def enqueue_stream(
        self,
        calls: Iterable[JobCall[T]] | AsyncIterable[JobCall[T]],
        *,
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> EnqueueStream[T]:
        """Enqueue any number of calls in memory that does not grow with their number. See `Client.enqueue_stream`."""
        return self.client.enqueue_stream(calls, progress=progress)

    async def enqueue_many(
        self,
        calls: Iterable[JobCall[T]] | AsyncIterable[JobCall[T]],
        *,
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> list[JobHandle[T] | EchoMQError]:
        """Enqueue any number of calls: `app.enqueue_many(thumbnail.call(p) for p in paths)`. See `Client.enqueue_many`."""
        return await self.client.enqueue_many(calls, progress=progress)

    def results(self, handles: Iterable[JobHandle[T]]) -> Results[T]:
        """Answer an asynchronous iterator over (handle, result or error) as the jobs finish. See `Client.results`."""
        return self.client.results(handles)


@final
class _Door:
    """What is behind a queue that was declared: the app's client, when there is one."""

    __slots__ = ("_app", "_name")

    def __init__(self, app: App, name: str) -> None:
        self._app = app
        self._name = name

    @property
    def wire(self) -> WireClient:
        client = self._app.client
        client.queue(self._name)  # its settings go first
        return client.wire

    @property
    def channels(self) -> Channels:
        return self._app.client.channels


@final
@attrs.frozen
class _DeclaredQueue:
    """A queue that was declared."""

    queue: Queue
    settings: Named = attrs.field(factory=dict)
