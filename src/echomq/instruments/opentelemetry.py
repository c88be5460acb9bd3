"""An instrument for OpenTelemetry: `pip install 'echomq[opentelemetry]'`.

Theory of operation
    The instrument is around each enqueue, where a producer's span puts its context into the job's headers (`traceparent`,
    `tracestate`, whatever the propagator writes), and around each handler, where a consumer's span has that context as its
    parent. The span is current while the handler runs, so what the handler enqueues, by itself, in a nursery, as a flow or a
    follow-up, carries on the trace. Names are those of the semantic conventions for messaging.

    A batch has many parents, and the jobs of a schedule would make one endless trace: their spans begin a trace, and have
    links instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, final

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "opentelemetry":
        raise
    raise ModuleNotFoundError(
        "OpenTelemetryInstrument needs opentelemetry-api: pip install 'echomq[opentelemetry]'", name=error.name
    ) from None

import anyio

from echomq._logs import Told, get_logger
from echomq.batches import JobBatch
from echomq.errors import DecodeError, InvalidJobError
from echomq.instruments.metrics import EVENTS, SAMPLES, Reader
from echomq.verdicts import Discard, RateLimited, Snooze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
    from opentelemetry.propagators.textmap import TextMapPropagator
    from opentelemetry.trace import Span, TracerProvider

    from echomq.instruments.measurements import Measurement
    from echomq.instruments.metrics import Metric
    from echomq.job import Job
    from echomq.middleware import HandlerCall
    from echomq.tasks import JobCall

SYSTEM: Final = "echomq"
"""What `messaging.system` says."""
NO_ERROR: Final = (Snooze, RateLimited, Discard)
"""What a handler raises to say something, and not because something is wrong."""
_NAMES: Final = {"queue": "messaging.destination.name", "error": "error.type"}
_log = get_logger("echomq.instruments")


@final
class OpenTelemetryInstrument:
    """Makes spans and metrics, by the semantic conventions for messaging where they have a word for it."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
    ) -> None:
        """Make it.

        Args:
            tracer_provider: What makes spans; None: the process's own.
            meter_provider: What makes metrics; None: the process's own.
            propagator: What writes the context into headers and reads it; None: the process's own, which is W3C's trace
                context and baggage unless told otherwise.
        """
        self._tracer = trace.get_tracer(SYSTEM, version(SYSTEM), tracer_provider)
        self._propagator = propagator
        self._reader = Reader()
        self._told = Told()
        meter = metrics.get_meter(SYSTEM, version(SYSTEM), meter_provider)
        self._moves: dict[str, Callable[..., None]] = {metric.name: _made(metric, meter) for metric in EVENTS}
        self._attributes: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
        for metric in SAMPLES:
            make = meter.create_observable_counter if metric.kind == "total" else meter.create_observable_gauge
            make(metric.otel, [self._observer(metric)], metric.unit, metric.help)

    # --- metrics -----------------------------------------------------------------------------------------------------

    def record(self, measurement: Measurement, /) -> None:
        """Move the metrics."""
        for metric, value, labels in self._reader.read(measurement):
            key = (metric.name, labels)
            attributes = self._attributes.get(key)
            if attributes is None:
                attributes = self._attributes[key] = _attributes_of(metric, labels)
            self._moves[metric.name](value, attributes)

    def _observer(self, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            return [
                metrics.Observation(value, _attributes_of(metric, labels))
                for of, value, labels in self._reader.samples()
                if of is metric
            ]

        return observe

    # --- spans -------------------------------------------------------------------------------------------------------

    def around_enqueue(self, call: JobCall[Any]) -> Iterator[JobCall[Any]]:
        """Be a producer's span: of one job until the server has answered, of one of many while it is made."""
        attributes = {**_operation(call.queue, "send"), "echomq.task": call.task}
        with self._tracer.start_as_current_span(
            f"send {call.queue}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield self._with_context(call, span)

    def _with_context(self, call: JobCall[Any], span: Span) -> JobCall[Any]:
        carrier: dict[str, str] = {}
        self._textmap.inject(carrier)
        if not carrier:
            return call
        try:
            return call.with_headers(carrier)
        except (InvalidJobError, TypeError) as error:
            # Baggage of many kilobytes, say: a job without a trace is better than none.
            if self._told.is_new(str(error)):
                _log.warning("trace_context_not_sent", task=call.task, error=str(error))
            span.add_event("echomq.trace_context_not_sent")
            return call

    async def around_handling(self, job: Job | JobBatch[Any], call: HandlerCall) -> Any:
        """Be a consumer's span around a handler, of a batch around all of it."""
        attributes: dict[str, str | int] = {**_operation(job.queue, "process")}
        parent, links = Context(), []
        if isinstance(job, JobBatch):
            attributes["messaging.batch.message_count"] = len(job.items)
            task = job.items[0].record.task
            links = [link for item in job.items for link in self._links(_headers(item))]
        else:
            attributes |= {"messaging.message.id": job.id, "echomq.attempt": job.token}
            if job.record.lane:
                attributes["echomq.lane"] = job.record.lane
            task, headers = job.record.task, _headers(job)
            if job.record.schedule:
                links = self._links(headers)
            else:
                # Not in the context of whoever started the worker.
                parent = self._textmap.extract(headers, Context())
        attributes["echomq.task"] = task
        with self._tracer.start_as_current_span(
            f"process {job.queue}", parent, SpanKind.CONSUMER, attributes, links, record_exception=False,
            set_status_on_exception=False,
        ) as span:  # fmt: skip
            try:
                return await call()
            except anyio.get_cancelled_exc_class():
                _tell_stop(span, job)
                raise
            except NO_ERROR as said:
                span.set_attribute("echomq.verdict", type(said).__name__)
                raise
            except Exception as error:
                span.record_exception(error)
                span.set_attribute("error.type", type(error).__qualname__)
                span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
                raise

    @property
    def _textmap(self) -> TextMapPropagator:
        return propagate.get_global_textmap() if self._propagator is None else self._propagator

    def _links(self, headers: Mapping[str, str]) -> list[Link]:
        context = trace.get_current_span(self._textmap.extract(headers, Context())).get_span_context()
        return [Link(context)] if context.is_valid else []


def _operation(queue: str, operation: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.destination.name": queue,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }


def _headers(job: Any) -> Mapping[str, str]:
    try:
        headers: Mapping[str, str] = job.headers
    except DecodeError:  # a torn row: what it means for the job is not ours to say
        return {}
    return headers


def _tell_stop(span: Span, job: Job | JobBatch[Any]) -> None:
    """Say why a handler was stopped; that is an error if it took too long, or lost its lease."""
    reason = None if isinstance(job, JobBatch) else job.cancel_reason
    if reason is not None:
        span.set_attribute("echomq.stopped", reason)
        if reason in {"timeout", "lease_lost"}:
            span.set_attribute("error.type", reason)
            span.set_status(Status(StatusCode.ERROR, reason))


def _made(metric: Metric, meter: Meter) -> Callable[..., None]:
    if metric.kind == "counter":
        return meter.create_counter(metric.otel, metric.unit, metric.help).add
    buckets = metric.buckets or None
    return meter.create_histogram(
        metric.otel, metric.unit, metric.help, explicit_bucket_boundaries_advisory=buckets
    ).record


def _attributes_of(metric: Metric, labels: tuple[str, ...]) -> dict[str, str]:
    given = zip(metric.labels, labels, strict=True)
    attributes = {"messaging.system": SYSTEM}
    if metric.operation:
        attributes["messaging.operation.name"] = metric.operation
    return attributes | {_NAMES.get(name, f"echomq.{name}"): value for name, value in given if value}
