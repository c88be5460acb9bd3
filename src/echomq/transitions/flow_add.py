"""`flow_add`: parents and children, all or nothing (Protocol, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition, read_verdicts
from echomq.transitions.nodes import spell_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict
    from echomq.transitions.nodes import Node

MAX_NODES = 256
"""Jobs of one call at most."""


def flow_add(
    keys: QueueKeys, call: Call, nodes: Sequence[Node], *, hold: str = "", last: bool = True
) -> Transition[list[Verdict]]:
    """Add the jobs of a flow, or of several, to a queue; each after its parent. All of them, or none.

    Verdicts, one a node: `admitted`; `duplicate ID` (that job holds the dedup key: of a root, nothing at all is added; of
    a child, it counts as ended so, and its parent's policy applies); `skipped` (it is below such a one, or with such a
    root). The call is refused whole, and nothing changes, with `EMQKIND`, `EMQFULL`, `EMQGONE ID` (a flow that is added in
    rounds was given up meanwhile), `EMQSTATE collision ID` (mint again), `EMQSTATE closing`.

    Args:
        keys: The queue.
        call: Who calls.
        nodes: The jobs, 1 to 256.
        hold: Of a flow that is added in rounds: its root's id, the first node of the first round. None of its jobs runs
            before the last round; a minute after a round that was not followed by another, all of it is taken back.
        last: Whether this is the last round.
    """
    argv = (call.client, call.number, hold, 1 if last else 0, "", *spell_nodes(nodes))
    return Transition("flow_add", keys, argv, read_verdicts, call.number > 0)


def flow_receive(keys: QueueKeys, call: Call, *, entry: str, nodes: bytes) -> Transition[list[Verdict]]:
    """Add what another queue's outbox sends, once: a repeated delivery is answered and adds nothing.

    Args:
        keys: The queue.
        call: Who calls.
        entry: The outbox entry's name.
        nodes: The nodes, packed.
    """
    return Transition("flow_add", keys, (call.client, call.number, "", 1, entry, nodes), read_verdicts, call.number > 0)
