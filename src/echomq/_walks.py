"""Walks over a queue in bounded steps, decided here and run elsewhere.

Theory of operation
    A walk is a generator: it yields what it wants to be done next (`Ask`, `Each`, `Plain`, `Aside`, `Rows`, `Wait`, `Tell`, `At`),
    is sent the answer, and returns what it has found. It does no I/O and knows no clock, so the asynchronous client
    (`drive`) and the synchronous one (`echomq.sync.driving`) run the very same walks. An error of the server's is raised
    at the `yield`.

    `walk_set` goes through one sorted set while others change it. It asks for ids by `find`, some hundred at a time, and
    moves on by what was looked at, less what it has handed out: had all of those been taken out of the set meanwhile, the
    next step begins exactly behind them. Those that are still there it meets once more, knows, and passes.

If you change this
    A walk may be left at any `yield`, by cancellation or an error. So nothing may be owed at one: whatever was begun is
    complete, or is found again by the next call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import anyio
import attrs

from echomq._items import check_progress
from echomq.errors import EchoMQError
from echomq.transitions import (
    MAX_ROUND,
    Call,
    Found,
    JobInFull,
    LanePage,
    LaneState,
    Transition,
    find,
    read_job,
    read_lanes,
)

if TYPE_CHECKING:
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict
    from echomq.wire.client import WireClient

R = TypeVar("R")
T = TypeVar("T")

STEP: Final = MAX_ROUND
"""Jobs that one step looks at."""
AT_ONCE: Final = 32
"""Rows that are read at the same time; each may be a megabyte and more."""


@final
@attrs.frozen
class Ask:
    """Run a transition that may be repeated without harm."""

    build: Callable[[Call], Transition[Any]]
    """Makes it, for who calls."""


@final
@attrs.frozen
class Once:
    """Run a transition that must not run twice."""

    verb: str
    """Its verb."""
    build: Callable[[Call], Transition[Any]]
    """Makes it, for the number of the call."""


@final
@attrs.frozen
class Each:
    """Run a multi-item verb. Answered by a verdict or an error for each item, in order."""

    verb: str
    """The verb."""
    items: Sequence[Any]
    """Its items, any number."""


@final
@attrs.frozen
class Plain:
    """Run a plain read of the server's. Answered by its raw reply."""

    args: tuple[bytes | str | int, ...]
    """The command."""


@final
@attrs.frozen
class Aside:
    """Run a plain command that is no part of the queue, and that may fail: nobody hears of it."""

    args: tuple[bytes | str | int, ...]
    """The command."""


@final
@attrs.frozen
class Rows:
    """Read jobs. Answered by each job, or None, in order."""

    ids: Sequence[str]
    """Which; `AT_ONCE` at most."""


@final
@attrs.frozen
class Wait:
    """Let time pass."""

    seconds: float
    """How much."""


@final
@attrs.frozen
class Tell:
    """Tell the caller how far it is."""

    count: int
    """How many by now."""


@final
@attrs.frozen
class At:
    """Do something in another queue of the same server."""

    queue: str
    """Its name."""
    step: Ask | Once | Each | Rows
    """What."""


Step = Ask | Once | Each | Plain | Aside | Rows | Wait | Tell | At
"""What a walk may want."""
Walk = Generator[Step, Any, R]
"""A walk that returns an R."""
Outcomes = list["Verdict | EchoMQError"]
"""What `Each` is answered by."""


@final
@attrs.frozen(kw_only=True)
class Query:
    """Which jobs of which set; see `echomq.transitions.find`."""

    state: str
    """The set."""
    lane: str = ""
    """A lane, whose set it is; or of whose jobs, in a set of the whole queue."""
    of_lane: bool = False
    """Whether the latter."""
    reverse: bool = False
    """From the far end."""
    task: str = ""
    """Of this task; "": of any."""
    error: str = ""
    """With this in their error or reason; "": any."""
    before_ms: int = 0
    """In the state since before this moment; 0: any."""

    def step(self, keys: QueueKeys, offset: int, bound: int) -> Ask:
        """Ask for those among `bound` jobs from `offset` on."""
        return Ask(lambda call: find(keys, call, offset=offset, bound=bound, **attrs.asdict(self)))


def walk_set(keys: QueueKeys, query: Query, visit: Callable[[list[str]], Walk[bool]]) -> Walk[bool]:
    """Go through a set, and hand ids to `visit`, which may take them out of it, and answers whether that is enough.

    Each job that is in the set from the beginning to the end is handed out, unless others take jobs out of the part
    that lies behind, or put them from the part ahead into it. It ends also while others add jobs as fast.

    Returns:
        Whether `visit` has had enough.
    """
    offset, steps, most = 0, 0, 0
    known: frozenset[str] = frozenset()
    while True:
        found: Found = yield query.step(keys, offset, STEP)
        most = most or 4 + 4 * (found.total // STEP)
        fresh = [id for id in found.ids if id not in known]
        if fresh and (yield from visit(fresh)):
            return True
        steps += 1
        if found.examined < STEP or steps >= most:
            return False
        offset += found.examined - len(fresh)
        known = frozenset(fresh)


def walk_lanes(keys: QueueKeys, visit: Callable[[LaneState], Walk[bool]]) -> Walk[bool]:
    """Hand the lanes that have ready jobs to `visit`, each once; not the jobs without a lane. Ends when it has enough."""
    cursor: int | None = 0
    met: set[str] = set()
    while cursor is not None:
        page: LanePage = yield Ask(lambda call, cursor=cursor: read_lanes(keys, call, cursor=cursor, count=100))  # type: ignore[misc]
        for each in page.lanes:
            if each.name and each.pending and each.name not in met:
                met.add(each.name)
                if (yield from visit(each)):
                    return True
        cursor = page.cursor or None
    return False


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class Ground(Protocol):
    """Where a walk is: a queue, or what a worker has of one."""

    @property
    def wire(self) -> WireClient:
        """What runs transitions."""

    @property
    def keys(self) -> QueueKeys:
        """The queue."""


@final
@attrs.frozen
class Other:
    """Another queue than the one a walk began in."""

    wire: WireClient
    keys: QueueKeys


async def perform(queue: Ground, step: Step, progress: Callable[[int], Awaitable[None]] | None) -> Any:
    """Do what a walk wants next."""
    wire = queue.wire
    match step:
        case Ask(build):
            return await wire.run(build(Call(wire.tag)))
        case Once(verb, build):
            return await wire.remembered(queue.keys, build, verb=verb)
        case Each(verb, items):
            return await wire.group(queue.keys, verb).many(items)
        case Plain(args):
            return await wire.command(*args, keys=queue.keys, repeat=True)
        case Aside(args):
            with suppress(EchoMQError):
                await wire.command(*args, repeat=True)
        case Rows(ids):
            return await _read(queue, ids)
        case At(name, there):
            return await perform(Other(wire, attrs.evolve(queue.keys, queue=name)), there, progress)
        case Wait(seconds):
            await anyio.sleep(seconds)
        case Tell(count):
            if progress is not None:
                await progress(count)
    return None


async def drive(queue: Ground, walk: Walk[R], progress: Callable[[int], Awaitable[None]] | None = None) -> R:
    """Run a walk to its end.

    Raises:
        TypeError: `progress` cannot be called; nothing was sent.
    """
    check_progress(progress)
    answer, problem = None, None
    with closing(walk):
        while True:
            try:
                step = walk.send(answer) if problem is None else walk.throw(problem)
            except StopIteration as stop:
                found: R = stop.value
                return found
            answer, problem = None, None
            try:
                answer = await perform(queue, step, progress)
            except EchoMQError as error:
                problem = error


async def _read(queue: Ground, ids: Sequence[str]) -> list[JobInFull | None]:
    wire = queue.wire
    wire.check()
    jobs: list[JobInFull | None] = [None] * len(ids)
    failures: list[Exception] = []

    async def read(at: int, id: str) -> None:
        try:
            jobs[at] = await wire.run(read_job(queue.keys, Call(wire.tag), id))
        except Exception as error:  # noqa: BLE001 - raised below, and not in a group
            failures.append(error)

    async with anyio.create_task_group() as tasks:
        for at, id in enumerate(ids):
            tasks.start_soon(read, at, id)
    if failures:
        raise failures[0]
    return jobs
