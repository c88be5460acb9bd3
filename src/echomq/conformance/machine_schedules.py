"""The state machine of recurring schedules: programs that define, pause, remove and fire them while workers run.

Theory of operation
    Clients are programs that all know the same schedules in several versions. A slot comes when its number moves into the
    past; then any of them may fire it, also by what it saw before the last change. After each step every definition, the
    set by which they are found, and all jobs are what the model says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import redis
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from echomq.conformance import model_verbs
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.expectations import ContradictionError, differing
from echomq.conformance.items import DAY_MS, HALF_A_YEAR_MS, YEAR_MS, make_item
from echomq.conformance.model_schedules import Schedules, over
from echomq.conformance.scheduling import AHEAD, PAST
from echomq.conformance.stage import Stage, spell
from echomq.protocol.ids import mint
from echomq.protocol.records import NewJob
from echomq.protocol.states import State
from echomq.transitions import CancelRequest, Firing, Script

PICK: Final = st.integers(0, 255)
CLIENT: Final = st.integers(0, 2)
NAME: Final = st.sampled_from(["a", "b", "c"])
SLOT: Final = st.sampled_from([AHEAD, AHEAD + DAY_MS, AHEAD + 2 * DAY_MS, 0])
MISSED: Final = st.integers(0, 3)
SEEN: Final = st.sampled_from(["right", "right", "right", "right", "digest", "slot", "next", "before"])


def template(pick: int) -> NewJob:
    """Make what a schedule's jobs are."""
    options: dict[str, Any] = {"payload": f"{pick}".encode(), "priority": (0, 5)[pick % 2]}
    if pick % 3 == 1:
        options["lane"] = "lane"
    if pick % 4 == 3:
        options["result_ttl_ms"] = YEAR_MS
    if pick % 8 == 5:
        options["deadline"] = f"+{HALF_A_YEAR_MS}"
    if pick % 16 == 9:
        options["expires"] = "1"
    return NewJob(**options)


class Recurring(Stage):
    """What programs, workers, operators and time do to schedules."""

    def __init__(self) -> None:
        super().__init__()
        self.schedules = Schedules(self.model)
        self.seen: dict[str, tuple[str, int]] = {}
        """By name: where somebody saw the schedule stand, some time ago."""
        self.slots = PAST

    def is_due(self) -> bool:
        """Whether a claim must tell of a slot."""
        return self.schedules.due

    # --- programs ----------------------------------------------------------------------------

    @initialize(picks=st.lists(PICK, min_size=2, max_size=3))
    def begin(self, picks: list[int]) -> None:
        """Some schedules are there at first."""
        for name, pick in zip("abc", picks, strict=False):
            self.put(0, name, pick, AHEAD)
        self.unchanged = False

    @rule(client=CLIENT, name=NAME, pick=PICK, slot=SLOT)
    def put(self, client: int, name: str, pick: int, slot: int) -> None:
        """A program defines a schedule: the same, or another one; now and then its first slot is over by now."""
        overlap, job = ("allow", "skip", "queue")[pick % 3], template(pick // 3)
        digest, slot = f"{pick // 16}", PAST if pick % 16 == 15 else slot
        expected = self.schedules.put(name, digest, overlap, job, slot)
        reply = self.clients[client].plain(
            "schedule_put", name=name, digest=digest, spec=b"{}", origin="", overlap=overlap, slot_ms=slot, job=job
        )
        self.expect(f"schedule_put {name}", reply.outcome, expected)
        self.unchanged = expected in {"same", "stale"}

    @rule(client=CLIENT, name=NAME, again=st.booleans(), slot=SLOT)
    def remove(self, client: int, name: str, again: bool, slot: int) -> None:  # noqa: FBT001 - a drawn value
        """It goes; perhaps another program, that does not know, defines it again at once."""
        old = self.schedules.by_name.get(name)
        expected = self.schedules.remove(name)
        self.expect("schedule_remove", spell(self.clients[client].plain("schedule_remove", name=name)), expected)
        if again and old is not None:
            self.schedules.put(name, old.digest, old.overlap, old.job, slot)
            self.clients[client].plain(
                "schedule_put", name=name, digest=old.digest, spec=b"{}", origin="", overlap=old.overlap, slot_ms=slot,
                job=old.job,
            )  # fmt: skip
        self.unchanged = old is None

    @rule(client=CLIENT, name=NAME, pick=PICK, slot=SLOT, paused=st.booleans())
    def rest(self, client: int, name: str, pick: int, slot: int, paused: bool) -> None:  # noqa: FBT001 - a drawn value
        """It rests, or goes on, perhaps by a definition that is another by now."""
        it = self.schedules.by_name.get(name)
        digest = it.digest if it is not None and pick % 4 else "another"
        slot = PAST if pick % 8 == 7 else slot
        expected = self.schedules.pause(name) if paused else self.schedules.resume(name, digest, slot)
        seen = self.clients[client].plain("schedule_pause", name=name, paused=paused, digest=digest, slot_ms=slot)
        self.expect("schedule_pause", seen.code, expected)
        self.unchanged = expected != "ok"

    # --- firing ------------------------------------------------------------------------------

    def firings(self, count: int, pick: int) -> list[Firing]:
        """Make jobs for so many new slots, one of them put off by its jitter, now and then."""
        made = []
        for n in range(count):
            self.slots += 1
            made.append(Firing(id=mint(), slot_ms=self.slots, due_ms=AHEAD if (pick + n) % 5 == 4 else self.slots))
        return made

    def run_fire(self, client: int, name: str, firings: list[Firing], **where: Any) -> None:
        """Fire, and compare."""
        driver = self.clients[client]
        expected = self.schedules.fire(name, firings, driver.tag, **where)
        self.model.settle()
        call = {"digest": where["digest"], "slot_ms": where["slot"], "next_ms": where["next_slot"]}
        seen: list[str] | str
        self.replies.pop((client, "schedule_fire"), None)
        try:
            seen = [spell(v) for v in driver.plain("schedule_fire", name=name, firings=firings, **call)]
            self.replies[client, "schedule_fire"] = seen
        except CallRefusedError as error:
            seen = error.verdict.code
        self.expect(f"schedule_fire {name} {where}", seen, expected)
        if isinstance(expected, str):
            self.unchanged = True
        else:
            made = zip(firings, expected, strict=True)
            self.known += [firing.id for firing, verdict in made if verdict == "admitted"]

    @precondition(lambda self: self.schedules.by_name)
    @rule(client=CLIENT, pick=PICK, missed=MISSED, next_slot=SLOT, how=SEEN)
    def fire(self, client: int, pick: int, missed: int, next_slot: int, how: str) -> None:
        """Somebody fires: a slot that has come, or one that others have fired, by this or an older definition."""
        due = [name for name, it in self.schedules.by_name.items() if over(int(it.slot)) and it.slot and not it.paused]
        names = due if due and pick < 200 else sorted(self.schedules.by_name)
        name = names[pick % len(names)]
        it = self.schedules.by_name[name]
        where = {"digest": it.digest, "slot": it.slot or AHEAD, "next_slot": next_slot}
        match how:
            case "digest":
                where["digest"] = "another"
            case "slot":
                where["slot"] = it.slot + 1
            case "next":
                where["next_slot"] = PAST
            case "before":
                where["digest"], where["slot"] = self.seen.get(name, (it.digest, AHEAD))
        self.seen[name] = (it.digest, it.slot or AHEAD)
        self.run_fire(client, name, self.firings(missed, pick), **where)

    @precondition(lambda self: any((client, "schedule_fire") in self.replies for client in range(3)))
    @rule()
    def fire_again(self) -> None:
        """The reply was lost: the same call again is answered, and makes no second job."""
        client = next(client for client in range(3) if (client, "schedule_fire") in self.replies)
        seen = [spell(verdict) for verdict in self.clients[client].resend("schedule_fire")]
        self.expect("schedule_fire again", seen, self.replies[client, "schedule_fire"])
        self.unchanged = True

    @rule(client=CLIENT, name=NAME, pick=PICK)
    def run_now(self, client: int, name: str, pick: int) -> None:
        """Somebody wants a job now."""
        self.run_fire(client, name, self.firings(1, pick), digest="", slot=0, next_slot=0)

    # --- time, workers, operators ------------------------------------------------------------

    @precondition(lambda self: any(not over(it.slot) and not it.paused for it in self.schedules.by_name.values()))
    @rule(pick=PICK)
    def slot_comes(self, pick: int) -> None:
        """A slot that lay ahead is over."""
        names = [name for name, it in self.schedules.by_name.items() if not over(it.slot) and not it.paused]
        name = names[pick % len(names)]
        self.slots += 1
        self.schedules.by_name[name].slot = self.slots
        self.server.zadd(self.keys.schedules, {name: self.slots}, xx=True)
        self.server.hset(self.keys.schedule_of(name), "slot", self.slots)

    @rule(client=CLIENT, count=st.integers(1, 3))
    def claim(self, client: int, count: int) -> None:
        """A worker claims, and is told of slots."""
        self.run_claim(client, count, 256)

    @precondition(lambda self: self.model.of(State.ACTIVE))
    @rule(client=CLIENT, verb=st.sampled_from(["complete", "fail", "release", "snooze"]), pick=PICK)
    def settle(self, client: int, verb: str, pick: int) -> None:
        """A handler ends."""
        job = self.model.jobs[self.choose(pick % 200, State.ACTIVE)]
        item = make_item(verb, job.id, job.token, job.nonce or "", pick)
        self.run_items(client, verb, [item], [model_verbs.fenced(self.model, item)])

    @precondition(lambda self: self.known)
    @rule(client=CLIENT, pick=PICK)
    def cancel(self, client: int, pick: int) -> None:
        """Somebody cancels a job of a schedule."""
        request = CancelRequest(self.choose(pick, State.PENDING, State.SCHEDULE), "no")
        self.run_items(client, "cancel", [request], [model_verbs.cancel(self.model, request)])

    @rule(client=CLIENT, size=st.sampled_from(["2", "4", "", ""]))
    def configure(self, client: int, size: str) -> None:
        """How many may wait."""
        model_verbs.configure(self.model, {"max_size": size})
        self.clients[client].plain("configure", settings={"max_size": size})

    @rule(client=CLIENT, offset=st.integers(0, 2), due=st.booleans())
    def look(self, client: int, offset: int, due: bool) -> None:  # noqa: FBT001 - a drawn value
        """Reads answer what is there, the next slot first."""
        stand = sorted(self.schedules.by_name.items(), key=lambda it: (it[1].found, it[0]))
        page = self.clients[client].plain("read_schedules", offset=offset, count=2, due=due)
        names = [name for name, it in stand if not due or (over(it.slot) and it.slot and not it.paused)]
        self.expect("read_schedules", [it.name for it in page.schedules], names[offset : offset + 2])
        self.expect("of how many", page.total, len(stand))
        for it in page.schedules:
            known = self.schedules.by_name[it.name]
            self.expect("its jobs", (it.payload, it.lane), (known.job.payload, known.job.lane or ""))
        self.unchanged = True

    # --- what is checked after each step -----------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        """Look at everything once, and at every definition."""
        super().agrees()
        lines = []
        found, expected = self.snap.zset("schedules"), {name: it.found for name, it in self.schedules.by_name.items()}
        if found != expected:
            lines.append(f"schedules: expected {expected}, seen {found}")
        for name, it in self.schedules.by_name.items():
            stands = self.snap.hash(f"schedule:{name}")
            fields = {field: value for field, value in stands.items() if field in _COMPARED}
            lines += differing(f"schedule {name!r}", it.fields(), fields)
            if stands.get("open", "").split() != it.open or ("paused" in stands) != it.paused:
                lines.append(f"schedule {name!r}: expected {it}, seen {stands}")
        if lines:
            raise ContradictionError("\n".join(lines))


_COMPARED: Final = frozenset({"digest", "overlap", "slot", "count", "skipped", "last_id", "last_slot"})


def schedules_machine(server: redis.Redis, scripts: Mapping[str, Script] | None = None) -> type[Recurring]:
    """Make the machine for a server, perhaps with changed scripts."""
    return type("SchedulesMachine", (Recurring,), {"server": server, "scripts": scripts or {}})
