"""`advance`: let time pass on the server, so that a test does not sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.app import App
from echomq.protocol._convert import shown
from echomq.protocol.times import to_ms
from echomq.queue import Queue
from echomq.testing._scripts import move

if TYPE_CHECKING:
    import datetime as dt


async def advance(source: App | Queue, seconds: float | dt.timedelta) -> None:
    """Move every moment that a queue waits for back, as if so much time had passed. For tests only.

    Moved are: when delayed jobs and next attempts are due; `expires` and `deadline` of jobs; the next slots of recurring
    schedules; until when lanes and the queue are closed, and their rates; how long jobs have lingered for a batch or have
    fit no worker. Not moved are the leases of running jobs and the clocks of their handlers, and how long results and dedup
    windows are kept.

    A schedule's calendar goes with it, until it is defined otherwise: `job.slot` is what its rule says, the slot after it
    comes as long after as by the rule, and `start` and `end` count by that calendar. In
    `ScheduleInfo`, `last_run` is such a slot, too, and `next_run` the moment at which the next one comes.

    Args:
        source: An open app, of which all queues are moved that its tasks use, one after another; or one queue.
        seconds: More than 0, a number or a timedelta.

    Raises:
        ValueError: `seconds` is 0 or less, or longer than a century; nothing was sent. Or a queue has more than 10,000
            jobs, lanes and schedules: it is unchanged.
        TypeError: `source` is neither an app nor a queue, or `seconds` no duration.
        RuntimeError: The app is not open.
        UnavailableError: The server could not be reached in time; some queues may be moved.

    Server effect: of each queue all at once, by a script that no worker or producer ever loads; no event is emitted.
    Cancellation: a checkpoint; if cancelled, some queues may be moved.
    """
    by_ms = to_ms(seconds)
    if by_ms == 0:
        raise ValueError(f"time is moved by more than 0 seconds, not by {shown(seconds)}")
    if isinstance(source, App):
        queues = [source.queue(name) for name in source.queues]
    elif isinstance(source, Queue):
        queues = [source]
    else:
        raise TypeError(f"time is moved for an app or a queue, not for {shown(source)}")
    for queue in queues:
        await move(queue, by_ms)
