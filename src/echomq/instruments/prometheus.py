"""An instrument for Prometheus: `pip install 'echomq[prometheus]'`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

try:
    import prometheus_client
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "prometheus_client":
        raise
    raise ModuleNotFoundError(
        "PrometheusInstrument needs prometheus-client: pip install 'echomq[prometheus]'", name=error.name
    ) from None

from echomq.instruments.metrics import EVENTS, SAMPLES, Reader
from echomq.protocol._convert import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from prometheus_client import CollectorRegistry

    from echomq.instruments.measurements import Measurement
    from echomq.instruments.metrics import Metric

_KINDS: Final[dict[str, type[Any]]] = {
    "counter": prometheus_client.Counter,
    "histogram": prometheus_client.Histogram,
}


@final
class PrometheusInstrument:
    """Keeps the metrics of the reference in a registry of `prometheus_client`.

    A worker shows them at `/metrics` of its health port. A producer shows its registry as it does anyway.
    """

    def __init__(self, *, registry: CollectorRegistry | None = None) -> None:
        """Register the metrics.

        Args:
            registry: Where; None: the one of the process, `prometheus_client.REGISTRY`.

        Raises:
            TypeError: It is no registry.
            ValueError: They are there already: make one instrument a registry, and give it to all apps.
        """
        if registry is not None and not isinstance(registry, prometheus_client.CollectorRegistry):
            raise TypeError(f"registry is a prometheus_client.CollectorRegistry, or None, not {shown(registry)}")
        self.registry: CollectorRegistry = prometheus_client.REGISTRY if registry is None else registry
        """Where the metrics are."""
        self._reader = Reader()
        try:
            self._families = {metric.name: _made(metric, self.registry) for metric in EVENTS}
        except ValueError as error:
            raise ValueError(
                f"the registry has metrics of these names: share one PrometheusInstrument among apps, or give each a "
                f"registry of its own, registry=CollectorRegistry(): {error}"
            ) from error
        self._moves: dict[tuple[str, tuple[str, ...]], Callable[[float], None]] = {}
        self.registry.register(_Samples(self._reader))

    def record(self, measurement: Measurement, /) -> None:
        """Move the metrics."""
        for metric, value, labels in self._reader.read(measurement):
            key = (metric.name, labels)
            move = self._moves.get(key)
            if move is None:
                move = self._moves[key] = self._move(metric, labels)
            move(value)

    def expose(self) -> bytes:
        """Answer the registry as text."""
        return prometheus_client.generate_latest(self.registry)

    def _move(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], None]:
        family = self._families[metric.name]
        child = family.labels(*labels) if labels else family
        move: Callable[[float], None] = child.observe if metric.kind == "histogram" else child.inc
        return move


def _made(metric: Metric, registry: CollectorRegistry) -> Any:
    more = {"buckets": metric.buckets} if metric.buckets else {}
    return _KINDS[metric.kind](metric.name, metric.help, metric.labels, registry=registry, **more)


@final
class _Samples(Collector):
    """What the latest samples say: a lane or queue that is gone from them is gone from here."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def collect(self) -> Iterable[Any]:
        """Make the families."""
        families: dict[str, Any] = {
            metric.name: (CounterMetricFamily if metric.kind == "total" else GaugeMetricFamily)(
                metric.name, metric.help, labels=metric.labels
            )
            for metric in SAMPLES
        }
        for metric, value, labels in self._reader.samples():
            families[metric.name].add_metric(labels, value)
        return families.values()
