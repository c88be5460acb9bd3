"""The whole spine at once: a state machine on a live server, the executable model beside it."""

from __future__ import annotations

import hypothesis
import pytest
import redis
from hypothesis.stateful import run_state_machine_as_test

from echomq.conformance.driver import connect
from echomq.conformance.machine import machine

QUICK = hypothesis.settings(max_examples=100, stateful_step_count=50)
LONG = hypothesis.settings(max_examples=2000, stateful_step_count=100)


@pytest.mark.timeout(900)  # a failure is shrunk for up to five minutes, and must still be told
def test_spine_agrees_with_the_model(redis_client: redis.Redis) -> None:
    """Whatever producers, workers, operators and the network do, the server does what the model says."""
    run_state_machine_as_test(machine(redis_client), settings=QUICK)


def test_spine_agrees_with_the_model_on_redis_7(redis7_url: str) -> None:
    """What differs there is the clock inside a script, which moves, and the version of Lua's libraries."""
    with connect(redis7_url) as server:
        run_state_machine_as_test(machine(server), settings=hypothesis.settings(QUICK, max_examples=20))


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_spine_agrees_with_the_model_for_long(redis_client: redis.Redis) -> None:
    """The same, ten times as many, twice as long, with a new seed a run."""
    run_state_machine_as_test(machine(redis_client), settings=hypothesis.settings(LONG, derandomize=False))
