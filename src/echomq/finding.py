"""Finding jobs: of a state, by task, lane, error text and age, in bounded steps.

Theory of operation
    `find` looks at some hundred jobs of a set at a time and answers the ids that fit; their rows are read some at a time
    as whoever asked goes on. It answers jobs that were in the state when it began, by the server's clock: so it ends,
    also while others come as fast.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, final

import attrs

from echomq._items import byte_size, check_state
from echomq._walks import AT_ONCE, Ask, Query, Rows, Step, Walk, perform, walk_lanes, walk_set
from echomq.children import by_name
from echomq.limits import lane_name
from echomq.protocol._convert import shown
from echomq.protocol.ids import check_id
from echomq.protocol.keys import check_task_name
from echomq.protocol.states import State
from echomq.protocol.times import to_ms
from echomq.transitions import read_flow, read_job

if TYPE_CHECKING:
    from echomq._queue_base import QueueBase
    from echomq.protocol.keys import QueueKeys
    from echomq.transitions import Child, ChildrenPage, Found, JobInFull, LaneState

T = TypeVar("T")

MAX_ERROR_TEXT: Final = 1024
"""Bytes of a text that errors are searched for."""


class JobFilters(TypedDict, total=False):
    """Which jobs, by keyword; without any, all.

    | name | meaning |
    | --- | --- |
    | `task` | jobs of this task |
    | `error` | jobs in whose last error (type and message), or the reason of whose end, this text occurs |
    | `older` | jobs that have been in their state for at least so long: seconds or a timedelta |
    """

    task: str | None
    error: str | None
    older: float | dt.timedelta | None


@final
@attrs.frozen
class Wanted:
    """Filters, checked."""

    task: str
    error: str
    older_ms: int

    @classmethod
    def of(cls, filters: Mapping[str, Any]) -> Wanted:
        """Check filters.

        Raises:
            TypeError, ValueError: One does not fit, or is unknown.
        """
        known = {"task", "error", "older"}
        given = {name: value for name, value in filters.items() if value is not None}
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

    def walk(
        self,
        keys: QueueKeys,
        state: State,
        visit: Callable[[list[str]], Walk[bool]],
        *,
        lane: str | None = None,
        reverse: bool = False,
    ) -> Walk[None]:
        """Hand the ids of those that fit, and are in the state now, to `visit`, which answers whether that is enough."""
        start: Found = yield Query(state=state).step(keys, 0, 1)
        query = Query(
            state=state,
            lane=lane or "",
            of_lane=lane is not None and not (lane and state is State.ACTIVE) and state is not State.PENDING,
            reverse=reverse,
            task=self.task,
            error=self.error,
            # In it before the next millisecond: those that came in this one count, too.
            before_ms=max(1, start.now_ms + 1 - self.older_ms),
        )
        enough = yield from walk_set(keys, query, visit)
        if lane is None and state is State.PENDING and not enough:

            def of_lane(each: LaneState) -> Walk[bool]:
                return (yield from walk_set(keys, attrs.evolve(query, lane=each.name), visit))

            yield from walk_lanes(keys, of_lane)


def check_limit(limit: int | None) -> None:
    """Check how many are wanted at most.

    Raises:
        ValueError: Not an int of 1 or more.
    """
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"a limit is an int of 1 or more, not {shown(limit)}")


def find_walk(
    keys: QueueKeys,
    state: str,
    filters: Mapping[str, Any],
    *,
    lane: str | None = None,
    limit: int | None = None,
    reverse: bool = False,
) -> Walk[None]:
    """Check what is asked, and answer a walk that reads the rows (`Rows`) of what fits; see `Queue.find`.

    Raises:
        TypeError, ValueError: An argument does not fit.
    """
    wanted = Wanted.of(filters)
    where = check_state(state)
    check_limit(limit)
    lane = None if lane is None else lane_name(lane)
    return _rows(keys, where, wanted, lane, limit, bool(reverse))


def _rows(
    keys: QueueKeys,
    state: State,
    wanted: Wanted,
    lane: str | None,
    limit: int | None,
    reverse: bool,  # noqa: FBT001
) -> Walk[None]:
    left = limit

    def visit(ids: list[str]) -> Walk[bool]:
        nonlocal left
        at = 0
        while at < len(ids):
            some = AT_ONCE if left is None else min(AT_ONCE, left)
            jobs: list[JobInFull | None] = yield Rows(ids[at : at + some])
            at += some
            if left is not None:
                left -= len(still(state, jobs))
                if left == 0:
                    return True
        return False

    yield from wanted.walk(keys, state, visit, lane=lane, reverse=reverse)


def still(state: State, jobs: list[JobInFull | None]) -> list[JobInFull]:
    """Answer those that are in the state yet."""
    word = state.value.encode()
    return [job for job in jobs if job is not None and job.record.row.get(b"state") == word]


def job_walk(keys: QueueKeys, id: str, *, log: bool, children: bool) -> Walk[JobInFull | None]:
    """Check the id, and answer the walk that reads a job in full.

    Raises:
        ValueError: Not an id.
    """
    return _read(keys, check_id(id), log, children)


def _read(keys: QueueKeys, id: str, log: bool, children: bool) -> Walk[JobInFull | None]:  # noqa: FBT001
    job: JobInFull | None = yield Ask(lambda call: read_job(keys, call, id, with_log=log))
    if job is None or not children or not job.record.has_children:
        return job
    found: dict[str, Child] = {}
    cursor = ""
    while cursor != "0":
        page: ChildrenPage = yield Ask(
            lambda call, cursor=cursor: read_flow(keys, call, id=id, cursor=cursor or "0", whole=False)  # type: ignore[misc]
        )
        found |= {each.name: each for each in page.children}
        cursor = page.cursor
    return attrs.evolve(job, children=tuple(found[name] for name in sorted(found, key=by_name)))


@final
class FoundJobs(Generic[T]):
    """Jobs, one by one. Not an async generator: one of those must not be dropped half way."""

    def __init__(self, queue: QueueBase, walk: Walk[None], state: State, make: Callable[[JobInFull], T]) -> None:
        self._queue = queue
        self._walk = walk
        self._state = state
        self._make = make
        self._found: deque[T] = deque()
        self._step: Step | None = None
        self._over = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._found:
            if self._over:
                raise StopAsyncIteration
            # A step that was cancelled, or met an outage, is done again: all of them are reads.
            if self._step is None:
                self._step = next(self._walk)
            answer = await perform(self._queue, self._step, None)
            if isinstance(self._step, Rows):
                self._found.extend(map(self._make, still(self._state, answer)))
            try:
                self._step = self._walk.send(answer)
            except StopIteration:
                self._over = True
        return self._found.popleft()
