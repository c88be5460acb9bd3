"""Instruments by themselves: errors stay inside, names are bounded, and what is not installed says what to install."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from echomq.app import App
from echomq.instruments import (
    Instruments,
    JobClaimed,
    JobEnqueued,
    JobSettled,
    LoopTicked,
    Parked,
    QueueSampled,
    StructlogInstrument,
)
from echomq.instruments import metrics as table
from echomq.instruments.metrics import METRICS, OTHER, Reader
from echomq.instruments.prometheus import PrometheusInstrument
from echomq.lanes import LaneInfo

SETTLED = JobSettled("mail", "send", "acme", "JOB0", 2, "completed", 0.25, 0.001, 3.0, "")


def families(text: bytes) -> dict[str, Any]:
    """Parse Prometheus text; a name that is there twice fails."""
    found = list(text_string_to_metric_families(text.decode()))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def samples(text: bytes) -> dict[frozenset[str], float]:
    """Answer the values by what each says: its name, and its labels' values."""
    return {
        frozenset({sample.name, *sample.labels.values()}): sample.value
        for family in families(text).values()
        for sample in family.samples
    }


def named(*words: str) -> frozenset[str]:
    """Name a value of `samples`."""
    return frozenset(words)


def make_sample(*, lanes: tuple[str, ...] = ()) -> QueueSampled:
    """Make a sample."""
    more: dict[str, Any] = {"weight": 1, "limit": None, "rate": None, "paused": False, "closed": (), "again_in": None}
    return QueueSampled(
        queue="mail",
        at=1e9,
        jobs={"pending": 3, "dead": 1},
        paused=True,
        oldest=2.5,
        totals={"stalled": 4},
        lanes=tuple(LaneInfo(name=name, pending=2, active=1 if name else None, oldest=1.0, **more) for name in lanes),
    )


class Broken:
    """Raises whatever it is given."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.calls = 0

    def record(self, measurement: Any) -> None:
        """Fail."""
        self.calls += 1
        raise self.error

    def expose(self) -> bytes:
        """Fail."""
        raise self.error


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), GeneratorExit()])
def test_instrument_that_raises_is_told_of_once(error: BaseException) -> None:
    """Nothing comes out, the others are told, and it is called again the next time."""
    seen: list[Any] = []

    class Well:
        def record(self, measurement: Any) -> None:
            seen.append(measurement)

    broken = Broken(error)
    instruments = Instruments([broken, Well()])
    with capture_logs() as logs:
        for _ in range(3):
            instruments.record(Parked(1.0))
        assert instruments.expose() is None
    assert [line["event"] for line in logs] == ["instrument_failed"]
    assert broken.calls == len(seen) == 3


def test_instrument_is_not_asked_to_stop_ctrl_c() -> None:
    """A person's interrupt passes."""
    with pytest.raises(KeyboardInterrupt):
        Instruments([Broken(KeyboardInterrupt())]).record(Parked(1.0))


@pytest.mark.parametrize("given", [object(), StructlogInstrument, None])
def test_instrument_has_a_record(given: Any) -> None:
    """What cannot be told anything is refused, by name, before anything is opened."""
    with pytest.raises(TypeError, match=re.escape(repr(given))):
        App(instruments=[given])


@pytest.mark.parametrize("given", [None, StructlogInstrument(), 1])
def test_instruments_are_several(given: Any) -> None:
    """A bare one, or none, is told so."""
    with pytest.raises(TypeError, match=rf"instruments are several.*{re.escape(repr(given))}"):
        App(instruments=given)


def test_prometheus_has_one_instrument_a_registry() -> None:
    """A second one is told what to do; what is no registry, too."""
    registry = CollectorRegistry()
    PrometheusInstrument(registry=registry)
    with pytest.raises(ValueError, match=r"share one PrometheusInstrument.*registry=.*Duplicated"):
        PrometheusInstrument(registry=registry)
    with pytest.raises(TypeError, match="'x'"):
        PrometheusInstrument(registry="x")  # type: ignore[arg-type]


def test_no_instruments_are_falsy() -> None:
    """What nobody takes is not to be measured; nor does it put anything around enqueues."""
    assert not Instruments()
    assert not App().around_enqueue
    assert not App().around_handling
    assert App(instruments=[StructlogInstrument()]).around_enqueue


def test_prometheus_shows_what_was_measured() -> None:
    """By the names of the table, through a real parser."""
    instrument = PrometheusInstrument(registry=CollectorRegistry())
    for measurement in (
        SETTLED,
        JobSettled("mail", "send", "", "JOB1", 1, "refused", None, None, None, "EMQSTALE"),
        JobClaimed("mail", "send", "", "JOB0", 2, 0.5),
        JobEnqueued("mail", "send", 0.002, ""),
        JobEnqueued("mail", "send", None, "echomq.errors.QueueFullError"),
        LoopTicked(0.7),
        Parked(1.5),
        make_sample(lanes=("acme", "")),
    ):
        instrument.record(measurement)
    found = samples(instrument.expose())
    assert found[named("echomq_jobs_total", "mail", "send", "completed")] == 1
    assert found[named("echomq_jobs_total", "mail", "send", "refused")] == 1
    assert found[named("echomq_fence_refusals_total", "mail", "EMQSTALE")] == 1
    assert found[named("echomq_run_seconds_count", "mail", "send")] == 1
    assert found[named("echomq_run_seconds_sum", "mail", "send")] == 0.25
    assert found[named("echomq_attempts_bucket", "mail", "send", "1.0")] == 0
    assert found[named("echomq_attempts_bucket", "mail", "send", "2.0")] == 1
    assert found[named("echomq_queue_wait_seconds_sum", "mail", "send")] == 0.5
    assert found[named("echomq_enqueues_total", "mail", "send", "echomq.errors.QueueFullError")] == 1
    assert found[named("echomq_enqueue_seconds_count", "mail", "send")] == 1
    assert found[named("echomq_loop_lag_seconds_bucket", "0.5")] == 0
    assert found[named("echomq_parked_seconds_total")] == 1.5
    assert found[named("echomq_queue_jobs", "mail", "pending")] == 3
    assert found[named("echomq_queue_events_total", "mail", "stalled")] == 4
    assert found[named("echomq_queue_paused", "mail")] == 1
    assert found[named("echomq_lane_jobs", "mail", "acme", "active")] == 1
    assert named("echomq_lane_jobs", "mail", "", "active") not in found
    shown = {name for name in families(instrument.expose()) if not name.endswith("_created")}
    assert shown == {metric.name for metric in METRICS}


def test_prometheus_forgets_lanes_that_are_gone() -> None:
    """A gauge of an empty lane would lie for ever."""
    instrument = PrometheusInstrument(registry=CollectorRegistry())
    instrument.record(make_sample(lanes=("acme",)))
    assert named("echomq_lane_jobs", "mail", "acme", "pending") in samples(instrument.expose())
    instrument.record(make_sample())
    assert not [key for key in samples(instrument.expose()) if "acme" in key]


def test_tasks_are_told_apart_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever writes names into rows does not fill the monitoring's memory."""
    monkeypatch.setattr(table, "MOST", 2)
    reader = Reader()
    named = [reader.read(JobClaimed("mail", task, "", "JOB0", 1, 0.0))[0][2][1] for task in ("a", "b", "c", "a", "d")]
    assert named == ["a", "b", OTHER, "a", OTHER]


@pytest.mark.parametrize("level", ["debug", "info"])
def test_structlog_writes_a_line_a_job(level: Any) -> None:
    """With what is known, and nothing that is not."""
    instrument = StructlogInstrument(level=level)
    with capture_logs() as logs:
        instrument.record(SETTLED)
        instrument.record(JobEnqueued("mail", "send", None, ""))
        instrument.record(Parked(1.0))
        instrument.record(make_sample(lanes=("acme",)))
    settled, enqueued, sampled, lane = logs
    assert settled == {
        "event": "job_settled", "log_level": level, "queue": "mail", "task": "send", "lane": "acme", "job": "JOB0",
        "attempt": 2, "outcome": "completed", "ran": 0.25, "settled": 0.001, "lasted": 3.0,
    }  # fmt: skip
    assert enqueued == {"event": "job_enqueued", "log_level": level, "queue": "mail", "task": "send"}
    assert (sampled["pending"], sampled["oldest"], sampled["log_level"]) == (3, 2.5, "info")
    assert (lane["lane"], lane["pending"]) == ("acme", 2)


def test_structlog_has_two_levels() -> None:
    """Anything else is refused."""
    with pytest.raises(ValueError, match="'warning'"):
        StructlogInstrument(level="warning")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [("prometheus", "prometheus_client", "prometheus"), ("opentelemetry", "opentelemetry", "opentelemetry")],
)
def test_missing_package_names_the_extra(name: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import says what to install; one that fails for another reason says that."""
    for module in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"echomq.instruments.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install 'echomq[{extra}]'")):
        importlib.import_module(f"echomq.instruments.{name}")
