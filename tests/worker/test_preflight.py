"""A server that may drop jobs when it is full is refused, or warned of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from structlog.testing import capture_logs

from echomq.app import App
from echomq.embedded import Server, open_server
from echomq.errors import EvictionPolicyError
from echomq.worker.entry import run_worker
from tests.worker.support import QUICK, running

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def own_server() -> Iterator[Server]:
    """A server whose policy the tests change."""
    with open_server() as server:
        yield server


def make_app(url: str, queue: str) -> App:
    """An app with one task."""
    app = App(url)

    @app.task(queue=queue)
    async def handle() -> None: ...

    return app


def set_policy(server: Server, policy: str) -> None:
    """Change the eviction policy."""
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory-policy", policy)


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_worker_refuses_a_server_that_may_evict_jobs(own_server: Server, queue_name: str, policy: str) -> None:
    """`allkeys-*` is an error that names the policy; `allow_eviction` makes it a warning."""
    set_policy(own_server, policy)
    with pytest.raises(EvictionPolicyError, match=policy):
        await run_worker(make_app(own_server.url, queue_name), **QUICK)
    with capture_logs() as logs:
        async with running(make_app(own_server.url, queue_name), allow_eviction=True):
            pass
    assert [line["policy"] for line in logs if line["event"] == "eviction_policy"] == [policy]


@pytest.mark.parametrize(("policy", "warns"), [("volatile-lru", True), ("noeviction", False)])
async def test_worker_warns_of_a_server_that_may_evict_keys(
    own_server: Server, queue_name: str, policy: str, warns: bool
) -> None:
    """`volatile-*` may drop dedup keys and remembered calls: a warning."""
    set_policy(own_server, policy)
    with capture_logs() as logs:
        async with running(make_app(own_server.url, queue_name)):
            pass
    assert bool([line for line in logs if line["event"] == "eviction_policy"]) == warns


async def test_worker_warns_when_it_may_not_look(own_server: Server, queue_name: str) -> None:
    """A user without INFO works, with a warning."""
    with redis.Redis.from_url(own_server.url) as client:
        client.acl_setuser(
            "blind", enabled=True, passwords=["+pw"], keys=["*"], channels=["*"], commands=["+@all", "-info"]
        )
    url = own_server.url.replace("redis://", "redis://blind:pw@")
    with capture_logs() as logs:
        async with running(make_app(url, queue_name)):
            pass
    assert [line for line in logs if line["event"] == "eviction_policy_unknown"]
