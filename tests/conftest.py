"""What all tests share: a real server a session, a namespace a test, and both event loops."""

from __future__ import annotations

import gc
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import hypothesis
import pytest
import redis
import structlog
from redis.backoff import NoBackoff
from redis.retry import Retry

from echomq.embedded import EmbeddedServerError, open_server

# Derandomised: a run of CI is about the change at hand, and finds tomorrow what it finds today. `make prove` looks for
# more. No deadline: a shared machine is slow now and then, and no test asserts a time.
hypothesis.settings.register_profile(
    "test", derandomize=True, deadline=None, database=None, print_blob=True, max_examples=50
)
hypothesis.settings.register_profile("prove", deadline=None, print_blob=True, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run use a server that is there already."""
    parser.addoption(
        "--valkey-url",
        metavar="URL",
        default=None,
        help="run against this server (redis://host:port) and not a private one; tests keep to namespaces of their own",
    )


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight: thousands of tests are a heap to walk at each look.

    Tests of what is left behind collect hundreds of times.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", params=["trio", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """The event loop of a test marked `anyio`: each in turn."""
    return str(request.param)


@pytest.fixture(autouse=True, scope="session")
def _loggers_keep_no_configuration() -> Iterator[None]:
    """Commands that are run in this process have loggers keep their configuration for good; here none may.

    Else a module that logs for the first time while a command runs would be as silent as the command in every test that
    comes later.
    """
    with pytest.MonkeyPatch.context() as patch:
        configure = structlog.configure
        patch.setattr(
            structlog, "configure", lambda **given: configure(**{**given, "cache_logger_on_first_use": False})
        )
        yield


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    """Put structlog's configuration back, which a command or a test has changed."""
    before = structlog.get_config()
    yield
    if structlog.get_config() != before:
        structlog.configure(**before)


@contextmanager
def _private(binary: Path | None = None) -> Iterator[str]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(open_server(binary=binary))
        except EmbeddedServerError as error:
            # One line for each test that needs a server, and no stack.
            pytest.fail(str(error), pytrace=False)
        yield server.url


@pytest.fixture(scope="session")
def server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a running server: private to this session, or the one named by `--valkey-url`."""
    given = request.config.getoption("--valkey-url")
    if given:
        yield given
        return
    with _private() as url:
        yield url


@pytest.fixture(scope="session")
def redis7_url() -> Iterator[str]:
    """The URL of a private Redis 7 beside it, for what differs there; skipped where `redis-server` is not installed."""
    binary = shutil.which("redis-server")
    if binary is None:
        pytest.skip("redis-server is not installed")
    with _private(Path(binary)) as url:
        yield url


@pytest.fixture(scope="session", params=["valkey", "redis7"])
def either_url(request: pytest.FixtureRequest) -> str:
    """The URL of each kind of server in turn, for tests of what must hold on both."""
    return str(request.getfixturevalue("server_url" if request.param == "valkey" else "redis7_url"))


def _connect(url: str) -> redis.Redis:
    # No silent retries: a test that loses a reply wants to see it.
    return redis.Redis.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=30)


@pytest.fixture(scope="session")
def _server_client(server_url: str) -> Iterator[redis.Redis]:
    with _connect(server_url) as client:
        yield client


@pytest.fixture
def redis_client(_server_client: redis.Redis) -> redis.Redis:
    """A plain client of `server_url`; replies are bytes."""
    return _server_client


@pytest.fixture
def either_client(either_url: str) -> Iterator[redis.Redis]:
    """A plain client of `either_url`; replies are bytes."""
    with _connect(either_url) as client:
        yield client


@pytest.fixture
def queue_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """A queue that no other test and no other run has; its keys are removed afterwards."""
    own = None
    if not request.config.getoption("--valkey-url") and "server_url" in request.fixturenames:
        own = request.getfixturevalue("server_url")
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:100]
    name = f"{readable}-{secrets.token_hex(6)}"
    yield name
    given = request.config.getoption("--valkey-url")
    if given:
        with _connect(given) as client:
            for key in client.scan_iter(match=f"*{{{name}}}*", count=1000):
                client.delete(key)
    elif own is not None:
        # Whoever looks at all keys of a queue would walk past what thousands of jobs have left.
        with _connect(own) as client:
            client.flushall()
