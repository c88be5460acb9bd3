"""The worker: one task group that reads as a wiring diagram (Runtime, section 4).

Theory of operation
    Everything runs in a core that is shielded from outside, so that a cancellation never tears a handler from its
    lease: a task outside the shield turns it into a shutdown without grace. The core's order is: claim and run; stop
    claiming; wait for handlers (`grace`); cancel them; wait until every one has ended; wait for the last verdicts
    (`cleanup`); end. A lease is given back only after its handler has ended.

        intake ---- claims ----> one task a lease ---- outcome ----> settler ---- group commit ----> server
                                      ^    ^                            ^
                        heartbeat ----+    +---- control, watchdog      +---- timers

    The leases of a batch share one task (`batch`); all else is the same for each of them. Beside all this: housekeeping
    (`pump`), recurring schedules (`timetable`), what the queues have to tell others (`outbox`), and what they hear of the
    worker (`beat`).

If you change this
    Nothing in the core may wait without a bound for the server once the worker is stopping.
"""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import anyio.abc
import structlog

from echomq._logs import get_logger
from echomq.errors import EchoMQError
from echomq.flows import DEFAULT_LIMITS, FlowLimits
from echomq.instruments import NO_INSTRUMENTS, JobClaimed, Parked, Reconnected
from echomq.protocol.failures import holds
from echomq.worker.batch import BatchRun, ItemScope
from echomq.worker.beat import Beats
from echomq.worker.burst import Burst
from echomq.worker.calls import QueueCalls
from echomq.worker.control import run_control
from echomq.worker.execute import Means, execute
from echomq.worker.gather import find_batch
from echomq.worker.health import Health
from echomq.worker.heartbeat import Heartbeat
from echomq.worker.intake import Intake
from echomq.worker.last_lives import LastLives
from echomq.worker.lease import Lease
from echomq.worker.metrics import Metrics
from echomq.worker.outbox import OutboxPump
from echomq.worker.pauses import first_of
from echomq.worker.preflight import check_server
from echomq.worker.processes import Processes
from echomq.worker.pump import run_pump
from echomq.worker.reasons import Outcome, Raised, Reason, Stopped
from echomq.worker.resources import Resources
from echomq.worker.retire import Limits, check_memory
from echomq.worker.settle import Settler
from echomq.worker.signals import Signal
from echomq.worker.spawn import scope_class, spawner
from echomq.worker.statistics import Counters, WorkerStatistics
from echomq.worker.timers import Timers
from echomq.worker.timetable import Timetable
from echomq.worker.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from echomq.instruments import Instruments
    from echomq.protocol.codec import Codec
    from echomq.protocol.keys import QueueKeys
    from echomq.resources import Provider
    from echomq.transitions import ClaimReply
    from echomq.wire.client import WireClient
    from echomq.worker.execute import Handler
    from echomq.worker.options import WorkerOptions

EPSILON: float = 0.5
"""Seconds beyond grace and cleanup that the last steps of a shutdown may take."""
LATELY: Final = 5.0
"""Seconds for which a worker is ready, at least, after the server has served it: it asks each second or so when idle."""

_log = get_logger("echomq.worker")


@final
class Worker:
    """Runs handlers for the jobs of some queues. Make one, run it once."""

    def __init__(
        self,
        wire: WireClient,
        handlers: Mapping[QueueKeys, Mapping[str, Handler]],
        options: WorkerOptions,
        *,
        codec: Codec,
        beside: Sequence[Callable[[], Awaitable[None]]] = (),
        around: Iterable[Callable[..., Awaitable[Any]]] = (),
        providers: Sequence[Provider] = (),
        flow_limits: FlowLimits = DEFAULT_LIMITS,
        on_failure: Callable[[Lease, BaseException], None] | None = None,
        instruments: Instruments = NO_INSTRUMENTS,
    ) -> None:
        """Make a worker.

        Args:
            wire: An open client; it must stay open until `run` has returned.
            handlers: For each queue its handlers by task name.
            options: How to work.
            codec: Encodes what handlers note: progress and checkpoints.
            beside: What else runs while it serves.
            around: The middleware, the outermost first; looked at again for each job.
            providers: What is opened for the handlers.
            flow_limits: How large what handlers spawn may be.
            on_failure: See `Settler`.
            instruments: What measures the worker.

        Raises:
            ValueError: There is no queue, or a batch that takes more slots than there are; or the process is already
                larger than `max_rss` allows.
        """
        check_memory(options.max_rss)
        if not handlers:
            msg = "a worker needs at least one queue: declare a task, or name a queue"
            raise ValueError(msg)
        self.options = options
        self._wire = wire
        self._codec = codec
        self._beside = beside
        self._around = around
        self._instruments = instruments
        self._resources = Resources(providers, failed=self._fail)
        self._handlers = {keys.queue: of_queue for keys, of_queue in handlers.items()}
        self._queues = {
            keys.queue: QueueCalls(
                wire, keys, find_batch(of_queue, options), max_depth=options.max_depth, flow_limits=flow_limits
            )
            for keys, of_queue in handlers.items()
        }
        self._timers = Timers()
        self._counters = Counters()
        self._heartbeat = Heartbeat(options, self._timers, renewed=self._was_served, instruments=instruments)
        self._settler = Settler(
            options, self._timers, self._counters, on_settled=self._slot_freed, on_failure=on_failure,
            instruments=instruments,
        )  # fmt: skip
        self._last = LastLives(self._settler, begun=self._slot_freed)
        self._leases: set[Lease] = set()
        self._batches: set[BatchRun] = set()
        self._watchdog = Watchdog(
            lambda: self._leases, margin=options.margin, cleanup=options.cleanup, on_time=self._slot_freed,
            instruments=instruments,
        )  # fmt: skip
        self._timetable = Timetable(self._queues.values())
        self._outbox = OutboxPump(self._queues.values())
        self._beats = Beats(self._queues.values(), options, lambda: self._leases)
        self._processes = Processes(options.pool, cleanup=options.cleanup, result_limit=options.result_limit)
        self._means = Means(
            codec=codec,
            timers=self._timers,
            processes=self._processes,
            threads=anyio.CapacityLimiter(options.threads),
            around=around,
            resources=self._resources.values,
        )
        self._intake = Intake(
            list(self._queues.values()), options, free=self._free, begin=self._begin, claimed=self._was_claimed,
            parked=self._was_parked,
        )  # fmt: skip
        self._limits = Limits(options.max_jobs, options.max_rss)
        self.retired = ""
        """Why it ends by itself, to be replaced: `max_jobs` or `max_rss`; "" while it does not."""
        self._stop = anyio.Event()
        self._told = anyio.Event()
        self._hurry = anyio.Event()
        self._drained = Signal()
        self._claims_over = anyio.Event()
        self._over = anyio.Event()
        self._failure: BaseException | None = None
        self._served_at = -math.inf
        """When the server last gave or renewed a lease, or said that there is none, on `time.monotonic`."""
        self._away = 0
        """Connections that were lost and do not stand again."""
        self._started: anyio.abc.TaskStatus[Worker] | None = None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._spawn: Callable[[Callable[[Any], Awaitable[None]], Any], object] | None = None
        self._scope: Any = anyio.CancelScope

    # --- what others see ---------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Shut down: claim no more, let handlers end within `grace`, then cancel them. A second call skips the grace."""
        if self._told.is_set():
            self._hurry.set()
        self._told.set()
        self._end_claims()

    def _retire(self, why: str) -> None:
        """Claim no more, and end when all handlers have; how long that takes is for them, or for `stop`, to say."""
        if not self._stop.is_set():
            self.retired = why
            self._end_claims()

    def _end_claims(self) -> None:
        self._stop.set()
        self._resources.stop()
        self._intake.stop()

    def statistics(self) -> WorkerStatistics:
        """Tell how the worker is."""
        # A worker that has work renews within a third of the lease, one that has none asks each second or so. One whose
        # slots are taken by handlers without leases has no reason to do either.
        busy = not self._leases and self._free() <= 0
        lately = time.monotonic() - self._served_at < max(LATELY, self.options.lease / 2)
        fresh = self._served_at > -math.inf and (lately or busy)
        served = fresh and self._wire.connected and not self._intake.refused
        ready = served and not self._watchdog.late and not self._stop.is_set()
        return WorkerStatistics(
            ready=ready,
            running=len(self._leases),
            unsettled=self._settler.unsettled,
            renewals=self._heartbeat.renewals,
            lag=self._watchdog.lag,
            counters=self._counters,
        )

    # --- the wiring --------------------------------------------------------------------------------------------------

    async def run(self, *, task_status: anyio.abc.TaskStatus[Worker] = anyio.TASK_STATUS_IGNORED) -> None:
        """Work until stopped.

        `task_status` is told once the worker can really take work: after its first successful claim.

        Raises:
            ProtocolMismatchError: A queue speaks another major version of the protocol.
            EvictionPolicyError: The server may evict jobs.
            HealthPortError: `health_port` cannot be had.

        **Cancellation**: at any moment. Handlers are cancelled with reason `shutdown` and have ended when this returns;
        what they held is given back, if the server can be reached within `cleanup`.
        """
        self._started = task_status
        try:
            async with anyio.create_task_group() as outside:
                # In a task of its own: a shield does not keep asyncio's `task.cancel()` from the task it is aimed at.
                outside.start_soon(self._shielded, name="echomq core")
                try:
                    await self._over.wait()
                finally:
                    # Either the core is over, or somebody outside wants us to be.
                    self.stop()
                    self._hurry.set()
        finally:
            if self._failure is not None:
                raise self._failure

    async def _shielded(self) -> None:
        structlog.contextvars.bind_contextvars(worker=self.options.name)
        try:
            with anyio.CancelScope(shield=True):
                await self._core()
        except BaseException as error:  # noqa: BLE001 - raised again by `run`
            self._failure = self._failure or error
        finally:
            self._over.set()

    async def _core(self) -> None:
        self._wire.on_disconnect.append(self._was_disconnected)
        self._wire.on_connect.append(self._was_connected)
        try:
            with self._watchdog:
                async with self._processes, anyio.create_task_group() as tasks:
                    self._tasks, self._spawn, self._scope = tasks, spawner(tasks), scope_class(tasks)
                    async with anyio.create_task_group() as service:
                        parts = (
                            self._timers.run,
                            self._watchdog.run,
                            self._pump,
                            self._timetable.run,
                            self._outbox.run,
                            self._beats.run,
                            self._control,
                        )
                        for part in (*parts, *self._beside, self._resources.hold, self._claim):
                            service.start_soon(self._guard, part, name=f"echomq {part.__name__.strip('_')}")
                        if self.options.health_port is not None:
                            service.start_soon(self._guard, self._answer_probes, name="echomq health")
                        if self._limits.watches:
                            service.start_soon(self._guard, self._watch_limits, name="echomq limits")
                        if self.options.burst:
                            burst = Burst(self._queues.values(), self._outbox, idle=self._is_idle, stop=self.stop)
                            service.start_soon(self._guard, burst.run, name="echomq burst")
                        await self._stop.wait()
                        await self._shutdown()
                        service.cancel_scope.cancel()
        finally:
            self._wire.on_disconnect.remove(self._was_disconnected)
            self._wire.on_connect.remove(self._was_connected)

    async def _guard(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part. One that fails stops the worker in good order; `run` raises its error at the end."""
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self.stop()

    async def _claim(self) -> None:
        try:
            await check_server(self._wire, allow_eviction=self.options.allow_eviction, stop=self._stop)
            await self._resources.wait_open()
            await self._intake.run()
        finally:
            self._claims_over.set()

    async def _answer_probes(self) -> None:
        name, host, port = self.options.name, self.options.health_host, self.options.health_port
        metrics = Metrics(self.statistics, self._instruments)
        await Health(self.statistics, name=name, host=host, port=port or 0, metrics=metrics.text).run()

    async def _watch_limits(self) -> None:
        await self._limits.watch(self._retire)

    async def _pump(self) -> None:
        await run_pump(self._queues.values())

    async def _control(self) -> None:
        def find(queue: str, id: str, token: int) -> Lease | None:
            of_job = (each for each in self._leases if each.claimed.id == id and each.calls.queue == queue)
            return next((lease for lease in of_job if lease.claimed.token == token), None)

        try:
            await run_control(self._queues, find, self._wire)
        except EchoMQError as error:
            # Cancel requests still come by heartbeat.
            _log.warning("cancel_channel_failed", error=str(error))

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _slot_freed(self) -> None:
        self._intake.slot_freed()

    def _free(self) -> int:
        if self._watchdog.late or self._last.waiting or self._settler.unsettled >= 4 * self.options.concurrency:
            return 0
        # A handler that has settled its whole batch and goes on takes a slot too.
        bare = sum(not run.holds_leases for run in self._batches) if self._batches else 0
        free = self.options.concurrency - len(self._leases) - bare
        left = self._limits.left(self._counters.claimed)
        return free if left is None else min(free, left)

    def _begin(self, calls: QueueCalls, reply: ClaimReply, sent_at: float) -> None:
        deadline = sent_at + self.options.lease - self.options.margin
        # Not if the claim's reply took as long as the lease: no handler may begin.
        open_ = not self._stop.is_set() and anyio.current_time() < deadline
        self._counters.claimed += len(reply.jobs)
        if self._limits.left(self._counters.claimed) == 0:
            self._retire("max_jobs")
        if reply.due:
            self._timetable.slot_came(calls)
        if reply.owed:
            calls.owes()
        handlers, together = self._handlers[calls.queue], list[Lease]()
        for claimed in reply.jobs:
            handler = None if calls.batch is None else handlers.get(claimed.record.task)
            gathered = handler is not None and handler.batch is not None  # not what is told of dead jobs
            scope = ItemScope if gathered else self._scope
            lease = Lease(calls, claimed, now_ms=reply.now_ms, sent_at=sent_at, deadline=deadline, scope=scope)
            if self._instruments:
                record = claimed.record
                waited = max(0, reply.now_ms - record.since) / 1000
                self._instruments.record(
                    JobClaimed(calls.queue, record.task, record.lane, claimed.id, claimed.token, waited)
                )
            if not open_ or self._spawn is None:
                self._settler.release(lease)
            elif b"stalls" in claimed.record.row and (self._settler.take_over(lease) or not self._last.admits(lease)):
                pass  # settled already, or put off
            else:
                self._leases.add(lease)
                self._heartbeat.watch(lease, sent_at)
                if not gathered:
                    self._spawn(self._run_lease, lease)
                elif lease is self._last.current:
                    self._begin_batch([lease])  # what it kills must not be in its hands too
                else:
                    together.append(lease)
        if together:
            self._begin_batch(together)

    def _begin_batch(self, leases: list[Lease]) -> None:
        handler = self._handlers[leases[0].calls.queue][leases[0].claimed.record.task]

        def settle(lease: Lease, outcome: Outcome) -> None:
            self._end_lease(lease)
            self._settle(lease, outcome, handler)

        run = BatchRun(
            leases, handler, codec=self._codec, timers=self._timers, scope=self._scope, settle=settle,
            around=self._around, resources=self._resources.values,
        )  # fmt: skip
        self._batches.add(run)
        assert self._spawn is not None  # noqa: S101 - looked at for each of them
        self._spawn(self._run_batch, run)

    async def _run_lease(self, lease: Lease) -> None:
        name = lease.claimed.record.task
        handler = self._handlers[lease.calls.queue].get(name)
        run = partial(execute, lease, name, handler, self._means)
        try:
            outcome = await self._outcome(lease, run)
        finally:
            self._end_lease(lease)
        self._settle(lease, outcome or Stopped(lease.why()), handler)

    async def _run_batch(self, run: BatchRun) -> None:
        outcome: Outcome | None = Stopped(Reason.SHUTDOWN)
        try:
            outcome = await self._outcome(run.first, run.run)
        finally:
            self._batches.remove(run)
            run.end(outcome)
            self._slot_freed()
            self._look_drained()

    async def _outcome(self, lease: Lease, run: Callable[[], Awaitable[Outcome | None]]) -> Outcome | None:
        """Run what a lease is for, if it may begin; answer how that ended. None: its lease says how."""
        try:
            if lease is not self._last.current or await self._last.wait(lease):
                return await run()
        except anyio.get_cancelled_exc_class() as error:
            # Nobody cancels a lease from outside but a core that dies. On asyncio a handler may be hit all the same,
            # by a task of its own that was cancelled and that it awaited.
            dying = self._tasks is None or self._tasks.cancel_scope.cancel_called
            return Stopped(Reason.SHUTDOWN) if dying else Raised(error)
        except BaseException as error:  # noqa: BLE001 - a failure of the job, or raised again by `run`
            if holds(error, KeyboardInterrupt):
                # Ctrl-C: give the job back, stop in order.
                self._fail(error)
                return Stopped(Reason.SHUTDOWN)
            # What a handler left behind made our own steps fail. Given back, it would do so for ever.
            return Raised(error)
        return None

    def _end_lease(self, lease: Lease) -> None:
        self._leases.remove(lease)
        self._last.left(lease)
        self._heartbeat.forget(lease)
        self._slot_freed()
        self._look_drained()

    def _settle(self, lease: Lease, outcome: Outcome, handler: Handler | None) -> None:
        try:
            self._settler.settle(lease, outcome, handler)
        except KeyboardInterrupt as error:
            self._fail(error)

    def _look_drained(self) -> None:
        if not self._leases and not self._batches:
            self._drained.send()

    def _was_served(self) -> None:
        self._served_at = time.monotonic()

    def _was_claimed(self) -> None:
        self._was_served()
        if self._started is not None:
            self._started.started(self)
            self._started = None
            _log.info("worker_started", worker=self.options.name, queues=list(self._queues))

    def _was_disconnected(self) -> None:
        self._served_at = -math.inf
        self._away += 1

    def _was_connected(self) -> None:
        if self._away:
            self._away -= 1
            self._counters.reconnects += 1
            if self._instruments:
                self._instruments.record(Reconnected())

    def _was_parked(self, seconds: float) -> None:
        self._counters.parked += seconds
        if self._instruments:
            self._instruments.record(Parked(seconds))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _is_idle(self) -> bool:
        return self._intake.idle and not (self._leases or self._batches or self._settler.unsettled)

    async def _shutdown(self) -> None:
        options = self.options
        if self.retired:
            _log.info("worker_retiring", worker=options.name, running=len(self._leases), why=self.retired)
            await first_of(self._told.wait, self._until_settled)
        _log.info("worker_stopping", worker=options.name, running=len(self._leases), grace=options.grace)
        with anyio.move_on_after(options.grace):
            await first_of(self._hurry.wait, self._until_drained)
        end = anyio.current_time() + options.cleanup + EPSILON
        for lease in list(self._leases):
            lease.stop(Reason.SHUTDOWN)
        for run in list(self._batches):
            run.stop()
        await self._until_drained()  # however long it takes; the watchdog names those that will not end
        with anyio.CancelScope(deadline=max(end, anyio.current_time() + EPSILON)):
            # A claim on its way may bring jobs, which are given back.
            async with anyio.create_task_group() as closing:
                closing.start_soon(self._resources.close)
                closing.start_soon(self._beats.go)
                await self._claims_over.wait()
                await self._settler.wait_below(1)
                await self._intake.ring()
        if self._settler.unsettled:
            _log.error("verdicts_undelivered", worker=options.name, count=self._settler.unsettled)
        _log.info("worker_stopped", worker=options.name)

    async def _until_drained(self) -> None:
        while self._leases or self._batches:
            await self._drained.wait()

    async def _until_settled(self) -> None:
        await self._until_drained()
        await self._settler.wait_below(1)
