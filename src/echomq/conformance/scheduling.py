"""What proofs of recurring schedules share: putting and firing one, and its slots by hand."""

from __future__ import annotations

from typing import Any, Final, final

from echomq.conformance.bench import Bench, spell
from echomq.conformance.driver import Driver
from echomq.conformance.items import DAY_MS
from echomq.protocol.ids import mint
from echomq.protocol.records import NewJob
from echomq.transitions import Firing, PutReply

AHEAD: Final = 90_000_000_000_000
"""A slot that no proof lives to see, the year 4822; those after it are a day apart."""
PAST: Final = 1_000
"""A slot that is over."""


@final
class Schedules:
    """Puts and fires schedules on a bench's queue."""

    def __init__(self, b: Bench, driver: Driver | None = None) -> None:
        self.b = b
        self.driver = driver or b.producer

    def put(self, name: str = "s", *, slot: int = AHEAD, digest: str = "d", **options: Any) -> str:
        """Define a schedule and answer what that did."""
        overlap, spec, origin = options.pop("overlap", "allow"), options.pop("spec", b"{}"), options.pop("origin", "")
        reply: PutReply = self.driver.plain(
            "schedule_put", name=name, digest=digest, spec=spec, origin=origin, overlap=overlap, slot_ms=slot,
            job=NewJob(**options),
        )  # fmt: skip
        return reply.outcome

    def comes(self, name: str = "s", slot: int = PAST) -> None:
        """Let the schedule's slot come: it stands at one that is over."""
        self.b.server.zadd(self.b.keys.schedules, {name: slot}, xx=True)
        self.b.server.hset(self.b.keys.schedule_of(name), "slot", slot)

    def fire(
        self, name: str = "s", *jobs: int | Firing, slot: int = PAST, next_slot: int = AHEAD, digest: str = "d"
    ) -> list[str]:
        """Fire a slot, a job for each slot given, and spell the verdicts."""
        firings = [it if isinstance(it, Firing) else Firing(id=mint(), slot_ms=it, due_ms=it) for it in jobs]
        verdicts = self.driver.plain(
            "schedule_fire", name=name, digest=digest, slot_ms=slot, next_ms=next_slot, firings=firings
        )
        return [spell(verdict) for verdict in verdicts]

    def pause(self, name: str = "s") -> str:
        """Let it rest."""
        return spell(self.driver.plain("schedule_pause", name=name, paused=True))

    def resume(self, name: str = "s", *, slot: int = AHEAD, digest: str = "d") -> str:
        """Let it go on."""
        return spell(self.driver.plain("schedule_pause", name=name, paused=False, digest=digest, slot_ms=slot))

    def remove(self, name: str = "s") -> str:
        """Remove it."""
        return spell(self.driver.plain("schedule_remove", name=name))

    def stands(self, name: str = "s") -> dict[str, str]:
        """Answer its definition; empty when there is none."""
        return self.b.look().hash(f"schedule:{name}")

    def found(self) -> dict[str, float]:
        """Answer where each schedule is found."""
        return self.b.look().zset("schedules")

    def made(self, name: str = "s") -> list[tuple[str, dict[str, str]]]:
        """Answer the jobs that it has made and that are there, by id, the oldest first."""
        return sorted((id, row) for id, row in self.b.look().rows() if row.get("schedule") == name)


def later(days: int) -> int:
    """Answer a slot so many days after `AHEAD`."""
    return AHEAD + days * DAY_MS
