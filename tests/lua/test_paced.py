"""A lane that is closed for its rate: workers come back when it opens, and not before."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from echomq.conformance.driver import Driver
from echomq.conformance.items import make_item
from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import NewJob

LANE = "paced"


@pytest.fixture
def driver(redis_client: redis.Redis, queue_name: str) -> Driver:
    """A client of a queue with one lane, of which one job a second may start; ten jobs wait."""
    driver = Driver(redis_client, QueueKeys(queue=queue_name))
    driver.plain("set_lane", lane=LANE, settings={"rate": "1 1000 1"})
    driver.items("enqueue", *(NewJob(lane=LANE) for _ in range(10)))
    return driver


def now(driver: Driver) -> float:
    """Read the server's clock, ms."""
    seconds, micros = driver.server.time()
    return float(seconds) * 1000 + float(micros) / 1000


def record(driver: Driver) -> list[str]:
    """Read the words of the lane's record."""
    found: Any = driver.server.hget(driver.keys.lanes, LANE)
    return found.decode().split(" ")


def test_bell_rings_for_as_many_as_the_rate_lets_start(driver: Driver) -> None:
    """Ten jobs, of which one may start, wake one worker."""
    assert driver.server.llen(driver.keys.wake) == 1


def test_claim_that_uses_a_rate_up_names_the_moment_it_opens(driver: Driver) -> None:
    """It is looked at again when the next start may be, and who keeps the timer is told so."""
    reply = driver.claim(5)
    assert len(reply.jobs) == 1
    again: Any = driver.server.zscore(driver.keys.closed, LANE)
    assert reply.now_ms + 900 < again <= reply.now_ms + 1000
    assert 900 < reply.next_ms <= 1000


def test_closed_lane_stays_closed_while_a_few_starts_gather(driver: Driver) -> None:
    """A job that ends within the 25 ms for which starts gather does not open the lane, which would wake all workers."""
    stayed = []
    for _ in range(5):  # the machine may take its time, now and then
        driver.server.hset(driver.keys.lanes, LANE, " ".join([*record(driver)[:6], "0", *record(driver)[7:]]))
        driver.server.zadd(driver.keys.closed, {LANE: 1}, xx=True)
        [held] = driver.claim(1).jobs
        assert record(driver)[0] == "c0"
        driver.server.hset(
            driver.keys.lanes, LANE, " ".join([*record(driver)[:6], f"{now(driver) + 45:.3f}", *record(driver)[7:]])
        )
        assert driver.item("complete", make_item("complete", held.id, held.token, held.nonce, 1)).ok
        stayed.append(record(driver)[0] == "c0")
        driver.server.delete(driver.keys.wake)
    assert any(stayed)
