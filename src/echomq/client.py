"""A client: one program's door to a server's queues.

It is open for as long as it is used::

    async with echomq.open_client("valkey://localhost:6379") as client:
        handle = await client.queue("thumbnails").enqueue(b"...")
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import anyio
import anyio.lowlevel

from echomq._bulk import Content, broken_by, by_queue, content_of, not_sent, take_portion
from echomq._channels import Channels
from echomq.errors import EchoMQError
from echomq.protocol.codec import Codec, JsonCodec
from echomq.protocol.keys import QueueKeys, check_prefix
from echomq.queue import Queue
from echomq.results import JobHandle, Results
from echomq.wire.client import WireClient, open_wire

if TYPE_CHECKING:
    from echomq.tasks import JobCall

T = TypeVar("T")

URL_VARIABLE: Final = "ECHOMQ_URL"
"""The environment variable that names the server when the program does not."""


def server_url(url: str | None) -> str:
    """Answer the URL given, else that of the environment.

    Raises:
        ValueError: There is neither.
    """
    found = url if url is not None else os.environ.get(URL_VARIABLE)
    if not found:
        raise ValueError(f"no server is named: give a URL, such as valkey://localhost:6379, or set {URL_VARIABLE}")
    return found


@final
class Client:
    """Made by `open_client`; belongs to one event loop and one process, and is used by any number of its tasks.

    Used from another event loop, from another thread or in a forked child, it raises `RuntimeError` and does nothing.
    """

    def __init__(self, wire: WireClient, channels: Channels, *, prefix: str, codec: Codec) -> None:
        self.wire = wire
        """What runs transitions."""
        self.prefix = prefix
        """What its keys begin with."""
        self.codec = codec
        """What encodes and decodes values."""
        self._channels = channels
        self._queues: dict[str, Queue] = {}

    def __repr__(self) -> str:
        return f"<Client {self.wire.url}>"

    def queue(self, name: str) -> Queue:
        """Answer a queue, always the same object for a name. Nothing is sent: a queue begins with its first job.

        Raises:
            ValueError: A queue cannot have that name.
        """
        queue = self._queues.get(name)
        if queue is None:
            keys = QueueKeys(prefix=self.prefix, queue=name)
            queue = self._queues[name] = Queue(self.wire, self._channels, keys, self.codec)
        return queue

    def handle(self, id: str, queue: str) -> JobHandle[Any]:
        """Make a handle for a job that was enqueued earlier, or elsewhere. Nothing is sent.

        Raises:
            ValueError: Not an id, or not a queue's name.
        """
        return self.queue(queue).handle(id)

    async def enqueue(self, call: JobCall[T]) -> JobHandle[T]:
        """Enqueue one call of a task. See `Queue.enqueue` for what it promises."""
        queue = self.queue(call.queue)
        return await queue.send(call.options.new_job(call.task, call.payload), call.read)

    async def enqueue_many(
        self, calls: Iterable[JobCall[T]], *, progress: Callable[[int], Awaitable[None]] | None = None
    ) -> list[JobHandle[T] | EchoMQError]:
        """Enqueue any number of calls, also of several tasks and queues, a few hundred a call of the server.

        Args:
            calls: Any iterable, also one longer than memory; it is drawn from in bounded portions.
            progress: Awaited now and then with the number of jobs that have been answered.

        Returns:
            For each call, in order, the job's handle, or the error it met. One that is refused fails no other. After
            an `UnavailableError` the rest is not sent.

        Server effect, Cancellation, Delivery: as for `Queue.enqueue_many`.
        """
        self.wire.check()
        source = iter(calls)
        first = next(source, None)
        if first is None:
            await anyio.lowlevel.checkpoint()
            return []
        # Nearly always all go to one queue: then they are made while those before them are on the wire.
        other: list[JobCall[T]] = []
        run = _of_one_queue(first, source, other)
        answers: list[Any] = await self.queue(first.queue).send_many(run, progress)
        rest = chain(other, source)
        broken = broken_by(answers)
        while portion := list(take_portion(rest)):
            start = len(answers)
            answers += [None] * len(portion)
            for name, ats in by_queue(portion).items():
                if broken is None:
                    sent = await self.queue(name).send_many(content_of(portion[at]) for at in ats)
                    broken = broken_by(sent)
                else:
                    sent = [not_sent(broken) for _ in ats]
                for at, answer in zip(ats, sent, strict=True):
                    answers[start + at] = answer
            if progress is not None:
                await progress(len(answers))
        return answers

    def results(self, handles: Iterable[JobHandle[T]]) -> Results[T]:
        """Answer an asynchronous iterator over (handle, result or error) as the jobs finish.

        The errors are those that `handle.result()` would raise about the job. An outage is raised, not yielded.
        """
        return Results(handles)


def _of_one_queue(first: JobCall[T], source: Iterator[JobCall[T]], other: list[JobCall[T]]) -> Iterator[Content]:
    """Go through the calls of the first one's queue; the first of another ends it, and is put aside."""
    yield content_of(first)
    queue = first.queue
    for call in source:
        if call.queue != queue:
            other.append(call)
            return
        yield call.task, call.payload, call.options, call.read


def open_client(
    url: str | None = None,
    *,
    prefix: str = "emq",
    unavailable_after: float = 10.0,
    codec: Codec | None = None,
    name: str = "",
) -> AbstractAsyncContextManager[Client]:
    """Open a client: an asynchronous context manager, on trio and asyncio.

    Args:
        url: `valkey://[user:password@]host[:port][/db]`, likewise `redis://`; `valkeys://` and `rediss://` for TLS;
            `unix:///path`. None means what the environment variable `ECHOMQ_URL` says.
        prefix: What all keys begin with; programs that share queues share it.
        unavailable_after: Seconds a call waits for a server that is away.
        codec: What encodes and decodes values; None means JSON.
        name: Shown in the server's CLIENT LIST.

    Raises:
        TypeError, ValueError: No URL, not a URL, or a bad prefix or time.
        EchoMQError: On entering: the server refuses us in a way that waiting will not heal (password, certificate).
            A server that is merely away is no error here: calls wait for it.

    Cancellation: entering may be cancelled. Leaving does not wait for the server; calls that still wait in other tasks
        fail.
    """
    check_prefix(prefix)
    wire = open_wire(server_url(url), unavailable_after=unavailable_after, name=name)
    return _open(wire, prefix, JsonCodec() if codec is None else codec)


@asynccontextmanager
async def _open(opening: AbstractAsyncContextManager[WireClient], prefix: str, codec: Codec) -> AsyncIterator[Client]:
    # The task group is our own affair: an exception of the body leaves as it is, not in a group.
    own: BaseException | None = None
    async with opening as wire:
        try:
            async with anyio.create_task_group() as tasks:
                channels = Channels(wire, tasks)
                try:
                    yield Client(wire, channels, prefix=prefix, codec=codec)
                except BaseException as error:
                    own = error
                    raise
                finally:
                    channels.close()
        except BaseExceptionGroup as group:
            if own is None or group.exceptions != (own,):
                raise
        if own is not None:
            raise own
