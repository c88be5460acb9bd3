"""What the tests of faults share: a queue on the session's server, seen behind everybody's back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import redis

from echomq.app import App
from tests.worker.support import Peek


@pytest.fixture
def peek(redis_client: redis.Redis, queue_name: str) -> Peek:
    """The test's queue behind everybody's back."""
    return Peek(redis_client, queue_name)


@pytest.fixture
def app(server_url: str) -> App:
    """An app without tasks yet, on the session's server."""
    return App(server_url, unavailable_after=5.0)


@pytest.fixture(scope="session", params=["valkey", "redis7"])
def binary(request: pytest.FixtureRequest) -> Path | None:
    """The program of each kind of server in turn, for tests that start several; None is the usual one."""
    if request.param == "valkey":
        return None
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("redis-server is not installed")
    return Path(found)
