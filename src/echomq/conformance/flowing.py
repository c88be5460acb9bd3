"""What proofs of flows share: making trees in one queue and across queues, ending children, and delivering by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final, final

import attrs

from echomq.conformance.bench import Bench, spell
from echomq.conformance.driver import Driver
from echomq.conformance.invariants_kin import entries
from echomq.conformance.pumping import deliver, pump
from echomq.protocol.kin import Policy
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import SPAWNER, Completion, Entry, Failure, ForeignNode, LocalNode, Suspension, Taken, Walked
from echomq.transitions.nodes import Node

FAR: Final = "far"
"""The name of the other queue."""
MINUTE: Final = 60_000


@final
@attrs.frozen
class Family:
    """A parent and its children."""

    parent: str
    """The parent's id."""
    kids: dict[str, str]
    """The children's ids by name."""

    def __getitem__(self, name: str) -> str:
        """Answer a child's id."""
        return self.kids[name]


@final
class Flows:
    """Flows on a bench's queue, and in one beside it."""

    def __init__(self, b: Bench, driver: Driver | None = None) -> None:
        self.b = b
        self.driver = driver or b.producer

    @property
    def far(self) -> Bench:
        """The other queue."""
        return self.b.beside(FAR)

    # --- making ------------------------------------------------------------------------------

    def add(self, *nodes: Node, **options: Any) -> list[str]:
        """Add nodes in one call, and spell the verdicts."""
        return [spell(it) for it in self.driver.plain("flow_add", nodes, **options)]

    def abroad(
        self, job: NewJob, parent: str = "", *, number: int | str = 1, below: tuple[Node, ...] = (), **options: Any
    ) -> ForeignNode:
        """Make a child for the other queue, `number` its parent in this call, `parent` that one's id."""
        self.b.beside(FAR)
        named: Any = {"name": "0", **options}
        root = LocalNode(job=job, parent=f"{parent} {self.b.keys.queue}" if parent else "", kids=bool(below), **named)
        return ForeignNode(queue=FAR, id=job.id, parent=number if parent else "", nodes=[root, *below], **named)

    def family(
        self,
        *names: str,
        policy: Policy = Policy.FAIL_PARENT,
        abroad: bool = False,
        root: NewJob | None = None,
        **each: Any,
    ) -> Family:
        """Add a parent and a child for each name; those of the other queue arrive there at once."""
        parent = root or NewJob()
        kids = {name: NewJob(**each) for name in names}
        nodes: list[Node] = [LocalNode(job=parent, kids=True)]
        for name, job in kids.items():
            if abroad:
                nodes.append(self.abroad(job, parent.id, name=name, policy=policy))
            else:
                nodes.append(LocalNode(job=job, parent=1, name=name, policy=policy))
        self.b.expect("a flow", self.add(*nodes), ["admitted"] * len(nodes))
        if abroad:
            self.pump()
        return Family(parent.id, {name: job.id for name, job in kids.items()})

    def running(self, **options: Any) -> Claimed:
        """Make a job and claim it: one that spawns."""
        self.b.add(**options)
        return self.b.take()

    def spawn(self, claimed: Claimed, *nodes: Node | str, driver: Driver | None = None, **options: Any) -> list[str]:
        """Spawn children, a plain job for each name; spell the verdicts."""
        made = [
            LocalNode(job=NewJob(), parent=SPAWNER, name=it, **options) if isinstance(it, str) else it for it in nodes
        ]
        of = driver or self.b.worker
        return [spell(it) for it in of.plain("spawn", claimed.id, claimed.token, claimed.nonce, made)]

    def suspend(self, *claimed: Claimed) -> list[str]:
        """Suspend jobs in one call."""
        items = [Suspension(it.id, it.token, it.nonce) for it in claimed]
        return [spell(it) for it in self.b.worker.items("suspend", *items)]

    def complete(self, *claimed: Claimed, follow: bytes = b"", b: Bench | None = None) -> list[str]:
        """Complete jobs in one call, each with its id as the result."""
        items = [Completion(it.id, it.token, it.nonce, it.id.encode(), follow) for it in claimed]
        return [spell(it) for it in (b or self.b).worker.items("complete", *items)]

    def die(self, *claimed: Claimed, b: Bench | None = None) -> list[str]:
        """Fail jobs for good in one call."""
        items = [Failure(it.id, it.token, it.nonce, 0, 0, b'{"type":"E"}') for it in claimed]
        return [spell(it) for it in (b or self.b).worker.items("fail", *items)]

    def claim(self, *ids: str, b: Bench | None = None) -> dict[str, Claimed]:
        """Claim all that is ready, which must be these; answers the claims by id."""
        jobs = {job.id: job for job in (b or self.b).worker.claim(256).jobs}
        self.b.expect("claimed", sorted(jobs), sorted(ids))
        return jobs

    # --- delivering --------------------------------------------------------------------------

    def pump(self) -> list[str]:
        """Deliver all that is owed, and answer the entries' names."""
        return pump({name: bench.other for name, bench in self.b.queues.items()})

    def take(self, b: Bench | None = None, **options: Any) -> Taken:
        """Take entries."""
        taken: Taken = (b or self.b).other.plain("flow_take", **options)
        return taken

    def deliver(self, entry: Entry, b: Bench | None = None) -> str:
        """Deliver an entry of a queue's outbox without striking it off."""
        source = b or self.b
        return deliver(entry, source.other, {name: bench.other for name, bench in self.b.queues.items()})

    def walk(self, entry: str, **options: Any) -> Walked:
        """Take a step of a walk."""
        walked: Walked = self.b.other.plain("flow_walk", entry=entry, **options)
        return walked

    def steps(self, entry: str, **options: Any) -> Iterator[Walked]:
        """Take all steps of a walk, 64 at most."""
        for _ in range(64):
            walked = self.walk(entry, **options)
            yield walked
            if not walked.more:
                return

    def owed(self, b: Bench | None = None) -> list[str]:
        """Name what the outbox holds."""
        return sorted(entries((b or self.b).look()))

    def later(self, entry: str, ms: int = -MINUTE) -> None:
        """Move an entry's moment to so long from now: how a proof makes time pass. Who was taken before stays so."""
        was = self.b.score("outbox", entry) or 0
        taken = -0.5 if was != math.inf and was % 1 else 0
        self.b.rescore("outbox", entry, self.b.clock() + ms + taken)

    # --- looking -----------------------------------------------------------------------------

    def ended(self, parent: str, b: Bench | None = None) -> dict[str, str]:
        """Answer the kinds of how a parent's children ended, by name."""
        results = (b or self.b).look().hash(f"job:{parent}:results")
        return {name: text.split(" ")[0] for name, text in results.items()}

    def told(self, parent: str, name: str, b: Bench | None = None) -> tuple[str, str, str, str]:
        """Answer how a child ended: its kind, token, reason and body."""
        head, _, body = (b or self.b).look().hash(f"job:{parent}:results")[name].partition("\n")
        kind, _, token, reason = head.split(" ", 3)
        return kind, token, reason, body

    def children(self, id: str, b: Bench | None = None) -> dict[str, str]:
        """Answer whom a job names as its children."""
        return (b or self.b).look().hash(f"job:{id}:children")
