"""What stops enqueueing many."""

from __future__ import annotations

from echomq._bulk import broken_by
from echomq.errors import InvalidJobError, UnavailableError


def test_outage_stops_all_that_come_after_it() -> None:
    """Also when the last answers of a queue are about jobs that were refused here."""
    outage = UnavailableError("away", sent=False)
    assert broken_by([None, outage, InvalidJobError("too large")]) is outage
    assert broken_by([None, InvalidJobError("too large")]) is None
    assert broken_by([]) is None
