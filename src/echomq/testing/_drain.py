"""`drain`: a worker that ends when there is nothing to do now.

Theory of operation
    The worker is the real one, in a task beside a look at the queues now and then. Each queue is looked at by itself, so
    a job may move from one to another between two looks. Only a job that ran can have moved one, or a delivery of the
    worker's outbox pump: so the queues are empty when two rounds of looks find nothing, and the worker has neither
    claimed nor held anything from before the first until after the last.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, cast, final

import anyio
import attrs

from echomq.app import App
from echomq.errors import EchoMQError
from echomq.protocol._convert import shown
from echomq.protocol.failures import unfold
from echomq.protocol.times import to_ms, to_wait
from echomq.testing._scripts import look, move
from echomq.verdicts import Retry
from echomq.worker.entry import serve, served
from echomq.worker.options import WorkerOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from anyio.abc import TaskStatus

    from echomq.batches import Batch
    from echomq.testing._scripts import Look
    from echomq.worker.lease import Lease
    from echomq.worker.run import Worker

LOOK: float = 0.01
"""Seconds between two rounds of looks."""
LAST_LOOK: float = 1.0
"""Seconds that the look may take that tells why there is no end."""


@final
@attrs.frozen
class FailedAttempt:
    """An attempt that did not end well."""

    id: str
    """The job's id."""
    queue: str
    """Its queue."""
    task: str
    """Its task's name."""
    attempt: int
    """Which attempt it was, from 1."""
    error: BaseException
    """What the handler raised, the very object; or why it was stopped, or could not be run."""


@final
@attrs.frozen(kw_only=True)
class Drained:
    """What a `drain` has run."""

    completed: int
    """Jobs that completed."""
    failed: int
    """Attempts that failed, those that buried their job among them."""
    dead: int
    """Jobs that were buried."""
    snoozed: int
    """Attempts that ended with `Snooze`, or that could not be run here."""
    rate_limited: int
    """Attempts that ended with `RateLimited`."""
    cancelled: int
    """Jobs that ended as cancelled."""
    discarded: int
    """Jobs that ended with `Discard`."""
    later: int
    """Jobs that are left for a later moment: delayed, between two attempts, lingering for a batch, or in a lane or queue that
    is closed or paused."""
    waiting: int
    """Jobs that are left waiting for their children."""
    failures: tuple[FailedAttempt, ...]
    """The attempts that did not end well, in the order in which they ended."""


async def drain(
    app: App,
    *,
    queues: Iterable[str] = (),
    timeout: float = 30.0,
    ahead: float = 0.0,
    provide: Mapping[Any, Any] | None = None,
    raise_failures: bool = True,
    **options: Any,
) -> Drained:
    """Run a worker in this event loop until there is nothing to do now. For tests only.

    What is due later is left: use `ahead`, or `advance` and drain again. What becomes due meanwhile is run.

    Args:
        app: The app; it is opened meanwhile if it is not open.
        queues: The queues to serve, all that its tasks use when empty.
        timeout: Seconds that all this may take. A handler in a thread cannot be interrupted, and is waited for.
        ahead: Seconds of waiting that are skipped: when nothing is left but what is due within them, time is moved to its
            moment, and the worker goes on. So `ahead=3600` runs what the next hour brings, in its order, retries included:
            of a recurring schedule each slot of the hour from now, no more and no fewer.
        provide: What handlers get whose parameters are `INJECTED`, by type, in the place of what the app provides.
        raise_failures: Whether the first error is raised when all is done: what a handler raised, the very object, or why
            it was stopped or could not be run. A `Retry` is a handler's own word and no such error.
        options: As `WorkerOptions`: `concurrency=1`, `lease=`, ...

    Raises:
        TimeoutError: There was still something to do after `timeout`; the message says what. Handlers were cancelled, and
            their jobs given back.
        Exception: The first error, with a note that names the job; the queues are as empty as without it. Or what
            `run_worker` raises: a provider's error, say.
        TypeError: An option is unknown, `burst`, or of another type, or no queue is served.
        ValueError: An option or `timeout` is out of range.

    **Cancellation**: as that of `run_worker`.
    """
    if "burst" in options:
        raise TypeError("drain() says itself when its worker ends: leave burst out")
    patience, budget_ms = to_wait(timeout, "timeout", positive=True), to_ms(ahead)
    settings = WorkerOptions(**{"grace": 0.0, **options})
    if not isinstance(app, App):
        raise TypeError(f"the jobs that are run are an app's, not those of {shown(app)}")
    if provide is not None and not isinstance(provide, Mapping):
        raise TypeError(f"provide= is a mapping of types to values, not {shown(provide)}")
    names = served(app, queues)
    if not names:
        raise TypeError(f"{app!r} has no task, so there is nothing to drain")
    async with AsyncExitStack() as stack:
        if not app.is_open:
            await stack.enter_async_context(app)
        run = _Run(app, settings, names, provide or {})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.serve)
            with anyio.move_on_after(patience) as limit, run.looking:
                await run.until_idle(budget_ms)
            if limit.cancelled_caught:
                await run.look_once_more()
            if run.worker is None:
                tasks.cancel_scope.cancel()
            else:
                run.worker.stop()
                run.worker.stop()
    if run.error is not None:
        raise run.error
    if limit.cancelled_caught:
        raise TimeoutError(f"after {patience:g} s the queues are not empty: {run.describe()}")
    if raise_failures:
        _raise_first(run.failures)
    return run.drained()


@final
class _Run:
    """A worker, and what is seen of it."""

    def __init__(self, app: App, settings: WorkerOptions, names: tuple[str, ...], provide: Mapping[Any, Any]) -> None:
        self._provide = provide
        self._app = app
        self._settings = settings
        self._names = names
        self._begun = anyio.Event()
        self._looks: list[Look] = []
        """The latest look at each queue."""
        self._held = 0
        """How many handlers ran at the last."""
        self.looking = anyio.CancelScope()
        """Around the looks: cancelled when the worker ends by itself."""
        self.worker: Worker | None = None
        """The worker, once it can take work."""
        self.error: Exception | None = None
        """Why there could be no work, or no looks."""
        self.failures: list[FailedAttempt] = []
        """The attempts that did not end well."""

    # --- the worker --------------------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Run the worker until it is stopped."""
        try:
            await serve(
                self._app, None, self._settings, queues=self._names, provide=self._provide, on_failure=self._failed,
                task_status=cast("TaskStatus[Worker]", self),
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - raised by `drain`
            self.error = self.error or error
        self.looking.cancel()

    def started(self, worker: Worker) -> None:
        """Hear from the worker that it can take work: this is its task status."""
        self.worker = worker
        self._begun.set()

    def _failed(self, lease: Lease, error: BaseException) -> None:
        claimed = lease.claimed
        attempt = FailedAttempt(
            claimed.id, lease.calls.queue, claimed.record.task, claimed.token, error=unfold(error)
        )  # fmt: skip
        self.failures.append(attempt)

    # --- the looks ---------------------------------------------------------------------------------------------------

    async def until_idle(self, budget_ms: int) -> None:
        """Wait until there is nothing to do; move time for that, by the budget at most."""
        await self._begun.wait()
        try:
            began_ms = (await self.look())[0].now_ms
            while True:
                await anyio.sleep(LOOK)
                if not await self._idle():
                    continue
                jobs_in, slots_in = (min(each) for each in zip(*map(_moments, self._looks), strict=True))
                # The time that this takes itself brings no further slots, so that their number is certain.
                slots_budget_ms = budget_ms - (max(each.now_ms for each in self._looks) - began_ms)
                step_ms = min(
                    jobs_in if jobs_in <= budget_ms else math.inf, slots_in if slots_in <= slots_budget_ms else math.inf
                )
                if step_ms == math.inf:
                    return
                budget_ms -= int(step_ms)
                for name in self._names:
                    await move(self._app.queue(name), int(step_ms))
        except (EchoMQError, ValueError) as error:
            self.error = error

    def _batch_of(self, queue: str) -> Batch | None:
        return next((task.batch for task in self._app.tasks.values() if task.queue == queue and task.batch), None)

    async def look(self) -> list[Look]:
        """Look at each queue."""
        self._looks = [await look(self._app.queue(name), self._batch_of(name)) for name in self._names]
        return self._looks

    async def look_once_more(self) -> None:
        """Look what there is still to do, if the server says so soon: to tell it."""
        with anyio.move_on_after(LAST_LOOK), suppress(EchoMQError):
            await self.look()
        self._held = 0 if self.worker is None else self.worker.statistics().running

    async def _idle(self) -> bool:
        """Tell whether there is surely nothing to do now."""
        before = self._claims()
        if before is None:
            return False
        for _ in range(2):
            if not all(each.is_idle for each in await self.look()):
                return False
        return self._claims() == before

    def _claims(self) -> int | None:
        """Answer how many jobs the worker has claimed so far; None while it holds one."""
        assert self.worker is not None  # noqa: S101 - it has begun
        seen = self.worker.statistics()
        return None if seen.running or seen.unsettled else seen.counters.claimed

    # --- what is told ------------------------------------------------------------------------------------------------

    def describe(self) -> str:
        """Say what there is still to do."""
        if self.worker is None:
            return "the worker has not got its first answer from the server"
        parts = [f"{self._held} handlers were running here"]
        for each in self._looks:
            words = {
                "ready": each.ready,
                "claimed": each.active,
                "due": each.due,
                "slots": each.slots,
                "owed": each.owed,
            }
            there = ", ".join(f"{count} {word}" for word, count in words.items() if count)
            parts += [f"queue {each.queue!r} has {there}"] if there else []
        return "; ".join(parts)

    def drained(self) -> Drained:
        """Answer what was run."""
        assert self.worker is not None  # noqa: S101 - it has been idle
        counters = attrs.asdict(self.worker.statistics().counters)
        names = {field.name for field in attrs.fields(Drained)}
        return Drained(
            **{name: count for name, count in counters.items() if name in names},
            later=sum(each.later for each in self._looks),
            waiting=sum(each.waiting for each in self._looks),
            failures=tuple(self.failures),
        )


def _moments(look: Look) -> tuple[float, float]:
    return look.next_in_ms, look.slot_in_ms


def _raise_first(failures: Sequence[FailedAttempt]) -> None:
    """Raise the error of the first attempt that failed otherwise than by the handler's own `Retry`."""
    unexpected = [each for each in failures if not isinstance(each.error, Retry)]
    if not unexpected:
        return
    first, others = unexpected[0], len(unexpected) - 1
    note = f"attempt {first.attempt} of job {first.id}, task {first.task!r} on queue {first.queue!r}"
    if others:
        note += (
            f"; {others} further attempt{'s' if others > 1 else ''} failed: see drain(raise_failures=False).failures"
        )
    error = first.error
    if not isinstance(error, Exception):  # SystemExit, a cancellation: in the test it would mean something else
        error = RuntimeError(f"the handler raised {error!r}")
        error.__cause__ = first.error
    error.add_note(note)
    raise error
