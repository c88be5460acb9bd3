"""What the tests of faults share: a queue on the session's server, seen behind everybody's back."""

from __future__ import annotations

import pytest
import redis

from tests.worker.support import Peek


@pytest.fixture
def peek(redis_client: redis.Redis, queue_name: str) -> Peek:
    """The test's queue behind everybody's back."""
    return Peek(redis_client, queue_name)
