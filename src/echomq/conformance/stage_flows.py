"""The stage of the state machine of flows: three queues, what is looked at after each script, and how all comes to rest."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import redis
from hypothesis.stateful import RuleBasedStateMachine

from echomq.conformance.driver import LEASE_MS, Driver
from echomq.conformance.expectations import ContradictionError
from echomq.conformance.invariants import violations
from echomq.conformance.invariants_kin import kin_violations
from echomq.conformance.model_flows import DEAD, ENDED, RUNNING, Kinship
from echomq.conformance.pumping import deliver
from echomq.conformance.snapshot import Snapshot, take
from echomq.conformance.telling import untold
from echomq.protocol.keys import QueueKeys
from echomq.protocol.kin import Outcome, Policy
from echomq.protocol.records import Claimed
from echomq.transitions import ClaimReply, Completion, Ending, Entry, Failure, Release, Script, Suspension

QUEUES: Final = ("a", "b", "c")
ERROR: Final = b'{"type":"E","message":"m"}'
NEVER: Final = float("inf")
MOST_ROUNDS: Final = 200
_RESTLESS: Final = ("pending", "active", "schedule", "waiting", "outbox")


class FlowStage(RuleBasedStateMachine):
    """Three queues on a live server, one client of each, and the model."""

    server: ClassVar[redis.Redis]
    scripts: ClassVar[Mapping[str, Script]] = {}

    def __init__(self) -> None:
        super().__init__()
        prefix = f"emq-proof-{secrets.token_hex(6)}"
        self.keys = {name: QueueKeys(prefix=prefix, queue=name) for name in QUEUES}
        self.drivers = {name: Driver(self.server, keys, scripts=self.scripts) for name, keys in self.keys.items()}
        self.model = Kinship()
        self.snaps = {name: Snapshot({}) for name in QUEUES}
        self.read = dict.fromkeys(QUEUES, 0)
        """How many of each queue's events were read."""
        for name in QUEUES:
            self.drivers[name].plain("configure", settings={"events": "all"})

    def teardown(self) -> None:
        """Let everything come to its end, and look at what is left."""
        try:
            self.come_to_rest()
        finally:
            names = list(self.server.scan_iter(f"{self.keys['a'].prefix}:*", count=1000))
            if names:
                self.server.delete(*names)

    # --- after each script -------------------------------------------------------------------

    def look(self) -> None:
        """Look at all keys, and hold them against what is always true, and against the model.

        Raises:
            ContradictionError: They differ.
        """
        before, self.snaps = (
            self.snaps,
            {name: take(self.server, keys, at_once=True) for name, keys in self.keys.items()},
        )
        for name, snap in self.snaps.items():
            told = snap.items("events")
            for _, words in told[self.read[name] :]:
                fields = dict(zip(words[::2], words[1::2], strict=True))
                if "job" in fields:
                    self.model.happens(fields["event"], fields["job"], fields.get("reason", ""))
            self.read[name] = len(told)
        for snap in self.snaps.values():
            for id, row in snap.rows():
                if "children" in row and id in self.model.jobs:
                    texts = snap.hash(f"job:{id}:results").items()
                    results = {it: Outcome.parse(text.encode("utf-8", "surrogateescape")) for it, text in texts}
                    self.model.hear(id, results, row.get("hold", ""))
        self.model.judge()
        wrong = [line for snap in self.snaps.values() for line in violations(snap, awake=1)]
        wrong += kin_violations(self.snaps)
        wrong += [line for name, snap in self.snaps.items() for line in untold(before[name], snap)]
        if wrong:
            raise ContradictionError("\n".join(wrong))

    def run(self, queue: str, verb: str, *arguments: Any, **options: Any) -> Any:
        """Run a script that carries no items, and look; answers its reply."""
        reply = self.drivers[queue].plain(verb, *arguments, **options)
        self.look()
        return reply

    def item(self, queue: str, verb: str, item: Any) -> str:
        """Run a script with one item, and look; answers the verdict's word."""
        verdict = self.drivers[queue].item(verb, item)
        self.look()
        return verdict.code

    def hand_over(self, queue: str, entry: Entry) -> str:
        """Do with an entry what a pump does, and look; answers the verdict."""
        verdict = deliver(entry, self.drivers[queue], self.drivers)
        self.look()
        return verdict

    def claim_one(self, queue: str) -> Claimed | None:
        """Claim a job, after what a claim does first, each in a script of its own.

        Raises:
            ContradictionError: It never ends.
        """
        for _ in range(MOST_ROUNDS):
            while self.run(queue, "reap", bound=1) or self.run(queue, "promote", bound=1):
                pass
            reply: ClaimReply = self.run(queue, "claim", count=1, lease_ms=LEASE_MS)
            if reply.jobs or reply.next_ms:
                return reply.jobs[0] if reply.jobs else None
        raise ContradictionError(f"claims of {queue} say to ask again for {MOST_ROUNDS} rounds")

    def end(self, queue: str, claimed: Claimed, how: str, follow: bytes = b"") -> str:
        """Send the verdict of an attempt; answers what the server says."""
        fenced = (claimed.id, claimed.token, claimed.nonce)
        items: dict[str, tuple[str, Any]] = {
            "complete": ("complete", Completion(*fenced, claimed.id.encode(), follow)),
            "die": ("fail", Failure(*fenced, 0, 0, ERROR)),
            "retry": ("fail", Failure(*fenced, 0, 5, ERROR)),
            "cancelled": ("end", Ending(*fenced, "cancelled", "asked")),
            "discarded": ("end", Ending(*fenced, "discarded", "no use")),
            "release": ("release", Release(*fenced)),
            "suspend": ("suspend", Suspension(*fenced)),
        }
        return self.item(queue, *items[how])

    def pass_time(self, queue: str, which: str) -> None:
        """Move the moments of a set into the past; what says that an entry was taken stays."""
        key = getattr(self.keys[queue], which)
        for member, score in self.server.zscan_iter(key):
            if score != NEVER:
                self.server.zadd(key, {member: 1 + score % 1}, xx=True)
                if which == "active":
                    self.server.zadd(self.keys[queue].lane_active("lane"), {member: 1}, xx=True)

    # --- the end -----------------------------------------------------------------------------

    def pump_all(self) -> bool:
        """Deliver all that is owed, as one pump does; answers whether there was anything.

        Raises:
            ContradictionError: It never ends.
        """
        for turn in range(MOST_ROUNDS):
            moved = 0
            for name in QUEUES:
                self.pass_time(name, "outbox")
                taken = self.drivers[name].plain("flow_take", bound=128)
                verdicts = {entry.name: self.hand_over(name, entry) for entry in taken.entries}
                later = [entry for entry, verdict in verdicts.items() if verdict == "EMQSTATE"]
                walks = {entry.name for entry in taken.entries if entry.is_walk}
                done = [entry for entry in verdicts if entry not in walks and entry not in later]
                self.run(name, "flow_done", till=taken.till, done=done, later=later, delay_ms=10_000)
                moved += len(verdicts)
            if not moved:
                return turn > 0
        raise ContradictionError(f"queues go on telling each other for {MOST_ROUNDS} rounds")

    def complete_all(self) -> None:
        """Be the one worker that completes everything, and the one pump, until nothing moves.

        Raises:
            ContradictionError: It never ends.
        """
        for _ in range(MOST_ROUNDS):
            moved = False
            for name in QUEUES:
                self.pass_time(name, "active")
                self.pass_time(name, "schedule")
                while claimed := self.claim_one(name):
                    moved = True
                    if self.end(name, claimed, "complete") == "EMQSTATE":
                        self.end(name, claimed, "suspend")  # its handler waits for its children
            if not self.pump_all() and not moved:
                return
        raise ContradictionError(f"it does not come to rest in {MOST_ROUNDS} rounds")

    def come_to_rest(self) -> None:
        """Deliver all: nobody goes on whose parent is over. Then complete all: nothing is left.

        Raises:
            ContradictionError: Something else is so.
        """
        self.look()
        self.pump_all()
        self.find("all is delivered", [*self.model.runs_on(), *self.not_asked()])
        self.complete_all()
        self.find("nothing moves any more", self.model.wait_in_vain())
        for name in QUEUES:
            self.pass_time(name, "waiting")  # who waits for a child that never came asks after it
        self.complete_all()
        self.find("at rest", [*self.left_behind(), *self.model.unsettled(), *self.left_in_the_morgue()])

    def find(self, when: str, wrong: list[str]) -> None:
        """Hold that nothing is wrong.

        Raises:
            ContradictionError: Something is.
        """
        if wrong:
            raise ContradictionError(f"{when}:\n" + "\n".join(wrong))

    def not_asked(self) -> list[str]:
        """Say who runs although its parent is over, and was not asked to stop."""
        found = []
        for it in self.model.jobs.values():
            parent = self.model.jobs.get(it.parent)
            kept = it.by_hand or it.policy is Policy.DETACH or parent is None or parent.phase not in ENDED
            if it.phase == RUNNING and not kept and "cancel" not in self.snaps[it.queue].row(it.id):
                found.append(f"{it.id} runs, and was not told that {it.parent} is over")
        return found

    def left_in_the_morgue(self) -> list[str]:
        """Say who died with a parent, and was not brought back with it, though it went on to the end."""
        found = []
        for it in self.model.jobs.values():
            parent = self.model.jobs.get(it.parent)
            if parent is None or it.optional or it.phase != DEAD or parent.endings[-1:] != ["completed"]:
                continue
            if self.snaps[it.queue].row(it.id).get("reason") == f"parent dead: {parent.id}":
                found.append(f"{it.id} stays dead, though {parent.id} was brought back: {parent.endings}")
        return found

    def left_behind(self) -> list[str]:
        """Say what is there that should not be."""
        found = []
        for name, snap in self.snaps.items():
            found += [f"{name}: {state} has {sorted(ids)}" for state in _RESTLESS if (ids := snap.zset(state))]
            for suffix, entry in snap.entries.items():
                id, _, what = suffix.removeprefix("job:").partition(":")
                if suffix.startswith("job:") and what in {"children", "results", "held"} and not snap.row(id):
                    found.append(f"{name}: {suffix} is left behind")
                if suffix.startswith("delivered:") and not entry.ttl:
                    found.append(f"{name}: {suffix} stays for ever")
        return found
