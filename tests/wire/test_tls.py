"""TLS, through a proxy: the server in the wheel is built without it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
import trustme
from anyio.abc import SocketAttribute
from anyio.streams.tls import TLSListener

from echomq import transitions as t
from echomq.conformance.proxy import FaultProxy
from echomq.errors import UnavailableError
from echomq.protocol.keys import QueueKeys
from echomq.protocol.newjob import NewJob
from echomq.wire import open_wire

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    """A certificate authority of the test's own."""
    return trustme.CA()


@asynccontextmanager
async def tls_port(proxy: FaultProxy, ca: trustme.CA, host: str, *, ask_client: bool = False) -> AsyncIterator[int]:
    """Listen with a certificate for `host` and pass on to the proxy."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ca.issue_cert(host).configure_cert(context)
    if ask_client:
        ca.configure_trust(context)
        context.verify_mode = ssl.CERT_REQUIRED
    plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = plain.extra(SocketAttribute.local_port)
    listener = TLSListener(plain, context, standard_compatible=False)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, proxy.handle)
        yield port
        tasks.cancel_scope.cancel()


@pytest.fixture
def ca_file(ca: trustme.CA, tmp_path: Path) -> Path:
    """The authority's certificate as a file."""
    path = tmp_path / "ca.pem"
    ca.cert_pem.write_to_path(str(path))
    return path


async def test_tls_carries_calls(proxy: FaultProxy, ca: trustme.CA, ca_file: Path, keys: QueueKeys) -> None:
    """Calls, large ones too, and reconnects work over TLS."""
    async with (
        tls_port(proxy, ca, "127.0.0.1") as port,
        open_wire(f"valkeys://127.0.0.1:{port}?ssl_ca_certs={ca_file}") as client,
    ):
        assert await client.command("ECHO", b"x" * 500_000) == b"x" * 500_000
        await client.group(keys, "enqueue").many(NewJob() for _ in range(600))
        proxy.cut()
        assert (await client.run(t.counts(keys, t.Call(client.tag)))).pending == 600


async def test_certificate_of_the_client_is_shown(
    proxy: FaultProxy, ca: trustme.CA, ca_file: Path, tmp_path: Path
) -> None:
    """A server that asks for a certificate gets the one of the URL."""
    own = ca.issue_cert("client")
    own.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "own.pem"))
    async with tls_port(proxy, ca, "127.0.0.1", ask_client=True) as port:
        url = f"rediss://127.0.0.1:{port}?ssl_ca_certs={ca_file}&ssl_certfile={tmp_path / 'own.pem'}"
        async with open_wire(url) as client:
            assert await client.command("PING") == b"PONG"


async def test_certificate_that_does_not_fit_is_told_at_once(proxy: FaultProxy, ca: trustme.CA, ca_file: Path) -> None:
    """A wrong host or an unknown authority is refused on opening, with the reason."""
    async with tls_port(proxy, ca, "elsewhere.example") as port:
        for options in (f"ssl_ca_certs={ca_file}", ""):
            error = None
            try:
                async with open_wire(f"valkeys://127.0.0.1:{port}?{options}"):
                    pass
            except UnavailableError as caught:
                error = caught
            assert error is not None
            assert "TLS failed" in str(error)


async def test_unchecked_certificate_is_accepted_when_asked(proxy: FaultProxy, ca: trustme.CA) -> None:
    """`ssl_cert_reqs=none` is the user's to choose."""
    async with (
        tls_port(proxy, ca, "elsewhere.example") as port,
        open_wire(f"valkeys://127.0.0.1:{port}?ssl_cert_reqs=none") as client,
    ):
        assert await client.command("PING") == b"PONG"


async def test_missing_certificate_file_is_told_at_once() -> None:
    """A path that leads nowhere is refused on opening."""
    with pytest.raises(UnavailableError, match="No such file"):
        async with open_wire("valkeys://127.0.0.1:1?ssl_ca_certs=/nowhere.pem"):
            pass
