"""A parent of two children for the table of endings, and each way in which one of them can end."""

from __future__ import annotations

import secrets
from typing import Any, Final

import redis

from echomq.conformance.driver import Driver
from echomq.conformance.invariants import violations
from echomq.conformance.invariants_kin import kin_violations
from echomq.conformance.pumping import deliver, pump
from echomq.conformance.snapshot import Snapshot, take
from echomq.protocol.keys import QueueKeys
from echomq.protocol.kin import Policy
from echomq.protocol.records import Claimed, NewJob
from echomq.transitions import CancelRequest, Child, Completion, Ending, Failure, ForeignNode, LocalNode, Node

HOME: Final = "home"
AWAY: Final = "away"
ERROR: Final = b'{"type":"E","message":"no"}'
TAKEN: Final = "taken"
"""The dedup key that somebody else holds."""


class Case:
    """A parent, the child that ends, and its sibling in the parent's queue, which comes after it and goes on."""

    def __init__(self, server: redis.Redis, policy: Policy, where: str) -> None:
        self.server = server
        self.policy = policy
        self.where = where
        prefix = f"emq-ends-{secrets.token_hex(6)}"
        self.keys = {name: QueueKeys(prefix=prefix, queue=name) for name in (HOME, AWAY)}
        self.drivers = {name: Driver(server, keys) for name, keys in self.keys.items()}
        self.parent = NewJob(task="parent")
        self.child = ""
        self.sibling = NewJob(task="sibling", priority=-1)

    @property
    def home(self) -> Driver:
        """A client of the parent's queue."""
        return self.drivers[HOME]

    @property
    def there(self) -> Driver:
        """A client of the child's queue."""
        return self.drivers[self.where]

    def add(self, **options: Any) -> None:
        """Add the flow, and have it where it belongs."""
        job = NewJob(task="child", max_stalls=0, **options)
        self.child = job.id
        nodes: list[Node] = [LocalNode(job=self.parent, kids=True)]
        tie: dict[str, Any] = {"name": "x", "policy": self.policy}
        if self.where == HOME:
            nodes.append(LocalNode(job=job, parent=1, **tie))
        else:
            inner = LocalNode(job=job, parent=f"{self.parent.id} {HOME}", **tie)
            nodes.append(ForeignNode(queue=AWAY, id=job.id, parent=1, nodes=[inner], **tie))
        nodes.append(LocalNode(job=self.sibling, parent=1, name="y", policy=Policy.IGNORE))
        self.home.plain("flow_add", nodes)
        self.hand_over(self.home)

    def hand_over(self, driver: Driver) -> list[str]:
        """Deliver what one queue owes now, and strike it off; answer the verdicts."""
        taken = driver.plain("flow_take")
        verdicts = [deliver(entry, driver, self.drivers) for entry in taken.entries]
        done = [entry.name for entry in taken.entries if not entry.is_walk]
        # Nobody strikes off what somebody else has taken since.
        struck = [driver.plain("flow_done", till=till, done=done) for till in ("1", taken.till)]
        assert struck == [0, len(done)]
        return verdicts

    def pump(self) -> None:
        """Deliver what the queues owe each other."""
        pump(self.drivers)

    def claim(self, driver: Driver, id: str) -> Claimed:
        """Claim a job: the only one that is in turn."""
        (claimed,) = driver.claim(1).jobs
        assert claimed.id == id
        return claimed

    def take_child(self) -> Claimed:
        """Claim the child."""
        return self.claim(self.there, self.child)

    def complete(self, driver: Driver, claimed: Claimed) -> None:
        """Have a job succeed; what it returns is its task's name."""
        result = claimed.record.task.encode()
        assert driver.item("complete", Completion(claimed.id, claimed.token, claimed.nonce, result)).code == "ok"

    # --- looking -----------------------------------------------------------------------------

    def look(self, name: str = HOME) -> Snapshot:
        """Look at a queue."""
        return take(self.server, self.keys[name])

    def row(self) -> dict[str, str]:
        """Read the parent's row."""
        return self.look().row(self.parent.id)

    def told(self) -> dict[str, Child]:
        """Read what the parent's handler does of its children."""
        page = self.home.plain("read_flow", id=self.parent.id)
        assert page.cursor == "0"
        return {child.name: child for child in page.children}

    def results(self) -> dict[str, bytes | None]:
        """Answer what `children_results` would."""
        return {name: it.outcome.body for name, it in self.told().items() if it.outcome and it.outcome.completed}

    def ignored(self) -> dict[str, str]:
        """Answer what `ignored_failures` would, kinds alone."""
        own = (Policy.IGNORE, Policy.RUN_PARENT)
        told = self.told().items()
        return {name: it.outcome.kind for name, it in told if it.outcome and it.outcome.failed and it.ref.policy in own}

    def outstanding(self) -> list[str]:
        """Answer what `outstanding` would."""
        return sorted(name for name, it in self.told().items() if it.outcome is None)

    def healthy(self) -> None:
        """Hold what is always true of queues."""
        snaps = {name: self.look(name) for name in self.keys}
        assert [line for snap in snaps.values() for line in violations(snap)] + kin_violations(snaps) == []


# --- the endings ---------------------------------------------------------------------------------


def succeeded(case: Case) -> None:
    """It returns."""
    case.add()
    case.complete(case.there, case.take_child())


def dead(case: Case) -> None:
    """It fails, and has no attempt left."""
    case.add()
    it = case.take_child()
    assert case.there.item("fail", Failure(it.id, it.token, it.nonce, 0, 1, ERROR)).code == "dead"


def out_of_time(case: Case) -> None:
    """Its deadline is over before anybody claims it."""
    case.add(deadline="1")
    assert case.there.claim(1).jobs == []


def cancelled(case: Case) -> None:
    """Somebody cancels it while it waits."""
    case.add()
    assert case.there.item("cancel", CancelRequest(case.child, "no need")).code == "cancelled"


def cancelled_at_work(case: Case) -> None:
    """Its handler obeys a request."""
    case.add()
    it = case.take_child()
    assert case.there.item("cancel", CancelRequest(case.child, "no need")).code == "asked"
    assert case.there.item("end", Ending(it.id, it.token, it.nonce, "cancelled", "no need")).code == "ok"


def discarded(case: Case) -> None:
    """Its handler says that it is of no use."""
    case.add()
    it = case.take_child()
    assert case.there.item("end", Ending(it.id, it.token, it.nonce, "discarded", "no use")).code == "ok"


def removed(case: Case) -> None:
    """Somebody erases it."""
    case.add()
    assert case.there.item("remove", case.child).code == "ok"


def drained(case: Case) -> None:
    """Somebody erases all that is pending in its lane."""
    case.add(lane="x")
    assert case.there.plain("drain", lane="x") == 1


def obliterated(case: Case) -> None:
    """Its queue is erased; what this queue still has to tell goes first."""
    case.add()
    assert case.there.plain("obliterate", force=True).jobs == 1


def expired(case: Case) -> None:
    """Nobody has claimed it in time."""
    case.add(expires="1")
    assert case.there.claim(1).jobs == []


def stalled_out(case: Case) -> None:
    """Its worker dies, and it was not to survive that."""
    case.add()
    case.take_child()
    assert case.server.zadd(case.keys[case.where].active, {case.child: 1}, xx=True, ch=True) == 1
    assert case.there.plain("reap") == 1


def duplicated(case: Case) -> None:
    """Another job has its dedup key: it is never there."""
    case.there.item("enqueue", NewJob(task="other", dedup=TAKEN, priority=-2))
    case.add(dedup=TAKEN)


def told_by_the_next_pump(case: Case) -> None:
    """The pump that has its outcome in hand is killed, before it delivers it, or after."""
    dead(case)
    taken = case.there.plain("flow_take")
    assert [entry.name for entry in taken.entries] == [f"tell:{case.child}"]
    assert case.row()["state"] == "waiting"
    assert case.there.plain("flow_take").entries == ()
    # It has delivered it, and is killed before it strikes it off: half a minute later another one finds it.
    assert deliver(taken.entries[0], case.there, case.drivers) == "ok"
    case.server.zadd(case.keys[case.where].outbox, {f"tell:{case.child}": 1}, xx=True)
