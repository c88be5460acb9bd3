"""What stands for the server when a task's function is run without one: it keeps what a handler notes, and says yes.

All else is the worker's own: the lease, the notes and their checks, the family, the verdict.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NoReturn, final

import anyio.lowlevel
import attrs

from echomq.flows import DEFAULT_LIMITS
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.ids import mint
from echomq.protocol.keys import QueueKeys
from echomq.protocol.kin import COMPLETED, ChildRef, Outcome, Policy
from echomq.protocol.refusals import OK, STATE, Verdict
from echomq.transitions import Checkpoint, ChildrenPage
from echomq.transitions import Child as ReadChild
from echomq.worker.calls import MAX_DEPTH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from echomq.protocol.codec import Codec

_YES: Final = Verdict(OK)
_NOTES: Final = ("progress", "checkpoint", "log")
VERDICTS: Final = ("complete", "fail", "snooze", "end", "rate_limited")
"""How an attempt may end here."""


def _refuse(what: str) -> NoReturn:
    raise RuntimeError(
        f"{what} needs a server: run this job through a queue, as `await echomq.testing.drain(app)` does"
    )


@final
class _Group:
    """Items of one verb: each is kept, and answered at once."""

    def __init__(self, verb: str, take: Callable[[str, Any], Verdict]) -> None:
        self.verb = verb
        self._take = take

    async def __call__(self, item: Any) -> Verdict:
        await anyio.lowlevel.checkpoint()
        return self._take(self.verb, item)

    def submit(self, item: Any, done: Callable[[Verdict], object], give_up_after: float | None = None) -> None:
        done(self._take(self.verb, item))


@final
class _Wire:
    """The connection that is not there: it answers which children the job has."""

    tag = "testing"

    def __init__(self, children: tuple[ReadChild, ...]) -> None:
        self._children = children

    async def run(self, transition: Any, *, route: str | None = None) -> Any:
        if transition.verb != "read_flow":
            _refuse(f"the verb {transition.verb!r}")
        await anyio.lowlevel.checkpoint()
        ended = sum(child.outcome is not None for child in self._children)
        return ChildrenPage("0", len(self._children), ended, self._children)

    async def remembered(self, keys: Any, build: Any, *, verb: str, route: str | None = None) -> Any:
        _refuse("job.nursery()" if verb == "spawn" else f"the verb {verb!r}")


@final
class StandIn:
    """One queue as a lease sees it, without a server."""

    max_depth = MAX_DEPTH
    flow_limits = DEFAULT_LIMITS

    def __init__(self, queue: str, step: int | None, children: tuple[ReadChild, ...]) -> None:
        """Make it.

        Args:
            queue: Its name.
            step: The step of the checkpoint that an earlier attempt kept.
            children: What the job's children are.
        """
        self.queue = queue
        self.keys = QueueKeys(queue=queue)
        self.wire = _Wire(children)
        self.items: dict[str, list[Any]] = {verb: [] for verb in (*_NOTES, *VERDICTS)}
        """What was said, by verb."""
        self._step = step
        for verb in self.items:
            setattr(self, verb, _Group(verb, self._take))

    def owes(self) -> None:
        """Hear that there is something for another queue."""

    def _take(self, verb: str, item: Any) -> Verdict:
        if isinstance(item, Checkpoint):
            if self._step is not None and item.step < self._step:
                return Verdict(STATE, f"step {self._step}")
            self._step = item.step
        self.items[verb].append(item)
        return _YES


def children_of(values: Mapping[str, Any], codec: Codec) -> tuple[ReadChild, ...]:
    """Make children that have ended: completed with a value, or dead by an exception, which was to be ignored."""

    def outcome_of(value: Any) -> Outcome:
        if isinstance(value, BaseException):
            record = ErrorRecord.from_exception(value)
            return Outcome("dead", 0, 1, record.message, record.to_bytes())
        return Outcome(COMPLETED, 0, 1, "", codec.encode(value))

    return tuple(
        ReadChild(name, ChildRef(mint(), Policy.IGNORE, ""), outcome_of(value)) for name, value in values.items()
    )


@final
@attrs.frozen
class FollowUp:
    """A job that was to be enqueued with the completion: `job.on_complete.enqueue(call)`."""

    queue: str
    """Its queue."""
    task: str
    """Its task's name."""
    args: tuple[Any, ...] = ()
    """Its arguments by place: of the declared types if the app has the task, else as the codec decodes them."""
    kwargs: Mapping[str, Any] = attrs.field(factory=dict)
    """Its arguments by name."""
