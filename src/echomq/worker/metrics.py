"""Prometheus text of a worker: its own statistics, and what the app's instruments have to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import attrs

from echomq.worker.statistics import Counters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from echomq.instruments import Instruments
    from echomq.worker.statistics import WorkerStatistics

GAUGES: Final = {
    "ready": "1 if it takes work, as /ready says",
    "running": "Jobs whose handlers run now",
    "unsettled": "Verdicts that the server has not answered",
}
"""What is told of a worker's statistics as a gauge, `echomq_worker_...`."""
COUNTERS: Final = ("renewals", *(field.name for field in attrs.fields(Counters)))
"""What is told as a counter, `echomq_worker_..._total`."""


@final
class Metrics:
    """What `/metrics` says."""

    def __init__(self, statistics: Callable[[], WorkerStatistics], instruments: Instruments) -> None:
        """Prepare it.

        Args:
            statistics: How the worker is.
            instruments: What is shown with it.
        """
        self._statistics = statistics
        self._instruments = instruments

    def text(self) -> bytes | None:
        """Make the text; None without prometheus-client."""
        try:
            from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra
        except ModuleNotFoundError:
            return self._instruments.expose()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry) + (self._instruments.expose() or b"")

    def collect(self) -> Iterator[Any]:
        """Make the families of the worker's own statistics."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - as above

        now = self._statistics()
        for name, words in GAUGES.items():
            yield GaugeMetricFamily(f"echomq_worker_{name}", words, float(getattr(now, name)))
        for name in COUNTERS:
            value = now.renewals if name == "renewals" else getattr(now.counters, name)
            words = f"Of the worker's statistics: {name}"
            yield CounterMetricFamily(f"echomq_worker_{name}", words, float(value))
