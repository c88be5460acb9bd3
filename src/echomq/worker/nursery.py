"""Children of a running job: sent while the block goes on, waited for without a lease (Protocol, section 7).

Theory of operation
    `enqueue` keeps a child; a task of the block sends what has gathered, a call at a time, under the job's token. A child
    is known by its name: whatever was sent before, by this attempt or by another, is answered and adds nothing. So a call
    whose reply is lost is simply made again, and an attempt that dies between spawning and suspending costs nothing: the
    next one runs from the top, and finds them.

    Leaving the block sends the rest. Then, if a child is open that the job waits for, the handler is cancelled like by any
    other reason, and the verdict is `suspend`. If none is, what they returned is read, and the handler goes on.

    A body that raises, or is cancelled, suspends nothing and sends nothing more.

If you change this
    Between the last spawn and the verdict nothing may be owed: a handler may be cancelled, and a process killed, at each
    await. Nothing here may swallow a cancellation, and an error of the body's must leave as it is, in no group.
"""

from __future__ import annotations

from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, final

import anyio

from echomq._flow_plan import numbered
from echomq._items import MINTS, taken
from echomq.children import SpawnedChild
from echomq.errors import (
    JobNotFoundError,
    JobStateError,
    LeaseLostError,
    ServerError,
    UnavailableError,
)
from echomq.flows import Child as NamedChild
from echomq.flows import check_child_name, check_policy
from echomq.middleware import measured
from echomq.protocol._convert import shown
from echomq.protocol.failures import leaves_of, members
from echomq.protocol.kin import Policy
from echomq.protocol.refusals import COLLISION, STALE
from echomq.transitions import MAX_CALL_BYTES, MAX_ITEMS, ForeignNode, spawn
from echomq.worker.reasons import Reason
from echomq.worker.signals import Signal
from echomq.worker.staged import Staged, plan_child

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from echomq.flows import Chain, Flow
    from echomq.protocol.refusals import Verdict
    from echomq.tasks import JobCall
    from echomq.transitions import Call, Child, Node, Transition
    from echomq.worker.family import Family
    from echomq.worker.lease import Lease

AGAIN: float = 0.5
"""Seconds until children are sent again that an outage has kept: the lease says for how long."""


@final
class LeaseNursery:
    """One block's children. See `echomq.children.Nursery`."""

    __slots__ = (
        "_family",
        "_more",
        "_over",
        "_policy",
        "_progress",
        "_sending",
        "_staged",
        "children",
        "error",
        "scope",
    )

    def __init__(self, family: Family, policy: Policy) -> None:
        self._family = family
        self._policy = policy
        self._staged: deque[Staged] = deque()
        self._sending = False
        self._more = Signal()
        self._progress = Signal()
        self._over = False
        self.children: list[SpawnedChild[Any]] = []
        """All of them."""
        self.scope = anyio.CancelScope()
        """Around the body: cancelled when children cannot be sent."""
        self.error: Exception | None = None
        """Why they cannot."""

    # --- for the handler ---------------------------------------------------------------------------------------------

    def enqueue(
        self,
        node: JobCall[Any] | Flow | Chain | NamedChild,
        /,
        *,
        name: str | None = None,
        on_failure: str | None = None,
        detached: bool = False,
    ) -> SpawnedChild[Any]:
        """Enqueue a child. See `Nursery.enqueue`."""
        if self._over:
            msg = "this nursery's block is over: its children are enqueued within it"
            raise RuntimeError(msg)
        policy = self._policy
        if isinstance(node, NamedChild):
            if None not in (name, node.name) and name != node.name:
                msg = f"a child is named twice, {name!r} and {node.name!r}"
                raise ValueError(msg)
            name, policy = node.name if name is None else name, node.policy
        if on_failure is not None:
            policy = check_policy(on_failure)
        check_detached(detached)
        if detached:
            if on_failure is not None or (isinstance(node, NamedChild) and policy is not Policy.FAIL_PARENT):
                msg = f"on_failure={policy.value!r} of a detached child: nobody hears of its failure"
                raise ValueError(msg)
            policy = Policy.DETACH
        if name is not None:
            name = check_child_name(name)
        family = self._family
        planned = plan_child(node, family.lease)
        call, id = planned[0].call, planned[0].job.id
        child: SpawnedChild[Any] = SpawnedChild(
            call, family.take_name(name), policy, id, family.lease.calls.queue, family.codec
        )
        try:
            staged = Staged.of(child, planned, family.lease)
        except ValueError:
            family.drop_name(child.name)
            raise
        self.children.append(child)
        self._staged.append(staged)
        self._more.send()
        return child

    # --- sending -----------------------------------------------------------------------------------------------------

    async def send(self) -> None:
        """Send what gathers, until cancelled. An error ends the body."""
        try:
            while True:
                while self._staged:
                    self._sending = True
                    staged = self._take()
                    try:
                        await self._send(staged)
                    except Exception as error:
                        _count(staged, error)
                        raise
                    self._sending = False
                    self._progress.send()
                await self._more.wait()
        except Exception as error:  # noqa: BLE001 - raised at the end of the block
            self.error = error
            self.scope.cancel()
        finally:
            self._sending = False
            self._progress.send()

    async def sent(self) -> None:
        """Wait until all that was enqueued has been sent, or cannot be."""
        while (self._staged or self._sending) and self.error is None:
            await self._progress.wait()

    def close(self) -> None:
        """Take no more; forget what was not sent."""
        self._over = True
        for staged in self._staged:
            self._family.drop_name(staged.child.name)
        self._staged.clear()
        self._progress.send()

    def _take(self) -> list[Staged]:
        """Take the next call's children."""
        taken: list[Staged] = []
        room, places = MAX_CALL_BYTES, MAX_ITEMS
        while self._staged:
            room -= self._staged[0].size
            places -= self._staged[0].count
            if taken and (room < 0 or places < 0):
                break
            taken.append(self._staged.popleft())
        return taken

    async def _send(self, staged: list[Staged]) -> None:
        """Spawn some children."""
        family = self._family
        for _ in range(MINTS):
            nodes: list[Node] = []
            places: list[int] = []
            for each in staged:
                places.append(len(nodes))
                nodes += each.nodes()
            family.spawned = True
            try:
                verdicts = await self._spawn(numbered(nodes))
            except JobStateError as error:
                word, _, id = error.actual.partition(" ")
                if word != COLLISION or not any(each.renew(id) for each in staged):
                    raise
                continue
            for each, place in zip(staged, places, strict=True):
                _heed(each.child, each.planned[0].job.id, verdicts[place])
                if verdicts[place].code != "known":  # else an earlier attempt has spawned it, which counted it
                    _count([each])
            if any(isinstance(node, ForeignNode) for node in nodes):
                family.lease.calls.owes()
            return
        raise taken(staged[0].planned[0].job.id)

    async def _spawn(self, nodes: list[Node]) -> list[Verdict]:
        """Make the call, again and again while the server is away: by their names, children are spawned once.

        Raises:
            LeaseLostError: The job is no longer this attempt's; nothing was spawned.
        """
        lease = self._family.lease
        calls, claimed = lease.calls, lease.claimed

        def build(call: Call) -> Transition[list[Verdict]]:
            return spawn(calls.keys, call, claimed.id, claimed.token, claimed.nonce, nodes)

        while True:
            try:
                verdicts: list[Verdict] = await calls.wire.remembered(calls.keys, build, verb="spawn", route="bulk")
            except UnavailableError:
                await anyio.sleep(AGAIN)
            except JobNotFoundError:
                raise _lost(lease, "gone") from None
            except ServerError as error:
                if error.code != STALE or error.message.startswith("call "):  # an old socket's late copy
                    raise
                raise _lost(lease, error.message.partition(" (")[0] or "stale") from None
            else:
                return verdicts

    # --- the end of the block ----------------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Go on if the children have ended; if not, suspend the job, which does not return."""
        waited = [child for child in self.children if child.policy is not Policy.DETACH]
        if not waited:
            return
        some_open = any(child.kind is None for child in waited)
        if all(child.kind is None for child in waited) and not self._family.lease.claimed.record.has_children:
            await self._family.suspend()  # as the first attempt does: there is nothing to be read
        await self._look(waited, whole=not some_open)
        if _must_wait(waited):
            await self._family.suspend()
        if some_open:
            await self._look(waited, whole=True)

    async def _look(self, waited: list[SpawnedChild[Any]], *, whole: bool) -> None:
        """Read how they have ended."""
        found: dict[str, Child] = {child.name: child for child in await self._family.read(whole=whole)}
        for child in waited:
            if child.name in found:
                child.settle(found[child.name])


def check_detached(value: Any) -> None:
    """Check whether a child is detached.

    Raises:
        TypeError: It is neither True nor False.
    """
    if not isinstance(value, bool):
        msg = f"detached is True or False, not {shown(value)}"
        raise TypeError(msg)


def _count(staged: list[Staged], error: Exception | None = None) -> None:
    for each in staged:
        for one in each.planned:
            measured(one.call, error)


def _heed(child: SpawnedChild[Any], id: str, verdict: Verdict) -> None:
    """Take what a spawn answered for a child."""
    child.id = id
    if verdict.code == "known":
        child.id, _, kind = verdict.detail.partition(" ")
        child.kind = kind or None
    elif verdict.code == "duplicate":
        child.kind = "duplicate"


def _must_wait(waited: list[SpawnedChild[Any]]) -> bool:
    """Tell whether the job cannot go on: a child is open, and none has failed that runs it; or one has that buries it."""
    failed = {child.policy for child in waited if child.failure is not None}
    if Policy.FAIL_PARENT in failed:
        return True
    return Policy.RUN_PARENT not in failed and any(child.kind is None for child in waited)


def _lost(lease: Lease, word: str) -> LeaseLostError:
    """End the lease: the same word as a renewal's."""
    lease.stop(Reason.LEASE_LOST, word)
    return LeaseLostError(word, lease.claimed.id, lease.claimed.token)


@asynccontextmanager
async def open_nursery(family: Family, policy: Policy) -> AsyncIterator[LeaseNursery]:
    """Be a nursery's block."""
    nursery = LeaseNursery(family, policy)
    family.nurseries.append(nursery)
    own: BaseException | None = None
    ended: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(nursery.send)
            try:
                with nursery.scope:
                    yield nursery
                    await nursery.sent()
            except BaseException as error:
                own = error
                raise
            tasks.cancel_scope.cancel()
    except BaseException as error:  # noqa: BLE001 - raised below
        # The task group is our own affair: an exception of the body leaves as it is, not in a group.
        ended = own if own is not None and members(error) == (own,) else error
    finally:
        nursery.close()
        family.nurseries.remove(nursery)
    if nursery.error is not None and (ended is None or _is_cancellation(ended)):
        raise nursery.error
    if ended is not None:
        raise ended
    await nursery.leave()


def _is_cancellation(error: BaseException) -> bool:
    return all(isinstance(leaf, anyio.get_cancelled_exc_class()) for leaf in leaves_of(error))
