"""As long as the other side says: read where HTTP libraries put it, and believed up to a cap."""

from __future__ import annotations

import datetime as dt
import email.message
import urllib.error
from email.utils import format_datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.backoff import NEVER, Fixed, RetryAfter

DEFAULT = 7.0
POLICY = RetryAfter(Fixed(DEFAULT), clock=lambda: 784_111_777.0)  # Sun, 06 Nov 1994 08:49:37 GMT


class SaidError(Exception):
    """An error with whatever attributes."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Response:
    """What HTTP libraries hang on their errors."""

    def __init__(self, headers: Any) -> None:
        self.headers = headers


class NoCase(dict[str, str]):
    """A mapping that knows no case, as libraries have."""

    def get(self, key: str, default: Any = None) -> Any:
        """Find a header."""
        return next((value for name, value in self.items() if name.lower() == key.lower()), default)


def ask(error: BaseException, policy: RetryAfter = POLICY) -> float | None:
    """What it says to a first failure."""
    return policy(1, error, Random(0))


def answered(**headers: Any) -> SaidError:
    """An error with a response."""
    return SaidError(response=Response({name.replace("_", "-"): value for name, value in headers.items()}))


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (SaidError(retry_after=12), 12),
        (SaidError(retry_after=1.5), 1.5),
        (SaidError(retry_after=0), 0),
        (SaidError(retry_after="30"), 30),
        (SaidError(retry_after=dt.timedelta(minutes=2)), 120),
        (answered(Retry_After="45"), 45),
        (answered(**{"retry-after": " 45 "}), 45),
        (answered(**{"RETRY-AFTER": b"2.5"}), 2.5),
        (SaidError(response=Response({b"Retry-After": b"9"})), 9),
        (SaidError(response=Response(NoCase({"rEtRy-aFtEr": "45"}))), 45),
        (SaidError(headers={"Retry-After": "3"}), 3),
        (SaidError(retry_after=None, response=Response({"Retry-After": "4"})), 4),
        (SaidError(retry_after="soon", response=Response({"Retry-After": "4"})), 4),
        (SaidError(retry_after=5, response=Response({"Retry-After": "4"})), 5),
    ],
)
def test_retry_after_is_read_where_libraries_put_it(error: SaidError, delay: float) -> None:
    """An attribute first, then the response's headers in any case, then the error's own."""
    assert ask(error) == delay


def test_retry_after_reads_the_standard_librarys_error() -> None:
    """`urllib` raises an error with headers."""
    headers = email.message.Message()
    headers["retry-after"] = "17"
    with urllib.error.HTTPError("http://x", 429, "Too Many Requests", headers, None) as error:
        assert ask(error) == 17


@pytest.mark.parametrize(
    "date",
    ["Sun, 06 Nov 1994 08:50:07 GMT", "Sunday, 06-Nov-94 08:50:07 GMT", "Sun Nov  6 08:50:07 1994"],
)
def test_retry_after_reads_the_three_forms_of_a_date(date: str) -> None:
    """Those of the standard; without the response's own date, from this machine's clock."""
    assert ask(answered(Retry_After=date)) == 30


def test_retry_after_counts_from_the_responses_own_date() -> None:
    """A server whose clock is a year behind still means half a minute; what is over is now."""
    late = {"Retry_After": "Sat, 06 Nov 1993 08:50:07 GMT"}
    assert ask(answered(**late, Date="Sat, 06 Nov 1993 08:49:37 GMT")) == 30
    assert ask(answered(**late, date=b"Sat, 06 Nov 1993 08:49:37 GMT")) == 30
    assert ask(answered(**late)) == 0
    assert ask(answered(Retry_After="Sun, 06 Nov 1994 08:50:07 GMT", Date="yesterday")) == 30
    assert (
        ask(SaidError(retry_after=late["Retry_After"], response=Response({"Date": "Sat, 06 Nov 1993 08:50:06 GMT"})))
        == 1
    )


@given(
    sent=st.integers(10**8, 7 * 10**9).map(lambda unix: dt.datetime.fromtimestamp(unix, dt.UTC)),
    seconds=st.integers(0, 10**6),
)
def test_retry_after_date_is_the_seconds_it_stands_for(sent: dt.datetime, seconds: int) -> None:
    """A date and a number that mean the same are the same."""
    then = sent + dt.timedelta(seconds=seconds)
    error = answered(Retry_After=format_datetime(then, usegmt=True), Date=format_datetime(sent, usegmt=True))
    assert ask(error, RetryAfter(Fixed(1), cap=10**7)) == seconds


@pytest.mark.parametrize("seconds", [3601, 1e300, "9" * 18, "Mon, 01 Jan 2300 00:00:00 GMT"])
def test_retry_after_is_believed_up_to_its_cap(seconds: Any) -> None:
    """An hour, unless given."""
    assert ask(SaidError(retry_after=seconds)) == 3600
    assert ask(SaidError(retry_after=seconds), RetryAfter(Fixed(1), cap=dt.timedelta(seconds=10))) == 10


def test_retry_after_of_several_is_the_longest() -> None:
    """Of a group's errors those that say something count, and of these the longest."""
    assert (
        ask(ExceptionGroup("", [SaidError(retry_after=3), KeyError(), ExceptionGroup("", [answered(Retry_After="8")])]))
        == 8
    )


class HostileError(Exception):
    """Every look at it fails."""

    @property
    def retry_after(self) -> float:
        """Fail."""
        raise LookupError

    response = headers = retry_after


@pytest.mark.parametrize(
    "error",
    [
        KeyError("x"),
        HostileError(),
        SaidError(retry_after=-1),
        SaidError(retry_after=True),
        SaidError(retry_after=float("nan")),
        SaidError(retry_after=float("inf")),
        SaidError(retry_after="-5"),
        SaidError(retry_after="five"),
        SaidError(retry_after="1e3"),
        SaidError(retry_after="٣"),
        SaidError(retry_after=""),
        SaidError(retry_after=[5]),
        SaidError(retry_after=lambda: 5),
        SaidError(retry_after=dt.timedelta(-1)),
        SaidError(retry_after=10**400),
        SaidError(retry_after="Sun, 99 Nov 1994 08:49:37 GMT"),
        SaidError(retry_after="x" * 10_000),
        SaidError(response=None),
        SaidError(response=Response(None)),
        SaidError(response=Response([("Retry-After", "5")])),
        SaidError(response=Response({"Retry-After": None})),
        SaidError(response=Response({1: "5"})),
        answered(Retry_Before="5"),
    ],
    ids=repr,
)
def test_retry_after_that_cannot_be_read_is_the_default(error: BaseException) -> None:
    """What is not there, or says nothing, or raises when it is looked at."""
    assert ask(error) == DEFAULT


@given(st.one_of(st.text(), st.binary(), st.integers(), st.floats(), st.none(), st.dictionaries(st.text(), st.text())))
def test_retry_after_makes_a_delay_of_anything(value: Any) -> None:
    """Whatever a server sends: between nought and the cap, or the default."""
    for error in (SaidError(retry_after=value), answered(Retry_After=value), answered(Retry_After="5", Date=value)):
        delay = ask(error)
        assert delay is not None
        assert 0 <= delay <= 3600


def test_retry_after_passes_its_defaults_word_on() -> None:
    """A default that says never is meant."""
    assert ask(KeyError(), RetryAfter(NEVER)) is None


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RetryAfter(5), r"default .*5"),  # type: ignore[arg-type]
        (lambda: RetryAfter(Fixed), r"default .*Fixed"),  # type: ignore[arg-type]
        (lambda: RetryAfter(cap=-1), r"cap: .*-1"),
    ],
)
def test_retry_after_refuses_what_it_cannot_use(make: Any, message: str) -> None:
    """The message shows the field and the value."""
    with pytest.raises((TypeError, ValueError), match=message):
        make()
