"""`beat`: a worker says that it is alive (Protocol, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs
import orjson

from echomq.transitions.base import Argument, Call, Transition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.keys import QueueKeys

TTL_MS: Final = 30_000
"""How long a beat counts, ms: a worker that has missed two is no longer listed."""


@final
@attrs.frozen
class Running:
    """A job that a worker has."""

    id: str
    """Its id."""
    task: str
    """Which handler; "" for a queue that has one."""
    attempt: int
    """Which attempt it is: the job's fencing token."""
    ms: int
    """For how long it has had it, ms."""


@final
@attrs.frozen(kw_only=True)
class Pulse:
    """What a worker says of itself."""

    name: str
    """Its name."""
    host: str
    """Its machine."""
    pid: int
    """Its process."""
    up_ms: int
    """For how long it has worked, ms."""
    concurrency: int
    """How many jobs it runs at most."""
    running: int
    """How many it runs, of this queue."""
    jobs: Sequence[Running]
    """Some of them."""

    def arguments(self) -> tuple[Argument, ...]:
        """Spell it in a call."""
        jobs = orjson.dumps([(job.id, job.task, job.attempt, job.ms) for job in self.jobs])
        return (self.name, self.host, self.pid, self.up_ms, self.concurrency, self.running, jobs)


def beat(keys: QueueKeys, call: Call, *, pulse: Pulse | None, ttl_ms: int = TTL_MS) -> Transition[bool]:
    """Note that the client's worker is alive, for `ttl_ms`; or, without a pulse, that it goes.

    Answers whether it is noted: a queue that is being closed notes nothing.
    """
    said = ("", "", 0, 0, 0, 0, b"") if pulse is None else pulse.arguments()
    return Transition("beat", keys, (call.client, 0, 0 if pulse is None else ttl_ms, *said), bool)
