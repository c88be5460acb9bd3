"""Adding flows and looking at them, in a trio or anyio program (Protocol, section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final, overload

import anyio
import attrs

from echomq._flow_steps import Added, Prepared, add_walk, flow_cancel_walk, prepare
from echomq._items import check_progress
from echomq._walks import drive
from echomq.errors import EchoMQError, UnavailableError
from echomq.flow_tree import FlowTree, TreeLimits, tree_walk
from echomq.flows import DEFAULT_LIMITS, Chain, Child, Flow, FlowLimits, Group, Node, several, trees_of
from echomq.protocol._convert import shown
from echomq.protocol.ids import check_id
from echomq.protocol.times import to_wait
from echomq.results import JobHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from echomq._flow_plan import Planned
    from echomq.client import Client
    from echomq.results import EnqueueOutcome
    from echomq.sweeps import CancelReport
    from echomq.tasks import JobCall

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@final
@attrs.frozen(repr=False)
class FlowHandle(Generic[R_co]):
    """A flow that was added: its top job, and its children by name. A value, as a `JobHandle` is."""

    job: JobHandle[R_co]
    """The top job: `await handle.job.cancel()`, `.state()`, and so on."""
    children: Mapping[str, FlowHandle[Any]] = attrs.field(eq=False)
    """Its children, by name, in the order in which they were given. Of one of the same queue whose dedup key was held,
    the handle is that of the job which holds it, and nothing is below it."""

    def __repr__(self) -> str:
        return f"<FlowHandle {self.id} of {len(self.children)}>"

    @property
    def id(self) -> str:
        """The top job's id; of one whose dedup key was held, that of the job which holds it."""
        return self.job.id

    @property
    def queue(self) -> str:
        """The top job's queue."""
        return self.job.queue

    @property
    def admitted(self) -> bool:
        """Whether it was added with what is below it; False: the job's dedup key is held, and nothing was."""
        return self.job.admitted

    async def result(self, timeout: float | None = None) -> R_co:
        """Wait until the top job has ended, and answer what its handler returned. See `JobHandle.result`."""
        return await self.job.result(timeout)

    async def cancel(self, *, reason: str = "") -> CancelReport:
        """Cancel the top job, and all that it waits for: what does not run ends, what runs is asked to stop.

        Args:
            reason: Why, for people; up to 1,024 bytes.

        Returns:
            How many jobs have ended by this call, and how many were asked, the top job among them. Of a top job that
            runs, its children are told when it has ended.

        Raises:
            ValueError, JobNotFoundError, JobStateError, UnavailableError: As `Queue.cancel`.

        Cancellation: a checkpoint; if cancelled after it was sent, workers tell the children.
        """
        owner = self.job._owner  # noqa: SLF001 - its own job's
        return await drive(owner, flow_cancel_walk(owner.keys, self.id, reason))

    def walk(self) -> Iterator[FlowHandle[Any]]:
        """Go over all of its handles, parents before children."""
        stack: list[FlowHandle[Any]] = [self]
        while stack:
            handle = stack.pop()
            yield handle
            stack.extend(reversed(list(handle.children.values())))


@final
@attrs.frozen
class GroupHandle:
    """A group that was added by itself: the handles of its members, in order."""

    members: tuple[FlowHandle[Any], ...]

    async def results(self, timeout: float | None = None) -> list[Any]:
        """Wait until all members have ended, and answer what their handlers returned, in order.

        Args:
            timeout: Seconds to wait at most for all of them; 0 only looks; None: for as long as it takes.

        Raises:
            EchoMQError, TimeoutError: As `JobHandle.result`, of the first member, in order, that did not complete.

        Cancellation: a checkpoint. Cancelling ends the waiting and not the jobs.
        """
        until = None if timeout is None else anyio.current_time() + to_wait(timeout)
        return [
            await member.result(None if until is None else max(0.0, until - anyio.current_time()))
            for member in self.members
        ]


@final
class Flows:
    """The flows of an app or a client: `app.flows`."""

    def __init__(self, client: Callable[[], Client], limits: FlowLimits = DEFAULT_LIMITS) -> None:
        """Used by `App` and `Client`."""
        self._client = client
        self._limits = limits

    @overload
    async def add(
        self, flow: JobCall[R], *, progress: Callable[[int], Awaitable[None]] | None = None
    ) -> FlowHandle[R]: ...
    @overload
    async def add(self, flow: Flow, *, progress: Callable[[int], Awaitable[None]] | None = None) -> FlowHandle[Any]: ...
    @overload
    async def add(self, flow: Group, *, progress: Callable[[int], Awaitable[None]] | None = None) -> GroupHandle: ...
    @overload
    async def add(self, flow: Node, *, progress: Callable[[int], Awaitable[None]] | None = None) -> Any: ...
    async def add(self, flow: Node, *, progress: Callable[[int], Awaitable[None]] | None = None) -> Any:
        """Add a flow: `await app.flows.add(flow(report.call(), [count.call(p) for p in paths]))`.

        Args:
            flow: A `flow`, `chain` or `group`, or one call.
            progress: Awaited now and then, for a flow that is added in rounds, with the number of its jobs added so far.

        Returns:
            A `FlowHandle`; of a group a `GroupHandle`, whose members are added one after another, each by itself.

        Raises:
            ValueError: It is larger than `flow_limits`, two children have one name, or a value does not fit.
            InvalidJobError: A job's value is out of range, or too large; nothing was sent.
            QueueFullError: The top job's queue is full; nothing was added.
            JobStateError: The queue is being closed; nothing was added.
            UnavailableError: The server was not reached in time. All of it was added, or nothing; what was added in
                rounds that were not all sent runs never, and is gone within two minutes.

        Server effect: up to 256 jobs of one queue and 256 KiB come by one script, all or nothing. A larger flow comes in
            rounds, and none of its jobs runs before the last round. Children in other queues are sent from the top job's
            queue, whose jobs are there by then: at once by this call, or else by the next worker that looks.
        Cancellation: a checkpoint; if cancelled, as for `UnavailableError`.
        Delivery: exactly once, also when a reply is lost and the call is sent again.
        """
        made = prepared_of(flow, self._limits)
        return await self._add(made, progress)

    async def _add(self, made: list[Prepared] | Prepared, progress: Callable[[int], Awaitable[None]] | None) -> Any:
        if isinstance(made, list):
            return GroupHandle(tuple([await self._add(each, progress) for each in made]))
        client = self._client()
        queue = client.queue(made.queue)
        client.wire.check()
        client.wire.note_use(queue.keys)
        return _handle(client, await drive(queue, add_walk(queue.keys, made), progress))

    async def add_many(
        self, flows: Iterable[Node], *, progress: Callable[[int], Awaitable[None]] | None = None
    ) -> list[Any]:
        """Add any number of flows, one after another; one that is refused fails no other.

        Args:
            flows: Flows, chains, groups, calls.
            progress: Awaited with the number of flows that have been answered, after each.

        Returns:
            For each, in order, what `add` would answer, or the error it met. After an `UnavailableError` the rest is not
            sent, and is answered with that error.

        Raises:
            TypeError, ValueError, InvalidJobError: One is no flow, or cannot be added as it is; none was sent.

        Cancellation: a checkpoint; some may have been added.
        """
        check_progress(progress)
        every = [prepared_of(node, self._limits) for node in several(flows, "flows")]
        answers: list[Any] = []
        broken: UnavailableError | None = None
        for made in every:
            try:
                answers.append(broken or await self._add(made, None))
            except UnavailableError as error:
                broken = error
                answers.append(error)
            except EchoMQError as error:
                answers.append(error)
            if progress is not None:
                await progress(len(answers))
        return answers

    async def tree(
        self,
        job: FlowHandle[Any] | JobHandle[Any] | str,
        queue: str | None = None,
        *,
        whole: bool = False,
        limits: TreeLimits | None = None,
    ) -> FlowTree:
        """Read a flow as it is now, from one of its jobs on.

        Args:
            job: A handle, or an id.
            queue: The job's queue, with an id.
            whole: Start at the job at the top, as far as rows still say which that is.
            limits: How much is read; None: 16 levels, 50 children of a parent, 1,000 jobs.

        Raises:
            JobNotFoundError: There is no such job (any more).
            TypeError, ValueError: An id without its queue, or no id.
            UnavailableError: The server was not reached in time.

        Cancellation: a checkpoint.
        Delivery: several reads, one after another: jobs that move meanwhile are shown where they were.
        """
        id, name = named(job, queue)
        where = self._client().queue(name)
        return await drive(where, tree_walk(where.keys, id, limits or TreeLimits(), whole=whole))


def named(job: Any, queue: str | None) -> tuple[str, str]:
    """Answer the id and the queue of a job that is named by a handle, or by both.

    Raises:
        TypeError: An id without a queue, or neither a handle nor an id.
        ValueError: Not an id.
    """
    if isinstance(job, str):
        if queue is None:
            raise TypeError(f"the queue of {job!r} is wanted, too")
        return check_id(job), queue
    id, name = getattr(job, "id", None), getattr(job, "queue", None)
    if not (isinstance(id, str) and isinstance(name, str)):
        raise TypeError(f"a job is named by its handle, or by its id and its queue, not by {shown(job)}")
    return id, name


def prepared_of(node: Node, limits: FlowLimits) -> Prepared | list[Prepared]:
    """Make what is added of a node: one flow, or those of a group.

    Raises:
        TypeError, ValueError, InvalidJobError: It is no node, or cannot be added as it is.
    """
    made = [prepare(tree) for tree in trees_of(node, limits)]
    return made if is_group(node) else made[0]


def is_group(node: Node) -> bool:
    """Tell whether adding a node adds several flows."""
    match node:
        case Child():
            return is_group(node.node)
        case Group():
            return True
        case Chain(links=()):
            return is_group(node.first)
    return isinstance(node, Group)


def _handle(client: Client, added: Added) -> FlowHandle[Any]:
    def job_of(one: Planned, id: str, outcome: EnqueueOutcome) -> JobHandle[Any]:
        return JobHandle(id, one.queue, outcome, client.queue(one.queue), one.call.read)

    made: FlowHandle[Any] = handles_of(added, job_of, FlowHandle)
    return made


def handles_of(
    added: Added, job_of: Callable[[Planned, str, EnqueueOutcome], Any], kind: Callable[[Any, Any], Any]
) -> Any:
    """Make the handles of what was added, children first: no call goes deeper for a deep tree."""
    made: dict[int, Any] = {}
    for one in reversed(added.planned):
        below = {kid.branch.name: made.pop(id(kid)) for kid in one.kids if kid.branch is not None}
        holder = added.holders.get(one.job.id)
        if holder is None:
            made[id(one)] = kind(job_of(one, one.job.id, "admitted"), MappingProxyType(below))
        else:
            made[id(one)] = kind(job_of(one, holder, "duplicate"), MappingProxyType({}))
    return made[id(added.planned[0])]
