"""Errors that repeat."""

from __future__ import annotations

from echomq._logs import Told


def test_reason_is_told_once_for_each_subject_until_it_changes_or_is_over() -> None:
    """What is told for each try fills disks; what is told once for ever hides the second outage."""
    told = Told()
    assert [told.is_new("away", "a"), told.is_new("away", "a"), told.is_new("away", "b")] == [True, False, True]
    assert [told.is_new("refused", "a"), told.is_new("away", "a")] == [True, True]
    told.over("a")
    assert [told.is_new("away", "a"), told.is_new("away", "b")] == [True, False]
