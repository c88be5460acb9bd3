"""Cron expressions: what they say, what is refused, and a brute-force oracle beside them."""

from __future__ import annotations

import datetime as dt
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.protocol.times import unix_ms
from echomq.recurrence import Cron
from echomq.recurrence.zones import change_between, find_zone, naive, offset_at

ZONES = (
    "America/New_York", "Australia/Lord_Howe", "Pacific/Chatham", "Antarctica/Troll", "America/Santiago", "Europe/Dublin",
    "Africa/Casablanca", "Asia/Kathmandu", "UTC",
)  # fmt: skip
BEGIN = 1_704_067_200  # 2024-01-01
DAY = 86_400


def at(text: str) -> int:
    """Read a moment in UTC."""
    return unix_ms(dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC))


# --- the oracle: every minute is looked at ---------------------------------------------------------------------------


def numbers(field: str, low: int, high: int) -> set[int]:
    """Read a field by itself."""
    found: set[int] = set()
    for term in field.split(","):
        body, _, step = term.partition("/")
        first, _, last = body.partition("-")
        if body == "*":
            begin, end = low, high
        else:
            begin = int(first)
            end = int(last) if last else (high if step else begin)
        found |= set(range(begin, end + 1, int(step or 1)))
    return found


class Oracle:
    """Finds slots by walking through real minutes, and asking the zone what each of them shows."""

    def __init__(self, expression: str, zone: str) -> None:
        self.minute, self.hour, self.day, self.month, self.weekday = expression.split()
        self.minutes, self.hours = numbers(self.minute, 0, 59), numbers(self.hour, 0, 23)
        self.days, self.months = numbers(self.day, 1, 31), numbers(self.month, 1, 12)
        self.weekdays = {number % 7 for number in numbers(self.weekday, 0, 7)}
        self.zone = find_zone(zone)

    def fits(self, wall: int) -> bool:
        """Tell whether a wall time matches."""
        shows = naive(wall)
        day, weekday = shows.day in self.days, shows.isoweekday() % 7 in self.weekdays
        both = self.day.startswith("*") or self.weekday.startswith("*")
        return (
            shows.minute in self.minutes and shows.hour in self.hours and shows.month in self.months
            and (day and weekday if both else day or weekday)
        )  # fmt: skip

    def slots(self, begin: int, end: int) -> list[int]:
        """Answer the slots of some days, seconds."""
        elapsed = self.hour.startswith("*") or "*" in self.minute or "/" in self.minute
        found, latest = [], begin - 60 + offset_at(self.zone, begin - 60)
        for now in range(begin, end, 60):
            wall = now + offset_at(self.zone, now)
            # What the clock shows; or what it shows for the first time, and what it has jumped over to get there.
            walls = [wall] if elapsed else range(latest + 60, wall + 1, 60)
            if any(map(self.fits, walls)):
                found.append(now)
            latest = max(latest, wall)
        return found


@lru_cache
def changes(zone: str) -> list[int]:
    """Answer when a zone's clock is set in two years."""
    found, where = [], find_zone(zone)
    for begin in range(BEGIN, BEGIN + 731 * DAY, DAY // 4):
        end = begin + DAY // 4
        if offset_at(where, begin) != offset_at(where, end):
            found.append(change_between(where, begin, end))
    return found


def field(low: int, high: int) -> st.SearchStrategy[str]:
    """Make a field of an expression."""
    number = st.integers(low, high)
    lists = st.lists(number, min_size=1, max_size=3).map(lambda each: ",".join(map(str, each)))
    ranges = st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}")
    bodies = st.sampled_from(["*", str(low), f"{low}-{high}"])
    steps = st.tuples(bodies, st.integers(1, high)).map(lambda pair: f"{pair[0]}/{pair[1]}")
    return st.one_of(st.just("*"), lists, ranges, steps)


@given(
    zone=st.sampled_from(ZONES),
    fields=st.tuples(
        field(0, 59),
        field(0, 23),
        st.one_of(st.just("*"), field(1, 28)),
        st.just("*"),
        st.one_of(st.just("*"), field(0, 6)),
    ),
    which=st.integers(0, 7),
    asked=st.lists(st.integers(0, 5 * DAY * 1000 - 1), max_size=20),
)
def test_cron_agrees_with_looking_at_every_minute(
    zone: str, fields: tuple[str, ...], which: int, asked: list[int]
) -> None:
    """Around any change of the clock, and in a zone without, next and previous find what the oracle finds."""
    expression = " ".join(fields)
    set_at = changes(zone)
    middle = set_at[which % len(set_at)] if set_at else BEGIN + which * 45 * DAY
    begin = (middle - 2 * DAY) // 60 * 60
    end = begin + 5 * DAY
    expected = Oracle(expression, zone).slots(begin, end)
    cron = Cron(expression, zone)
    found, now = [], begin * 1000 - 1
    while (slot := cron.next(now)) is not None and slot < end * 1000:
        found.append(slot // 1000)
        now = slot
    assert found == expected
    for offset in asked:
        now = begin * 1000 + offset
        after = [slot for slot in expected if slot * 1000 > now]
        before = [slot for slot in expected if slot * 1000 <= now]
        slot = cron.next(now)
        assert slot == after[0] * 1000 if after else slot is None or slot >= end * 1000
        slot = cron.previous(now)
        assert slot == before[-1] * 1000 if before else slot is None or slot < begin * 1000


# --- what is read -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("0 0 29 2 *", "2024-02-29T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 L * *", "2023-02-01T00:00", "2023-02-28T00:00"),
        ("0 0 LW * *", "2024-06-01T00:00", "2024-06-28T00:00"),
        ("0 9 * * MON-FRI", "2024-06-07T09:00", "2024-06-10T09:00"),
        ("0 9 * * mon#1", "2024-06-03T09:00", "2024-07-01T09:00"),
        ("0 0 * 2 MON#5", "2024-01-01T00:00", "2044-02-29T00:00"),
        ("0 0 13 * FRI", "2024-06-01T00:00", "2024-06-07T00:00"),  # either: a day given twice is two chances
        ("0 0 * * 7", "2024-06-01T00:00", "2024-06-02T00:00"),
        ("@daily", "2024-06-01T12:00", "2024-06-02T00:00"),
        ("@HOURLY", "2024-06-01T12:00", "2024-06-01T13:00"),
        ("*/7 * * * *", "2024-06-01T12:56", "2024-06-01T13:00"),
    ],
)
def test_cron_reads_the_usual_forms(expression: str, after: str, expected: str) -> None:
    """Names, lists, steps, the last day, the n-th weekday, and a leap day that is years away."""
    cron = Cron(expression)
    assert cron.next(at(after)) == at(expected)
    assert cron.previous(at(expected)) == at(expected)


def test_cron_is_spelled_one_way() -> None:
    """The same expression in another spelling is the same definition."""
    assert Cron(" 0  9 * * mon-fri ").expression == "0 9 * * MON-FRI"
    assert Cron("@weekly") == Cron("0 0 * * 0")


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("0 0 31 2 *", "fits no day"),
        ("0 0 30 2 *", "fits no day"),
        ("0 0 31 4,6,9,11 *", "fits no day"),
        ("60 * * * *", "minute cannot be '60'"),
        ("* 24 * * *", "hour cannot be '24'"),
        ("* * 0 * *", "day-of-month cannot be '0'"),
        ("* * * 13 *", "month cannot be '13'"),
        ("* * * * 8", "day-of-week cannot be '8'"),
        ("*/0 * * * *", "minute cannot be '\\*/0'"),
        ("5-1 * * * *", "minute cannot be '5-1'"),
        ("* * * * FOO", "day-of-week cannot be 'FOO'"),
        ("0 0 * * * *", "six fields, which elsewhere means seconds"),
        ("* * * *", "five fields"),
        ("", "five fields"),
        ("@reboot", "five fields"),
        ("* " * 200, "five fields"),
    ],
)
def test_cron_refuses_by_name(expression: str, words: str) -> None:
    """One clear error names what cannot be."""
    with pytest.raises(ValueError, match=words) as caught:
        Cron(expression)
    assert repr(expression[:30])[:-1] in str(caught.value)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "America", "../etc/passwd", "", "Europe/Berlin\0", "europe berlin"])
def test_cron_refuses_an_unknown_zone(zone: str) -> None:
    """One clear error names the zone, whatever zoneinfo makes of it."""
    with pytest.raises(ValueError, match="there is no time zone") as caught:
        Cron("* * * * *", zone)
    assert repr(zone) in str(caught.value)


def test_cron_refuses_other_types() -> None:
    """What is no text is a TypeError."""
    with pytest.raises(TypeError, match="cron expression is text"):
        Cron(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="named by text"):
        Cron("* * * * *", None)  # type: ignore[arg-type]


@given(st.text(alphabet="0123456789*/-,#LWMONFRI @", max_size=40))
def test_cron_reads_or_refuses_anything(text: str) -> None:
    """Whatever is typed either has slots or is a ValueError."""
    try:
        cron = Cron(text)
    except ValueError:
        return
    slot = cron.next(at("2024-01-01T00:00"))
    assert slot is None or cron.previous(slot) == slot


def test_range_of_one_value_with_a_step_is_that_value() -> None:
    """As in Debian's cron; the library alone would step on from it."""
    rule = Cron("0 5-5/2,7 * * *", "UTC")
    assert rule.expression == "0 5,7 * * *"
    assert Cron("10-10/3 * * * mon-mon/2", "UTC").expression == "10 * * * MON"
    assert Cron("1-11/5 * * * *", "UTC").expression == "1-11/5 * * * *"
