"""The scripts that only tests run.

They are no verbs of the protocol: they stand beside this module, and no worker or producer ever loads them.
"""

from __future__ import annotations

import math
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, cast, final

import attrs

from echomq.protocol.times import to_ms
from echomq.transitions import Call
from echomq.transitions.scripts import assemble

if TYPE_CHECKING:
    from echomq.batches import Batch
    from echomq.protocol.keys import QueueKeys
    from echomq.queue import Queue
    from echomq.transitions import Script, Transition
    from echomq.transitions.base import Argument

NAMES: Final = ("advance", "look")
"""The scripts."""
MOST: Final = 10_000
"""Jobs, lanes and schedules of a queue whose time is moved at most, in one script: tests have few."""


@cache
def load(name: str) -> Script:
    """Assemble a script, once."""
    text = (files("echomq.testing") / "lua" / f"{name}.lua").read_text(encoding="utf-8")
    return assemble(name, text)


@final
@attrs.frozen
class _Run:
    """One call of one of them: to the wire it is what a `Transition` is."""

    verb: str
    keys: QueueKeys
    argv: tuple[Argument, ...]
    remembered: bool = False

    @property
    def script(self) -> Script:
        return load(self.verb)

    def command(self) -> tuple[Argument, ...]:
        return ("EVALSHA", load(self.verb).sha, 2, self.keys.meta, self.keys.void, *self.argv)

    @staticmethod
    def read(reply: Any) -> Any:
        return reply


async def _run(queue: Queue, name: str, *arguments: Argument) -> list[Any]:
    wire, keys = queue.wire, queue.keys
    call = Call(wire.tag)
    run = _Run(name, keys, (call.client, 0, *arguments))
    reply: list[Any] = await wire.run(cast("Transition[list[Any]]", run), route="bulk")
    return reply


@final
@attrs.frozen(kw_only=True)
class Look:
    """What a queue had for workers to do at one moment."""

    queue: str
    ready: int
    """Jobs that could be claimed."""
    active: int
    """Jobs that were claimed."""
    due: int
    """Jobs whose time had come."""
    slots: int
    """Recurring schedules whose slot had come."""
    owed: int
    """What it had to tell other queues, now or later."""
    later: int
    """Jobs that waited for a later moment: delayed, between attempts, lingering for a batch, or in a lane or queue that is
    paused or closed."""
    waiting: int
    """Jobs that waited for their children."""
    now_ms: int
    """When that was, Unix ms."""
    next_in_ms: float
    """Until the next moment that a job, a lane or the queue waits for, ms; infinite: none does."""
    slot_in_ms: float
    """Until the next slot of a recurring schedule, ms; infinite: there is none."""

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to be done."""
        return not (self.ready or self.active or self.due or self.slots or self.owed)


async def look(queue: Queue, batch: Batch | None = None) -> Look:
    """Look at a queue.

    Args:
        queue: The queue.
        batch: How its jobs are gathered; None: they are not.
    """
    linger_ms = 0 if batch is None else to_ms(batch.linger)
    least = 1 if batch is None or not linger_ms else batch.min_size or batch.max_size
    by_lane = batch is not None and batch.by_lane
    reply = await _run(queue, "look", least, linger_ms, 1 if by_lane else 0)
    ready, active, due, slots, owed, later, waiting, now_ms, next_ms, slot_ms = map(int, reply)
    return Look(
        queue=queue.name, ready=ready, active=active, due=due, slots=slots, owed=owed, later=later, waiting=waiting,
        now_ms=now_ms, next_in_ms=next_ms - now_ms if next_ms else math.inf,
        slot_in_ms=slot_ms - now_ms if slot_ms else math.inf,
    )  # fmt: skip


async def move(queue: Queue, by_ms: int) -> None:
    """Move all that a queue waits for.

    Raises:
        ValueError: It holds too much; nothing was changed.
    """
    done, total = await _run(queue, "advance", by_ms, MOST)
    if not done:
        msg = f"queue {queue.name!r} has {total} jobs, lanes and schedules, and time is moved for {MOST} at most: is it a test's?"
        raise ValueError(msg)
