"""`spawn`: children of a running job, under its token (Protocol, section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.transitions.base import Call, Transition, read_verdicts
from echomq.transitions.nodes import spell_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys
    from echomq.protocol.refusals import Verdict
    from echomq.transitions.nodes import Node


def spawn(
    keys: QueueKeys, call: Call, id: str, token: int, nonce: str, nodes: Sequence[Node]
) -> Transition[list[Verdict]]:
    """Add children to a running job, all or nothing. A name that it has already is answered, and adds nothing.

    Verdicts, one a node: `admitted`; `known ID KIND` (there is a child of that name; KIND says how it ended, and is
    missing while it has not); `duplicate ID`; `skipped` (below a known or a duplicate one). Refused whole: `EMQSTALE`,
    `EMQGONE` (the token is no longer the job's: nothing was spawned), and as `flow_add`.

    Args:
        keys: The job's queue.
        call: Who calls.
        id: The running job.
        token: Its claim's token.
        nonce: Its claim's nonce.
        nodes: The children, 1 to 256, each named; a direct child's parent is `SPAWNER`.
    """
    argv = (call.client, call.number, id, token, nonce, *spell_nodes(nodes))
    return Transition("spawn", keys, argv, read_verdicts, call.number > 0)
