"""A pytest plugin: a private server for a test run, and an empty one for each test.

Say so in your top-level `conftest.py`::

    pytest_plugins = ["echomq.testing.pytest"]

It is not loaded by itself: who has echomq installed has not asked for fixtures, nor for what importing them costs. The
fixtures are synchronous, so they serve plain tests and those of any plugin for event loops alike (anyio's, pytest-trio,
pytest-asyncio). A test opens its app itself: `async with app:`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from echomq.embedded import EmbeddedServerError, Server, open_server

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["echomq_server", "echomq_url"]


@pytest.fixture(scope="session")
def echomq_server() -> Iterator[Server]:
    """A private Valkey for the session (of each process, under pytest-xdist): see `echomq.embedded.open_server`.

    A test that needs it fails if there is none to start. To have one with options of its own, override the fixture.
    """
    with ExitStack() as stack:
        try:
            server = stack.enter_context(open_server())
        except EmbeddedServerError as error:
            pytest.fail(str(error), pytrace=False)
        yield server


@pytest.fixture
def echomq_url(echomq_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of that server, emptied for this test; `ECHOMQ_URL` names it meanwhile.

    So an `App()` without a URL goes there when it is opened, and a worker that the test starts as a process, too. Of an
    app that has a URL, set it: `monkeypatch.setattr(app, "url", echomq_url)`.
    """
    echomq_server.flush()
    monkeypatch.setenv("ECHOMQ_URL", echomq_server.url)
    return echomq_server.url
