"""The morgue: jobs that were given up, to be looked at, begun anew or removed, all or some, at a rate of one's own.

Theory of operation
    A call handles the jobs that were dead when it began, by the server's clock, the longest dead first. A job that is
    begun anew and dies again while the call goes on has died later than that, so the call does not take it twice.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack, final

import anyio
import attrs

from echomq._delivery import news_walk
from echomq._items import byte_size
from echomq._walks import AT_ONCE, Each, Outcomes, Query, Rows, Step, Tell, Wait, Walk, chunks, drive, perform, walk_set
from echomq.errors import DecodeError, EchoMQError
from echomq.limits import Rate
from echomq.protocol._convert import shown
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.keys import check_task_name
from echomq.protocol.refusals import DUPLICATE, GONE, STATE
from echomq.protocol.states import State
from echomq.protocol.times import to_ms, to_seconds

if TYPE_CHECKING:
    from echomq._queue_base import QueueBase
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Found, JobInFull

MAX_ERROR_TEXT: Final = 1024
"""Bytes of a text that errors are searched for."""
TOGETHER: Final = 0.05
"""Seconds: at a rate above 20 a second, what falls into so long goes in one call."""
_STAYED: Final = frozenset({DUPLICATE, GONE, STATE})


class DeadFilters(TypedDict, total=False):
    """Which dead jobs, by keyword; without any, all.

    | name | meaning |
    | --- | --- |
    | `task` | jobs of this task |
    | `error` | jobs in whose last error (type and message), or the reason of whose death, this text occurs |
    | `older` | jobs that have been dead for at least so long: seconds or a timedelta |
    """

    task: str | None
    error: str | None
    older: float | dt.timedelta | None


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

    def find(self, **filters: Unpack[DeadFilters]) -> AsyncIterator[DeadJob]:
        """Go through the dead jobs, the longest dead first: `async for job in queue.dead.find(task="send")`.

        Args:
            filters: `task`, `error`, `older`: see `DeadFilters`.

        Returns:
            An asynchronous iterator, which may be left at any moment. It answers those that were dead when it began.
            What it has answered may be redriven or removed on the way.

        Raises:
            TypeError, ValueError: A filter does not fit; nothing was sent.
            UnavailableError: While iterating: the server was not reached in time.

        Cancellation: each step is a checkpoint.
        Delivery: a job that *others* take out of the morgue meanwhile may make it miss another one.
        """
        return DeadJobs(self._queue, find_walk(self._queue.keys, filters))

    async def redrive(
        self,
        *,
        limit: int | None = None,
        rate: Rate | None = None,
        progress: Callable[[int], Awaitable[None]] | None = None,
        **filters: Unpack[DeadFilters],
    ) -> int:
        """Begin a new life for dead jobs, the longest dead first; see `Queue.redrive` for what that is.

        Args:
            limit: How many at most; None: all.
            rate: How many in how long, evenly spaced; None: as fast as it goes.
            progress: Awaited now and then with the number of jobs that have been redriven.
            filters: `task`, `error`, `older`: see `DeadFilters`.

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
        **filters: Unpack[DeadFilters],
    ) -> int:
        """Erase dead jobs, the longest dead first; see `Queue.remove`. Its arguments and promises are those of `redrive`.

        Returns:
            How many were removed.
        """
        walk = dead_walk(self._queue.keys, "remove", filters, limit, rate, anyio.current_time)
        return await drive(self._queue, walk, progress)


@final
class DeadJobs:
    """Dead jobs, one by one. Not an async generator: one of those must not be dropped half way."""

    def __init__(self, queue: QueueBase, walk: Walk[None]) -> None:
        self._queue = queue
        self._walk = walk
        self._found: deque[DeadJob] = deque()
        self._step: Step | None = None
        self._over = False

    def __aiter__(self) -> AsyncIterator[DeadJob]:
        return self

    async def __anext__(self) -> DeadJob:
        while not self._found:
            if self._over:
                raise StopAsyncIteration
            # A step that was cancelled, or met an outage, is done again: all of them are reads.
            if self._step is None:
                self._step = next(self._walk)
            answer = await perform(self._queue, self._step, None)
            if isinstance(self._step, Rows):
                self._found.extend(found(answer))
            try:
                self._step = self._walk.send(answer)
            except StopIteration:
                self._over = True
        return self._found.popleft()


def found(jobs: list[JobInFull | None]) -> list[DeadJob]:
    """Answer those that are dead still."""
    return [DeadJob.of(job) for job in jobs if job is not None and job.record.row.get(b"state") == b"dead"]


def find_walk(keys: QueueKeys, filters: DeadFilters) -> Walk[None]:
    """Check the filters, and answer a walk that reads the rows (`Rows`) of what fits.

    Raises:
        TypeError, ValueError: A filter does not fit.
    """
    chosen = _Chosen.of(filters)

    def visit(ids: list[str]) -> Walk[bool]:
        for some in chunks(ids, AT_ONCE):
            yield Rows(some)
        return False

    return _walk(keys, chosen, visit)


def dead_walk(
    keys: QueueKeys,
    verb: Literal["redrive", "remove"],
    filters: DeadFilters,
    limit: int | None,
    rate: Rate | None,
    clock: Callable[[], float],
) -> Walk[int]:
    """Check the arguments, and answer the walk; see `Morgue.redrive`.

    Raises:
        TypeError, ValueError: An argument does not fit.
    """
    chosen = _Chosen.of(filters)
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"a limit is an int of 1 or more, not {shown(limit)}")
    if rate is not None and not isinstance(rate, Rate):
        raise TypeError(f"rate is an echomq.Rate, such as Rate(5) for five a second, not {shown(rate)}")
    return _handled(keys, verb, chosen, limit, None if rate is None else Pacer(rate, clock))


def _handled(keys: QueueKeys, verb: str, chosen: _Chosen, limit: int | None, pacer: Pacer | None) -> Walk[int]:
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

    yield from _walk(keys, chosen, visit)
    if done:
        yield from news_walk(keys)
    if problem is not None:
        raise problem
    return done


def _walk(keys: QueueKeys, chosen: _Chosen, visit: Callable[[list[str]], Walk[bool]]) -> Walk[None]:
    start: Found = yield Query(state=State.DEAD).step(keys, 0, 1)
    query = Query(
        state=State.DEAD,
        task=chosen.task,
        error=chosen.error,
        # Dead before the next millisecond: those that died in this one count, too.
        before_ms=max(1, start.now_ms + 1 - chosen.older_ms),
    )
    yield from walk_set(keys, query, visit)


@final
@attrs.frozen
class _Chosen:
    """Filters, checked."""

    task: str
    error: str
    older_ms: int

    @classmethod
    def of(cls, filters: DeadFilters) -> _Chosen:
        known = {"task", "error", "older"}
        given: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
        if not known >= filters.keys():
            raise TypeError(f"unknown filter {min(filters.keys() - known)!r}; there are task, error, older")
        task, error, older = given.get("task", ""), given.get("error", ""), given.get("older", 0)
        if "task" in given:
            task = str.__str__(check_task_name(task))
        if not isinstance(error, str):
            raise TypeError(f"error is text, not {shown(error)}")
        if byte_size("error", error) > MAX_ERROR_TEXT or ("error" in given and not error):
            raise ValueError(f"error is 1 to {MAX_ERROR_TEXT} bytes, not {shown(error)}")
        try:
            return cls(task, str.__str__(error), to_ms(older))
        except (TypeError, ValueError) as problem:
            raise type(problem)(f"older: {problem}") from None


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
