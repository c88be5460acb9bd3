"""Fixtures of the tests of commands."""

from __future__ import annotations

import pytest

from echomq import sync
from tests.cli.support import Runner


@pytest.fixture
def command(server_url: str) -> Runner:
    """Run a command on the test's server."""
    return Runner(server_url)


@pytest.fixture
def queue(server_url: str, queue_name: str) -> sync.Queue:
    """The test's own queue."""
    return sync.Client(server_url).queue(queue_name)
