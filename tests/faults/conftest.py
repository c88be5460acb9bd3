"""What the tests of faults share: a queue on the session's server, seen behind everybody's back."""

from __future__ import annotations

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
