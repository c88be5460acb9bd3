"""A stage for recurring schedules: an app with one task, its queue on the server, and what has run."""

from __future__ import annotations

import datetime as dt
from typing import Any

import anyio
import attrs
import pytest

from echomq import App, Queue
from echomq.protocol.times import from_unix_ms
from echomq.worker import timetable
from tests.worker.support import Peek

HOUR = 3_600_000
MINUTE = 60_000


@attrs.define
class Scene:
    """An open app with one task, its queue, and what has run."""

    app: App
    queue: Queue
    peek: Peek
    ran: list[tuple[str, int, float]] = attrs.field(factory=list)
    """Schedule, slot and lateness in ms of each job that began."""
    hold: anyio.Event = attrs.field(factory=anyio.Event)

    @property
    def slots(self) -> list[int]:
        """The slots that ran."""
        return [slot for _, slot, _ in self.ran]

    async def put(
        self, name: str, every: float, *, slot_ms: int | None = None, task: str = "tick", **given: Any
    ) -> int:
        """Define a schedule, which stands at a slot in the past if that is given; answer the slot that is next."""
        await self.queue.schedules.put(name, b"{}", every=every, task=task, **given)
        ahead = self.stands(name)
        if slot_ms is not None:
            self.stand(name, slot_ms)
        return ahead

    def stand(self, name: str, slot_ms: int) -> None:
        """Move the slot of a schedule, as if it stood there."""
        keys = self.peek.keys
        self.peek.client.hset(keys.schedule_of(name), "slot", slot_ms)
        self.peek.client.zadd(keys.schedules, {name: slot_ms})

    def stands(self, name: str) -> int:
        """Answer the slot at which a schedule stands."""
        found: Any = self.peek.client.hget(self.peek.keys.schedule_of(name), "slot")
        return int(found or 0)

    def made(self) -> list[tuple[str, int]]:
        """Answer schedule and slot of each job that was made, in the order of the queue's events."""
        fields = [fields for _, fields in self.peek.events("enqueued") if b"schedule" in fields]
        return [(each[b"schedule"].decode(), int(each[b"slot"])) for each in fields]


def ago(peek: Peek, ms: float) -> tuple[int, dt.datetime]:
    """Answer a moment so long ago by the server's clock."""
    at = round(peek.now() - ms)
    return at, from_unix_ms(at)


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Gather the calls of a transition that timetables make."""
    calls: list[Any] = []
    build = getattr(timetable, name)

    def count(*args: Any, **given: Any) -> Any:
        calls.append(given)
        return build(*args, **given)

    monkeypatch.setattr(timetable, name, count)
    return calls
