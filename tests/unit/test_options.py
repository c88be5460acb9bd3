"""Options of a job: lanes and what becomes of one that meets its dedup key."""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Any

import pytest

from echomq import App, InvalidJobError
from echomq._options import JobOptions, options_of


def where(options: JobOptions) -> tuple[Any, ...]:
    """Spell what stands before the row's fields: priority, due time, moments of its end, dedup key, rule, lane."""
    return options.new_job("", b"").arguments()[1:7]


class Tenant(StrEnum):
    """Names as some programs have them."""

    ACME = "acme"


def test_options_say_the_lane_and_the_dedup_rule() -> None:
    """As the script reads them."""
    assert where(options_of()) == (0, 0, "", "", 0, "")
    assert where(options_of(lane="acme")) == (0, 0, "", "", 0, "acme")
    assert where(options_of(dedup="k", dedup_mode="reject")) == (0, 0, "", "k", 0, "")
    assert where(options_of(dedup="k", dedup_mode="replace")) == (0, 0, "", "k", "replace", "")
    assert where(options_of(dedup="k", dedup_mode="debounce", delay=2)) == (0, "+2000", "", "k", "debounce", "")
    assert where(options_of(dedup="k", dedup_window=2)) == (0, 0, "", "k", 2000, "")
    assert type(where(options_of(lane=Tenant.ACME))[5]) is str


def test_later_options_win() -> None:
    """No lane is a lane, too; a window and a mode replace each other, as do a delay and a moment."""
    laned = options_of(lane="acme", dedup="k", dedup_window=60)
    assert where(laned.with_({"lane": ""}))[5] == ""
    assert where(laned.with_({"lane": None}))[5] == "acme"
    replacing = laned.with_({"dedup_mode": "replace"})
    assert where(replacing)[4] == "replace"
    assert where(laned.with_({"dedup_mode": "reject"}))[4] == 60_000
    assert where(replacing.with_({"dedup_window": 5}))[4] == 5000
    assert where(options_of(at=dt.datetime(2030, 1, 1, tzinfo=dt.UTC)).with_({"delay": 1}))[1] == "+1000"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"lane": "a{b}"}, "lane: .*a{b}"),
        ({"lane": 5}, "lane: .*5"),
        ({"dedup": "k", "dedup_mode": "latest"}, "latest"),
        ({"dedup_mode": "replace"}, "replace"),
        ({"dedup": "k", "dedup_mode": "debounce"}, "delay"),
        ({"dedup": "k", "dedup_mode": "debounce", "at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC)}, "delay"),
        ({"dedup": "k", "dedup_mode": "replace", "dedup_window": 5}, "window"),
    ],
)
def test_options_that_do_not_fit_are_refused(given: Any, shown: str) -> None:
    """Before a job is made."""
    with pytest.raises(ValueError, match=shown):
        options_of(**given)


def test_tasks_and_stubs_take_them() -> None:
    """A task's options are those of a queue."""
    app = App("valkey://nowhere.invalid")
    stub = app.task_stub("t", queue="q")
    call = stub.options(lane="acme", dedup="k", dedup_mode="replace").call(1)
    assert where(call.options)[3:6] == ("k", "replace", "acme")
    with pytest.raises(InvalidJobError):
        stub.options(dedup_mode="replace")


def test_options_say_until_when_a_job_may_start_and_last() -> None:
    """Durations count from admission, by the server's clock; moments are what they are."""
    options = options_of(expires=1.5, deadline=dt.timedelta(minutes=2))
    moment = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    assert where(options)[2] == "+1500 +120000"
    assert where(options_of(expires=moment))[2] == "1893456000000 0"
    assert where(options_of(deadline=moment))[2] == "0 1893456000000"
    assert where(options.with_({"deadline": 5}))[2] == "+1500 +5000"
    assert where(options.with_({"deadline": None}))[2] == "+1500 +120000"


@pytest.mark.parametrize("name", ["expires", "deadline"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(-1, ValueError), (float("inf"), ValueError), (dt.datetime(2030, 1, 1), ValueError), ("1", TypeError)],  # noqa: DTZ001 - naive
)
def test_options_refuse_moments_that_are_none(name: str, value: Any, error: type[Exception]) -> None:
    """The message names the option."""
    with pytest.raises(error, match=f"{name}: "):
        options_of(**{name: value})
