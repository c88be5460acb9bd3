"""What queues and lanes may be told is checked before any I/O, and the error names the value."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import pytest

from echomq.lanes import LaneInfo
from echomq.limits import QueueSettings, Rate, lane_name, rate_limit, rate_of, spell_lane, spell_queue
from echomq.transitions import LaneState, Limits, RateLimit, Settings


def test_rate_is_seconds_here_and_milliseconds_there() -> None:
    """There is one place that converts, both ways."""
    rate = Rate(100, per=dt.timedelta(minutes=1), burst=10)
    assert (rate.count, rate.per, rate.burst) == (100, 60.0, 10)
    assert rate_limit(rate) == RateLimit(count=100, per_ms=60_000, burst=10)
    assert rate_of(rate_limit(rate)) == rate
    assert rate_of(None) is None
    assert (Rate(5).per, Rate(5).burst) == (1.0, 1)
    assert [str(Rate(5)), str(rate)] == ["5 per s", "100 per 60 s, 10 at once"]
    assert pickle.loads(pickle.dumps(rate)) == rate


@pytest.mark.parametrize(
    ("arguments", "error", "shown"),
    [
        ({"count": 0}, ValueError, "count .*0"),
        ({"count": 1_000_001}, ValueError, "1000001"),
        ({"count": 1.5}, TypeError, "count .*1.5"),
        ({"count": True}, TypeError, "True"),
        ({"count": 1, "per": 0}, ValueError, "per .*0"),
        ({"count": 1, "per": 86_401}, ValueError, "86401"),
        ({"count": 1, "per": float("nan")}, ValueError, "per: .*nan"),
        ({"count": 1, "per": "s"}, TypeError, "per: .*'s'"),
        ({"count": 1, "burst": 0}, ValueError, "burst .*0"),
        ({"count": 1, "burst": None}, TypeError, "burst .*None"),
    ],
)
def test_rate_refuses_what_is_none(arguments: dict[str, Any], error: type[Exception], shown: str) -> None:
    """The message says which value, and shows it."""
    with pytest.raises(error, match=shown):
        Rate(**arguments)


def test_settings_are_spelled_and_none_clears() -> None:
    """What is not named is not sent."""
    assert spell_queue({"limit": 5, "rate": Rate(2, burst=3)}) == {"limit": "5", "rate": "2 1000 3"}
    assert spell_queue({"events": "all", "max_size": 10**12}) == {"events": "all", "max_size": "1000000000000"}
    assert spell_queue({"dead_max": 5, "dead_age": dt.timedelta(days=1), "done_max": 10**9}) == {
        "dead_max": "5",
        "dead_age": "86400000",
        "done_max": "1000000000",
    }
    assert spell_queue({"events": None, "limit": None}) == {"events": "", "limit": ""}
    assert spell_lane("a", {"weight": 1000, "limit": 1, "rate": None}) == {"weight": "1000", "limit": "1", "rate": ""}
    assert spell_lane("", {"limit": None, "weight": 2}) == {"limit": "", "weight": "2"}


@pytest.mark.parametrize(
    ("lane", "given", "error", "shown"),
    [
        (None, {}, TypeError, "events, events_max, limit, rate, max_size, dead_max, dead_age, done_max"),
        (None, {"dead_max": 0}, ValueError, "dead_max .*0"),
        (None, {"done_max": 10**9 + 1}, ValueError, "done_max"),
        (None, {"dead_age": 0}, ValueError, "dead_age .*0"),
        (None, {"dead_age": "1d"}, TypeError, "dead_age: .*1d"),
        (None, {"dead_age": -5}, ValueError, "dead_age: .*-5"),
        (None, {"weight": 1}, TypeError, "weight"),
        (None, {"events": "some"}, ValueError, "'some'"),
        (None, {"events": []}, ValueError, r"\[\]"),
        (None, {"limit": 0}, ValueError, "limit .*0"),
        (None, {"limit": 1_000_001}, ValueError, "1000001"),
        (None, {"limit": "5"}, TypeError, "'5'"),
        (None, {"max_size": 10**12 + 1}, ValueError, "max_size"),
        (None, {"max_size": 0}, ValueError, "max_size .*0"),
        (None, {"rate": 5}, TypeError, r"Rate\(5\)"),
        ("a", {}, TypeError, "weight, limit, rate"),
        ("a", {"max_size": 1}, TypeError, "max_size"),
        ("a", {"weight": 0}, ValueError, "weight .*0"),
        ("a", {"weight": 1001}, ValueError, "1001"),
        ("a", {"weight": 1.0}, TypeError, "1.0"),
        ("a", {"rate": (1, 1000)}, TypeError, "1000"),
        ("", {"limit": 3}, ValueError, r"got 3.*queue\.configure"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    lane: str | None, given: dict[str, Any], error: type[Exception], shown: str
) -> None:
    """The message says which, and what would fit."""
    with pytest.raises(error, match=shown):
        spell_queue(given) if lane is None else spell_lane(lane, given)


@pytest.mark.parametrize("name", ["a{b", "a\nb", "x" * 129, "é" * 65, 5, None, "\udc80"])
def test_lane_name_refuses_what_cannot_be_one(name: Any) -> None:
    """Before any I/O, by a ValueError that shows it."""
    with pytest.raises(ValueError, match="lane"):
        lane_name(name)
    assert [lane_name(fine) for fine in ("", "acme", "Zoë & sons", "é" * 64)] == ["", "acme", "Zoë & sons", "é" * 64]


def _state(**given: Any) -> LaneState:
    fields = {
        "name": "a", "limits": Limits(), "pending": 1, "active": 0, "oldest_ms": 1500, "closed": (), "again_ms": None,
    }  # fmt: skip
    return LaneState(**{**fields, **given})


def test_lane_info_gives_each_reason_in_words() -> None:
    """Programs read `closed`, people `reasons`; a reason of a later version is shown as it is."""
    limits = Limits(weight=3, limit=2, rate=RateLimit(count=5, per_ms=1000), paused_ms=17)
    closed: Any = ("paused", "told to wait", "rate", "limit", "moonlight")
    info = LaneInfo.of(_state(limits=limits, closed=closed, again_ms=250, active=2))
    assert (info.weight, info.limit, info.rate, info.paused) == (3, 2, Rate(5), True)
    assert (info.pending, info.active, info.oldest, info.again_in) == (1, 2, 1.5, 0.25)
    assert (info.closed, info.servable) == (closed, False)
    paused, told, rate, limit, unknown = info.reasons
    assert "paused" in paused
    assert "handler" in told
    assert "5 per s" in rate
    assert "(2)" in limit
    assert unknown == "moonlight"


def test_lane_info_of_an_empty_lane_and_of_no_lane() -> None:
    """There is no oldest job where none is; of the jobs without a lane nobody knows how many run."""
    empty = LaneInfo.of(_state(pending=0, oldest_ms=0))
    assert (empty.oldest, empty.active, empty.servable, empty.reasons, empty.again_in) == (None, 0, True, (), None)
    assert LaneInfo.of(_state(name="")).active is None


def test_queue_settings_tell_how_long_a_handler_closed_it() -> None:
    """By the server's clock, and never less than nothing."""
    closed = Settings(
        now_ms=1000,
        events="failures",
        max_size=None,
        paused_ms=0,
        limits=Limits(until_ms=3500),
        closed=("told to wait",),
        again_ms=2500,
    )
    read = QueueSettings.of(closed)
    assert (read.closed_for, read.closed, read.again_in) == (2.5, ("told to wait",), 2.5)
    over = Settings(
        now_ms=5000,
        events="failures",
        max_size=7,
        paused_ms=9,
        limits=Limits(until_ms=3500, limit=2),
        closed=("limit",),
        again_ms=4000,
    )
    read = QueueSettings.of(over)
    assert (read.closed_for, read.paused, read.max_size, read.limit, read.rate) == (0, True, 7, 2, None)
    assert (read.closed, read.again_in) == (("paused", "limit"), None)
