"""The state machine of flows: trees over three queues, while pumps die, repeat and overtake each other.

Theory of operation
    Every step of an addition and of a delivery is a step of its own: an entry is taken by one of several pumps, handed over
    by whoever has it, again or late, and struck off, or never. A pump that is not chosen again has been killed. Jobs end in
    every way there is, and what has ended is known from the queues' events, each of which exists exactly when its change
    does: that is the model, and it is told by other lines of the scripts than those that settle parents.

    After each step: every queue's invariants; what a parent was told of a child is how that child has ended; a parent
    that runs has no child open, and none that should have buried it, unless it runs early. When it is over, one pump and one worker go on
    until nothing moves: then nobody waits, nothing is owed, nothing is left behind, and whoever was buried for a child
    names one that failed.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from echomq.conformance.driver import CallRefusedError, Driver
from echomq.conformance.expectations import ContradictionError
from echomq.conformance.invariants import violations
from echomq.conformance.pumping import deliver
from echomq.conformance.snapshot import Snapshot, take
from echomq.protocol.keys import QueueKeys
from echomq.protocol.kin import ChildRef, Outcome, ParentRef, Policy
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import (
    SPAWNER,
    CancelRequest,
    Completion,
    Ending,
    Entry,
    Failure,
    ForeignNode,
    LocalNode,
    Node,
    Release,
    Script,
    Suspension,
    Taken,
)

QUEUES: Final = ("a", "b", "c")
ENDINGS: Final = frozenset({"completed", "dead", "cancelled", "discarded", "expired", "removed"})
PICK: Final = st.integers(0, 1023)
QUEUE: Final = st.sampled_from(QUEUES)
POLICY: Final = st.sampled_from([Policy.FAIL_PARENT, Policy.FAIL_PARENT, Policy.IGNORE, Policy.RUN_PARENT])
LEAF: Final = st.tuples(QUEUE, POLICY)
BRANCH: Final = st.tuples(QUEUE, POLICY, st.lists(LEAF, max_size=3))
MOST_ROUNDS: Final = 400


class Families(RuleBasedStateMachine):
    """What producers, workers, operators, pumps and time do to flows."""

    server: redis.Redis
    scripts: Mapping[str, Script]

    def __init__(self) -> None:
        super().__init__()
        prefix = f"emq-proof-{secrets.token_hex(6)}"
        self.keys = {name: QueueKeys(prefix=prefix, queue=name) for name in QUEUES}
        self.drivers = {name: Driver(self.server, keys, scripts=self.scripts) for name, keys in self.keys.items()}
        self.snaps: dict[str, Snapshot] = {}
        self.queue_of: dict[str, str] = {}
        """Every job's queue."""
        self.ended: defaultdict[str, list[str]] = defaultdict(list)
        """How each job has ended, by its events, in each of its lives."""
        self.gone_dead: set[str] = set()
        """The dead that an operator has removed: these cannot be brought back with their parents."""
        self.held: list[tuple[str, Claimed]] = []
        self.hands: list[tuple[str, Taken]] = []
        """What pumps have taken: they may hand it over, or die."""
        self.read: dict[str, bytes] = dict.fromkeys(QUEUES, b"0")
        for name in QUEUES:
            self.drivers[name].plain("configure", settings={"events": "all"})

    def teardown(self) -> None:
        """Let everything come to its end, and look at what is left."""
        try:
            self.come_to_rest()
        finally:
            for key in self.server.scan_iter(f"{self.keys['a'].prefix}:*", count=1000):
                self.server.delete(key)

    # --- adding ------------------------------------------------------------------------------

    def job(self, queue: str, **options: Any) -> NewJob:
        """Make a job and remember where it goes."""
        job = NewJob(**options)
        self.queue_of[job.id] = queue
        return job

    def below(self, nodes: list[Node], place: int | str, parent: str, here: str, children: list[Any]) -> None:
        """Add nodes for children: those of another queue with what is below them there."""
        for number, (queue, policy, *more) in enumerate(children):
            kids = more[0] if more else []
            job = self.job(queue)
            tie: dict[str, Any] = {"name": str(number), "policy": policy}
            if queue == here:
                nodes.append(LocalNode(job=job, parent=place, kids=bool(kids), **tie))
                self.below(nodes, len(nodes), job.id, here, kids)
            else:
                inner: list[Node] = [LocalNode(job=job, parent=f"{parent} {here}", kids=bool(kids), **tie)]
                self.below(inner, 1, job.id, queue, kids)
                nodes.append(ForeignNode(queue=queue, id=job.id, parent=place, nodes=inner, **tie))

    @initialize(queue=QUEUE, children=st.lists(BRANCH, min_size=1, max_size=4))
    def begin(self, queue: str, children: list[Any]) -> None:
        """A flow is there at first."""
        self.add(queue, children)

    @rule(queue=QUEUE, children=st.lists(BRANCH, max_size=4))
    def add(self, queue: str, children: list[Any]) -> None:
        """A producer adds a tree; it may die before it delivers what is for other queues."""
        root = self.job(queue)
        nodes: list[Node] = [LocalNode(job=root, kids=True)]
        self.below(nodes, 1, root.id, queue, children)
        self.drivers[queue].plain("flow_add", nodes)

    # --- working -----------------------------------------------------------------------------

    @rule(queue=QUEUE, count=st.integers(1, 4))
    def claim(self, queue: str, count: int) -> None:
        """A worker takes jobs; parents among them must be allowed to run."""
        for claimed in self.drivers[queue].claim(count).jobs:
            self.held.append((queue, claimed))
            self.check_may_run(queue, claimed)

    def check_may_run(self, queue: str, claimed: Claimed) -> None:
        """A parent that runs for the first time since it waited has nobody to wait for, or runs early."""
        snap = take(self.server, self.keys[queue])
        row = snap.row(claimed.id)
        if "children" not in row or claimed.token > 1 or "early" in row:
            return
        results = snap.hash(f"job:{claimed.id}:results")
        links = snap.hash(f"job:{claimed.id}:children")
        open_ones = sorted(links.keys() - results.keys())
        if open_ones:
            raise ContradictionError(f"{claimed.id} runs while its children {open_ones} are open")
        for name, link in links.items():
            failed = Outcome.parse(results[name].encode()).failed
            if failed and ChildRef.parse(link.encode()).policy is Policy.FAIL_PARENT:
                raise ContradictionError(f"{claimed.id} runs although its child {name} has failed")

    @precondition(lambda self: self.held)
    @rule(pick=PICK, how=st.sampled_from(["complete", "complete", "complete", "die", "retry", "cancelled", "discarded", "release", "suspend"]))  # fmt: skip
    def settle(self, pick: int, how: str) -> None:
        """A worker ends an attempt; its lease may be lost by then."""
        queue, claimed = self.held.pop(pick % len(self.held))
        self.end(queue, claimed, how)

    def end(self, queue: str, claimed: Claimed, how: str) -> str:
        """Send the verdict of an attempt; answers what the server says."""
        fenced = (claimed.id, claimed.token, claimed.nonce)
        items: dict[str, tuple[str, Any]] = {
            "complete": ("complete", Completion(*fenced, claimed.id.encode())),
            "die": ("fail", Failure(*fenced, 0, 0, b'{"type":"E","message":"m"}')),
            "retry": ("fail", Failure(*fenced, 0, 5, b'{"type":"E","message":"m"}')),
            "cancelled": ("end", Ending(*fenced, "cancelled", "asked")),
            "discarded": ("end", Ending(*fenced, "discarded", "no use")),
            "release": ("release", Release(*fenced)),
            "suspend": ("suspend", Suspension(*fenced)),
        }
        verb, item = items[how]
        return self.drivers[queue].item(verb, item).code

    @precondition(lambda self: self.held)
    @rule(pick=PICK, children=st.lists(LEAF, min_size=1, max_size=3), first=st.integers(0, 3))
    def spawn(self, pick: int, children: list[Any], first: int) -> None:
        """A running job spawns children, some of them by names it has used before."""
        queue, claimed = self.held[pick % len(self.held)]
        nodes: list[Node] = []
        for number, (there, policy) in enumerate(children, first):
            job = self.job(there)
            tie: dict[str, Any] = {"name": f"s{number}", "policy": policy, "parent": SPAWNER}
            if there == queue:
                nodes.append(LocalNode(job=job, **tie))
            else:
                inner = LocalNode(job=job, parent=f"{claimed.id} {queue}", name=f"s{number}", policy=policy)
                nodes.append(ForeignNode(queue=there, id=job.id, nodes=[inner], **tie))
        try:
            self.drivers[queue].plain("spawn", claimed.id, claimed.token, claimed.nonce, nodes)
        except CallRefusedError as error:
            if error.verdict.code not in {"EMQSTALE", "EMQGONE"}:
                raise

    # --- operators and time ------------------------------------------------------------------

    @rule(queue=QUEUE, pick=PICK, verb=st.sampled_from(["cancel", "remove", "redrive", "redrive"]))
    def operate(self, queue: str, pick: int, verb: str) -> None:
        """Somebody cancels, removes or redrives a job, whatever its state."""
        ids = sorted(id for id, _ in self.look(queue).rows())
        if not ids:
            return
        id = ids[pick % len(ids)]
        was_dead = self.look(queue).row(id).get("state") == "dead"
        self.drivers[queue].item(verb, CancelRequest(id, "by hand") if verb == "cancel" else id)
        if verb == "remove" and was_dead:
            self.gone_dead.add(id)

    @rule(queue=QUEUE)
    def drain(self, queue: str) -> None:
        """Somebody drains a queue."""
        self.drivers[queue].plain("drain")

    @rule(queue=QUEUE, pick=PICK)
    def lease_ends(self, queue: str, pick: int) -> None:
        """A worker has died: its lease is over."""
        active = list(self.look(queue).zset("active"))
        if active:
            self.server.zadd(self.keys[queue].active, {active[pick % len(active)]: 1}, xx=True)

    # --- pumps -------------------------------------------------------------------------------

    @rule(queue=QUEUE, bound=st.integers(1, 4))
    def pump_takes(self, queue: str, bound: int) -> None:
        """A pump takes entries; it may be killed with them in hand."""
        taken = self.drivers[queue].plain("flow_take", bound=bound)
        if taken.entries:
            self.hands.append((queue, taken))

    @precondition(lambda self: self.hands)
    @rule(pick=PICK, which=PICK)
    def pump_hands_over(self, pick: int, which: int) -> None:
        """A pump hands an entry over: it may have done so before, or be late."""
        queue, taken = self.hands[pick % len(self.hands)]
        self.hand_over(queue, taken.entries[which % len(taken.entries)])

    def hand_over(self, queue: str, entry: Entry) -> None:
        """Do one step with an entry."""
        deliver(entry, self.drivers[queue], self.drivers)

    @precondition(lambda self: self.hands)
    @rule(pick=PICK, over=st.integers(0, 4))
    def pump_strikes_off(self, pick: int, over: int) -> None:
        """A pump has handed all of its entries over, and strikes them off, or puts some back."""
        queue, taken = self.hands.pop(pick % len(self.hands))
        for entry in taken.entries[: over + 1]:
            self.hand_over(queue, entry)
        names = [entry.name for entry in taken.entries if not entry.is_walk]
        done = [entry.name for entry in taken.entries[: over + 1] if not entry.is_walk]
        later = [name for name in names if name not in done]
        self.drivers[queue].plain("flow_done", till=taken.till, done=done, later=later)

    @rule(queue=QUEUE)
    def half_a_minute_passes(self, queue: str) -> None:
        """What pumps have in hand is there again, for others."""
        for entry, score in self.server.zscan_iter(self.keys[queue].outbox):
            if score % 1:
                self.server.zadd(self.keys[queue].outbox, {entry: 1}, xx=True)

    @rule(queue=QUEUE)
    def a_minute_passes(self, queue: str) -> None:
        """Whoever waits has waited for long."""
        for id, _ in self.server.zscan_iter(self.keys[queue].waiting):
            self.server.zadd(self.keys[queue].waiting, {id: 1}, xx=True)

    # --- what is checked ---------------------------------------------------------------------

    def look(self, queue: str) -> Snapshot:
        """Look at all keys of a queue."""
        return take(self.server, self.keys[queue])

    def hear(self) -> None:
        """Read what has happened since."""
        for name, keys in self.keys.items():
            since = b"-" if self.read[name] == b"0" else b"(" + self.read[name]
            told: Any = self.server.xrange(keys.events, min=since)
            for mark, fields in told:
                self.read[name] = mark
                event, id = fields[b"event"].decode(), fields[b"job"].decode()
                if event in ENDINGS:
                    self.ended[id].append(event)
                if event == "lost" and id not in self.gone_dead and "removed" not in self.ended[id]:
                    raise ContradictionError(f"{id} is said to be lost, and nobody has removed it: {self.ended[id]}")

    @invariant()
    def agrees(self) -> None:
        """Look at everything."""
        self.hear()
        for name in QUEUES:
            snap = self.look(name)
            wrong = violations(snap, awake=1)
            for suffix in snap.entries:
                if suffix.startswith("job:") and suffix.endswith(":results"):
                    wrong += self.told_wrong(snap, suffix.split(":")[1])
            if wrong:
                raise ContradictionError(f"queue {name}:\n" + "\n".join(wrong))

    def told_wrong(self, snap: Snapshot, parent: str) -> list[str]:
        """What a parent was told of its children is what they came to."""
        wrong = []
        links = snap.hash(f"job:{parent}:children")
        for name, text in snap.hash(f"job:{parent}:results").items():
            outcome = Outcome.parse(text.encode())
            child = ChildRef.parse(links[name].encode()).id
            known = outcome.kind in self.ended[child] or outcome.kind in {"lost", "duplicate", "detached"}
            # A child that was never sent is cancelled in its parent's queue: nobody else knows of it.
            unborn = outcome.kind == "cancelled" and outcome.token == 0
            if not known and not unborn:
                wrong.append(f"{parent} was told that {name} ({child}) {outcome.kind}; it has {self.ended[child]}")
            if outcome.completed and outcome.body != child.encode():
                wrong.append(f"{parent} was told that {name} ({child}) returned {outcome.body!r}")
        return wrong

    def come_to_rest(self) -> None:
        """Time passes, one pump delivers all and one worker completes all; then nothing may be left."""
        for _ in range(MOST_ROUNDS):
            self.news_arrives()
            self.check_swept()
            moved = 0
            for name in QUEUES:
                for key in (self.keys[name].active, self.keys[name].schedule):
                    for id, _score in self.server.zscan_iter(key):
                        self.server.zadd(key, {id: 1}, xx=True)
                for claimed in self.drivers[name].claim(64).jobs:
                    moved += 1
                    self.check_may_run(name, claimed)
                    if self.end(name, claimed, "complete") == "EMQSTATE":  # its handler waits for what it has spawned
                        self.end(name, claimed, "suspend")
                self.agrees()
            if not moved:
                break
        else:
            raise ContradictionError(f"it does not come to rest in {MOST_ROUNDS} rounds")
        for name in QUEUES:
            self.check_rest(name, self.look(name))

    def news_arrives(self) -> None:
        """A pump that lives delivers everything, and what comes of that."""
        for _ in range(MOST_ROUNDS):
            moved = 0
            for name in QUEUES:
                driver, keys = self.drivers[name], self.keys[name]
                for entry, score in self.server.zscan_iter(keys.outbox):
                    if score != float("inf"):
                        self.server.zadd(keys.outbox, {entry: 1}, xx=True)
                taken = driver.plain("flow_take", bound=128)
                for entry in taken.entries:
                    self.hand_over(name, entry)
                names = [entry.name for entry in taken.entries if not entry.is_walk]
                driver.plain("flow_done", till=taken.till, done=names)
                moved += len(taken.entries)
                self.agrees()
            if not moved:
                return
        raise ContradictionError(f"there is always something to deliver after {MOST_ROUNDS} rounds")

    def check_swept(self) -> None:
        """Nobody waits to run whose parent is over, but who was redriven by hand."""
        snaps = {name: self.look(name) for name in QUEUES}
        for name, snap in snaps.items():
            for id, row in snap.rows():
                if "parent" not in row or row["state"] not in {"pending", "schedule", "waiting"} or self.ended[id]:
                    continue
                parent = ParentRef.parse(row["parent"].encode())
                above = snaps[parent.queue or name].row(parent.id)
                if above.get("state", "done") in {"dead", "done"}:
                    raise ContradictionError(f"{id} is {row['state']}, and its parent {parent.id} is over: {above}")

    def check_rest(self, name: str, snap: Snapshot) -> None:
        """Nobody waits, nothing is owed, and whoever was buried for a child names one that failed."""
        wrong = [f"{state} has {ids}" for state in ("pending", "active", "schedule", "waiting", "outbox") if (ids := snap.zset(state))]  # fmt: skip
        for suffix, entry in snap.entries.items():
            kin = suffix.startswith("job:") and suffix.endswith((":children", ":results", ":held"))
            if kin and not snap.row(suffix.split(":")[1]):
                wrong.append(f"{suffix} is left behind")
            if suffix.startswith("delivered:") and not entry.ttl:
                wrong.append(f"{suffix} stays for ever")
        for id, row in snap.rows():
            reason = row.get("reason", "")
            if reason.startswith("child "):
                child = reason.split(" ")[1]
                links, results = snap.hash(f"job:{id}:children"), snap.hash(f"job:{id}:results")
                policy = ChildRef.parse(links[child].encode()).policy
                if policy is not Policy.FAIL_PARENT or child not in results:
                    wrong.append(f"{id} was buried for {child}, whose policy is {policy}: {results.get(child)}")
        if wrong:
            raise ContradictionError(f"at rest, queue {name}:\n" + "\n".join(wrong))
        for id, queue in self.queue_of.items():
            if queue == name and self.ended[id] and snap.row(id) and snap.row(id)["state"] not in {"dead", "done"}:
                raise ContradictionError(f"{id} has ended as {self.ended[id]} and is {snap.row(id)}")


def flows_machine(server: redis.Redis, scripts: Mapping[str, Script] | None = None) -> type[Families]:
    """Make the machine for a server, perhaps with changed scripts."""
    return type("FlowsMachine", (Families,), {"server": server, "scripts": scripts or {}})
