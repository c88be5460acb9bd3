"""The state machine of queues with lanes: section 6's guarantees as invariants, the model beside the server.

Theory of operation
    Everything that `machine.Spine` does, in lanes, and what operators and handlers do to lanes and limits. The model says
    exactly which jobs a claim takes, in which order; whether that order is fair is counted here apart from the model:
    for each lane that could be served, how much of its turns each other lane had since. A lane that has had more than
    one whole turn while another waited breaks the first guarantee, and with it the shares by weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import redis
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from echomq.conformance import model_verbs
from echomq.conformance.expectations import ContradictionError
from echomq.conformance.items import DAY_MS
from echomq.conformance.machine import BOUND, CLIENT, PICK, PICKS, Spine
from echomq.conformance.machine_damage import Damage
from echomq.conformance.model import Served
from echomq.conformance.model_lanes import CLOSED
from echomq.conformance.snapshot import take
from echomq.protocol.states import State
from echomq.transitions import Reassignment, Script

LANES: Final = ("", "a", "b", "c")
LANE: Final = st.sampled_from(LANES)
RATES: Final = (f"1 {DAY_MS} 2", f"1 {DAY_MS} 5")
"""So many starts, and no other before tomorrow."""
LANE_SETTINGS: Final = st.sampled_from(
    [
        {"weight": "3"}, {"weight": "2"}, {"weight": ""}, {"limit": "1"}, {"limit": "2"}, {"limit": ""},
        {"rate": RATES[0]}, {"rate": RATES[1]}, {"rate": ""}, {"paused": "1"}, {"paused": ""},
        {"weight": "3", "limit": "3"}, {"weight": "", "limit": "", "rate": "", "paused": ""},
    ]
)  # fmt: skip
QUEUE_SETTINGS: Final = st.sampled_from(
    [
        {"limit": "2"}, {"limit": "4"}, {"limit": ""}, {"limit": ""}, {"rate": RATES[1]}, {"rate": ""}, {"max_size": "6"},
        {"max_size": ""}, {"limit": "", "rate": "", "max_size": ""},
    ]
)  # fmt: skip


class Lanes(Spine):
    """What producers, workers, operators and time do to lanes."""

    lanes = LANES
    remembered = (*Spine.remembered, "rate_limited", "reassign", "drain", "set_lane")

    def __init__(self) -> None:
        super().__init__()
        self.turns: dict[str, dict[str, int]] = {}
        """For each lane that waits and could be served: how much of their turns the others had since."""

    @initialize(
        picks=st.lists(PICK, min_size=6, max_size=16), count=st.integers(1, 4), told=st.lists(LANE_SETTINGS, max_size=3)
    )
    def begin(self, picks: list[int], count: int, told: list[dict[str, str]]) -> None:
        """Lanes have settings and a backlog at first, and somebody works."""
        for lane, settings in zip(LANES[1:], told, strict=False):
            self.set_lane(0, lane, settings)
        self.enqueue(0, [(pick, 0, pick // 4, pick // 8) for pick in picks])
        self.snap = take(self.server, self.keys)
        self.run_claim(0, count, 256)
        self.unchanged = False

    # --- workers -----------------------------------------------------------------------------

    @precondition(lambda self: self.model.ready() and not self.model.paused)
    @rule(client=CLIENT, count=st.integers(1, 8))
    def work(self, client: int, count: int) -> None:
        """Claim more: a queue lives by being worked on."""
        self.run_claim(client, count, 256)

    @rule(
        client=CLIENT, count=st.integers(1, 6), min_size=st.integers(1, 4), how=st.sampled_from(["lane", "lingers", ""])
    )
    def batch(self, client: int, count: int, min_size: int, how: str) -> None:
        """Claim a batch: of one lane, or as soon as enough are ready."""
        options: dict[str, Any] = {"min_size": min_size, "by_lane": how == "lane"}
        if how == "lingers":
            options["linger_ms"] = DAY_MS
        self.run_claim(client, count, 256, **options)

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(client=CLIENT, picks=PICKS)
    def told_to_wait(self, client: int, picks: list[int]) -> None:
        """A handler met a limit elsewhere: its lane, or the queue, is closed for a while."""
        self.holders(client, "rate_limited", picks, "latest")

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(client=CLIENT, reap=st.booleans())
    def killed(self, client: int, reap: bool) -> None:  # noqa: FBT001 - a drawn value
        """A worker dies: all its leases end."""
        tag = self.clients[client].tag
        for job in self.model.of(State.ACTIVE):
            if job.nonce and job.nonce.partition(".")[0] == tag:
                self.pass_time(job, 1000 + client)
        if reap:
            self.snap = take(self.server, self.keys)
            self.run_claim((client + 1) % 3, 2, 256)

    def served(self, served: Served, count: int, options: Mapping[str, Any]) -> None:
        """Check section 6's guarantees, and section 4's on limits."""
        model, jobs = self.model, served.jobs
        room, by_lane = min(count, served.room), options.get("by_lane", False)
        idle = [name for name in model.serviceable() if not model.closed()]
        if idle and not served.late and (not jobs if by_lane and room else len(jobs) < room):
            raise ContradictionError(f"{len(jobs)} of {room} were taken while lanes {idle} could be served")
        for limits, running, what in (
            *((model.rota.lane(job.lane).limits, model.running(job.lane), f"lane {job.lane}") for job in jobs),
            *((model.limits, model.of(State.ACTIVE), "the queue") for _ in jobs[:1]),
        ):
            if limits.limit and len(running) > limits.limit:
                raise ContradictionError(f"{what}: {len(running)} run, its limit is {limits.limit}")
        for name in served.late:
            self.turns.pop(name, None)
        units = [(job.lane, 1) for job in jobs]
        for name, n in dict(units).items() if by_lane else units:
            self.turn(name, n)

    def turn(self, name: str, n: int) -> None:
        """Count a start against every lane that waits, and hold that nobody has had more than a turn."""
        self.turns.pop(name, None)
        for waiting, others in self.turns.items():
            others[name] = others.get(name, 0) + n
            most = max(1, self.model.rota.lane(name).limits.weight)
            if others[name] > most:
                raise ContradictionError(
                    f"{name!r} had {others[name]} starts, a turn is {most}, while {waiting!r} waited"
                )

    def turns_begin_anew(self) -> None:
        """Lanes were moved by hand: what was counted of their turns is void."""
        self.turns.clear()

    @invariant()
    def agrees(self) -> None:
        """Look at everything once, and at who waits."""
        super().agrees()
        waiting = self.model.serviceable() if self.model.rota.on else []
        self.turns = {name: self.turns.get(name, {}) for name in waiting}

    # --- operators ---------------------------------------------------------------------------

    @rule(client=CLIENT, lane=LANE, settings=LANE_SETTINGS)
    def set_lane(self, client: int, lane: str, settings: dict[str, str]) -> None:
        """Settings of a lane; the turns of others count anew by another weight."""
        if not lane:
            settings = {name: value for name, value in settings.items() if name != "limit"}
        expected = model_verbs.set_lane(self.model, lane, settings)
        self.model.settle()
        seen = self.clients[client].plain("set_lane", lane=lane, settings=settings)
        self.expect(f"set_lane {lane!r} {settings}", seen, expected)
        self.replies[client, "set_lane"] = seen
        for others in self.turns.values():
            others.pop(lane, None)

    @precondition(lambda self: any(lane.limits.paused or lane.limits.told for lane in self.model.rota.lanes.values()))
    @rule(client=CLIENT)
    def resume_lane(self, client: int) -> None:
        """Somebody remembers the lane's switch."""
        lane = next(it for it in self.model.rota.lanes.values() if it.limits.paused or it.limits.told)
        self.set_lane(client, lane.name, {"paused": ""})

    @rule(client=CLIENT, settings=QUEUE_SETTINGS)
    def configure(self, client: int, settings: dict[str, str]) -> None:
        """Limits of the queue."""
        self.tell(client, settings)

    @rule(client=CLIENT, picks=PICKS, lane=LANE)
    def reassign(self, client: int, picks: list[int], lane: str) -> None:
        """Jobs go to another lane, also those that cannot."""
        ids = [self.choose(pick, State.PENDING, State.SCHEDULE, State.DEAD) for pick in picks]
        items = [Reassignment(id, lane) for id in ids]
        expected = [model_verbs.reassign(self.model, item) for item in items]
        self.run_items(client, "reassign", items, expected)

    @rule(client=CLIENT, lane=LANE, bound=BOUND)
    def drain(self, client: int, lane: str, bound: int) -> None:
        """A lane's pending jobs go."""
        expected = model_verbs.drain(self.model, lane, bound)
        self.model.settle()
        seen = self.clients[client].plain("drain", lane=lane, bound=bound)
        self.expect(f"drain {lane!r}", seen, expected)
        self.replies[client, "drain"] = seen

    @rule(client=CLIENT)
    def look_at_lanes(self, client: int) -> None:
        """What a person sees of the lanes."""
        model = self.model
        page = self.clients[client].plain("read_lanes", names=LANES)
        seen = {it.name: (it.pending, it.active, list(it.closed)) for it in page.lanes}
        expected = {
            name: (len(model.waiting(name)), len(model.running(name)), model.shut(model.rota.lane(name)))
            for name in LANES
        }
        self.expect("read_lanes", seen, expected)
        self.unchanged = True

    # --- time --------------------------------------------------------------------------------

    def forgotten(self, text: str) -> str:
        """Spell settings with their moments in the past."""
        words = text.split(" ")
        words[5], words[7] = "0", "1000" if words[7] != "0" else "0"
        return " ".join(words)

    @precondition(lambda self: any(lane.limits.told or lane.limits.used for lane in self.model.rota.lanes.values()))
    @rule(pick=PICK)
    def lane_opens(self, pick: int) -> None:
        """A lane's rate, or what a handler said, does not hold it any more."""
        lanes = [lane for lane in self.model.rota.lanes.values() if lane.limits.told or lane.limits.used]
        lane = lanes[pick % len(lanes)]
        lane.limits.told, lane.limits.used = False, 0
        where, _, text = self.snap.hash("lanes")[lane.name].partition(" ")
        self.server.hset(self.keys.lanes, lane.name, f"{where} {self.forgotten(text)}")
        if (
            lane.where == CLOSED
            and not lane.limits.paused
            and not (self.model.shut(lane) and not self.model.full_of_dead(lane))
        ):
            lane.due = True
            self.server.zadd(self.keys.closed, {lane.name: 1000 + pick}, xx=True)

    @precondition(lambda self: self.model.limits.told or self.model.limits.used)
    @rule()
    def queue_opens(self) -> None:
        """The queue's rate, or what a handler said, is over: the keeper of the timer wakes up."""
        self.model.limits.told, self.model.limits.used = False, 0
        text = self.snap.hash("meta")["limits"]
        self.server.hset(self.keys.meta, "limits", self.forgotten(text))
        self.awake += 1


def lanes_machine(server: redis.Redis, scripts: Mapping[str, Script] | None = None) -> type[Lanes]:
    """Make the machine for a server, perhaps with changed scripts."""
    return type("LanesMachine", (Damage, Lanes), {"server": server, "scripts": scripts or {}})
