"""The jobs of a flow as the scripts take them: one after another, each after its parent (Protocol, section 7)."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, final

import attrs

from echomq.protocol.kin import Policy
from echomq.protocol.words import pack_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.records import NewJob
    from echomq.transitions.base import Argument

ROOT = ""
"""The parent of a job that has none."""
SPAWNER = 0
"""The parent of a job whose parent is the running job that spawns it."""


@final
@attrs.frozen(kw_only=True)
class LocalNode:
    """A job of the queue that the call is about."""

    job: NewJob
    """The job. Its dedup mode is `reject`."""
    parent: int | str = ROOT
    """Its parent: `ROOT`; the number of a node of this call, from 1; `SPAWNER`; an id, of a flow that is being added in
    rounds; or `<id> <queue>`, of a parent in another queue."""
    name: str = ""
    """Its name among its parent's children; "" for a root."""
    policy: Policy = Policy.FAIL_PARENT
    """What its failure does to its parent."""
    kids: bool = False
    """Whether it has children, in this call or in a later one."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.parent, self.name, self.policy.letter, 1 if self.kids else 0, "", *self.job.arguments())


def _packed(nodes: bytes | Sequence[Node]) -> bytes:
    return nodes if isinstance(nodes, bytes) else pack_nodes(nodes)


@final
@attrs.frozen(kw_only=True)
class ForeignNode:
    """A job of another queue, with all that is below it there; it is sent from the parent's queue."""

    queue: str
    """Its queue."""
    id: str
    """Its id."""
    nodes: bytes = attrs.field(converter=_packed)
    """What is added there, packed at once: the first is the job itself, its parent `<id> <queue>` or `ROOT`."""
    parent: int | str = ROOT
    """As that of a `LocalNode`."""
    name: str = ""
    """As that of a `LocalNode`."""
    policy: Policy = Policy.FAIL_PARENT
    """As that of a `LocalNode`."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        return (self.parent, self.name, self.policy.letter, 0, self.queue, self.id, self.nodes)


Node = LocalNode | ForeignNode


def spell_nodes(nodes: Sequence[Node]) -> tuple[Argument, ...]:
    """Spell nodes one after another."""
    return tuple(chain.from_iterable(node.arguments() for node in nodes))


def pack_nodes(nodes: Sequence[Node]) -> bytes:
    """Spell nodes as one argument; none: no bytes."""
    return pack_words(spell_nodes(nodes))
