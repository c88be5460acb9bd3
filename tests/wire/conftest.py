"""What the tests of the wire share: keys of their own, and a proxy that fails on command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit

import pytest

from echomq.conformance.proxy import FaultProxy, open_proxy
from echomq.embedded import Server, open_server
from echomq.protocol.keys import QueueKeys


@pytest.fixture
def keys(queue_name: str) -> QueueKeys:
    """The keys of the test's own queue."""
    return QueueKeys(queue=queue_name)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may stop, flush or configure."""
    with open_server() as server:
        yield server


@pytest.fixture
async def proxy(server_url: str) -> AsyncIterator[FaultProxy]:
    """A proxy before the session's server."""
    parts = urlsplit(server_url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with open_proxy(parts.hostname, parts.port) as proxy:
        yield proxy
