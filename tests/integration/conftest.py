"""What the tests of clients share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from echomq import App, Client, Queue, open_client, sync
from echomq.conformance.proxy import FaultProxy, open_proxy
from tests.integration.cutting import CuttingProxy


@pytest.fixture
async def client(server_url: str) -> AsyncIterator[Client]:
    """An open client."""
    async with open_client(server_url) as client:
        yield client


@pytest.fixture
def queue(client: Client, queue_name: str) -> Queue:
    """The test's own queue."""
    return client.queue(queue_name)


@pytest.fixture
def app(server_url: str) -> App:
    """An app without tasks, not open."""
    return App(server_url)


@pytest.fixture
def sync_client(server_url: str) -> Iterator[sync.Client]:
    """An open synchronous client."""
    with sync.Client(server_url) as client:
        yield client


@pytest.fixture
async def proxy(server_url: str) -> AsyncIterator[FaultProxy]:
    """A proxy before the session's server, in the test's event loop."""
    parts = urlsplit(server_url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with open_proxy(parts.hostname, parts.port) as proxy:
        yield proxy


@pytest.fixture
def cutting(server_url: str) -> Iterator[CuttingProxy]:
    """A proxy before the session's server, in threads, that cuts replies."""
    parts = urlsplit(server_url)
    assert parts.hostname is not None
    assert parts.port is not None
    with CuttingProxy(parts.hostname, parts.port) as proxy:
        yield proxy
