"""A job's children as its handler sees them, and the jobs that follow it (Protocol, section 7).

::

    @app.task
    async def index(job: echomq.Job, directory: str) -> int:
        async with job.nursery() as children:
            counted = [children.enqueue(count.call(path)) for path in sorted(listing(directory))]
        return sum(each.result() for each in counted)

Leaving the block gives the handler's lease back until the children have ended; then the handler runs **from the top**, as a
new attempt, finds its children by their names, and passes the block. So what stands before the block is done at each
attempt, and the order of children that have no name of their own must be the same each time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, final, overload

import attrs

from echomq.errors import (
    DecodeError,
    EchoMQError,
    InvalidJobError,
    JobCancelledError,
    JobExpiredError,
    JobFailedError,
    JobStateError,
)
from echomq.middleware import measured, passed
from echomq.protocol._convert import shown
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.kin import Policy
from echomq.tasks import JobCall
from echomq.transitions import ForeignNode, LocalNode, Node, pack_nodes

if TYPE_CHECKING:
    from collections.abc import Callable

    from echomq.flows import Chain, Flow
    from echomq.flows import Child as FlowChild
    from echomq.protocol.codec import Codec
    from echomq.protocol.kin import Outcome
    from echomq.protocol.newjob import NewJob
    from echomq.transitions import Child

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

MAX_FOLLOW: Final = 256 << 10
"""Bytes of a job's follow-ups together, as they are sent: as for the items of any call."""
MAX_FOLLOWERS: Final = 128
"""How many follow-ups a job may have: one script admits them all."""
_DIGITS: Final = re.compile(r"(\d+)")


def by_name(name: str) -> list[tuple[int, int, str]]:
    """Answer what to sort names by: as text, but for numbers within, which count as such: "2" is before "10"."""
    parts = enumerate(_DIGITS.split(name))
    return [(0, int(part), part) if at % 2 else (1, 0, part) for at, part in parts if part]


@final
@attrs.frozen(kw_only=True)
class ChildFailure:
    """How a child ended that did not complete."""

    name: str
    """Its name among its parent's children."""
    id: str
    """Its id."""
    queue: str
    """Its queue."""
    kind: str
    """`dead`, `cancelled`, `discarded`, `expired`, `removed`, `duplicate` (its dedup key was held) or `lost` (nobody knows
    it any more)."""
    reason: str
    """Why, for people."""
    error: ErrorRecord | None
    """Its last error; None when it had none."""
    attempts: int
    """How often it was claimed."""

    @classmethod
    def of(cls, child: Child, queue: str) -> ChildFailure:
        """Make it of what was read.

        Args:
            child: The child, which has ended.
            queue: Its parent's queue.
        """
        outcome = child.outcome
        assert outcome is not None  # noqa: S101 - it has ended
        try:
            error = outcome.error
        except DecodeError as torn:
            error = ErrorRecord("DecodeError", str(torn))
        return cls(
            name=child.name, id=child.ref.id, queue=child.ref.queue or queue, kind=outcome.kind, reason=outcome.reason,
            error=error, attempts=outcome.token,
        )  # fmt: skip

    def raised(self) -> EchoMQError:
        """Make the error that whoever waits for the job's own handle would get."""
        if self.kind == "cancelled":
            return JobCancelledError(self.id, self.reason)
        if self.kind == "expired":
            return JobExpiredError(self.id)
        record = self.error if self.kind == "dead" else None
        if record is None:
            return JobFailedError(
                self.id, "Discard" if self.kind == "discarded" else self.kind, self.reason, "", self.attempts
            )
        return JobFailedError(self.id, record.type, record.message, record.traceback, self.attempts)


def read_result(child: Child, read: Callable[[bytes], T]) -> T:
    """Decode the result of a child that has completed. A codec of the user's may raise anything: that is one error.

    Raises:
        DecodeError: It is not of that type, or the codec failed.
    """
    outcome: Outcome | None = child.outcome
    data = (outcome.body if outcome is not None else None) or b"null"
    try:
        return read(data)
    except Exception as error:
        text = str(error) if isinstance(error, DecodeError) else f"{type(error).__name__}: {error}"
        raise DecodeError(f"the result of child {child.name!r} ({child.ref.id}) cannot be decoded: {text}") from error


# --- in a nursery ----------------------------------------------------------------------------------------------------


@final
class SpawnedChild(Generic[R_co]):
    """A child that a handler has enqueued: `children.enqueue(...)` answers it. It can be asked after the block."""

    __slots__ = ("_call", "_codec", "_found", "_queue", "id", "kind", "name", "policy")

    def __init__(self, call: JobCall[R_co], name: str, policy: Policy, id: str, queue: str, codec: Codec) -> None:
        self.name = name
        """Its name among the job's children, the same at each attempt."""
        self.id = id
        """Its id; that of the job which an earlier attempt has made once that is known, after the block."""
        self.policy = policy
        """What its failure does."""
        self.kind: str | None = None
        """How it had ended when the block was left; None: it had not, or nobody waits for it."""
        self._call = call
        self._queue = queue
        self._codec = codec
        self._found: Child | None = None

    def __repr__(self) -> str:
        return f"<SpawnedChild {self.name!r} {self.id} {self.kind or 'open'}>"

    @property
    def queue(self) -> str:
        """Its queue."""
        return self._call.queue if self._found is None else self._found.ref.queue or self._queue

    def settle(self, found: Child) -> None:
        """Take what was read of it."""
        self._found, self.id, self.policy = found, found.ref.id, found.ref.policy  # as an earlier attempt has said
        self.kind = None if found.outcome is None else found.outcome.kind

    @property
    def failure(self) -> ChildFailure | None:
        """How it failed; None when it has not."""
        found = self._found
        failed = found is not None and found.outcome is not None and found.outcome.failed
        return ChildFailure.of(found, self._queue) if found is not None and failed else None

    @overload
    def result(self, /) -> R_co: ...
    @overload
    def result(self, type: Callable[..., T], /) -> T: ...
    @overload
    def result(self, type: Any, /) -> Any: ...
    def result(self, type: Any = None, /) -> Any:
        """Answer what it returned.

        Args:
            type: What to make of it; None: what its task says it returns.

        Raises:
            JobStateError: It has not ended, or nobody waits for it: it is detached, or the block is not over.
            JobFailedError, JobCancelledError, JobExpiredError: It has failed, been cancelled, or was too late.
            DecodeError: The result is not of that type.
        """
        failure, found = self.failure, self._found
        if failure is not None:
            raise failure.raised()
        if found is None or found.outcome is None or not found.outcome.completed:
            raise JobStateError("ended", "detached" if self.policy is Policy.DETACH else "open", self.id)
        codec = self._codec
        return read_result(found, self._call.read if type is None else lambda data: codec.decode(data, type))


class Nursery(Protocol):
    """What `async with job.nursery() as children:` gives."""

    @overload
    def enqueue(
        self, node: JobCall[R], /, *, name: str | None = None, on_failure: str | None = None, detached: bool = False
    ) -> SpawnedChild[R]: ...
    @overload
    def enqueue(
        self,
        node: Flow | Chain | FlowChild,
        /,
        *,
        name: str | None = None,
        on_failure: str | None = None,
        detached: bool = False,
    ) -> SpawnedChild[Any]: ...
    def enqueue(
        self, node: Any, /, *, name: str | None = None, on_failure: str | None = None, detached: bool = False
    ) -> SpawnedChild[Any]:
        """Enqueue a child. It is sent while the block goes on, in one call with others.

        What the call does not say it has from its parent: the lane; the deadline, if that is earlier; the headers, those
        of the call counting where both have one.

        Args:
            node: A task's call; or a flow or a chain, whose parent or last link is the child. What hangs below it in one queue
                goes in one call.
            name: Its name among the job's children; None: "0", "1", ... by a count over all nurseries of the job. A name
                that an earlier attempt has used *is* that child, whatever is enqueued by it now: so the order of those without
                a name must be the same at each attempt.
            on_failure: `fail_parent`: the job is buried when this child fails. `ignore`: it is told, `c.failure`.
                `run_parent`: the same, and the job goes on at once, without waiting for the others. None: as the nursery
                says.
            detached: Whether nobody waits for it, and nothing of it is told.

        Raises:
            TypeError: It is no call, flow or chain; or `detached` is no bool.
            ValueError: The name was used before in this attempt, or is another than the child's own; a call has a dedup mode;
                a detached child has a policy; or the flow would be too deep or too large (`flow_limits`).
            RuntimeError: The block is over.
        """


# --- after a job -----------------------------------------------------------------------------------------------------


class Stage(Protocol):
    """What keeps follow-ups until a job has completed."""

    def stage(self, node: Node) -> None:
        """Keep one."""


@final
class FollowUps:
    """Jobs that are admitted together with this one's completion, and only if that counts: `job.on_complete`."""

    __slots__ = ("_queue", "_stage")

    def __init__(self, queue: str, stage: Stage) -> None:
        self._queue = queue
        self._stage = stage

    def enqueue(self, call: JobCall[Any], /) -> str:
        """Enqueue a job for when this one has completed. Nothing is sent before the handler has returned.

        Returns:
            The id that it will have.

        Raises:
            TypeError: It is no call.
            ValueError: It has a dedup mode; or there are more than 128, or 256 KiB, of them.
            LeaseLostError: In a process: its handler has ended.

        Server effect: in the script that completes the job, if and only if that is accepted, a follow-up of the same queue
            is admitted, and one of another queue is put into the outbox, from which it is delivered. None is if the
            attempt fails, is stopped, or has lost its lease. One whose dedup key is held is left out.
        """
        node = follow_up(call, self._queue)
        self._stage.stage(node)
        return node.id if isinstance(node, ForeignNode) else node.job.id


def follow_up(call: JobCall[Any], queue: str) -> Node:
    """Make a follow-up of a job in a queue.

    Raises:
        TypeError: It is no call.
        ValueError: It has a dedup mode.
    """
    if not isinstance(call, JobCall):
        raise TypeError(f"a follow-up is a task's call, such as report.call(), not {shown(call)}")
    call = passed(call)
    measured(call, None)  # its answer is that of the verdict it goes with
    mode = call.options.fields.get("dedup_mode", "reject")
    if mode != "reject":
        raise ValueError(f"dedup_mode {mode!r}: a follow-up stays out while another job holds its dedup key")
    job: NewJob = call.options.model(call.task, call.payload)
    local = LocalNode(job=job)
    return local if call.queue == queue else ForeignNode(queue=call.queue, id=job.id, nodes=pack_nodes((local,)))


def too_many(what: str) -> InvalidJobError:
    """Make the error of follow-ups that do not fit."""
    return InvalidJobError(
        f"follow-ups of one job: {what} are more than fit into its completion: let one follow-up enqueue the others"
    )
