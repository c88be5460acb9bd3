"""Adding flows and looking at them, in a program that blocks (Protocol, section 7)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final, overload

import attrs

from echomq._flow_steps import Added, Prepared, add_walk, flow_cancel_walk
from echomq._items import check_progress
from echomq.errors import EchoMQError, UnavailableError
from echomq.flow_handles import handles_of, named, prepared_of
from echomq.flow_tree import FlowTree, TreeLimits, tree_walk
from echomq.flows import DEFAULT_LIMITS, Flow, FlowLimits, Group, Node, several
from echomq.protocol.times import to_wait
from echomq.sync.driving import drive
from echomq.sync.handles import JobHandle

if TYPE_CHECKING:
    from echomq._flow_plan import Planned
    from echomq.results import EnqueueOutcome
    from echomq.sweeps import CancelReport
    from echomq.sync.client import Client
    from echomq.sync.runner import Runner
    from echomq.tasks import JobCall

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


@final
@attrs.frozen(repr=False)
class FlowHandle(Generic[R_co]):
    """A flow that was added. What `echomq.FlowHandle` is, with methods that block."""

    job: JobHandle[R_co]
    """The top job."""
    children: Mapping[str, FlowHandle[Any]] = attrs.field(eq=False)
    """Its children, by name."""

    def __repr__(self) -> str:
        return f"<FlowHandle {self.id} of {len(self.children)}>"

    @property
    def id(self) -> str:
        """The top job's id."""
        return self.job.id

    @property
    def queue(self) -> str:
        """The top job's queue."""
        return self.job.queue

    @property
    def admitted(self) -> bool:
        """Whether the flow was added."""
        return self.job.admitted

    def result(self, timeout: float | None = None) -> R_co:
        """Wait until the top job has ended, and answer what its handler returned. See `JobHandle.result`."""
        return self.job.result(timeout)

    def cancel(self, *, reason: str = "") -> CancelReport:
        """Cancel the top job, and all that it waits for. See `echomq.FlowHandle.cancel`."""
        owner = self.job._owner  # noqa: SLF001 - its own job's
        return drive(owner.runner, owner.keys, flow_cancel_walk(owner.keys, self.id, reason))

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

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait until all members have ended, and answer what their handlers returned. See `echomq.GroupHandle.results`."""
        until = None if timeout is None else time.monotonic() + to_wait(timeout)
        return [member.result(None if until is None else max(0.0, until - time.monotonic())) for member in self.members]


@final
class Flows:
    """The flows of a client: `client.flows`. What `echomq.Flows` is, with methods that block."""

    def __init__(self, client: Client, runner: Runner, limits: FlowLimits = DEFAULT_LIMITS) -> None:
        """Used by `Client`."""
        self._client = client
        self._runner = runner
        self._limits = limits

    @overload
    def add(self, flow: JobCall[R], *, progress: Callable[[int], None] | None = None) -> FlowHandle[R]: ...
    @overload
    def add(self, flow: Flow, *, progress: Callable[[int], None] | None = None) -> FlowHandle[Any]: ...
    @overload
    def add(self, flow: Group, *, progress: Callable[[int], None] | None = None) -> GroupHandle: ...
    @overload
    def add(self, flow: Node, *, progress: Callable[[int], None] | None = None) -> Any: ...
    def add(self, flow: Node, *, progress: Callable[[int], None] | None = None) -> Any:
        """Add a flow. See `echomq.Flows.add` for what it answers, raises and promises."""
        return self._add(prepared_of(flow, self._limits), progress)

    def _add(self, made: list[Prepared] | Prepared, progress: Callable[[int], None] | None) -> Any:
        if isinstance(made, list):
            return GroupHandle(tuple([self._add(each, progress) for each in made]))
        keys = self._client.queue(made.queue).keys
        handle = self._handle(drive(self._runner, keys, add_walk(keys, made), progress))
        self._runner.note_use(keys)
        return handle

    def add_many(self, flows: Iterable[Node], *, progress: Callable[[int], None] | None = None) -> list[Any]:
        """Add any number of flows, one after another. See `echomq.Flows.add_many`."""
        check_progress(progress)
        every = [prepared_of(node, self._limits) for node in several(flows, "flows")]
        answers: list[Any] = []
        broken: UnavailableError | None = None
        for made in every:
            try:
                answers.append(broken or self._add(made, None))
            except UnavailableError as error:
                broken = error
                answers.append(error)
            except EchoMQError as error:
                answers.append(error)
            if progress is not None:
                progress(len(answers))
        return answers

    def tree(
        self,
        job: FlowHandle[Any] | JobHandle[Any] | str,
        queue: str | None = None,
        *,
        whole: bool = False,
        limits: TreeLimits | None = None,
    ) -> FlowTree:
        """Read a flow as it is now, from one of its jobs on. See `echomq.Flows.tree`."""
        id, name = named(job, queue)
        keys = self._client.queue(name).keys
        return drive(self._runner, keys, tree_walk(keys, id, limits or TreeLimits(), whole=whole))

    def _handle(self, added: Added) -> FlowHandle[Any]:
        def job_of(one: Planned, id: str, outcome: EnqueueOutcome) -> JobHandle[Any]:
            return JobHandle(id, one.queue, outcome, self._client.queue(one.queue), one.call.read)

        made: FlowHandle[Any] = handles_of(added, job_of, FlowHandle)
        return made
