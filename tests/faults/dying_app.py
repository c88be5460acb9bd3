"""The app of worker processes that are killed at the worst moment of a schedule: it was read, and is about to be fired."""

from __future__ import annotations

import os
import signal
from typing import Any

from echomq.worker import timetable
from tests.worker.jobs_app import app


def die(*_: Any, **__: Any) -> None:
    """Be killed, as by the kernel."""
    os.kill(os.getpid(), signal.SIGKILL)


vars(timetable)["schedule_fire"] = die

__all__ = ["app"]
