"""A policy for each kind of error: the nearest class decides, and groups are looked into."""

from __future__ import annotations

import datetime as dt
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.backoff import NEVER, ByError, Exponential, Fixed

POLICY = ByError(
    {OSError: Fixed(1), ConnectionError: Fixed(2), ConnectionResetError: NEVER, ValueError: NEVER}, default=Fixed(60)
)


def ask(policy: ByError, error: BaseException) -> float | None:
    """What it says to a first failure."""
    return policy(1, error, Random(0))


@pytest.mark.parametrize(
    ("error", "delay"),
    [
        (PermissionError(), 1),
        (ConnectionRefusedError(), 2),
        (ConnectionResetError(), None),
        (UnicodeDecodeError("ascii", b"", 0, 1, ""), None),
        (KeyError(), 60),
        (SystemExit(), 60),
    ],
)
def test_by_error_asks_the_nearest_class(error: BaseException, delay: float | None) -> None:
    """A subclass goes before its bases, wherever it stands in the mapping."""
    assert ask(POLICY, error) == delay


def test_by_error_follows_the_order_of_two_bases() -> None:
    """Of two bases the one that Python would ask first."""

    class BothError(ValueError, OSError): ...

    class OtherError(OSError, ValueError): ...

    assert (ask(POLICY, BothError()), ask(POLICY, OtherError())) == (None, 1)


def test_by_error_looks_into_groups() -> None:
    """One error in a group is that error; of several the longest delay counts, and one that is for good is for good."""
    assert ask(POLICY, ExceptionGroup("", [ExceptionGroup("", [ConnectionRefusedError()])])) == 2
    assert ask(POLICY, ExceptionGroup("", [PermissionError(), KeyError()])) == 60
    assert ask(POLICY, ExceptionGroup("", [PermissionError(), ExceptionGroup("", [ConnectionRefusedError()])])) == 2
    assert ask(POLICY, ExceptionGroup("", [PermissionError(), ValueError()])) is None


def test_by_error_may_name_groups_themselves() -> None:
    """A group whose own class is named is not looked into; being an `Exception` does not make it named."""
    named = ByError({ExceptionGroup: Fixed(7), ValueError: NEVER, Exception: Fixed(1)})
    assert ask(named, ExceptionGroup("", [ValueError(), KeyError()])) == 7
    assert ask(named, ExceptionGroup("", [ValueError()])) is None
    plain = ByError({ValueError: NEVER, Exception: Fixed(1)})
    assert ask(plain, ExceptionGroup("", [KeyError(), ValueError()])) is None


def test_by_error_hands_its_policies_what_it_was_given() -> None:
    """The number of failures, the error within the group, and the generator; a timedelta is a delay too."""
    seen: list[Any] = []

    def policy(*given: Any) -> Any:
        seen.append(given)
        return dt.timedelta(seconds=3)

    inside, rng = KeyError("k"), Random(0)
    assert ByError({KeyError: policy})(4, ExceptionGroup("", [inside]), rng) == 3
    assert seen == [(4, inside, rng)]


@given(count=st.integers(1, 20), seed=st.integers(0, 99))
def test_by_error_draws_from_its_generator(count: int, seed: int) -> None:
    """Deterministic by the seed, as its policies are; the default is the exponential one."""
    assert ByError({OSError: Fixed(1)})(count, KeyError(), Random(seed)) == Exponential()(
        count, KeyError(), Random(seed)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ByError({}), r"policies .*\{\}"),
        (lambda: ByError([ValueError]), r"policies .*ValueError"),  # type: ignore[arg-type]
        (lambda: ByError({"ValueError": NEVER}), r"'ValueError' is not"),
        (lambda: ByError({int: NEVER}), r"int.* is not"),
        (lambda: ByError({ValueError: 3}), r"policies\[ValueError\] .*3"),  # type: ignore[dict-item]
        (lambda: ByError({ValueError: Exponential}), r"policies\[ValueError\] .*Exponential"),  # type: ignore[dict-item]
        (lambda: ByError({ValueError: NEVER}, default=None), r"default .*None"),  # type: ignore[arg-type]
    ],
)
def test_by_error_refuses_what_is_no_policy(make: Any, message: str) -> None:
    """The message shows which one, and what it is."""
    with pytest.raises(TypeError, match=message):
        make()


def test_by_error_keeps_its_own_copy() -> None:
    """A mapping that changes later changes nothing."""
    given: dict[type[BaseException], Any] = {ValueError: NEVER}
    policy = ByError(given, default=Fixed(1))
    given[KeyError] = NEVER
    assert ask(policy, KeyError()) == 1
