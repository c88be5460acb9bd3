"""A queue a test, with all events on, whose keys are compared before and after each call."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from echomq.conformance.bench import Bench
from echomq.conformance.invariants import violations
from echomq.embedded import open_server
from tests.lua.rights import Ground


@pytest.fixture
def bench(redis_client: redis.Redis) -> Iterator[Bench]:
    """A queue and its clients; at the end the invariants hold, unless the test tore the queue on purpose."""
    b = Bench(redis_client, prefix="emq-lua")
    b.client().plain("configure", settings={"events": "all"})
    yield b
    broken = [] if b.torn else violations(b.look())
    b.ground.clear()
    assert broken == []


@pytest.fixture(scope="module")
def rights_url() -> Iterator[str]:
    """A server whose users this module makes."""
    with open_server() as server:
        yield server.url


@pytest.fixture
def ground(rights_url: str) -> Ground:
    """A fresh queue."""
    ground = Ground(rights_url)
    ground.admin.flushall()
    return ground
