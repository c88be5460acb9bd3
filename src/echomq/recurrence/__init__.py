"""When a recurring schedule has its slots: pure functions of a definition and a moment, without a clock."""

from __future__ import annotations

from echomq.recurrence.cron import Cron
from echomq.recurrence.every import Every
from echomq.recurrence.rule import MISSED_POLICIES, Due, Missed, Recurrence, UnreadableSpecError

__all__ = ["MISSED_POLICIES", "Cron", "Due", "Every", "Missed", "Recurrence", "UnreadableSpecError"]
