"""The morgue: jobs that were given up, to be looked at, begun anew or removed, all or some, at a rate of one's own.

Theory of operation
    A call handles the jobs that were dead when it began, by the server's clock, the longest dead first. A job that is
    begun anew and dies again while the call goes on has died later than that, so the call does not take it twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final, Literal, Unpack, final

import anyio
import attrs

from echomq._delivery import news_walk
from echomq._walks import Each, Outcomes, Tell, Wait, Walk, drive
from echomq.errors import DecodeError, EchoMQError
from echomq.finding import FoundJobs, JobFilters, Wanted, check_limit, find_walk
from echomq.limits import Rate
from echomq.protocol._convert import shown
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.refusals import DUPLICATE, GONE, STATE
from echomq.protocol.states import State
from echomq.protocol.times import to_seconds

if TYPE_CHECKING:
    from echomq._queue_base import QueueBase
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import JobInFull

TOGETHER: Final = 0.05
"""Seconds: at a rate above 20 a second, what falls into so long goes in one call."""
_STAYED: Final = frozenset({DUPLICATE, GONE, STATE})


@final
@attrs.frozen(kw_only=True)
class DeadJob:
    """A job in the morgue."""

    id: str
    """Its id."""
    task: str
    """Which handler; "" for a queue that has one."""
    error: ErrorRecord | None
    """Its last failure: type, message, traceback; None when it never failed (it killed its workers, say)."""
    attempts: int
    """How often it was claimed."""
    age: float
    """For how many seconds it has been dead."""
    reason: str
    """Why it was given up, for people."""

    @classmethod
    def of(cls, job: JobInFull) -> DeadJob:
        """Read a row; one that is torn is shown as far as it can be, and says so."""
        record = job.record
        try:
            return cls(
                id=record.id,
                task=record.task,
                error=record.error,
                attempts=record.attempts,
                age=to_seconds(max(0, job.now_ms - record.since)),
                reason=record.reason,
            )
        except DecodeError as error:
            return cls(
                id=record.id, task=record.task, error=None, attempts=0, age=0.0, reason=f"its row is torn: {error}"
            )


@final
class Morgue:
    """A queue's dead jobs. Answered by `Queue.dead`."""

    __slots__ = ("_queue",)

    def __init__(self, queue: QueueBase) -> None:
        self._queue = queue

    def find(self, **filters: Unpack[JobFilters]) -> AsyncIterator[DeadJob]:
        """Go through the dead jobs, the longest dead first: `async for job in queue.dead.find(task="send")`.

        Args:
            filters: `task`, `error`, `older`: see `JobFilters`.

        Returns:
            An asynchronous iterator, which may be left at any moment. It answers those that were dead when it began.
            What it has answered may be redriven or removed on the way.

        Raises:
            TypeError, ValueError: A filter does not fit; nothing was sent.
            UnavailableError: While iterating: the server was not reached in time.

        Cancellation: each step is a checkpoint.
        Delivery: a job that *others* take out of the morgue meanwhile may make it miss another one.
        """
        walk = find_walk(self._queue.keys, State.DEAD, filters)
        return FoundJobs(self._queue, walk, State.DEAD, DeadJob.of)

    async def redrive(
        self,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        progress: Callable[[int], Awaitable[None]] | None = None,
        **filters: Unpack[JobFilters],
    ) -> int:
        """Begin a new life for dead jobs, the longest dead first; see `Queue.redrive` for what that is.

        Args:
            limit: How many at most; None: all.
            rate: How many in how long, evenly spaced; None: as fast as it goes.
            progress: Awaited now and then with the number of jobs that have been redriven.
            filters: `task`, `error`, `older`: see `JobFilters`.

        Returns:
            How many were redriven. Those whose dedup key another job holds by now stay, and are not counted.

        Raises:
            TypeError, ValueError: An argument does not fit; nothing was sent.
            UnavailableError: The server was not reached in time. Those before it are redriven.

        Server effect: as `Queue.redrive`, up to 128 jobs at once; only jobs that were dead when the call began, each
            once: one that dies again meanwhile stays dead.
        Cancellation: a checkpoint; what was redriven stays so.
        Delivery: a job that others take out of the morgue meanwhile may make it miss another one. Call again.
        """
        walk = dead_walk(self._queue.keys, "redrive", filters, limit, rate, anyio.current_time)
        return await drive(self._queue, walk, progress)

    async def remove(
        self,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        progress: Callable[[int], Awaitable[None]] | None = None,
        **filters: Unpack[JobFilters],
    ) -> int:
        """Erase dead jobs, the longest dead first; see `Queue.remove`. Its arguments and promises are those of `redrive`.

        Returns:
            How many were removed.
        """
        walk = dead_walk(self._queue.keys, "remove", filters, limit, rate, anyio.current_time)
        return await drive(self._queue, walk, progress)


def dead_walk(
    keys: QueueKeys,
    verb: Literal["redrive", "remove"],
    filters: JobFilters,
    limit: int | None,
    rate: Rate | None,
    clock: Callable[[], float],
) -> Walk[int]:
    """Check the arguments, and answer the walk; see `Morgue.redrive`.

    Raises:
        TypeError, ValueError: An argument does not fit.
    """
    wanted = Wanted.of(filters)
    check_limit(limit)
    if rate is not None and not isinstance(rate, Rate):
        raise TypeError(f"rate is an echomq.Rate, such as Rate(5) for five a second, not {shown(rate)}")
    return _handled(keys, verb, wanted, limit, None if rate is None else Pacer(rate, clock))


def _handled(keys: QueueKeys, verb: str, wanted: Wanted, limit: int | None, pacer: Pacer | None) -> Walk[int]:
    done = 0
    problem: EchoMQError | None = None

    def visit(ids: list[str]) -> Walk[bool]:
        nonlocal done, problem
        at = 0
        while at < len(ids):
            some = len(ids) - at if limit is None else min(len(ids) - at, limit - done)
            if pacer is not None:
                wait = pacer.wait()
                if wait > 0:
                    yield Wait(wait)
                    continue
                some = pacer.take(some)
            outcomes: Outcomes = yield Each(verb, ids[at : at + some])
            before = done
            for id, outcome in zip(ids[at : at + some], outcomes, strict=True):
                if isinstance(outcome, EchoMQError):
                    raise outcome
                if outcome.code == "ok":
                    done += 1
                elif outcome.code not in _STAYED:
                    problem = problem or outcome.error(id=id, queue=keys.queue)
            if done > before:
                yield Tell(done)
            if done == limit:
                return True
            at += some
        return False

    yield from wanted.walk(keys, State.DEAD, visit)
    if done:
        yield from news_walk(keys)
    if problem is not None:
        raise problem
    return done


@final
class Pacer:
    """Spaces work by a rate, on a clock of this process: the generic cell rate algorithm."""

    def __init__(self, rate: Rate, clock: Callable[[], float]) -> None:
        self._spacing = rate.per / rate.count
        at_once = (rate.burst - 1) * self._spacing
        # At high rates, whoever is late may catch up a little: else each late wake-up would slow it down.
        self._slack = max(at_once, 4 * TOGETHER if self._spacing < TOGETHER else 0.0)
        self._clock = clock
        self._next = clock() - at_once

    def wait(self) -> float:
        """Answer how long to wait until the next may go; 0: now."""
        left = self._next - self._clock()
        if left <= 0:
            return 0.0
        return max(left, TOGETHER) if self._spacing < TOGETHER else left

    def take(self, wanted: int) -> int:
        """Let some go, now, and answer how many: one at least."""
        now = self._clock()
        self._next = max(self._next, now - self._slack)
        allowed = max(1, min(wanted, int((now - self._next) / self._spacing + 1e-9) + 1))
        self._next += allowed * self._spacing
        return allowed
