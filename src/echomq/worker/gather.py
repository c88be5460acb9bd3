"""When a queue whose jobs are gathered into batches is asked: not for scraps, and not for each arrival.

Room
    Each job of a batch takes a slot. A claim for the few that happen to be free would make small batches of a full
    queue, so it waits until there are slots for a whole one. Not for ever: in a worker whose slots others take as they
    become free, or beside a batch that settles its items one by one, a queue that has waited for `SHORT` is asked for as
    many jobs as there are slots.

Linger
    A claim that finds too few jobs takes none, and answers how long the first of them will still wait. Until then each
    arrival rings. The first ring after a silence is followed at once, for it may have brought a whole batch; after that
    the queue is asked `TIMES` in the time of one linger, however many arrive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.batches import Batch
    from echomq.worker.execute import Handler
    from echomq.worker.options import WorkerOptions

SHORT: float = 1.0
"""Seconds that a queue waits for the slots of a whole batch: as long as an idle worker parks."""
TIMES: Final = 10
"""Claims in the time of one linger: what a batch that is full may wait longer is a tenth of it."""


@final
class Gathering:
    """What the intake knows of one queue that is claimed from in batches. Times are anyio's, in seconds."""

    def __init__(self, batch: Batch) -> None:
        self.size = batch.max_size
        """How many slots a whole batch takes."""
        self._step = batch.linger / TIMES
        self._short_since: float | None = None
        self._unripe_until = 0.0
        self._deaf_until = 0.0
        self._rung = False
        """Whether it has rung since it was last asked."""

    def closed_for(self, free: int, now: float) -> float:
        """Answer for how long it is not to be asked; 0: it may be."""
        return max(self._short_for(free, now), self._unripe_until - now, 0.0)

    def deaf_for(self, free: int, now: float) -> float:
        """Answer for how long a ring changes nothing: there is no room, or it has been followed lately and one was not."""
        return max(self._short_for(free, now), self._deaf_until - now if self._rung else 0.0, 0.0)

    def rang(self) -> None:
        """Hear its doorbell."""
        self._rung = True

    def begin(self, free: int) -> int:
        """Note that a claim is on its way; answer for how many jobs."""
        self._short_since = None
        return min(free, self.size)

    def answered(self, now: float, *, jobs: bool, wait: float) -> None:
        """Hear what the claim brought.

        Args:
            now: When it did.
            jobs: Whether there were any.
            wait: How long nothing can become ready but by an arrival.
        """
        self._unripe_until = 0.0 if jobs else now + min(wait, self._step)
        # An idle queue is asked once a second, which must not make it deaf to the first arrival.
        self._deaf_until = now + self._step if self._rung and not jobs else 0.0
        self._rung = False

    def _short_for(self, free: int, now: float) -> float:
        if free >= self.size:
            self._short_since = None
            return 0.0
        if self._short_since is None:
            self._short_since = now
        return self._short_since + SHORT - now


def find_batch(handlers: Mapping[str, Handler], options: WorkerOptions) -> Batch | None:
    """Answer how the jobs of one queue's handlers are gathered.

    Raises:
        ValueError: A batch takes more slots than the worker has.
    """
    handler = next((each for each in handlers.values() if each.batch is not None), None)
    if handler is None or handler.batch is None:
        return None
    if handler.batch.max_size > options.concurrency:
        # To take less than was asked for would be to change the handler's batches behind its back.
        msg = (
            f"task {handler.name!r} takes batches of up to {handler.batch.max_size} jobs, each of which takes a slot, and "
            f"concurrency is {options.concurrency}: raise it, or make the batches smaller"
        )
        raise ValueError(msg)
    return handler.batch
