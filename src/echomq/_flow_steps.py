"""Adding flows: a walk that both clients run (Protocol, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from echomq._delivery import news_walk
from echomq._flow_plan import Planned, Segment, again, id_of, plan, segment
from echomq._items import MINTS, cancel_outcome, check_reason, taken
from echomq._logs import get_logger
from echomq._walks import Ask, Each, Once, Outcomes, Tell, Walk
from echomq.errors import EchoMQError, JobNotFoundError, JobStateError, UnavailableError
from echomq.middleware import measured
from echomq.protocol.ids import check_id
from echomq.protocol.refusals import DUPLICATE
from echomq.sweeps import CancelReport
from echomq.transitions import MAX_ROUND, CancelRequest, Walked, flow_add, flow_walk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from echomq.flows import Tree
    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict
    from echomq.transitions import Node

COLLISION: Final = "collision"

_log = get_logger("echomq.flows")


@final
@attrs.frozen
class Added:
    """What became of a flow."""

    planned: Sequence[Planned]
    """Its jobs, the root first."""
    holders: Mapping[str, str]
    """Which of them were not added, since their dedup keys are held, and by which jobs: by ids."""


@final
@attrs.frozen
class Prepared:
    """A tree that can be added."""

    planned: Sequence[Planned]
    """Its jobs, the root first."""
    segment: Segment
    """What is added by us."""

    @property
    def queue(self) -> str:
        """The root's queue."""
        return self.planned[0].queue

    @property
    def rounds(self) -> int:
        """How often entries are taken from outboxes until all of its jobs are where they belong, about."""
        sent = sum(one.begins_segment for one in self.planned) - 1
        return sent and len({one.queue for one in self.planned}) + sent // MAX_ROUND


def prepare(tree: Tree) -> Prepared:
    """Make a tree's jobs, and decide where and in how many calls they are added.

    Raises:
        ValueError, InvalidJobError: It cannot be added.
        BaseException: What a middleware raises.
    """
    planned = plan(tree)
    return Prepared(planned, segment(planned))


def add_walk(keys: QueueKeys, prepared: Prepared) -> Walk[Added]:
    """Add a tree, in one call, or in rounds of which nothing runs before the last; then deliver what is for other queues.

    Raises:
        EchoMQError: The server refused it, and nothing was added; or it could not be reached: then all of it was added,
            or nothing, or what was added of its rounds is taken back within a minute or two.
    """
    try:
        added = yield from _add_walk(keys, prepared)
    except EchoMQError as error:
        for one in prepared.planned:
            measured(one.call, error)
        raise
    for one in added.planned:
        measured(one.call, added)
    return added


def _add_walk(keys: QueueKeys, prepared: Prepared) -> Walk[Added]:
    for _ in range(MINTS):
        planned, part = prepared.planned, prepared.segment
        try:
            if part.is_whole:
                verdicts: list[Verdict] = yield _add(keys, part.whole())
            else:
                verdicts = yield from _rounds(keys, planned[0].job.id, list(part.rounds()))
        except JobStateError as error:
            if not error.actual.startswith(COLLISION):
                raise
            # Another producer's job has one of these ids: a rare accident.
            fresh = again(planned)
            prepared = Prepared(fresh, segment(fresh))
            continue
        if verdicts[0].code == DUPLICATE:
            return Added(planned, {planned[0].job.id: verdicts[0].detail})
        # Children that are duplicates have ended already, and with them perhaps their parents.
        holders = {
            id_of(node): verdict.detail
            for node, verdict in zip(part.nodes, verdicts, strict=True)
            if verdict.code == DUPLICATE
        }
        rounds = prepared.rounds or len(holders)
        if rounds:
            yield from news_walk(keys, rounds=rounds)
        yield Tell(len(planned))
        return Added(planned, holders)
    raise taken(prepared.planned[0].job.id)


def _add(keys: QueueKeys, nodes: list[Node], hold: str = "", *, last: bool = True) -> Once:
    return Once("flow_add", lambda call: flow_add(keys, call, nodes, hold=hold, last=last))


def _rounds(keys: QueueKeys, root: str, rounds: list[list[Node]]) -> Walk[list[Verdict]]:
    verdicts: list[Verdict] = []
    added = 0
    try:
        for nodes in rounds:
            verdicts += yield _add(keys, nodes, root, last=nodes is rounds[-1])
            if verdicts[0].code == DUPLICATE:
                return verdicts
            added += len(nodes)
            yield Tell(added)
    except JobNotFoundError:
        raise JobStateError("held", "given up: it was cancelled, or its rounds came too slowly", root) from None
    except UnavailableError:
        raise
    except EchoMQError:
        yield from _let_go(keys, root)  # which takes it back, before its last round
        raise
    yield from _let_go(keys, root)
    return verdicts


def _let_go(keys: QueueKeys, root: str) -> Walk[None]:
    """Walk over a flow that is held. Any worker does it, should we not come to it; we are the first to know."""
    try:
        while True:
            walked: Walked = yield Ask(lambda call: flow_walk(keys, call, entry=f"hold:{root}"))
            if not walked.more:
                return
    except EchoMQError as error:
        _log.info("flow_not_let_go", queue=keys.queue, job=root, error=str(error))


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
