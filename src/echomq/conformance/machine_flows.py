"""The state machine of flows: trees over three queues, while pumps die, repeat and overtake each other.

Theory of operation
    Every step of an addition and of a delivery is a step of its own: an entry is taken by one of several pumps, handed over
    by whoever has it, again or late, and struck off, or never. A pump or a producer that is not chosen again has been
    killed. Jobs end in every way there is. After each script everything is looked at (`stage_flows`), and what has become
    of each parent is held against what the model says of its children (`model_flows`).

    When it is over, one pump delivers all: nobody goes on then whose parent is over. Then one worker completes all: nobody
    waits, nothing is owed, nothing is left behind, and every job has come to its end, once a life.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import redis
from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from echomq.conformance.driver import CallRefusedError
from echomq.conformance.expectations import no_change
from echomq.conformance.items import YEAR_MS
from echomq.conformance.model_flows import DEAD, ENDED, READY, UNBORN, WAITING, Relative
from echomq.conformance.stage_flows import NEVER, QUEUES, FlowStage
from echomq.protocol.kin import Policy
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import SPAWNER, CancelRequest, Entry, ForeignNode, LocalNode, Node, Script, Taken
from echomq.transitions.nodes import pack_nodes

PICK: Final = st.integers(0, 1023)
QUEUE: Final = st.sampled_from(QUEUES)
POLICY: Final = st.sampled_from([Policy.FAIL_PARENT, Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT])
_KINDS: Final[list[dict[str, Any]]] = [
    {}, {}, {}, {}, {}, {"delay_ms": YEAR_MS}, {"expires": "1"}, {"deadline": "1"}, {"dedup": "key"}, {"max_stalls": 0},
    {"result_ttl_ms": YEAR_MS}, {"lane": "lane"},
]  # fmt: skip
OPTIONS: Final = st.sampled_from(_KINDS)
LEAF: Final = st.tuples(QUEUE, POLICY, OPTIONS)
BRANCH: Final = st.tuples(QUEUE, POLICY, OPTIONS, st.lists(LEAF, max_size=2))
LIMB: Final = st.tuples(QUEUE, POLICY, OPTIONS, st.lists(BRANCH, max_size=2))
HOW: Final = st.sampled_from(
    ["complete", "complete", "complete", "die", "retry", "cancelled", "discarded", "release", "suspend", "suspend"]
)
REPEATED: Final = st.sampled_from(
    ["flow_add", "spawn", "complete", "suspend", "redrive", "cancel", "remove", "fail"],
)


class Families(FlowStage):
    """What producers, workers, operators, pumps and time do to flows."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[str, Claimed]] = []
        """What workers run."""
        self.hands: list[tuple[str, Taken]] = []
        """What pumps have taken: they may hand it over, or die."""
        self.past: list[tuple[str, Entry]] = []
        """What was ever taken: it may come once more, late."""
        self.rounds: dict[str, str] = {}
        """The flows whose last round is still to come: their roots' queues."""
        self.count = 0

    # --- adding ------------------------------------------------------------------------------

    def job(self, made: list[Relative], queue: str, options: Mapping[str, Any], **about: Any) -> NewJob:
        """Make a job, and what the model shall know of it."""
        job = NewJob(**options)
        made.append(Relative(job.id, queue, optional="dedup" in options, **about))
        return job

    def below(
        self, made: list[Relative], nodes: list[Node], place: int | str, parent: str, here: str, kids: list[Any],
        hold: str = "", mark: str = "",
    ) -> None:  # fmt: skip
        """Add nodes for children: those of another queue with what is below them there."""
        for number, (queue, policy, options, *more) in enumerate(kids):
            sub = more[0] if more else []
            tie: dict[str, Any] = {"name": f"{mark}{number}", "policy": policy}
            job = self.job(made, queue, options, parent=parent, hold=hold, is_parent=bool(sub), **tie)
            if queue == here:
                nodes.append(LocalNode(job=job, parent=place, kids=bool(sub), **tie))
                self.below(made, nodes, len(nodes), job.id, here, sub, hold)
            else:
                inner: list[Node] = [LocalNode(job=job, parent=f"{parent} {here}", kids=bool(sub), **tie)]
                self.below(made, inner, 1, job.id, queue, sub, hold)
                nodes.append(ForeignNode(queue=queue, id=job.id, parent=place, nodes=inner, **tie))

    def admit(self, made: list[Relative], queue: str, verb: str, *arguments: Any, **options: Any) -> None:
        """Send a call that makes jobs; one that is refused makes none."""
        for it in made:
            self.model.add(it)
        try:
            self.drivers[queue].plain(verb, *arguments, **options)
        except CallRefusedError as error:
            if error.verdict.code not in {"EMQSTALE", "EMQGONE"}:
                raise
            self.never(made)
        self.look()

    def never(self, made: list[Relative]) -> None:
        """These must not come, and nobody waits for them."""
        for it in made:
            self.model.refused.add(it.id)
            del self.model.jobs[it.id]
            if it.parent in self.model.jobs:
                self.model.jobs[it.parent].kids.pop(it.name, None)

    @initialize(queue=QUEUE, children=st.lists(BRANCH, min_size=1, max_size=4))
    def begin(self, queue: str, children: list[Any]) -> None:
        """A flow is there at first."""
        self.add(queue, children)

    @rule(queue=QUEUE, children=st.lists(st.one_of(BRANCH, LIMB), max_size=4))
    def add(self, queue: str, children: list[Any]) -> None:
        """A producer adds a tree; it may die before it delivers what is for other queues."""
        made: list[Relative] = []
        root = self.job(made, queue, {}, is_parent=True)
        nodes: list[Node] = [LocalNode(job=root, kids=True)]
        self.below(made, nodes, 1, root.id, queue, children)
        self.admit(made, queue, "flow_add", nodes)

    @rule(queue=QUEUE, children=st.lists(BRANCH, max_size=3))
    def add_first_round(self, queue: str, children: list[Any]) -> None:
        """A producer begins to add a large tree, and may die."""
        made: list[Relative] = []
        root = self.job(made, queue, {}, is_parent=True)
        made[0].hold = root.id
        nodes: list[Node] = [LocalNode(job=root, kids=True)]
        self.below(made, nodes, 1, root.id, queue, children, root.id)
        self.rounds[root.id] = queue
        self.model.open_holds.add(root.id)
        self.admit(made, queue, "flow_add", nodes, hold=root.id, last=False)

    @precondition(lambda self: self.rounds)
    @rule(pick=PICK, children=st.lists(BRANCH, min_size=1, max_size=3), last=st.booleans())
    def add_next_round(self, pick: int, children: list[Any], last: bool) -> None:  # noqa: FBT001 - a drawn value
        """It goes on, unless the tree was given up meanwhile."""
        root = sorted(self.rounds)[pick % len(self.rounds)]
        queue = self.rounds[root]
        made: list[Relative] = []
        nodes: list[Node] = []
        self.count += 1
        self.below(made, nodes, root, root, queue, children, root, f"r{self.count}.")
        if last:
            del self.rounds[root]
            self.model.open_holds.discard(root)
        self.admit(made, queue, "flow_add", nodes, hold=root, last=last)

    # --- working -----------------------------------------------------------------------------

    @rule(queue=QUEUE, count=st.integers(1, 4))
    def claim(self, queue: str, count: int) -> None:
        """A worker takes jobs."""
        for _ in range(count):
            claimed = self.claim_one(queue)
            if claimed:
                self.held.append((queue, claimed))

    @precondition(lambda self: self.held)
    @rule(pick=PICK, how=HOW, follow=st.sampled_from(["", "", "", *QUEUES]))
    def settle(self, pick: int, how: str, follow: str) -> None:
        """A worker ends an attempt, perhaps with a follow-up; its lease may be lost by then."""
        queue, claimed = self.held.pop(pick % len(self.held))
        if how != "complete" or not follow:
            note(f"  {queue}: {claimed.id}: {self.end(queue, claimed, how)}")
            return
        made: list[Relative] = []
        job = self.job(made, follow, {})
        node: Node = LocalNode(job=job)
        if follow != queue:
            node = ForeignNode(queue=follow, id=job.id, nodes=[node])
        self.model.add(made[0])
        if self.end(queue, claimed, how, pack_nodes([node])) != "ok":
            self.never(made)

    @precondition(lambda self: self.held)
    @rule(pick=PICK, children=st.lists(LEAF, min_size=1, max_size=3), first=st.integers(0, 3), detach=st.booleans())
    def spawn(self, pick: int, children: list[Any], first: int, detach: bool) -> None:  # noqa: FBT001 - a drawn value
        """A running job spawns children, some of them by names it has used before."""
        queue, claimed = self.held[pick % len(self.held)]
        mine = self.model.jobs[claimed.id]
        was = mine.is_parent
        made: list[Relative] = []
        nodes: list[Node] = []
        for number, (there, policy, options) in enumerate(children, first):
            one = Policy.DETACH if detach and number == first else policy
            tie: dict[str, Any] = {"name": f"s{number}", "policy": one}
            news: list[Relative] = []
            job = self.job(news, there, options, parent=claimed.id, **tie)
            if f"s{number}" in mine.kids:
                self.model.refused.add(job.id)
            else:
                made += news
            if there == queue:
                nodes.append(LocalNode(job=job, parent=SPAWNER, **tie))
            else:
                inner = LocalNode(job=job, parent=f"{claimed.id} {queue}", **tie)
                nodes.append(ForeignNode(queue=there, id=job.id, parent=SPAWNER, nodes=[inner], **tie))
        self.admit(made, queue, "spawn", claimed.id, claimed.token, claimed.nonce, nodes)
        mine.is_parent = was or bool(mine.kids)

    # --- operators and time ------------------------------------------------------------------

    @rule(pick=PICK, verb=st.sampled_from(["cancel", "cancel", "remove", "redrive", "redrive"]))
    def operate(self, pick: int, verb: str) -> None:
        """Somebody cancels, removes or redrives a job."""
        jobs = [it for it in self.model.jobs.values() if it.phase != UNBORN and (verb != "redrive" or it.phase == DEAD)]
        if not jobs:
            return
        it = jobs[pick % len(jobs)]
        was = it.phase
        if verb == "redrive":
            code = self.redrive(it)
        else:
            code = self.item(it.queue, verb, CancelRequest(it.id, "by hand") if verb == "cancel" else it.id)
        note(f"  {it.queue}: {verb} {it.id}, which was {was}: {code}")

    def redrive(self, it: Relative) -> str:
        """Bring a dead job back: one that its parent has done with is on its own then."""
        parent = self.model.jobs.get(it.parent)
        done_with = parent is not None and (parent.phase in ENDED or it.name in parent.told)
        code = self.item(it.queue, "redrive", it.id)
        if code == "ok":
            it.by_hand = done_with
        return code

    @precondition(lambda self: self.mortal())
    @rule(pick=PICK, news=st.booleans())
    def parent_falls_and_rises(self, pick: int, news: bool) -> None:  # noqa: FBT001 - a drawn value
        """A child's death buries its parent, who is told of it at last, and somebody brings the parent back."""
        mortal = self.mortal()
        child = mortal[pick % len(mortal)]
        parent = self.model.jobs[child.parent]
        while child.phase == READY and (claimed := self.claim_one(child.queue)):
            if claimed.id == child.id:
                note(f"  {child.queue}: {child.id} dies: {self.end(child.queue, claimed, 'die')}")
            else:
                self.held.append((child.queue, claimed))
        self.pump_all()
        if parent.phase == DEAD:
            note(f"  {parent.queue}: {parent.id} rises: {self.redrive(parent)}")
            if news:
                self.pump_all()

    def mortal(self) -> list[Relative]:
        """Answer which jobs could be claimed, and would bury a parent who waits for them."""
        parents = {it.id for it in self.model.jobs.values() if it.phase == WAITING and not it.held}
        jobs = self.model.jobs.values()
        return [it for it in jobs if it.phase == READY and it.parent in parents and it.policy is Policy.FAIL_PARENT]

    @rule(queue=QUEUE, lane=st.sampled_from(["", "lane"]))
    def drain(self, queue: str, lane: str) -> None:
        """Somebody drains a lane."""
        while self.run(queue, "drain", lane=lane, bound=1):
            pass

    @rule(queue=QUEUE, which=st.sampled_from(["active", "schedule"]))
    def time_passes(self, queue: str, which: str) -> None:
        """Workers have died and their leases are over; or what was put off is due."""
        self.pass_time(queue, which)

    @rule(queue=QUEUE)
    def a_minute_passes(self, queue: str) -> None:
        """Whoever waits has waited for long, and a flow that nobody went on to add is given up."""
        self.pass_time(queue, "waiting")
        for entry, score in self.server.zscan_iter(self.keys[queue].outbox):
            if entry.startswith(b"hold:") and score != NEVER:
                self.server.zadd(self.keys[queue].outbox, {entry: 1}, xx=True)

    # --- pumps -------------------------------------------------------------------------------

    @rule(queue=QUEUE, bound=st.integers(1, 4))
    def pump_takes(self, queue: str, bound: int) -> None:
        """A pump takes entries; it may be killed with them in hand."""
        taken = self.run(queue, "flow_take", bound=bound)
        if taken.entries:
            note(f"  {queue}: {[entry.name for entry in taken.entries]}")
            self.hands.append((queue, taken))
            self.past += [(queue, entry) for entry in taken.entries]

    @precondition(lambda self: self.hands)
    @rule(pick=PICK, which=PICK)
    def pump_hands_over(self, pick: int, which: int) -> None:
        """A pump hands an entry over: it may have done so before."""
        queue, taken = self.hands[pick % len(self.hands)]
        entry = taken.entries[which % len(taken.entries)]
        note(f"  {queue}: {entry.name}: {self.hand_over(queue, entry)}")

    @precondition(lambda self: self.hands)
    @rule(pick=PICK, over=st.integers(0, 4), deaf=st.booleans())
    def pump_strikes_off(self, pick: int, over: int, deaf: bool) -> None:  # noqa: FBT001 - a drawn value
        """A pump hands its entries over, in their order, and strikes them off; what got no reply it puts back."""
        queue, taken = self.hands.pop(pick % len(self.hands))
        handed = {entry.name: self.hand_over(queue, entry) for entry in taken.entries[: over + 1]}
        names = [entry.name for entry in taken.entries if not entry.is_walk]
        done = [] if deaf else [name for name in names if handed.get(name, "EMQSTATE") != "EMQSTATE"]
        later = [name for name in names if name not in done]
        self.run(queue, "flow_done", till=taken.till, done=done, later=later, delay_ms=10_000)

    @rule(queue=QUEUE)
    def half_a_minute_passes(self, queue: str) -> None:
        """What pumps have in hand, or have put back, is there again, for others."""
        for entry, score in self.server.zscan_iter(self.keys[queue].outbox):
            if score != NEVER and not entry.startswith(b"hold:"):
                self.server.zadd(self.keys[queue].outbox, {entry: 1 + score % 1}, xx=True)

    # --- what a network does -----------------------------------------------------------------

    @precondition(lambda self: self.past)
    @rule(pick=PICK)
    def delivered_late(self, pick: int) -> None:
        """A delivery comes once more, long after."""
        queue, entry = self.past[pick % len(self.past)]
        note(f"  {queue}: {entry.name} once more: {self.hand_over(queue, entry)}")

    @rule(queue=QUEUE, verb=REPEATED)
    def sent_again(self, queue: str, verb: str) -> None:
        """The reply to a call was lost: the same call again changes nothing."""
        if not self.drivers[queue].sent[verb]:
            return
        self.look()
        before = self.snaps
        try:
            self.drivers[queue].resend(verb)
        except CallRefusedError as error:
            note(f"  {error.verdict}")
        self.look()
        for name in QUEUES:
            no_change(before[name], self.snaps[name])


def flows_machine(server: redis.Redis, scripts: Mapping[str, Script] | None = None) -> type[Families]:
    """Make the machine for a server, perhaps with changed scripts."""
    return type("FlowsMachine", (Families,), {"server": server, "scripts": scripts or {}})
