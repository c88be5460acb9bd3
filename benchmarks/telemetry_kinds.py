"""The instruments that are measured. Imported only by a side that has one."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from echomq.instruments import StructlogInstrument
from echomq.instruments.opentelemetry import OpenTelemetryInstrument
from echomq.instruments.prometheus import PrometheusInstrument


class Nowhere(SpanExporter):
    """Sending spans is somebody else's cost."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def make(name: str) -> Any:
    """Make one by the name that the table has."""
    match name:
        case "structlog":
            return StructlogInstrument(level="info")
        case "structlog, filtered":
            return StructlogInstrument()
        case "prometheus":
            return PrometheusInstrument()
        case "opentelemetry":
            tracer_provider = TracerProvider()
            tracer_provider.add_span_processor(BatchSpanProcessor(Nowhere()))
            return OpenTelemetryInstrument(
                tracer_provider=tracer_provider, meter_provider=MeterProvider([InMemoryMetricReader()])
            )
    raise ValueError(name)
