"""Handles of jobs, for programs that block."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Generic, TypeVar, final

import attrs
import redis

from echomq.protocol.times import to_wait
from echomq.results import REREAD_AFTER, Ended, read_outcome
from echomq.sync.runner import BROKEN, mapped, reply_text

if TYPE_CHECKING:
    from echomq._items import CancelOutcome
    from echomq.protocol.states import State
    from echomq.results import EnqueueOutcome
    from echomq.sync.queue import Queue
    from echomq.transitions import JobInFull

R_co = TypeVar("R_co", covariant=True)

_PAUSE: Final = 0.2
"""Seconds before a lost subscription is tried again."""


@final
@attrs.frozen
class JobHandle(Generic[R_co]):
    """A job that was enqueued, by its id. What `echomq.JobHandle` is, with methods that block."""

    id: str
    """The job's id: always that of the job which holds the dedup key, if there is one."""
    queue: str
    """Where it is."""
    outcome: EnqueueOutcome = attrs.field(eq=False)
    """What the enqueue did: see `echomq.results.EnqueueOutcome`."""
    _owner: Queue = attrs.field(eq=False, repr=False)
    _read: Callable[[bytes], R_co] = attrs.field(eq=False, repr=False)

    @property
    def admitted(self) -> bool:
        """Whether this enqueue made the job; False: its dedup key was held, and this is the job that holds it."""
        return self.outcome == "admitted"

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the job has ended, and answer what its handler returned.

        Args:
            timeout: Seconds to wait at most; 0 only looks; None means for as long as it takes.

        Raises:
            EchoMQError, TimeoutError, TypeError, ValueError: As `echomq.JobHandle.result`.

        Delivery: a message that is lost costs up to 5 s.
        """
        if timeout is not None:
            timeout = to_wait(timeout)
        if timeout == 0:
            ended = self._look()
            if ended is None:
                raise self._late(timeout)
            return ended.value
        deadline = None if timeout is None else time.monotonic() + timeout
        listener = _Listener(self._owner.runner.pool, self._owner.keys.result_channel(self.id))
        try:
            while True:
                listener.open()
                ended = self._look()
                if ended is not None:
                    return ended.value
                left = REREAD_AFTER if deadline is None else min(REREAD_AFTER, deadline - time.monotonic())
                if left <= 0:
                    raise self._late(timeout)
                listener.wait(left)
        finally:
            listener.close()

    def _look(self) -> Ended[R_co] | None:
        return read_outcome(self.id, self._owner.job(self.id), self._read)

    def _late(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"{self.id} has not ended within {timeout:g} s")

    def state(self) -> State | None:
        """Answer where the job is; None when it has no row."""
        job = self._owner.job(self.id)
        return None if job is None else job.record.state

    def info(self, *, log: bool = False) -> JobInFull | None:
        """Answer the job's row, its place and, if asked, its log; None when it has no row."""
        return self._owner.job(self.id, log=log)

    def cancel(self, *, reason: str = "") -> CancelOutcome:
        """Cancel the job. See `echomq.Queue.cancel`."""
        return self._owner.cancel(self.id, reason=reason)


@final
class _Listener:
    """A subscription to one channel. A lost connection is opened again; the row is read in between."""

    def __init__(self, pool: redis.ConnectionPool, channel: str) -> None:
        self._pool = pool
        self._channel = channel
        self._pubsub: redis.client.PubSub | None = None

    def open(self) -> None:
        """Subscribe, if that does not stand, and wait for the confirmation: then no later message is missed.

        Raises:
            PermissionDeniedError: The ACL user may not listen to it.
        """
        if self._pubsub is not None:
            return
        self._pubsub = redis.client.PubSub(self._pool)
        try:
            self._pubsub.subscribe(self._channel)
            self._pubsub.get_message(timeout=REREAD_AFTER)
        except (redis.RedisError, OSError) as error:
            self._lost(error)

    def wait(self, seconds: float) -> None:
        """Wait for a message, or for the time to pass."""
        if self._pubsub is None:
            time.sleep(min(seconds, _PAUSE))
            return
        try:
            self._pubsub.get_message(timeout=seconds)
        except (redis.RedisError, OSError) as error:
            self._lost(error)

    def close(self) -> None:
        """Give the connection back."""
        if self._pubsub is not None:
            self._pubsub.close()
            self._pubsub = None

    def _lost(self, error: Exception) -> None:
        self.close()
        if reply_text(error) is not None and not isinstance(error, BROKEN):
            raise mapped(error, call=f"SUBSCRIBE {self._channel}") from error
