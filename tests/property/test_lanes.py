"""Lanes and limits: a state machine on a live server, the executable model and section 6's guarantees beside it."""

from __future__ import annotations

from collections import Counter

import hypothesis
import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from echomq.conformance.bench import Bench
from echomq.conformance.driver import connect
from echomq.conformance.machine_lanes import lanes_machine
from echomq.protocol.records import NewJob

QUICK = hypothesis.settings(max_examples=60, stateful_step_count=50)
LONG = hypothesis.settings(max_examples=2000, stateful_step_count=100)


@pytest.mark.timeout(900)  # a failure is shrunk for up to five minutes, and must still be told
def test_lanes_agree_with_the_model(redis_client: redis.Redis) -> None:
    """Whatever is done to jobs, lanes and limits, a claim takes the jobs that the rota says, and nobody starves."""
    run_state_machine_as_test(lanes_machine(redis_client), settings=QUICK)


def test_lanes_agree_with_the_model_on_redis_7(redis7_url: str) -> None:
    """What differs there is the clock inside a script, which moves, and the version of Lua's libraries."""
    with connect(redis7_url) as server:
        run_state_machine_as_test(lanes_machine(server), settings=hypothesis.settings(QUICK, max_examples=15))


@hypothesis.settings(max_examples=60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture])
@hypothesis.given(
    weights=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    counts=st.lists(st.integers(1, 12), min_size=1, max_size=30),
    by_lane=st.booleans(),
    bystanders=st.integers(0, 3),
)
def test_lanes_share_by_weight(
    redis_client: redis.Redis, weights: list[int], counts: list[int], by_lane: bool, bystanders: int
) -> None:
    """Over a backlog no lane is ever more than one turn ahead of another, whatever claims ask for.

    Lanes that are paused, full or empty stand by, and change nothing of that. By lane, a turn is as many batches.
    """
    b = Bench(redis_client)
    names = [f"lane {n}" for n in range(len(weights))]
    for name, weight in zip(names, weights, strict=True):
        b.set_lane(name, weight=str(weight))
    for n in range(bystanders):
        b.set_lane(f"paused {n}", paused="1")
        b.add(lane=f"paused {n}")
        b.on("remove", b.add(lane=f"empty {n}"))
    for name in names:
        for _ in range(2):
            b.on("enqueue", *(NewJob(lane=name) for _ in range(200)))
    turns = dict.fromkeys(names, 0.0)
    for count in counts:
        jobs = b.worker.claim(count, by_lane=by_lane).jobs
        assert len(jobs) == count
        for lane, n in Counter(job.record.lane for job in jobs).items():
            turns[lane] += (1 if by_lane else n) / weights[names.index(lane)]
        assert max(turns.values()) - min(turns.values()) <= 1 + 1e-9
    b.ground.clear()


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_lanes_agree_with_the_model_for_long(redis_client: redis.Redis) -> None:
    """The same, ten times as many, twice as long, with a new seed a run."""
    run_state_machine_as_test(lanes_machine(redis_client), settings=hypothesis.settings(LONG, derandomize=False))
