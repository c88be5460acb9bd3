"""The published rule for daylight saving, as a table: docs/how-to/schedules.md says it in words."""

from __future__ import annotations

import datetime as dt
from itertools import pairwise

import pytest

from echomq.protocol.times import from_unix_ms, unix_ms
from echomq.recurrence import Cron, Every

ZONES = ("America/New_York", "Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll", "America/Santiago")
BEGIN = unix_ms(dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
END = unix_ms(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
"""Two years that are over, so that no parliament can change them."""
DAY = 86_400_000

# Zone, expression, and the moments in UTC around a change of the clock: for each of the four changes of two years.
FIXED = (
    # New York leaves out 02:00-03:00 ...
    ("America/New_York", "30 2 * * *", "2024-03-09T07:30 2024-03-10T07:00 2024-03-11T06:30"),
    ("America/New_York", "30 2 * * *", "2025-03-08T07:30 2025-03-09T07:00 2025-03-10T06:30"),
    ("America/New_York", "15,45 2 * * *", "2024-03-09T07:15 2024-03-09T07:45 2024-03-10T07:00 2024-03-11T06:15"),
    ("America/New_York", "0 2,3 * * *", "2025-03-08T07:00 2025-03-08T08:00 2025-03-09T07:00 2025-03-10T06:00"),
    ("America/New_York", "30 2 10 3 *", "2024-03-10T07:00 2025-03-10T06:30"),
    # ... and repeats 01:00-02:00.
    ("America/New_York", "30 1 * * *", "2024-11-02T05:30 2024-11-03T05:30 2024-11-04T06:30"),
    ("America/New_York", "30 1 * * *", "2025-11-01T05:30 2025-11-02T05:30 2025-11-03T06:30"),
    ("America/New_York", "0 1,2 * * *", "2024-11-02T06:00 2024-11-03T05:00 2024-11-03T07:00 2024-11-04T06:00"),
    ("America/New_York", "0 0 * * *", "2024-03-10T05:00 2024-03-11T04:00 2024-03-12T04:00"),
    ("America/New_York", "0 0 * * *", "2024-11-03T04:00 2024-11-04T05:00 2024-11-05T05:00"),
    # Lord Howe repeats 01:30-02:00 and leaves out 02:00-02:30.
    ("Australia/Lord_Howe", "45 1 * * *", "2024-04-05T14:45 2024-04-06T14:45 2024-04-07T15:15"),
    ("Australia/Lord_Howe", "15 2 * * *", "2024-10-04T15:45 2024-10-05T15:30 2024-10-06T15:15"),
    ("Australia/Lord_Howe", "45 1 * * *", "2025-04-04T14:45 2025-04-05T14:45 2025-04-06T15:15"),
    ("Australia/Lord_Howe", "15 2 * * *", "2025-10-03T15:45 2025-10-04T15:30 2025-10-05T15:15"),
    ("Australia/Lord_Howe", "0 0 * * *", "2024-04-06T13:00 2024-04-07T13:30 2024-04-08T13:30"),
    ("Australia/Lord_Howe", "0 0 * * *", "2024-10-05T13:30 2024-10-06T13:00 2024-10-07T13:00"),
    # Chatham repeats 02:45-03:45, and leaves the same out.
    ("Pacific/Chatham", "0 3 * * *", "2024-04-05T13:15 2024-04-06T13:15 2024-04-07T14:15"),
    ("Pacific/Chatham", "0 3 * * *", "2024-09-27T14:15 2024-09-28T14:00 2024-09-29T13:15"),
    ("Pacific/Chatham", "0 3 * * *", "2025-04-04T13:15 2025-04-05T13:15 2025-04-06T14:15"),
    ("Pacific/Chatham", "0 3 * * *", "2025-09-26T14:15 2025-09-27T14:00 2025-09-28T13:15"),
    ("Pacific/Chatham", "0 0 * * *", "2024-04-06T10:15 2024-04-07T11:15 2024-04-08T11:15"),
    # Troll leaves out 01:00-03:00, and repeats them.
    ("Antarctica/Troll", "30 1,2 * * *", "2024-03-30T01:30 2024-03-30T02:30 2024-03-31T01:00 2024-03-31T23:30"),
    ("Antarctica/Troll", "30 1,2 * * *", "2024-10-26T23:30 2024-10-27T00:30 2024-10-28T01:30 2024-10-28T02:30"),
    ("Antarctica/Troll", "30 1,2 * * *", "2025-03-29T01:30 2025-03-29T02:30 2025-03-30T01:00 2025-03-30T23:30"),
    ("Antarctica/Troll", "30 1,2 * * *", "2025-10-25T23:30 2025-10-26T00:30 2025-10-27T01:30 2025-10-27T02:30"),
    ("Antarctica/Troll", "0 0 * * *", "2024-03-31T00:00 2024-03-31T22:00 2024-04-01T22:00"),
    # Santiago repeats the hour before midnight, and leaves out the one after it: a day without a midnight.
    ("America/Santiago", "30 23 * * *", "2024-04-06T02:30 2024-04-07T02:30 2024-04-08T03:30"),
    ("America/Santiago", "0 0 * * *", "2024-09-07T04:00 2024-09-08T04:00 2024-09-09T03:00"),
    ("America/Santiago", "30 23 * * *", "2025-04-05T02:30 2025-04-06T02:30 2025-04-07T03:30"),
    ("America/Santiago", "0 0 * * *", "2025-09-06T04:00 2025-09-07T04:00 2025-09-08T03:00"),
    ("America/Santiago", "0 0 * * *", "2024-04-06T03:00 2024-04-07T04:00 2024-04-08T04:00"),
    ("America/Santiago", "0,30 0 * * *", "2024-09-07T04:00 2024-09-07T04:30 2024-09-08T04:00 2024-09-09T03:00"),
)  # fmt: skip

# The same for what follows elapsed time: every real minute whose local time matches.
ELAPSED = (
    ("America/New_York", "*/30 2 * * *", "2024-03-09T07:00 2024-03-09T07:30 2024-03-11T06:00 2024-03-11T06:30"),
    ("America/New_York", "*/30 1 * * *", "2024-11-03T05:00 2024-11-03T05:30 2024-11-03T06:00 2024-11-03T06:30"),
    ("America/New_York", "0 */2 * * *", "2024-03-10T05:00 2024-03-10T08:00 2024-03-10T10:00"),
    ("America/New_York", "0 */2 * * *", "2024-11-03T04:00 2024-11-03T07:00 2024-11-03T09:00"),
    ("America/New_York", "30 * * * *", "2024-11-03T05:30 2024-11-03T06:30 2024-11-03T07:30"),
    ("Australia/Lord_Howe", "0 * * * *", "2024-10-05T14:30 2024-10-05T16:00 2024-10-05T17:00"),
    ("Australia/Lord_Howe", "0 * * * *", "2024-04-06T14:00 2024-04-06T15:30 2024-04-06T16:30"),
    ("Australia/Lord_Howe", "45 * * * *", "2024-04-06T14:45 2024-04-06T15:15 2024-04-06T16:15"),
    ("Antarctica/Troll", "*/30 1 * * *", "2024-10-26T23:00 2024-10-26T23:30 2024-10-27T01:00 2024-10-27T01:30"),
    ("America/Santiago", "*/30 0 * * *", "2024-09-07T04:00 2024-09-07T04:30 2024-09-09T03:00 2024-09-09T03:30"),
)  # fmt: skip


def moments(text: str) -> list[int]:
    """Read moments in UTC."""
    return [unix_ms(dt.datetime.fromisoformat(each).replace(tzinfo=dt.UTC)) for each in text.split()]


def walk(rule: Cron | Every, begin: int = BEGIN, end: int = END) -> list[int]:
    """Answer all slots from a moment on, until another."""
    found, at = [], begin - 1
    while (slot := rule.next(at)) is not None and slot < end:
        assert slot > at, "a series rises"
        found.append(slot)
        at = slot
    return found


def shown(slots: list[int]) -> str:
    """Spell moments as the tables do."""
    return " ".join(from_unix_ms(slot).strftime("%Y-%m-%dT%H:%M") for slot in slots)


@pytest.mark.parametrize(("zone", "expression", "expected"), FIXED + ELAPSED)
def test_cron_at_a_change_of_the_clock(zone: str, expression: str, expected: str) -> None:
    """The slots around a change are those of the table, from both ends."""
    cron, slots = Cron(expression, zone), moments(expected)
    assert cron.elapsed is ((zone, expression, expected) in ELAPSED)
    assert shown(walk(cron, slots[0], slots[-1] + 1)) == expected
    back = [slots[-1]]
    while back[-1] > slots[0]:
        before = cron.previous(back[-1] - 1)
        assert before is not None
        back.append(before)
    assert shown(back[::-1]) == expected


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", ["30 1 * * *", "30 2 * * *", "0 3 * * *", "0 0 * * *", "30 23 * * *"])
def test_fixed_time_runs_once_a_day_for_two_years(zone: str, expression: str) -> None:
    """Neither a gap nor a repetition makes a day without its run, or with two; and going back finds the same slots."""
    cron = Cron(expression, zone)
    slots = walk(cron)
    days = [from_unix_ms(slot).astimezone(cron.zone).date() for slot in slots]
    begin = days[0]
    assert days == [begin + dt.timedelta(days=n) for n in range(len(days))]
    assert len(days) in {730, 731, 732}
    back = []
    at: int | None = END
    while at is not None and (at := cron.previous(at - 1)) is not None and at >= BEGIN:
        back.append(at)
    assert back[::-1] == slots


@pytest.mark.parametrize("zone", ZONES)
def test_hourly_runs_every_real_hour_for_two_years(zone: str) -> None:
    """An hour is an hour, but where the clock is set by half of one: there the minute is kept."""
    gaps = [(after - before) // 60_000 for before, after in pairwise(walk(Cron("0 * * * *", zone)))]
    odd = [gap for gap in gaps if gap != 60]
    assert odd == ([90] * 4 if zone == "Australia/Lord_Howe" else [])


@pytest.mark.parametrize("zone", ZONES)
def test_quarter_hours_have_no_gap_around_a_change(zone: str) -> None:
    """Every fifteen minutes is every fifteen real minutes, whatever the clock does."""
    cron = Cron("*/15 * * * *", zone)
    offsets = [(day, from_unix_ms(day).astimezone(cron.zone).utcoffset()) for day in range(BEGIN, END, DAY)]
    changes = [day for (day, before), (_, after) in pairwise(offsets) if before != after]
    assert len(changes) == 4
    for day in changes:
        slots = walk(cron, day - DAY, day + 2 * DAY)
        assert {after - before for before, after in pairwise(slots)} == {900_000}
        assert len(slots) == 3 * DAY // 900_000


@pytest.mark.prove
@pytest.mark.parametrize("zone", ZONES)
def test_quarter_hours_have_no_gap_in_two_years(zone: str) -> None:
    """So it is from the first to the last."""
    slots = walk(Cron("*/15 * * * *", zone))
    assert {after - before for before, after in pairwise(slots)} == {900_000}
    assert len(slots) == (END - BEGIN) // 900_000


@pytest.mark.parametrize("seconds", [900, 3600, 86400, 0.1, 7 * 3600 + 13])
def test_interval_has_no_gap_in_two_years(seconds: float) -> None:
    """An interval is in UTC: always the same distance, at multiples of it."""
    every = Every(round(seconds * 1000))
    end = min(END, BEGIN + 10_000 * every.interval_ms)
    slots = walk(every, BEGIN, end)
    assert {after - before for before, after in pairwise(slots)} == {every.interval_ms}
    assert {slot % every.interval_ms for slot in slots} == {0}
    assert slots == [slot for at in slots if (slot := every.previous(at + every.interval_ms - 1)) is not None]


@pytest.mark.parametrize("zone", ["Pacific/Apia", "Pacific/Kwajalein"])
def test_day_that_was_left_out_runs_once_at_its_end(zone: str) -> None:
    """Where a whole day was skipped, its fixed times are one run at the moment the next day began."""
    cron = Cron("0 6,18 * * *", zone)
    begin = {"Pacific/Apia": dt.datetime(2011, 12, 29, tzinfo=cron.zone)}.get(
        zone, dt.datetime(1993, 8, 20, tzinfo=cron.zone)
    )
    slots = walk(cron, unix_ms(begin), unix_ms(begin) + 3 * 86_400_000)
    local = [from_unix_ms(slot).astimezone(cron.zone) for slot in slots]
    assert [(each.day, each.hour) for each in local[:5]] == [
        (begin.day, 6), (begin.day, 18), (begin.day + 2, 0), (begin.day + 2, 6), (begin.day + 2, 18)
    ]  # fmt: skip
