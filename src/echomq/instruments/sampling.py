"""The sampler: reads how queues are, now and then, for instruments that show it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio

from echomq._logs import Told, get_logger
from echomq.errors import EchoMQError
from echomq.instruments._many import Instruments
from echomq.instruments.measurements import Instrument, QueueSampled
from echomq.protocol._convert import shown
from echomq.protocol.times import to_wait

if TYPE_CHECKING:
    from echomq.lanes import LaneInfo
    from echomq.queue import Queue

STATES: Final = ("pending", "active", "schedule", "waiting", "dead", "done")
"""The states whose jobs are counted."""

_log = get_logger("echomq.instruments")


async def run_sampler(
    queues: Iterable[Queue], instruments: Iterable[Instrument], *, every: float = 15.0, lanes: int = 0
) -> None:
    """Sample queues for instruments, until cancelled. A worker does so with `sample_every`.

    One process is enough: queues are the same for all who look. What several tell is not to be added up.

    Args:
        queues: The queues, of an open client.
        instruments: Who is told.
        every: Seconds between two samples of a queue.
        lanes: How many lanes of each queue are told, at most; 0: none. Each is read, so it bounds the work.

    Raises:
        TypeError: `queues` or `instruments` is not several, or `every` not a number.
        ValueError: A number is out of range.

    Server effect: none: for each queue two reads, and one for about a hundred lanes.
    Cancellation: at any moment, without effect. While the server is away there are no samples.
    """
    every = to_wait(every, "every", positive=True)
    if type(lanes) is not int or lanes < 0:
        raise ValueError(f"lanes is a whole number, 0 or more, not {shown(lanes)}")
    if not isinstance(queues, Iterable):
        raise TypeError(f"queues are several, such as [app.queue('mail')], not {shown(queues)}")
    queues, told = tuple(queues), Told()
    tell = instruments if isinstance(instruments, Instruments) else Instruments(instruments)
    while True:
        for queue in queues:
            try:
                found = await sample(queue, lanes)
            except EchoMQError as error:
                if told.is_new(str(error), queue.name):
                    _log.warning("queue_not_sampled", queue=queue.name, error=str(error))
            else:
                told.over(queue.name)
                tell.record(found)
        await anyio.sleep(every)


async def sample(queue: Queue, lanes: int = 0) -> QueueSampled:
    """Read how a queue is.

    Args:
        queue: The queue.
        lanes: How many of its lanes are read, at most.

    Cancellation: a checkpoint.
    """
    counts = await queue.counts()
    oldest = await queue.age()
    some: list[LaneInfo] = []
    if lanes:
        async for lane in queue.lanes:
            some.append(lane)
            if len(some) == lanes:
                break
    return QueueSampled(
        queue=queue.name,
        at=time.time(),
        jobs={state: getattr(counts, state) for state in STATES},
        paused=counts.paused,
        oldest=0.0 if oldest is None else oldest[1],
        totals=counts.totals,
        lanes=tuple(some),
    )
