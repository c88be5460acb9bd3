"""An app whose worker processes are measured: metrics at their health port, spans told through a list on the server."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from prometheus_client import CollectorRegistry

from echomq.app import App
from echomq.instruments.opentelemetry import OpenTelemetryInstrument
from echomq.instruments.prometheus import PrometheusInstrument
from tests.worker.jobs_app import QUEUE, tell


class Told(SpanExporter):
    """Says which spans have ended."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Say it."""
        for span in spans:
            assert span.context is not None
            parent = "" if span.parent is None else f"{span.parent.span_id:016x}"
            tell(f"span {span.name.partition(' ')[0]} {span.context.trace_id:032x} {parent}")
        return SpanExportResult.SUCCESS


provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(Told()))
app = App(
    instruments=[
        PrometheusInstrument(registry=CollectorRegistry()),
        OpenTelemetryInstrument(tracer_provider=provider),
    ]
)


@app.task(queue=QUEUE, result_ttl=60)
async def work(fail: str = "") -> None:
    """Do what is said."""
    if fail:
        raise ValueError(fail)
