"""`/metrics`: what Prometheus scrapes from a worker."""

from __future__ import annotations

import sys
import time
import urllib.request
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from echomq.app import App
from echomq.instruments import Instruments, StructlogInstrument
from echomq.instruments.metrics import METRICS
from echomq.instruments.opentelemetry import OpenTelemetryInstrument
from echomq.sync import Client
from echomq.worker.health import answer
from echomq.worker.metrics import COUNTERS, GAUGES, Metrics
from echomq.worker.statistics import Counters, WorkerStatistics
from tests.unit.test_instruments import families, named, samples
from tests.worker.processes import worker_process


def said() -> WorkerStatistics:
    """Make statistics."""
    return WorkerStatistics(
        ready=True, running=1, unsettled=2, renewals=3, lag=0.0, counters=Counters(claimed=4, parked=0.5)
    )


def test_metrics_of_a_worker_process_and_its_trace(server_url: str, queue_name: str) -> None:
    """A real worker is scraped over HTTP and parsed; its spans carry on the trace that the producer began."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = App(server_url, instruments=[OpenTelemetryInstrument(tracer_provider=provider)])
    work: Any = app.task_stub("work", queue=queue_name, result_ttl=60)
    options = ("--health-port", "0", "--sample-every", "0.1", "--sample-lanes", "10")
    with worker_process(server_url, queue_name, *options, app="tests.worker.measured_jobs:app") as worker:
        port = worker.wait_for("health_listening")["port"]
        with Client(server_url) as client:
            client.enqueue(work.call())
            client.enqueue(work.options(max_attempts=1, lane="acme").call("wrong"))
        spans = exporter.get_finished_spans()
        assert [span.name for span in spans] == [f"send {queue_name}"] * 2
        for span in spans:
            assert span.context is not None
            worker.wait_told(f"span process {span.context.trace_id:032x} {span.context.span_id:016x}")

        def scrape() -> dict[frozenset[str], float]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as reply:
                assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
                text = reply.read()
            assert families(text).keys() >= {metric.name for metric in METRICS}
            return samples(text)

        until = time.monotonic() + 15
        while (found := scrape()).get(named("echomq_queue_events_total", queue_name, "dead")) != 1:
            assert time.monotonic() < until, found
            time.sleep(0.05)
    assert found[named("echomq_worker_ready")] == 1
    assert found[named("echomq_worker_claimed_total")] == 2
    assert found[named("echomq_jobs_total", queue_name, "work", "completed")] == 1
    assert found[named("echomq_jobs_total", queue_name, "work", "dead")] == 1
    assert found[named("echomq_run_seconds_count", queue_name, "work")] == 2
    assert found[named("echomq_queue_jobs", queue_name, "done")] == 1


def test_metrics_without_a_prometheus_instrument() -> None:
    """The worker's own statistics, all of them."""
    text = Metrics(said, Instruments([StructlogInstrument()])).text()
    assert text is not None
    found = samples(text)
    assert found[named("echomq_worker_running")] == 1
    assert found[named("echomq_worker_claimed_total")] == 4
    assert found[named("echomq_worker_renewals_total")] == 3
    assert found[named("echomq_worker_parked_total")] == 0.5
    assert families(text).keys() == {f"echomq_worker_{name}" for name in (*GAUGES, *COUNTERS)}
    told = answer(b"GET", b"/metrics", said, "me", lambda: text)
    assert (told.status, told.kind) == (200, b"text/plain; version=0.0.4; charset=utf-8")
    assert told.body == text


def test_metrics_without_prometheus_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Says what to install."""
    for module in [each for each in sys.modules if each.partition(".")[0] == "prometheus_client"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    told = answer(b"GET", b"/metrics", said, "me", Metrics(said, Instruments()).text)
    assert told.status == 404
    assert b"pip install 'echomq[prometheus]'" in told.body
