"""What a handler sees of its job (Runtime, section 4).

A coroutine function asks for it with a parameter annotated `Job` and awaits its methods. A plain function runs in a
thread, or in a process of its own, and asks for a `SyncJob`, whose methods block it while the worker's event loop does
the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, final, overload

import attrs

from echomq.protocol.times import from_unix_ms

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from echomq._noting import BlockingNotes, Notes, Seen
    from echomq.children import ChildFailure, FollowUps, Nursery
    from echomq.protocol.kin import ParentRef
    from echomq.protocol.records import JobRecord

T = TypeVar("T")


class _Facts:
    """The facts of a claimed job, the same in both kinds of handler."""

    __slots__ = ("_notes", "id", "queue", "record", "token")

    _notes: Seen

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
    def parent(self) -> ParentRef | None:
        """The job that waits for this one: its id, its queue, and this job's name among its children; None when none does."""
        parent = self.record.parent
        return parent if parent is None or parent.queue else attrs.evolve(parent, queue=self.queue)

    @property
    def on_complete(self) -> FollowUps:
        """Jobs that are admitted together with this one's completion: `job.on_complete.enqueue(call)`. See `FollowUps`."""
        from echomq.children import FollowUps  # noqa: PLC0415 - which needs tasks, and those a job

        return FollowUps(self.queue, self._notes.stage)

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
        """Why, in a word; None while it is not being stopped.

        `timeout`, `cancelled` (by a person), `lease_lost`, `shutdown`, `parent_ended` (the job above it in its flow is
        over), or `suspended` (it waits for its children, see `Job.nursery`).
        """
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

    # --- children ----------------------------------------------------------------------------------------------------

    @overload
    async def children_results(self, /) -> dict[str, Any]: ...
    @overload
    async def children_results(self, type: Callable[..., T], /) -> dict[str, T]: ...
    @overload
    async def children_results(self, type: Any, /) -> dict[str, Any]: ...
    async def children_results(self, type: Any = Any, /) -> dict[str, Any]:
        """Read what the children have returned that completed, by their names: "2" is before "10".

        Args:
            type: What each of them returns, such as `int` or a class; Any: as the codec decodes it.

        Raises:
            DecodeError: A result is not of that type; the message names the child.
            UnavailableError: The server could not be reached in time.

        **Cancellation**: a checkpoint, without effect.
        """
        return await self._notes.family.children_results(type)

    async def ignored_failures(self) -> dict[str, ChildFailure]:
        """Read how those children have failed whose `on_failure` is `ignore` or `run_parent`, by their names.

        Raises:
            UnavailableError: The server could not be reached in time.

        **Cancellation**: a checkpoint, without effect.
        """
        return await self._notes.family.ignored_failures()

    async def outstanding(self) -> list[str]:
        """Read the names of the children that have not ended: there are some where a `run_parent` child has failed.

        Raises:
            UnavailableError: The server could not be reached in time.

        **Cancellation**: a checkpoint, without effect.
        """
        return await self._notes.family.outstanding()

    @overload
    async def previous_result(self, /) -> Any: ...
    @overload
    async def previous_result(self, type: Callable[..., T], /) -> T: ...
    @overload
    async def previous_result(self, type: Any, /) -> Any: ...
    async def previous_result(self, type: Any = Any, /) -> Any:
        """Read what the link before this one in a chain has returned: the only child's result.

        Args:
            type: What it returns; Any: as the codec decodes it.

        Raises:
            LookupError: It has none, several, or one that has not ended.
            JobFailedError, JobCancelledError, JobExpiredError: It has failed, and that was to be ignored.
            DecodeError: The result is not of that type.
            UnavailableError: The server could not be reached in time.

        **Cancellation**: a checkpoint, without effect.
        """
        return await self._notes.family.previous_result(type)

    def nursery(self, *, on_failure: str = "fail_parent") -> AbstractAsyncContextManager[Nursery]:
        """Open a nursery: `async with job.nursery() as children: children.enqueue(...)`.

        Leaving the block **suspends** the job until the children that were enqueued in it have ended: its handler is
        cancelled (`cancel_reason` is `suspended`), its slot and lease are given back, its checkpoint is kept. Then the
        handler runs again **from the top**, as a new attempt that spends no budget; its children are found by their
        names, and the block is passed. After it each child answers `result()` or `failure`.

        Args:
            on_failure: What the failure of a child does that has no word of its own: `fail_parent`, `ignore` or
                `run_parent`; see `Nursery.enqueue`.

        Raises:
            ValueError: It is no policy.
            TypeError: This is an item of a batch. (A plain function has no nursery.)
            Exception: At the end of the block, what the server answered to its children: `QueueFullError` and the like.
                The body is then cancelled; children of earlier calls stay.
            LeaseLostError: The job is no longer this attempt's; none of the last children was spawned.
            RuntimeError: At the end of the block: it is within a shielded scope.

        Server effect: children are added under the job's token, a call's worth of them at once; suspending makes the job
            `waiting`, or ready again at once if they have all ended meanwhile.
        Cancellation: at any moment of the block; what was sent stays, and a next attempt finds it. A body that raises
            suspends nothing; the job's end, when it comes, ends children that are open.
        Delivery: a child is enqueued once for each name, however often attempts and calls are repeated.
        """
        return self._notes.family.open_nursery(on_failure)


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

    @overload
    def children_results(self, /) -> dict[str, Any]: ...
    @overload
    def children_results(self, type: Callable[..., T], /) -> dict[str, T]: ...
    @overload
    def children_results(self, type: Any, /) -> dict[str, Any]: ...
    def children_results(self, type: Any = Any, /) -> dict[str, Any]:
        """Read what the children have returned; see `Job.children_results`."""
        return self._notes.family.children_results(type)

    def ignored_failures(self) -> dict[str, ChildFailure]:
        """Read which children have failed; see `Job.ignored_failures`."""
        return self._notes.family.ignored_failures()

    def outstanding(self) -> list[str]:
        """Read which children have not ended; see `Job.outstanding`."""
        return self._notes.family.outstanding()

    @overload
    def previous_result(self, /) -> Any: ...
    @overload
    def previous_result(self, type: Callable[..., T], /) -> T: ...
    @overload
    def previous_result(self, type: Any, /) -> Any: ...
    def previous_result(self, type: Any = Any, /) -> Any:
        """Read what the link before has returned; see `Job.previous_result`."""
        return self._notes.family.previous_result(type)

    def nursery(self, *, on_failure: str = "fail_parent") -> NoReturn:
        """Refuse: nothing can take a plain function back to wait for its children.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "job.nursery() is for coroutine functions: a plain function cannot be suspended. Have a parent's flow add its "
            "children, or make it an `async def`"
        )
