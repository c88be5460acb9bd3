"""Flows over three queues: a state machine on a live server, in which pumps and producers die between any two steps."""

from __future__ import annotations

import hypothesis
import pytest
import redis
from hypothesis.stateful import run_state_machine_as_test

from echomq.conformance.driver import connect
from echomq.conformance.machine_flows import flows_machine

QUICK = hypothesis.settings(max_examples=30, stateful_step_count=30)
LONG = hypothesis.settings(max_examples=1000, stateful_step_count=100)


@pytest.mark.timeout(900)  # a failure is shrunk for up to five minutes, and must still be told
def test_flows_come_to_rest(redis_client: redis.Redis) -> None:
    """Whatever happens in whatever order, each parent is settled by its children's ends, and nothing is left behind."""
    run_state_machine_as_test(flows_machine(redis_client), settings=QUICK)


@pytest.mark.timeout(900)
def test_flows_come_to_rest_on_redis_7(redis7_url: str) -> None:
    """What differs there is the clock inside a script, which moves, and the version of Lua's libraries."""
    with connect(redis7_url) as server:
        run_state_machine_as_test(flows_machine(server), settings=hypothesis.settings(QUICK, max_examples=5))


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_flows_come_to_rest_for_long(redis_client: redis.Redis) -> None:
    """The same, many times as many, twice as long, with a new seed a run."""
    run_state_machine_as_test(flows_machine(redis_client), settings=hypothesis.settings(LONG, derandomize=False))
