"""The synchronous client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from echomq._bulk import broken_by, by_queue, content_of, not_sent, pass_all, take_portion
from echomq._items import check_progress
from echomq.client import server_url
from echomq.errors import EchoMQError, UnavailableError
from echomq.middleware import measured, outgoing
from echomq.protocol.codec import Codec, JsonCodec
from echomq.protocol.keys import QueueKeys, check_prefix, known_queues
from echomq.protocol.times import to_wait
from echomq.sync.flows import Flows
from echomq.sync.handles import JobHandle
from echomq.sync.queue import Queue
from echomq.sync.runner import Runner
from echomq.wire.urls import parse
from echomq.workers import KnownQueue, known_of

if TYPE_CHECKING:
    from echomq.tasks import JobCall

T = TypeVar("T")

REPLY_DEADLINE: Final = 5.0
"""Seconds without a reply that mean a dead peer; then the call goes again on another connection."""


@final
class Client:
    """A program's door to a server's queues, usable from any of its threads, and again after a fork."""

    def __init__(
        self,
        url: str | redis.Redis | None = None,
        *,
        prefix: str = "emq",
        unavailable_after: float = 10.0,
        codec: Codec | None = None,
    ) -> None:
        """Make a client. Nothing is opened before the first call.

        Args:
            url: As for `echomq.open_client`; or a redis-py client of your own, such as Sentinel's `master_for`, which
                must answer bytes and stays yours to close.
            prefix: What all keys begin with; programs that share queues share it.
            unavailable_after: Seconds a call waits for a server that is away.
            codec: What decodes results without a declared type; None means JSON.

        Raises:
            TypeError, ValueError: No URL, not a URL, a bad prefix or time, or a client that decodes replies.
        """
        self.prefix = check_prefix(prefix)
        """What its keys begin with."""
        self.codec: Codec = JsonCodec() if codec is None else codec
        """What decodes results that have no declared type."""
        self._own = not isinstance(url, redis.Redis)
        pool = url.connection_pool if isinstance(url, redis.Redis) else _pool(server_url(url))
        if pool.connection_kwargs.get("decode_responses"):
            raise ValueError("payloads are bytes: the redis client must not have decode_responses=True")
        self._runner = Runner(pool, unavailable_after=to_wait(unavailable_after, "unavailable_after"))
        self._queues: dict[str, Queue] = {}
        self.flows = Flows(self, self._runner)
        """Flows: `client.flows.add(...)`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. A later call opens new ones."""
        if self._own:
            self._runner.pool.disconnect()

    def queue(self, name: str) -> Queue:
        """Answer a queue. Nothing is sent: a queue begins with its first job.

        Raises:
            ValueError: A queue cannot have that name.
        """
        queue = self._queues.get(name)
        if queue is None:
            queue = Queue(self._runner, QueueKeys(prefix=self.prefix, queue=name), self.codec)
            self._queues[name] = queue  # two threads may both make one: they are alike
        return queue

    def queues(self) -> list[KnownQueue]:
        """List the queues that are known, with when each was last used; the latest first. See `echomq.Client.queues`."""
        return known_of(self._runner.command("ZREVRANGE", known_queues(self.prefix), 0, -1, "WITHSCORES"))

    def handle(self, id: str, queue: str) -> JobHandle[Any]:
        """Make a handle for a job that was enqueued earlier, or elsewhere. Nothing is sent."""
        return self.queue(queue).handle(id)

    def enqueue(self, call: JobCall[T]) -> JobHandle[T]:
        """Enqueue one call of a task, as `task.call(...)` makes it. See `echomq.Queue.enqueue` for what it promises.

        What the task's app has around its enqueues is around this one, too.
        """
        with outgoing(call) as made:
            handle = self.queue(made.queue).send(made.options.new_job(made.task, made.payload), made.read)
        return handle  # noqa: RET504 - not within the block, which looks as if it might swallow an error

    def enqueue_stream(
        self, calls: Iterable[JobCall[T]], *, progress: Callable[[int], None] | None = None
    ) -> Iterator[JobHandle[T] | EchoMQError]:
        """Enqueue any number of calls, up to 128 of one queue a call, in memory that does not grow with their number.

        Nothing is sent before the answers are iterated over. See `echomq.Client.enqueue_stream`.
        """
        check_progress(progress)
        return self._stream(calls, progress)

    def _stream(
        self, calls: Iterable[JobCall[T]], progress: Callable[[int], None] | None
    ) -> Iterator[JobHandle[T] | EchoMQError]:
        source = iter(calls)
        broken: UnavailableError | None = None
        answered = 0
        while portion := list(take_portion(source)):
            answers: list[Any] = [None] * len(portion)
            failed = pass_all(portion, answers) if broken is None else None
            answered += sum(answer is not None for answer in answers)
            for name, ats in by_queue(portion, answers).items():
                if broken is None:
                    told = None if progress is None else _from(answered, progress)
                    sent = list(self.queue(name).stream((content_of(portion[at]) for at in ats), told))
                    broken = broken_by(sent)
                    for at, answer in zip(ats, sent, strict=True):
                        measured(portion[at], answer)
                else:
                    sent = [not_sent(broken) for _ in ats]
                for at, answer in zip(ats, sent, strict=True):
                    answers[at] = answer
                answered += len(ats)
            yield from answers
            if failed is not None:
                raise failed

    def enqueue_many(
        self, calls: Iterable[JobCall[T]], *, progress: Callable[[int], None] | None = None
    ) -> list[JobHandle[T] | EchoMQError]:
        """Enqueue any number of calls, up to 128 of one queue a call. See `echomq.Client.enqueue_many`."""
        return list(self.enqueue_stream(calls, progress=progress))


def _from(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda count: progress(before + count)


def _pool(url: str) -> redis.ConnectionPool:
    parse(url)  # refuses what redis-py would pass over, without showing the password
    scheme, _, rest = url.partition("://")
    known = {"valkey": "redis", "valkeys": "rediss"}.get(scheme.lower(), scheme.lower())
    return redis.ConnectionPool.from_url(
        f"{known}://{rest}",
        protocol=2,
        socket_timeout=REPLY_DEADLINE,
        socket_connect_timeout=REPLY_DEADLINE,
        retry=Retry(NoBackoff(), 0),  # the runner tries again, and knows what was sent
        health_check_interval=0,
        client_name="echomq-sync",
    )
