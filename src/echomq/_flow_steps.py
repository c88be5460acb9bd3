"""Adding flows: a walk that both clients run (Protocol, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from echomq._delivery import deliver_walk, news_walk
from echomq._flow_plan import Planned, Segment, plan, segment
from echomq._items import MINTS, cancel_outcome, check_reason, taken
from echomq._walks import Ask, Each, Once, Outcomes, Tell, Walk
from echomq.errors import EchoMQError, JobNotFoundError, JobStateError
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import DUPLICATE
from echomq.sweeps import CancelReport
from echomq.transitions import CancelRequest, Walked, flow_add, flow_walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.flows import Tree
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict
    from echomq.transitions import Node

COLLISION: Final = "collision"


@final
@attrs.frozen
class Added:
    """What became of a flow."""

    planned: Sequence[Planned]
    """Its jobs, the root first."""
    holder: str
    """The job that holds the root's dedup key, if nothing was added for that; else ""."""


def add_walk(keys: QueueKeys, tree: Tree) -> Walk[Added]:
    """Add a tree, in one call, or in rounds of which nothing runs before the last; then deliver what is for other queues.

    Raises:
        ValueError, InvalidJobError: It cannot be added; nothing was sent.
        EchoMQError: The server refused it, and nothing was added; or it could not be reached: then all of it was added,
            or nothing, or what was added of its rounds is taken back within a minute or two.
    """
    root = ""
    for _ in range(MINTS):
        planned = plan(tree)
        root = planned[0].job.id
        part = segment(planned)
        try:
            holder = yield from (_whole(keys, part.whole()) if part.is_whole else _rounds(keys, root, part))
        except JobStateError as error:
            if not error.actual.startswith(COLLISION):
                raise
            continue  # another producer's job has one of these ids: a rare accident
        if part.sends and not holder:
            yield from deliver_walk(keys, rounds=1)
        yield Tell(len(planned))
        return Added(planned, holder)
    raise taken(root)


def _whole(keys: QueueKeys, nodes: list[Node]) -> Walk[str]:
    verdicts: list[Verdict] = yield Once("flow_add", lambda call: flow_add(keys, call, nodes))
    return _holder(verdicts)


def _rounds(keys: QueueKeys, root: str, part: Segment) -> Walk[str]:
    rounds = list(part.rounds())
    added = 0
    for at, nodes in enumerate(rounds):
        last = at == len(rounds) - 1
        try:
            verdicts: list[Verdict] = yield Once(
                "flow_add",
                lambda call, nodes=nodes, last=last: flow_add(keys, call, nodes, hold=root, last=last),  # type: ignore[misc]
            )
        except JobNotFoundError:
            raise JobStateError("held", "given up: it was cancelled, or its rounds came too slowly", root) from None
        holder = _holder(verdicts) if at == 0 else ""
        if holder:
            return holder
        added += len(nodes)
        yield Tell(added)
    # All of it is there, and any worker's pump lets it go; we are the first to know.
    while True:
        walked: Walked = yield Ask(lambda call: flow_walk(keys, call, entry=f"hold:{root}"))
        if not walked.more:
            return ""


def _holder(verdicts: Sequence[Verdict]) -> str:
    return verdicts[0].detail if verdicts[0].code == DUPLICATE else ""


def flow_cancel_walk(keys: QueueKeys, id: str, reason: str) -> Walk[CancelReport]:
    """Cancel a job and what it waits for; see `FlowHandle.cancel`.

    Raises:
        ValueError, EchoMQError: As `Queue.cancel`.
    """
    outcomes: Outcomes = yield Each("cancel", [CancelRequest(check_id(id), check_reason(reason))])
    if isinstance(outcomes[0], EchoMQError):
        raise outcomes[0]
    outcome = cancel_outcome(outcomes[0], id, keys.queue)
    did = yield from news_walk(keys)
    ended = outcome == "cancelled"
    return CancelReport(cancelled=did.cancelled + ended, asked=did.asked + (not ended))
