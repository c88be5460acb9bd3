"""What a handler sees of its job (Runtime, section 4).

A coroutine function asks for it with a parameter annotated `Job` and awaits its methods. A plain function runs in a
thread, or in a process of its own, and asks for a `SyncJob`, whose methods block it while the worker's event loop does
the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, final

from echomq.protocol.times import from_unix_ms

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from echomq.protocol.records import JobRecord


class _Seen(Protocol):
    """What can be known of a held job without waiting."""

    @property
    def reason(self) -> str | None:
        """Why the handler is being stopped; None while it is not."""

    def load_checkpoint(self) -> Any:
        """Decode the state that the last attempt kept."""


class Notes(_Seen, Protocol):
    """What the worker's lease does for the job it holds."""

    async def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Send a progress note, now or soon."""

    async def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""

    async def log(self, line: str) -> None:
        """Send a log line."""


class BlockingNotes(_Seen, Protocol):
    """The same for a plain function, wherever it runs."""

    def progress(self, done: float, total: float | None, message: str | None) -> None:
        """Send a progress note, now or soon."""

    def checkpoint(self, state: Any, step: int | None) -> None:
        """Send a checkpoint."""

    def log(self, line: str) -> None:
        """Send a log line."""


class _Facts:
    """The facts of a claimed job, the same in both kinds of handler."""

    __slots__ = ("_notes", "id", "queue", "record", "token")

    _notes: _Seen

    def __init__(self, queue: str, id: str, token: int, record: JobRecord) -> None:
        self.queue = queue
        self.id = id
        self.token = token
        self.record = record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} token={self.token} queue={self.queue!r} task={self.task!r}>"

    @property
    def task(self) -> str:
        """The task's name; "" when it was enqueued without one."""
        return self.record.task

    @property
    def attempt(self) -> int:
        """Which claim of this job this is, from 1; equal to `token`."""
        return self.token

    @property
    def failures(self) -> int:
        """How often it has failed before."""
        return self.record.failures

    @property
    def payload(self) -> bytes:
        """The arguments as they were enqueued."""
        return self.record.payload

    @property
    def priority(self) -> int:
        """-2047 to 2047."""
        return self.record.priority

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers it was enqueued with."""
        return self.record.headers

    @property
    def schedule(self) -> str | None:
        """The recurring schedule that made it; None when none did."""
        return self.record.schedule or None

    @property
    def slot(self) -> dt.datetime | None:
        """The moment of that schedule for which it was made, in UTC; None when none did."""
        slot_ms = self.record.slot_ms
        return None if slot_ms is None else from_unix_ms(slot_ms)

    @property
    def checkpoint_state(self) -> Any:
        """What an earlier attempt kept with `checkpoint`; None when nothing."""
        return self._notes.load_checkpoint()

    @property
    def checkpoint_step(self) -> int | None:
        """The step of that checkpoint; None when there is none."""
        return self.record.step

    @property
    def cancelled(self) -> bool:
        """Whether this attempt is being stopped.

        A plain function must look: nothing can interrupt a thread, and a process is killed when `cleanup` is over.
        """
        return self._notes.reason is not None

    @property
    def cancel_reason(self) -> str | None:
        """Why: `timeout`, `cancelled`, `lease_lost` or `shutdown`; None while it is not being stopped."""
        return self._notes.reason


class Job(_Facts):
    """A job in the hands of a coroutine function, alone or in a batch (`BatchItem`). Not meant to be subclassed.

    `token` is the fencing token: strictly larger for each later claim of the same job on a server that loses no
    writes. Guard your own stores with it: `UPDATE ... SET fence = :token WHERE id = :id AND fence < :token`.
    """

    __slots__ = ()

    _notes: Notes

    def __init__(self, queue: str, id: str, token: int, record: JobRecord, notes: Notes) -> None:
        super().__init__(queue, id, token, record)
        self._notes = notes

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Note how far the work is; the next note replaces it.

        Call it as often as you like: of a job at most one note leaves each half second, the latest. Others wait for
        their turn without you, and a newer one takes their place; the one that says all is done leaves at once.

        Args:
            done: How much is done, 0 or more, in whatever it is counted.
            total: How much there is to do, if that is known.
            message: What is being done, for people; of more than 1,024 bytes the beginning is kept.

        Raises:
            TypeError: An amount is not an int or a float, or the message is not text; nothing was sent.
            ValueError: An amount is negative, above 2^53 or not finite; nothing was sent.
            LeaseLostError: The job is no longer this attempt's; nothing was written. (Of a note that waited for its
                turn, `cancelled` tells.)
            UnavailableError: The server could not be reached in time; not if the note waited for its turn.

        **Cancellation**: a checkpoint; if cancelled, the note may have been written.

        **Delivery**: a note that waits when the handler ends is still sent, but may come too late to count.
        """
        await self._notes.progress(done, total, message)

    async def checkpoint(self, state: Any, *, step: int | None = None) -> None:
        """Keep state for the next attempt, which reads it as `checkpoint_state`.

        Args:
            state: Anything JSON can hold.
            step: Counts up, an int of 0 to 99,999,999,999,999; an equal step replaces, a lower one is refused. None: the
                same step again, of this attempt or the one before; 0 at first.

        Raises:
            TypeError: The step is not an int itself, but a bool or a number of another class; nothing was sent.
            ValueError: The step is out of range; nothing was sent.
            JobStateError: A later step is kept already; nothing was written.
            LeaseLostError: The job is no longer this attempt's; nothing was written.
            UnavailableError: The server could not be reached in time.
            EncodeError: The state cannot be written as JSON.

        **Cancellation**: a checkpoint; if cancelled, the state may have been kept.
        """
        await self._notes.checkpoint(state, step)

    async def log(self, line: str) -> None:
        """Append a line to the job's log, which keeps the last 100 lines and 64 KiB.

        Of a line of more than 64 KiB the beginning is kept, and how much was cut.

        Raises:
            TypeError: The line is not text; nothing was sent.
            LeaseLostError: The job is no longer this attempt's; nothing was written.
            UnavailableError: The server could not be reached in time.

        **Cancellation**: a checkpoint; if cancelled, the line may have been written.
        """
        await self._notes.log(line)


@final
class SyncJob(_Facts):
    """A job in the hands of a plain function, which runs in a thread, or in a process of its own.

    The methods do what those of `Job` do and block the function meanwhile. They go on working while the attempt is
    being stopped, so that cleanup can keep its state; poll `cancelled` to know.
    """

    __slots__ = ()

    _notes: BlockingNotes

    def __init__(self, queue: str, id: str, token: int, record: JobRecord, notes: BlockingNotes) -> None:
        super().__init__(queue, id, token, record)
        self._notes = notes

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Note how far the work is; see `Job.progress`."""
        self._notes.progress(done, total, message)

    def checkpoint(self, state: Any, *, step: int | None = None) -> None:
        """Keep state for the next attempt; see `Job.checkpoint`."""
        self._notes.checkpoint(state, step)

    def log(self, line: str) -> None:
        """Append a line to the job's log; see `Job.log`."""
        self._notes.log(line)
