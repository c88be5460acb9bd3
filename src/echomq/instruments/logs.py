"""An instrument that writes log lines: for programs whose logs are read by something that counts."""

from __future__ import annotations

from typing import Any, Final, Literal, final

import attrs

from echomq._logs import get_logger
from echomq.instruments.measurements import JobEnqueued, JobSettled, Measurement, QueueSampled

_log = get_logger("echomq.telemetry")
_LEVELS: Final = ("debug", "info")


@final
class StructlogInstrument:
    """Writes a line for each enqueue and each settled job, and one for each sample of a queue.

    Whoever reads the log can count and add up; nothing is summed up here, so nothing is lost when a process dies. What a
    worker warns of by itself (a lost lease, a late loop, a refused verdict, a connection) has a line already and gets no second one.
    """

    def __init__(self, *, level: Literal["debug", "info"] = "debug") -> None:
        """Make it.

        Args:
            level: With which level jobs are logged. The worker's command shows `debug` with `--log-level debug`. Samples are
                always `info`.

        Raises:
            ValueError: Another level.
        """
        if level not in _LEVELS:
            raise ValueError(f"level is 'debug' or 'info', not {level!r}")
        self._write = _log.debug if level == "debug" else _log.info

    def record(self, measurement: Measurement, /) -> None:
        """Write the line, if the measurement has one."""
        match measurement:
            case JobSettled():
                self._write("job_settled", **_values(measurement))
            case JobEnqueued():
                self._write("job_enqueued", **_values(measurement))
            case QueueSampled():
                facts = {"queue": measurement.queue, **measurement.jobs, "oldest": round(measurement.oldest, 3)}
                _log.info("queue_sampled", **facts, paused=measurement.paused)
                for lane in measurement.lanes:
                    _log.info(
                        "lane_sampled", queue=measurement.queue, lane=lane.name, pending=lane.pending, active=lane.active,
                        oldest=lane.oldest, paused=lane.paused,
                    )  # fmt: skip


def _values(measurement: JobSettled | JobEnqueued) -> dict[str, Any]:
    """Answer the fields that say something, as other lines name them."""
    fields = attrs.asdict(measurement, recurse=False)
    fields["job"] = fields.pop("id", "")
    return {
        name: round(value, 6) if type(value) is float else value
        for name, value in fields.items()
        if value not in {None, ""}
    }
