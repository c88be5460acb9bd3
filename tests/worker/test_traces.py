"""Traces: from an enqueue to its handler, and on to whatever that enqueues."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.testing import capture_logs

from echomq.app import App
from echomq.batches import Batch, JobBatch
from echomq.flows import flow
from echomq.instruments.opentelemetry import OpenTelemetryInstrument
from echomq.job import Job, SyncJob
from echomq.verdicts import Snooze
from tests.worker.support import PATIENCE, TRIO, Peek, running, until

pytestmark = pytest.mark.anyio


class Traced:
    """An app's instrument with what it made."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._metrics = InMemoryMetricReader()
        self.tracer = provider.get_tracer("test")
        self.instrument = OpenTelemetryInstrument(
            tracer_provider=provider, meter_provider=MeterProvider([self._metrics])
        )

    def spans(self, start: str = "") -> list[ReadableSpan]:
        """Answer the ended spans whose name begins so, in the order of their beginning."""
        found = [span for span in self._exporter.get_finished_spans() if span.name.startswith(start)]
        return sorted(found, key=lambda span: span.start_time or 0)

    async def of(self, task: str, operation: str = "process", count: int = 1) -> list[ReadableSpan]:
        """Wait for the spans of a task, and answer them."""

        def found() -> list[ReadableSpan]:
            return [span for span in self.spans(operation) if facts(span)["echomq.task"] == task]

        await until(lambda: len(found()) >= count)
        return found()

    def points(self) -> dict[str, list[Any]]:
        """Answer the data points of each metric."""
        data = self._metrics.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


def facts(span: ReadableSpan) -> Mapping[str, Any]:
    """Answer a span's attributes."""
    return span.attributes or {}


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Tell whether a span is the child of another."""
    assert span.context is not None
    assert parent.context is not None
    return (
        span.parent is not None
        and (span.context.trace_id, span.parent.span_id) == (parent.context.trace_id, parent.context.span_id)
    )  # fmt: skip


@pytest.fixture
def traced() -> Traced:
    """An instrument, in memory."""
    return Traced()


@pytest.fixture
def app(server_url: str, traced: Traced) -> App:
    """An app with it."""
    return App(server_url, unavailable_after=5.0, instruments=[traced.instrument])


async def test_trace_from_enqueue_to_child_and_follow_up(app: App, queue_name: str, traced: Traced) -> None:
    """One trace: the request, its job, both attempts, the children and what follows."""

    @app.task(queue=queue_name)
    async def parent(job: Job) -> None:
        async with job.nursery() as children:
            children.enqueue(child.call())
        job.on_complete.enqueue(after.call())

    @app.task(queue=queue_name)
    def child(job: SyncJob) -> None:
        grandchild_of.append(threading.current_thread() is threading.main_thread())
        job.on_complete.enqueue(after.call())

    @app.task(queue=queue_name)
    async def after() -> None: ...

    grandchild_of: list[bool] = []
    async with app, running(app):
        with traced.tracer.start_as_current_span("request"):
            handle = await parent.enqueue()
        afters = await traced.of("after", count=2)
    (request,) = traced.spans("request")
    (sent,) = await traced.of("parent", "send")
    first, second = await traced.of("parent", count=2)
    child_sent = await traced.of("child", "send", 2)  # both attempts make it; the second finds it there
    (child_ran,) = await traced.of("child")
    of_child, of_parent = await traced.of("after", "send", 2)
    assert grandchild_of == [False]
    assert is_child(sent, request)
    assert is_child(first, sent)
    assert is_child(second, sent)
    assert is_child(child_sent[0], first)
    assert is_child(child_ran, child_sent[0])
    assert is_child(of_child, child_ran)
    assert is_child(of_parent, second)
    assert sorted(is_child(span, of_parent) for span in afters) == [False, True]
    assert sorted(is_child(span, of_child) for span in afters) == [False, True]
    assert (sent.kind, first.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(facts(sent)) == {
        "messaging.system": "echomq",
        "messaging.destination.name": queue_name,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "echomq.task": "parent",
    }
    assert dict(facts(second)) == {
        "messaging.system": "echomq",
        "messaging.destination.name": queue_name,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.message.id": handle.id,
        "echomq.task": "parent",
        "echomq.attempt": 2,
    }
    assert facts(first)["echomq.stopped"] == "suspended"
    assert {span.status.status_code for span in traced.spans()} == {StatusCode.UNSET}


@TRIO
async def test_trace_of_flows_and_many(app: App, queue_name: str, traced: Traced) -> None:
    """Each job of a flow and each of many carries the trace."""

    @app.task(queue=queue_name, result_ttl=60)
    async def one(n: int = 0) -> None: ...

    async with app, running(app):
        with traced.tracer.start_as_current_span("request"):
            handle = await app.flows.add(flow(one.call(), {"a": one.call(1)}))
            await app.enqueue_many(one.call(n) for n in range(2))
        await handle.result(timeout=PATIENCE)
        ran = await traced.of("one", count=4)
    (request,) = traced.spans("request")
    sent = traced.spans("send")
    assert len(sent) == 4
    assert all(is_child(span, request) for span in sent)
    assert sum(is_child(span, before) for span in ran for before in sent) == 4


@TRIO
async def test_trace_of_a_schedule_begins_with_each_job(app: App, queue_name: str, traced: Traced, peek: Peek) -> None:
    """Linked to where the schedule was defined, else one trace would go on for years."""

    @app.task(queue=queue_name)
    async def tick() -> None: ...

    async with app:
        with traced.tracer.start_as_current_span("setup"):
            await app.queue(queue_name).schedules.put("often", tick.call(), every=0.3)
        async with running(app):
            first, second, *_ = await traced.of("tick", count=2)
    (sent,) = traced.spans("send")
    assert sent.context is not None
    assert first.parent is second.parent is None
    assert first.context is not None
    assert second.context is not None
    assert len({first.context.trace_id, second.context.trace_id, sent.context.trace_id}) == 3
    assert [link.context.span_id for span in (first, second) for link in span.links] == [sent.context.span_id] * 2


@TRIO
async def test_trace_of_a_batch_has_links(app: App, queue_name: str, traced: Traced) -> None:
    """A batch has as many origins as items."""

    @app.task(queue=queue_name, batch=Batch(max_size=3))
    async def gather(batch: JobBatch[int]) -> None: ...

    async with app:
        await app.enqueue_many(gather.call(n) for n in range(3))
        async with running(app):
            (span,) = await traced.of("gather")
    sent = traced.spans("send")
    assert sorted(link.context.span_id for link in span.links) == sorted(
        each.context.span_id for each in sent if each.context is not None
    )
    assert span.parent is None
    assert facts(span)["messaging.batch.message_count"] == 3


@TRIO
async def test_trace_tells_how_handlers_ended(app: App, queue_name: str, traced: Traced) -> None:
    """An error and a timeout are errors; what a handler has to say is none, nor is a person's cancel."""

    @app.task(queue=queue_name, max_attempts=1)
    async def broken() -> None:
        raise ValueError("no")

    @app.task(queue=queue_name)
    async def snoozing() -> None:
        raise Snooze(60)

    @app.task(queue=queue_name, timeout=0.05, max_attempts=1)
    async def slow() -> None:
        await anyio.sleep_forever()

    @app.task(queue=queue_name)
    async def endless() -> None:
        begun.set()
        await anyio.sleep_forever()

    begun = anyio.Event()
    async with app, running(app):
        for task in (broken, snoozing, slow):
            await task.enqueue()
        handle = await endless.enqueue()
        await begun.wait()
        await handle.cancel()
        (failed,), (snoozed,), (late,), (cancelled,) = [
            await traced.of(name) for name in ("broken", "snoozing", "slow", "endless")
        ]
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ValueError: no")
    assert facts(failed)["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]
    assert (snoozed.status.status_code, facts(snoozed)["echomq.verdict"]) == (StatusCode.UNSET, "Snooze")
    assert (late.status.status_code, facts(late)["error.type"]) == (StatusCode.ERROR, "timeout")
    assert (cancelled.status.status_code, facts(cancelled)["echomq.stopped"]) == (StatusCode.UNSET, "cancelled")


@TRIO
async def test_trace_of_an_enqueue_that_fails(app: App, queue_name: str, traced: Traced) -> None:
    """The producer's span has the error that the caller gets."""

    @app.task(queue=queue_name)
    async def work() -> None: ...

    async with app:
        await app.queue(queue_name).configure(max_size=1)
        await work.enqueue()
        with pytest.raises(Exception, match="full"):
            await work.enqueue()
    assert [span.status.status_code for span in traced.spans("send")] == [StatusCode.UNSET, StatusCode.ERROR]


@TRIO
async def test_trace_context_that_does_not_fit_costs_no_job(app: App, queue_name: str, traced: Traced) -> None:
    """Baggage of more than headers take: the job goes without its trace, and the log says so."""

    @app.task(queue=queue_name)
    async def work() -> None: ...

    much = context.get_current()
    for n in range(3):
        much = baggage.set_baggage(f"much{n}", "x" * 2500, much)
    token = context.attach(much)
    try:
        async with app, running(app):
            with capture_logs() as logs:
                await work.options(headers={"own": "y" * 10_000}).enqueue()
            (span,) = await traced.of("work")
    finally:
        context.detach(token)
    assert [line["event"] for line in logs] == ["trace_context_not_sent"]
    assert span.parent is None


@TRIO
async def test_trace_of_a_torn_row_is_not_our_affair(app: App, queue_name: str, traced: Traced, peek: Peek) -> None:
    """Headers that are none: the handler runs as without an instrument."""

    @app.task(queue=queue_name)
    async def work() -> None: ...

    async with app:
        handle = await work.enqueue()
        peek.client.hset(peek.keys.job(handle.id), "headers", b"{torn")
        async with running(app) as worker:
            await until(lambda: worker.statistics().counters.completed)
    (span,) = await traced.of("work")
    assert span.parent is None


@TRIO
async def test_worker_within_a_span_does_not_pass_it_on(app: App, queue_name: str, traced: Traced) -> None:
    """Jobs are of their producers' traces, not of the one in which the worker was started."""

    @app.task(queue=queue_name)
    async def work() -> None:
        current.append(trace.get_current_span().get_span_context().span_id)

    current: list[int] = []
    async with app:
        await work.enqueue()
        await app.queue(queue_name).enqueue(b"{}", task="work")  # by hand: without a trace
        with traced.tracer.start_as_current_span("program"):
            async with running(app, concurrency=1):
                span, other = await traced.of("work", count=2)
    (sent,) = traced.spans("send")
    assert is_child(span, sent)
    assert other.parent is None
    assert current == [each.context.span_id for each in (span, other) if each.context is not None]


@TRIO
async def test_opentelemetry_metrics(app: App, queue_name: str, traced: Traced) -> None:
    """By the names of the semantic conventions, and samples as observed values."""

    @app.task(queue=queue_name)
    async def work() -> None: ...

    async with app:
        await work.options(delay=600).enqueue()
        await work.enqueue()
        async with running(app, sample_every=0.1) as worker:
            await until(lambda: worker.statistics().counters.completed)
            await until(lambda: "echomq.queue.jobs" in traced.points())
            points = traced.points()
    (run,) = points["messaging.process.duration"]
    assert run.count == 1
    assert dict(run.attributes) == {
        "messaging.system": "echomq",
        "messaging.operation.name": "process",
        "messaging.destination.name": queue_name,
        "echomq.task": "work",
    }
    (sent,) = points["messaging.client.sent.messages"]
    assert sent.value == 2
    assert run.explicit_bounds[0] == 0.005
    states = {point.attributes["echomq.state"]: point.value for point in points["echomq.queue.jobs"]}
    assert states["schedule"] == 1
