"""A queue at one moment, and what happened between two: what `stats` and `top` show."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, final

import anyio
import attrs

from echomq.cli.output import span
from echomq.errors import EchoMQError, UnavailableError
from echomq.protocol.times import from_unix_ms

if TYPE_CHECKING:
    from echomq.client import Client
    from echomq.transitions import Counts
    from echomq.waits import Waits
    from echomq.workers import WorkerInfo

RATES: Final = {"completed": "done/s", "failed": "fail/s", "dead": "died/s", "stalled": "stall/s"}
"""Counters whose rates people are shown, and as what; programs get all."""
COLUMNS: Final = ("queue", "ready", "running", "sched", "parents", "dead", "kept", "oldest", "workers")
"""What people are shown of a queue: jobs by state (`parents` wait for children, `kept` have ended), and for how long the
job next in turn has been ready."""

NUMBERS: Final = (*COLUMNS[1:], *RATES.values())
"""Columns of numbers."""
GAP: Final = 2
"""Spaces between two columns."""
SPARE: Final = ("stall/s", "kept", "parents", "died/s", "sched")
"""Columns that a narrow terminal does without, those first that are missed least."""


@final
@attrs.frozen(kw_only=True)
class Sample:
    """A queue at one moment."""

    queue: str
    """Its name."""
    at: float
    """When it was read, by the event loop's clock, s."""
    counts: Counts | None = None
    """Its jobs by state, and its counters; None: it could not be read."""
    waits: Waits | None = None
    """For how long the first of each state has waited, and some lanes; None: it could not be read."""
    closed: tuple[str, ...] = ()
    """Why nothing of it starts now; empty when its jobs may."""
    workers: Sequence[WorkerInfo] = ()
    """Workers that are alive."""
    problem: str = ""
    """Why it could not be read."""

    @classmethod
    async def of(cls, client: Client, name: str, *, lanes: int = 1) -> Self:
        """Read a queue and about so many of its lanes; what is wrong with it alone is said of it and fails no other.

        Raises:
            UnavailableError: The server was not reached in time.
        """
        queue, at = client.queue(name), anyio.current_time()
        try:
            counts, waits = await queue.counts(), await queue.waits(lanes=lanes)
            settings, workers = await queue.settings(), await queue.workers()
        except UnavailableError:
            raise
        except EchoMQError as error:
            return cls(queue=name, at=at, problem=str(error))
        return cls(queue=name, at=at, counts=counts, waits=waits, closed=settings.closed, workers=workers)

    @property
    def oldest(self) -> float | None:
        """Seconds for which the job next in turn has been ready; None: none can be served."""
        return None if self.waits is None else self.waits.pending.seconds

    def rates(self, before: Sample | None) -> Mapping[str, float] | None:
        """Answer how often a second each counter was counted up since then; None: not known.

        A counter that went back (the queue was erased and begun anew) has counted up by what it shows.
        """
        if before is None or before.counts is None or self.counts is None or self.at <= before.at:
            return None
        old, passed = before.counts.totals, self.at - before.at
        return {
            name: (count - old.get(name, 0) if count >= old.get(name, 0) else count) / passed
            for name, count in self.counts.totals.items()
        }

    def row(self) -> tuple[str, ...]:
        """Spell it for people, as `COLUMNS` say, without what is remarkable."""
        it = self.counts
        if it is None:
            return (self.queue, *["?"] * (len(COLUMNS) - 1))
        numbers = (it.pending, it.active, it.schedule, it.waiting, it.dead, it.done)
        return (
            self.queue, *(f"{number:,}" for number in numbers), "-" if self.oldest is None else span(self.oldest),
            f"{len(self.workers):,}",
        )  # fmt: skip

    @property
    def remarks(self) -> str:
        """What people should notice."""
        return self.problem or ", ".join(self.closed)

    def plain(self, rates: Mapping[str, float] | None = None) -> dict[str, Any]:
        """Make it what JSON can hold."""
        counts = None if self.counts is None else attrs.asdict(self.counts)
        return {
            "queue": self.queue, "counts": counts, "oldest": self.oldest, "closed": list(self.closed),
            "workers": [attrs.asdict(worker) for worker in self.workers], "rates": rates, "problem": self.problem or None,
        }  # fmt: skip


def per_second(rates: Mapping[str, float] | None) -> tuple[str, ...]:
    """Spell rates for people, as `RATES` says."""
    return tuple("-" if rates is None else f"{rates.get(name, 0.0):,.1f}" for name in RATES)


def table_of_samples(
    samples: Sequence[tuple[Sample, Mapping[str, float] | None]], *, rates: bool, width: int
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Make the columns and rows that people are shown, as many columns as fit into so wide a terminal."""
    columns = (*COLUMNS, *(RATES.values() if rates else ()), "remarks")
    rows = [(*each.row(), *(per_second(rate) if rates else ()), each.remarks) for each, rate in samples]
    for name in SPARE:
        if sum(max(map(len, cells)) for cells in zip(columns, *rows, strict=True)) + GAP * (len(columns) - 1) <= width:
            break
        if name in columns:
            at = columns.index(name)
            columns, *rows = (cells[:at] + cells[at + 1 :] for cells in (columns, *rows))
    return columns, rows


async def server_now(client: Client) -> dt.datetime:
    """Read the server's clock, by which moments are told.

    Raises:
        UnavailableError: The server was not reached in time.
    """
    seconds, micros = await client.wire.command("TIME", repeat=True)
    return from_unix_ms(int(seconds) * 1000 + int(micros) // 1000)


async def names_of(client: Client, given: Sequence[str]) -> Sequence[str]:
    """Answer the queues that are meant: those that were said, else all that are known, by name.

    Raises:
        UnavailableError: The server was not reached in time.
    """
    return given or sorted(known.name for known in await client.queues())


async def sample_all(client: Client, names: Sequence[str], *, lanes: int = 1) -> list[Sample]:
    """Read queues, one after the other; of no names, all that are known.

    Raises:
        UnavailableError: The server was not reached in time.
    """
    return [await Sample.of(client, name, lanes=lanes) for name in await names_of(client, names)]
