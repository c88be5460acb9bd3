"""A client: one program's door to a server's queues.

It is open for as long as it is used::

    async with echomq.open_client("valkey://localhost:6379") as client:
        handle = await client.queue("thumbnails").enqueue(b"...")
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import anyio

from echomq._bulk import EnqueueStream, Sent
from echomq._channels import Channels
from echomq._declared import Declared
from echomq.errors import EchoMQError
from echomq.flow_handles import Flows
from echomq.middleware import outgoing, passed
from echomq.protocol.codec import Codec, JsonCodec
from echomq.protocol.keys import QueueKeys, check_prefix, known_queues
from echomq.queue import Queue
from echomq.results import JobHandle, Results
from echomq.wire.client import WireClient, open_wire
from echomq.workers import KnownQueue, known_of

if TYPE_CHECKING:
    from echomq.tasks import JobCall
    from echomq.transitions.settings import Named

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

    def __init__(self, wire: WireClient, channels: Channels, declared: Declared, *, prefix: str, codec: Codec) -> None:
        self.wire = wire
        """What runs transitions."""
        self.prefix = prefix
        """What its keys begin with."""
        self.codec = codec
        """What encodes and decodes values."""
        self.channels = channels
        """Where results are told."""
        self.flows = Flows(lambda: self)
        """Flows: `await client.flows.add(...)`, within the usual limits."""
        self._declared = declared
        self._queues: dict[str, Queue] = {}

    def __repr__(self) -> str:
        return f"<Client {self.wire.url}>"

    def queue(self, name: str) -> Queue:
        """Answer a queue, always the same object for a name. Nothing is sent, unless an app has declared settings for it.

        Raises:
            ValueError: A queue cannot have that name.
        """
        queue = self._queues.get(name)
        if queue is None:
            keys = QueueKeys(prefix=self.prefix, queue=name)
            queue = self._queues[name] = Queue(self, keys, self.codec)
        if self._declared.unsent:
            self._declared.send(queue.keys)
        return queue

    async def queues(self) -> list[KnownQueue]:
        """List the queues that are known under the prefix, with when each was last used; the latest first.

        Returns:
            Queues that a client or worker has used within 90 days: `for name, used_at in await client.queues()`. It is kept
            on the side, as well as it goes: a queue may be missing whose users may not write the key `emq:queues`.

        Raises:
            PermissionDeniedError: The ACL user may not read that key.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        """
        key = known_queues(self.prefix)
        return known_of(await self.wire.command("ZREVRANGE", key, 0, -1, "WITHSCORES", repeat=True))

    def declare(self, name: str, settings: Named) -> None:
        """Note settings of a queue, spelled, to be sent when it is first used: what is set already stays. See `App.queue`."""
        self._declared.add(name, settings)

    def handle(self, id: str, queue: str) -> JobHandle[Any]:
        """Make a handle for a job that was enqueued earlier, or elsewhere. Nothing is sent.

        Raises:
            ValueError: Not an id, or not a queue's name.
        """
        return self.queue(queue).handle(id)

    async def enqueue(self, call: JobCall[T]) -> JobHandle[T]:
        """Enqueue one call of a task. See `Queue.enqueue` for what it promises."""
        if not call.around:
            return await self._send(call)
        with outgoing(call) as made:
            handle = await self._send(made)
        return handle  # noqa: RET504 - not within the block, which looks as if it might swallow an error

    async def _send(self, call: JobCall[T]) -> JobHandle[T]:
        queue = self.queue(call.queue)
        return await queue.send(call.options.new_job(call.task, call.payload), call.read)

    def enqueue_stream(
        self,
        calls: Iterable[JobCall[T]] | AsyncIterable[JobCall[T]],
        *,
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> EnqueueStream[T]:
        """Enqueue any number of calls, also of several tasks and queues, in memory that does not grow with their number.

        Args:
            calls: Any iterable, asynchronous ones too; see `Queue.enqueue_stream` for how it is drawn from.
            progress: Awaited now and then with the number of jobs that have been answered.

        Returns:
            An asynchronous iterator: for each call, in order, the job's handle, or the error it met. One that is refused
            fails no other. After an `UnavailableError` the rest is not sent: each is answered with an error that says
            so.

        Server effect, Cancellation, Delivery: as for `Queue.enqueue_stream`.
        """

        def content(call: JobCall[T]) -> Sent:
            told = None
            if call.around:
                call = passed(call)
                told = call if call.around.instruments else None
            return self.queue(call.queue), call.task, call.payload, call.options, call.read, told

        return EnqueueStream(calls, content, check=self.wire.check, progress=progress)

    async def enqueue_many(
        self,
        calls: Iterable[JobCall[T]] | AsyncIterable[JobCall[T]],
        *,
        progress: Callable[[int], Awaitable[None]] | None = None,
    ) -> list[JobHandle[T] | EchoMQError]:
        """Enqueue any number of calls, and answer what became of all of them; see `enqueue_stream` for its arguments.

        Returns:
            For each call, in order, the job's handle, or the error it met.

        Server effect, Cancellation, Delivery: as for `Queue.enqueue_many`.
        """
        return await self.enqueue_stream(calls, progress=progress).collect()

    def results(self, handles: Iterable[JobHandle[T]]) -> Results[T]:
        """Answer an asynchronous iterator over (handle, result or error) as the jobs finish.

        The errors are those that `handle.result()` would raise about the job. An outage is raised, not yielded.
        """
        return Results(handles)


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
                channels, declared = Channels(wire, tasks), Declared(wire, tasks)
                try:
                    yield Client(wire, channels, declared, prefix=prefix, codec=codec)
                except BaseException as error:
                    own = error
                    raise
                finally:
                    channels.close()
                    declared.close()
        except BaseExceptionGroup as group:
            if own is None or group.exceptions != (own,):
                raise
        if own is not None:
            raise own
