"""The pytest plugin: as a user's test run has it, in a process of its own."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import redis

from echomq.embedded import EmbeddedServerError, Server, open_server

JOBS = """
import echomq

app = echomq.App()


@app.task(result_ttl=60)
async def add(a: int, b: int) -> int:
    return a + b
"""
TESTS = """
import asyncio
import os

import anyio
import pytest
import trio
from jobs import add, app

import echomq
from echomq.testing import drain


@pytest.fixture(params=["trio", "asyncio"])
def anyio_backend(request):
    return request.param


@pytest.fixture
async def opened(echomq_url):
    async with app:
        yield app


async def use():
    counts = await app.queue("default").counts()
    assert (counts.pending, counts.totals) == (0, {})
    handle = await add.enqueue(1, 2)
    await drain(app)
    assert await handle.result(timeout=0) == 3


@pytest.mark.anyio
async def test_fixture_of_anyio(opened):
    await use()


@pytest.mark.trio
async def test_of_pytest_trio(echomq_url):
    async with app:
        await use()


@pytest.mark.parametrize("run", [trio.run, asyncio.run])
def test_plain(run, echomq_url):
    async def main():
        async with app:
            await use()

    run(main) if run is trio.run else run(main())


def test_synchronous_client(echomq_url, echomq_server):
    assert os.environ["ECHOMQ_URL"] == echomq_url == echomq_server.url
    with echomq.sync.Client() as client:
        client.enqueue(add.call(1, 2))
        assert client.queue("default").counts().pending == 1


def test_other_url(echomq_url, monkeypatch):
    elsewhere = echomq.App("valkey://nowhere.invalid:1")
    monkeypatch.setattr(elsewhere, "url", echomq_url)

    async def main():
        async with elsewhere:
            assert (await elsewhere.queue("default").counts()).pending == 0

    anyio.run(main)
"""


def _pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-W",
        "error",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:valkey",
        *arguments,
    ]
    return subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=50, check=False)


def test_fixtures_serve_every_kind_of_test(tmp_path: Path) -> None:
    """Tests of anyio's plugin, of pytest-trio and of none; each finds the server empty, and no warning is raised."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["echomq.testing.pytest"]\n')
    (tmp_path / "jobs.py").write_text(textwrap.dedent(JOBS))
    (tmp_path / "test_jobs.py").write_text(textwrap.dedent(TESTS))
    done = _pytest(tmp_path)
    assert "7 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_plugin_is_not_loaded_unasked() -> None:
    """Who has echomq installed gets no fixtures, and no import, by that."""
    ours = importlib.metadata.distribution("echomq").entry_points
    assert {each.group for each in ours} == {"console_scripts"}


def test_server_flush_empties_all_databases() -> None:
    """With a password, too; and says so when it cannot."""
    with open_server(config={"requirepass": "s3cret"}) as server:
        _fill_and_flush(server)
        server.stop()
        with pytest.raises(EmbeddedServerError, match="does not run"):
            server.flush()
    with (
        open_server(config={"rename-command": "FLUSHALL NOTHING"}) as server,
        pytest.raises(EmbeddedServerError, match="not emptied: -ERR unknown command"),
    ):
        server.flush()


def _fill_and_flush(server: Server) -> None:
    for database in (0, 3):
        with redis.Redis.from_url(f"{server.url}/{database}") as client:
            client.set("key", "value")
    server.flush()
    for database in (0, 3):
        with redis.Redis.from_url(f"{server.url}/{database}") as client:
            assert client.dbsize() == 0
