"""`run_worker`: embed a worker in a trio or asyncio program."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc

from echomq._signature import NOTHING
from echomq.app import App
from echomq.flows import DEFAULT_LIMITS
from echomq.instruments import Instruments, run_sampler
from echomq.middleware import AroundHandling
from echomq.protocol._convert import shown
from echomq.worker.alerts import Alerts
from echomq.worker.options import WorkerOptions
from echomq.worker.raw import RawHandler
from echomq.worker.run import Worker

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from echomq.instruments import Instrument
    from echomq.protocol.keys import QueueKeys
    from echomq.queue import Queue
    from echomq.worker.execute import Handler
    from echomq.worker.lease import Lease


def served(app: App, queues: Iterable[str]) -> tuple[str, ...]:
    """Answer the queues that a worker of an app serves, each of them one that it has tasks for.

    Raises:
        TypeError: Something else is named, or text where names are expected.
    """
    if isinstance(queues, (str, bytes)) or not isinstance(queues, Iterable):
        raise TypeError(f"queues= is several names, as in ['mails'], not {shown(queues)}")
    names = tuple(queues) or app.queues
    for name in names:
        check_served(app, name)
    return names


def check_served(app: App, queue: str) -> None:
    """Refuse a queue that the app has no task for: its jobs would be claimed, and could only be put off.

    Raises:
        TypeError: It has none.
    """
    if queue not in app.queues:
        msg = f"the app has no task on queue {queue!r}; its tasks are on {', '.join(app.queues) or 'none'}"
        raise TypeError(msg)


async def run_worker(
    source: App | Queue,
    handler: Callable[..., Any] | None = None,
    *,
    queues: Iterable[str] = (),
    instruments: Iterable[Instrument] = (),
    task_status: anyio.abc.TaskStatus[Worker] = anyio.TASK_STATUS_IGNORED,
    **options: Any,
) -> None:
    """Run a worker until it is stopped or cancelled.

    Args:
        source: An app, whose tasks are run; or a queue, together with a handler.
        handler: For a queue: called with each job's decoded payload, and with the job if it asks for it.
        queues: For an app: the queues to serve, all that its tasks use when empty.
        instruments: For a queue with a handler: what measures the worker. An app has its own.
        task_status: For `await tg.start(run_worker, app)`: told once the worker can really take work; the value is the
            `Worker`, with `stop()` and `statistics()`.
        options: As `WorkerOptions`: `concurrency=`, `lease=`, `grace=`, `cleanup=`, `burst=`, ...

    Raises:
        ProtocolMismatchError: A queue speaks another major version of the protocol.
        EvictionPolicyError: The server may evict jobs.
        HealthPortError: `health_port` cannot be had.
        TypeError: An option is unknown, the app has no task on a queue, a task asks for what nobody provides, or an app is
            given instruments here.
        Exception: What a provider raises when it opens or closes; the worker has stopped in good order.
        ValueError: An option is out of range, or a task's batches take more slots than `concurrency`.
        RuntimeError: The client is of another event loop, or was closed while the worker worked. Leave `async with app:`
            only after this has returned: without a client no verdict is delivered, and the jobs come back when their
            leases end.

    **Cancellation**: at any moment. The handlers are cancelled with reason `shutdown` and have ended when this returns;
    what they held is given back if the server can be reached within `cleanup` seconds.
    """
    await serve(
        source, handler, WorkerOptions(**options), queues=queues, instruments=instruments, task_status=task_status
    )


async def serve(
    source: App | Queue,
    handler: Callable[..., Any] | None,
    settings: WorkerOptions,
    *,
    queues: Iterable[str] = (),
    instruments: Iterable[Instrument] = (),
    provide: Mapping[Any, Any] = NOTHING,
    on_failure: Callable[[Lease, BaseException], None] | None = None,
    task_status: anyio.abc.TaskStatus[Worker] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Do what `run_worker` does; and more, for tests.

    Args:
        source: As there.
        handler: As there.
        settings: How to work.
        queues: As there.
        instruments: As there.
        provide: For an app: what handlers get, by type, in the place of what it provides.
        on_failure: Told of each attempt that does not end well, see `Settler`.
        task_status: As there.
    """
    measuring = Instruments(instruments)
    beside: tuple[Callable[[], Awaitable[None]], ...] = ()
    async with AsyncExitStack() as stack:
        if isinstance(source, App):
            if measuring:
                raise TypeError(
                    "give the instruments to the app, which measures its enqueues too: App(instruments=[...])"
                )
            measuring = source.instruments
            names, tasks = served(source, queues), source.tasks.values()
            around: Iterable[Callable[..., Any]] = source.around_handling
            told = {name: task for name in names if (task := source.on_dead.of(name)) is not None}
            given = source.provide.with_values(provide) if provide else source.provide
            providers = given.plan((*(task for task in tasks if task.queue in names), *told.values()))
            app = source if source.is_open else await stack.enter_async_context(source)
            handlers: dict[QueueKeys, dict[str, Handler]] = {
                app.queue(name).keys: {task.name: task for task in tasks if task.queue == name} for name in names
            }
            for keys, of_queue in handlers.items():
                if keys.queue in told:
                    of_queue[told[keys.queue].name] = told[keys.queue]
            wire, codec = app.client.wire, app.codec
            alerts = Alerts(wire, {keys: told[keys.queue].name for keys in handlers if keys.queue in told})
            beside = (app.schedules.keep_trying, alerts.run)
            limits = app.flow_limits
            sampled = [app.queue(name) for name in names]
        else:
            if handler is None:
                msg = "a queue needs a handler: run_worker(queue, handler)"
                raise TypeError(msg)
            wire, codec, around, providers = source.wire, source.codec, AroundHandling(measuring), ()
            limits, sampled = DEFAULT_LIMITS, [source]
            handlers = {source.keys: {"": RawHandler(source.name, handler, codec)}}
        wire.check()
        if settings.sample_every is not None and measuring:
            beside = (*beside, _sampling(sampled, measuring, settings.sample_every, settings.sample_lanes))
        worker = Worker(
            wire, handlers, settings, codec=codec, around=around, providers=providers, beside=beside, flow_limits=limits,
            on_failure=on_failure,
            instruments=measuring,
        )  # fmt: skip
        await worker.run(task_status=task_status)


def _sampling(
    queues: Iterable[Queue], instruments: Instruments, every: float, lanes: int
) -> Callable[[], Awaitable[None]]:
    async def sampling() -> None:
        await run_sampler(queues, instruments, every=every, lanes=lanes)

    return sampling
