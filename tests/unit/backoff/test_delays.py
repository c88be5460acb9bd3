"""Policies that count failures: within their bounds, rising to their caps, the same from the same seed."""

from __future__ import annotations

import datetime as dt
import statistics
from random import Random
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.backoff import NEVER, Backoff, Decorrelated, Exponential, Fixed, Linear, Sequence

ERROR = ValueError("x")
seconds = st.integers(0, 10_000_000).map(lambda ms: ms / 1000)
factors = st.one_of(st.floats(1, 1e6), st.integers(1, 10**6))
failures = st.integers(1, 10**9)
seeds = st.integers(0, 2**32)
JITTERS: Any = ("full", "equal", "none")

plain = st.one_of(
    st.builds(Fixed, seconds),
    st.builds(Linear, seconds, seconds, seconds),
    st.builds(Exponential, seconds, factors, seconds, jitter=st.just("none")),
    st.builds(Sequence, st.lists(seconds, min_size=1, max_size=20).map(sorted)),
)
drawn = st.one_of(
    st.builds(Exponential, seconds, factors, seconds, jitter=st.sampled_from(JITTERS)),
    st.builds(Decorrelated, seconds, seconds, factors),
)


def highest(policy: Any) -> float:
    """The delay that a policy never exceeds."""
    if isinstance(policy, Fixed):
        return policy.seconds
    return max(policy.delays) if isinstance(policy, Sequence) else float(policy.cap)


@given(policy=st.one_of(plain, drawn), count=failures, seed=seeds)
def test_delay_lies_between_nought_and_the_cap(policy: Any, count: int, seed: int) -> None:
    """Whatever the numbers are: no overflow, nothing negative, nothing above the cap."""
    delay = policy(count, ERROR, Random(seed))
    assert type(delay) is float
    assert 0 <= delay <= highest(policy)


@given(policy=plain, count=st.integers(1, 200))
def test_delay_never_shrinks_with_further_failures(policy: Backoff, count: int) -> None:
    """What has no jitter rises to its cap, and stays there."""
    one, next_ = (policy(each, ERROR, Random(0)) for each in (count, count + 1))
    assert one is not None
    assert next_ is not None
    assert one <= next_


@given(policy=st.one_of(plain, drawn), count=st.integers(1, 100), seed=seeds)
def test_delay_is_the_seeds(policy: Backoff, count: int, seed: int) -> None:
    """A policy keeps nothing: the same seed brings the same delay, whatever was asked before."""
    first = policy(count, ERROR, Random(seed))
    policy(count + 1, ERROR, Random(seed + 1))
    assert policy(count, ERROR, Random(seed)) == first


@given(policy=st.builds(Exponential, seconds, factors, seconds), count=failures, seed=seeds)
def test_exponential_jitter_lies_where_it_says(policy: Exponential, count: int, seed: int) -> None:
    """`full` anywhere below the exact delay, `equal` in its upper half."""
    exact, equal, full = (attrs.evolve(policy, jitter=each) for each in ("none", "equal", "full"))
    most = exact(count, ERROR, Random(0))
    assert most / 2 <= equal(count, ERROR, Random(seed)) <= most
    assert 0 <= full(count, ERROR, Random(seed)) <= most


@given(policy=st.builds(Decorrelated, seconds, seconds, factors), count=failures, seed=seeds)
def test_decorrelated_never_falls_below_its_first(policy: Decorrelated, count: int, seed: int) -> None:
    """The least delay is `first`, or the cap if that is lower."""
    assert policy(count, ERROR, Random(seed)) >= min(policy.first, policy.cap)


def test_exponential_multiplies() -> None:
    """1, 2, 4, ... up to the cap."""
    exact = Exponential(cap=20, jitter="none")
    assert [exact(n, ERROR, Random()) for n in (1, 2, 3, 4, 5, 6, 10**9)] == [1, 2, 4, 8, 16, 20, 20]
    assert Exponential(first=0, factor=10**6)(10**9, ERROR, Random()) == 0


def test_linear_adds() -> None:
    """The step is the first delay unless given."""
    assert [Linear(5, cap=12)(n, ERROR, Random()) for n in (1, 2, 3, 4)] == [5, 10, 12, 12]
    assert [Linear(1, 10)(n, ERROR, Random()) for n in (1, 2, 3)] == [1, 11, 21]


def test_sequence_repeats_its_last() -> None:
    """Seconds and timedeltas, one after another."""
    policy = Sequence([1, dt.timedelta(minutes=1), 0.5])
    assert [policy(n, ERROR, Random()) for n in (1, 2, 3, 4, 99)] == [1, 60, 0.5, 0.5, 0.5]
    assert policy == Sequence((1.0, 60.0, 0.5))


def test_full_jitter_spreads_evenly() -> None:
    """Jobs that failed together come back at any moment: mean and quarters of a uniform distribution."""
    rng, policy = Random(7), Exponential(first=8)
    found = [policy(1, ERROR, rng) for _ in range(4000)]
    quarters = [sum(low <= each < low + 2 for each in found) for low in (0, 2, 4, 6)]
    assert abs(statistics.fmean(found) - 4) < 0.15
    assert all(900 < each < 1100 for each in quarters)


def test_decorrelated_spreads_and_rises() -> None:
    """The first delay is uniform up to three times `first`; later ones lie higher, and reach the cap."""
    rng, policy = Random(7), Decorrelated(first=1, cap=100)
    first = [policy(1, ERROR, rng) for _ in range(4000)]
    assert abs(statistics.fmean(first) - 2) < 0.05
    assert max(first) <= 3
    medians = [statistics.median(policy(n, ERROR, rng) for _ in range(2000)) for n in (1, 3, 6)]
    assert medians == sorted(medians)
    assert medians[2] > 2 * medians[0]
    assert max(policy(20, ERROR, rng) for _ in range(2000)) == 100


def test_decorrelated_draws_its_chain_from_the_beginning() -> None:
    """The third delay is drawn from the second, which is drawn from the first."""
    rng = Random(3)
    one = rng.uniform(2, 2 * 3)
    two = rng.uniform(2, one * 3)
    three = rng.uniform(2, two * 3)
    assert Decorrelated(first=2, cap=1000)(3, ERROR, Random(3)) == three
    assert len({Decorrelated(first=2)(10**9, ERROR, Random(seed)) for seed in range(5)}) > 1


def test_never_buries() -> None:
    """There is one, and it answers no delay."""
    answer: object = NEVER(1, ERROR, Random())  # type: ignore[func-returns-value]
    assert answer is None
    assert repr(NEVER) == "NEVER"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fixed(-1), r"seconds: .*-1"),
        (lambda: Fixed("5"), r"seconds: .*'5'"),  # type: ignore[arg-type]
        (lambda: Fixed(float("nan")), r"seconds: .*nan"),
        (lambda: Linear(-2), r"first: .*-2"),
        (lambda: Linear(1, step=-3), r"step: .*-3"),
        (lambda: Linear(1, cap=1e12), r"cap: .*1000000000000"),
        (lambda: Exponential(first=-1), r"first: .*-1"),
        (lambda: Exponential(factor=0.5), r"factor .*0\.5"),
        (lambda: Exponential(factor=float("inf")), r"factor .*inf"),
        (lambda: Exponential(factor=True), r"factor .*True"),
        (lambda: Exponential(cap=float("inf")), r"cap: .*inf"),
        (lambda: Exponential(jitter="some"), r"jitter .*'some'"),  # type: ignore[arg-type]
        (lambda: Decorrelated(first="1"), r"first: .*'1'"),  # type: ignore[arg-type]
        (lambda: Decorrelated(cap=-1), r"cap: .*-1"),
        (lambda: Decorrelated(factor=float("nan")), r"factor .*nan"),
        (lambda: Sequence([]), r"delays .*\(\)"),
        (lambda: Sequence([1, -5]), r"delays\[1\]: .*-5"),
        (lambda: Sequence("12"), r"delays .*'12'"),  # type: ignore[arg-type]
        (lambda: Sequence(3), r"delays .*3"),  # type: ignore[arg-type]
    ],
)
def test_policy_refuses_what_it_cannot_do_naming_it(make: Any, message: str) -> None:
    """The message shows the field and the value."""
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_policies_are_frozen_and_compare() -> None:
    """Values: equal by what they say, and not to be changed."""
    assert Exponential(1, 2, 300) == Exponential()
    assert Fixed(dt.timedelta(seconds=3)) == Fixed(3)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Fixed(1).seconds = 2  # type: ignore[misc]
