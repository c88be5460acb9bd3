"""What a lease knows of its job's children, and what it keeps for its completion (Protocol, section 7).

The children are read when they are asked for, page by page. Follow-ups are kept here, packed, until a verdict takes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import anyio
import anyio.lowlevel

from echomq.children import MAX_FOLLOW, MAX_FOLLOWERS, ChildFailure, by_name, read_result, too_many
from echomq.flows import check_policy
from echomq.protocol.kin import Policy
from echomq.transitions import Call, ForeignNode, pack_nodes, read_flow
from echomq.worker.nursery import LeaseNursery, open_nursery
from echomq.worker.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from echomq.children import Nursery
    from echomq.protocol.codec import Codec
    from echomq.transitions import Child, Node
    from echomq.worker.lease import Lease

OWN = (Policy.IGNORE, Policy.RUN_PARENT)
"""Of children with these, the parent is told that they have failed."""


@final
class Family:
    """The children of one attempt's job, and its follow-ups."""

    __slots__ = ("_count", "_followers", "_names", "codec", "follow", "lease", "nurseries", "owes", "spawned")

    def __init__(self, lease: Lease, codec: Codec) -> None:
        """Make it.

        Args:
            lease: The lease.
            codec: Decodes results.
        """
        self.lease = lease
        self.codec = codec
        self.follow = b""
        """The follow-ups, packed."""
        self.owes = False
        """Whether one of them is for another queue."""
        self.nurseries: list[LeaseNursery] = []
        """Those that are open, the outermost first."""
        self.spawned = False
        """Whether this attempt has, or may have, given the job children."""
        self._followers = 0
        self._names: set[str] = set()
        self._count = 0

    # --- reading -----------------------------------------------------------------------------------------------------

    async def children_results(self, type: Any) -> dict[str, Any]:
        """Answer what those returned that have completed."""
        found = await self.read(whole=True)
        return {child.name: self._result(child, type) for child in found if child.outcome and child.outcome.completed}

    async def ignored_failures(self) -> dict[str, ChildFailure]:
        """Answer how those failed whose failure does not bury the parent."""
        queue = self.lease.calls.queue
        return {
            child.name: ChildFailure.of(child, queue)
            for child in await self.read(whole=True)
            if child.outcome and child.outcome.failed and child.ref.policy in OWN
        }

    async def outstanding(self) -> list[str]:
        """Answer the names of those that have not ended."""
        return [child.name for child in await self.read(whole=False) if child.outcome is None]

    async def previous_result(self, type: Any) -> Any:
        """Answer what the only child returned."""
        found = [child for child in await self.read(whole=True) if child.ref.policy is not Policy.DETACH]
        if len(found) != 1:
            count = f"{len(found)} children: see children_results()" if found else "no children"
            msg = f"the result before is that of the only child, and {self.lease.claimed.id} has {count}"
            raise LookupError(msg)
        (child,) = found
        if child.outcome is None:
            msg = f"child {child.name!r} ({child.ref.id}) has not ended"
            raise LookupError(msg)
        if child.outcome.failed:
            raise ChildFailure.of(child, self.lease.calls.queue).raised()
        return self._result(child, type)

    def _result(self, child: Child, type: Any) -> Any:
        return read_result(child, lambda data: self.codec.decode(data, type))

    async def read(self, *, whole: bool) -> list[Child]:
        """Read all children, in the order of their names.

        Args:
            whole: Whether results and errors come with them.
        """
        calls, claimed = self.lease.calls, self.lease.claimed
        if not (self.spawned or claimed.record.has_children):
            await anyio.lowlevel.checkpoint()
            return []
        found: dict[str, Child] = {}
        cursor = ""
        while cursor != "0":
            call = read_flow(calls.keys, Call(calls.wire.tag), id=claimed.id, cursor=cursor or "0", whole=whole)
            page = await calls.wire.run(call, route="bulk")
            found.update((child.name, child) for child in page.children)
            cursor = page.cursor
        return sorted(found.values(), key=lambda child: by_name(child.name))

    # --- follow-ups --------------------------------------------------------------------------------------------------

    def stage(self, node: Node) -> None:
        """Keep a follow-up.

        Raises:
            InvalidJobError: There are too many, or they are too large.
        """
        packed = pack_nodes((node,))
        if self._followers >= MAX_FOLLOWERS:
            raise too_many(f"{self._followers + 1} jobs")
        if len(self.follow) + len(packed) > MAX_FOLLOW:
            raise too_many(f"{len(self.follow) + len(packed)} bytes")
        self.follow += packed
        self._followers += 1
        self.owes = self.owes or isinstance(node, ForeignNode)

    # --- children of this attempt ------------------------------------------------------------------------------------

    def open_nursery(self, on_failure: str) -> AbstractAsyncContextManager[Nursery]:
        """Open a nursery."""
        return open_nursery(self, check_policy(on_failure))

    def take_name(self, name: str | None) -> str:
        """Answer a child's name, its own or the next one, which nobody else has in this attempt.

        Raises:
            ValueError: It was used before, or the job has as many children as `flow_limits` says.
        """
        if name is None:
            name = str(self._count)
            self._count += 1
        if name in self._names:
            msg = f"a child of this attempt is named {name!r} already: names tell children apart, at each attempt"
            raise ValueError(msg)
        breadth = self.lease.calls.flow_limits.breadth
        if len(self._names) >= breadth:
            msg = f"{len(self._names) + 1} children of one job, and the limit is {breadth} (flow_limits)"
            raise ValueError(msg)
        self._names.add(name)
        return name

    def drop_name(self, name: str) -> None:
        """Forget the name of a child that was not sent."""
        self._names.discard(name)

    async def suspend(self) -> None:
        """Give the lease up until the children have ended: cancels the handler, and does not return.

        Raises:
            RuntimeError: The handler is shielded, and would not hear of it.
        """
        lease = self.lease
        if anyio.current_effective_deadline() > lease.scope.deadline:
            msg = "job.nursery() is within a shielded scope, where the job cannot be suspended to wait for its children"
            raise RuntimeError(msg)
        for nursery in tuple(self.nurseries):
            await nursery.sent()  # what is around this one: its children may run meanwhile, too
        lease.stop(Reason.SUSPENDED, "it waits for its children")
        await anyio.sleep_forever()


@final
class AskedFamily:
    """The family of a job in the hands of a plain function, which asks for it from elsewhere, and blocks."""

    __slots__ = ("_ask", "_stage")

    def __init__(self, ask: Callable[..., Any], stage: Callable[[Node], None]) -> None:
        """Make it.

        Args:
            ask: Calls a method of the lease's family, by its name, with the values that follow.
            stage: Keeps a follow-up there.
        """
        self._ask = ask
        self._stage = stage

    def children_results(self, type: Any) -> dict[str, Any]:
        """Answer what those returned that have completed."""
        found: dict[str, Any] = self._ask("children_results", type)
        return found

    def ignored_failures(self) -> dict[str, ChildFailure]:
        """Answer how those failed whose failure does not bury the parent."""
        found: dict[str, ChildFailure] = self._ask("ignored_failures")
        return found

    def outstanding(self) -> list[str]:
        """Answer the names of those that have not ended."""
        found: list[str] = self._ask("outstanding")
        return found

    def previous_result(self, type: Any) -> Any:
        """Answer what the only child returned."""
        return self._ask("previous_result", type)

    def stage(self, node: Node) -> None:
        """Keep a follow-up."""
        self._stage(node)


ASKABLE = frozenset({"children_results", "ignored_failures", "outstanding", "previous_result"})
"""What may be asked of a family from another process."""
