"""Probes over HTTP: true, cheap, and of no harm to the worker whatever clients do."""

from __future__ import annotations

import signal
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import anyio
import orjson
import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from echomq.app import App
from echomq.errors import HealthPortError
from echomq.worker import __main__ as command
from echomq.worker import health
from echomq.worker.entry import run_worker
from echomq.worker.health import Answer, Health, answer
from echomq.worker.run import Worker
from echomq.worker.statistics import Counters, WorkerStatistics
from tests.leftovers import sockets
from tests.worker.processes import let_go, worker_process
from tests.worker.support import QUICK, TRIO, Peek, proxied, running, until
from tests.worker.test_command import put

pytestmark = pytest.mark.anyio


def said(*, ready: bool) -> WorkerStatistics:
    """Make statistics."""
    return WorkerStatistics(ready=ready, running=1, unsettled=2, renewals=3, lag=0.5, counters=Counters(claimed=4))


async def ask(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes, read to the end, and take the answer apart."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(request)
        data = b""
        with anyio.fail_after(10):
            async for chunk in stream:
                data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def get(port: int, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Ask for a path."""
    status, headers, body = await ask(port, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert headers["Connection"] == "close"
    assert method == "HEAD" or int(headers["Content-Length"]) == len(body)
    return status, body


@asynccontextmanager
async def probed(app: App, **options: Any) -> AsyncIterator[tuple[Worker, int]]:
    """Run a worker that answers probes; answers the worker and the port.

    With a margin that leaves a loop some seconds before it is late: a busy machine's pauses are not what is probed.
    """
    with capture_logs() as logs:
        async with running(app, **{"health_port": 0, "lease": 60.0, "margin": 10.0, **options}) as worker:
            await until(lambda: [line for line in logs if line["event"] == "health_listening"])
            (line,) = [line for line in logs if line["event"] == "health_listening"]
            yield worker, line["port"]


@pytest.fixture
def task(app: App, queue_name: str) -> Any:
    """A task."""

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    return handle


@pytest.mark.parametrize(
    ("method", "target", "ready", "status", "words"),
    [
        (b"GET", b"/live", False, 200, b"alive\n"),
        (b"HEAD", b"/live?verbose=1", False, 200, b"alive\n"),
        (b"GET", b"/ready", True, 200, b"ready\n"),
        (b"GET", b"/ready", False, 503, b"not ready\n"),
        (b"POST", b"/ready", True, 405, b"GET or HEAD\n"),
        (b"GET", b"/", True, 404, b"there are /live, /ready, /statistics and /metrics\n"),
        (b"DELETE", b"/live/", True, 404, b"there are /live, /ready, /statistics and /metrics\n"),
    ],
)
def test_health_answers(method: bytes, target: bytes, ready: bool, status: int, words: bytes) -> None:
    """Alive whenever it can say so, ready as the worker says, nothing else."""
    found = answer(method, target, lambda: said(ready=ready), "me")
    assert (found.status, found.body) == (status, words)
    assert dict(found.headers) == ({b"Allow": b"GET, HEAD"} if status == 405 else {})


def test_health_tells_the_statistics() -> None:
    """As JSON, by the names that the worker's own statistics have."""
    found = answer(b"GET", b"/statistics", lambda: said(ready=True), "me")
    assert found.kind == b"application/json"
    told = orjson.loads(found.body)
    assert told.pop("counters")["claimed"] == 4
    assert told == {"worker": "me", "ready": True, "running": 1, "unsettled": 2, "renewals": 3, "lag": 0.5}


async def test_health_of_a_worker_over_http(app: App, task: Any) -> None:
    """What a probe sees of a worker that is well; afterwards nothing listens and no socket is left."""
    before = sockets()
    async with app:
        async with probed(app, name="me") as (_worker, port):
            assert await get(port, "/live") == (200, b"alive\n")
            assert await get(port, "/ready") == (200, b"ready\n")
            assert await get(port, "/ready", "HEAD") == (200, b"")
            assert (await get(port, "/nothing"))[0] == 404
            status, body = await get(port, "/statistics")
            assert (status, orjson.loads(body)["worker"]) == (200, "me")
        with pytest.raises(OSError, match=r"(?i)connection attempts failed|refused"):
            await anyio.connect_tcp("127.0.0.1", port)
    assert sockets() == before


async def test_health_before_the_server_is_up(queue_name: str) -> None:
    """Alive, not ready: an orchestrator waits and does not restart."""
    app = App("redis://127.0.0.1:1")

    @app.task(queue=queue_name)
    async def handle() -> None: ...

    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(run_worker, app, **{**QUICK, "cleanup": 0.1}, health_port=0))
            await until(lambda: [line for line in logs if line["event"] == "health_listening"])
            (port,) = [line["port"] for line in logs if line["event"] == "health_listening"]
            assert (await get(port, "/live"))[0] == 200
            assert (await get(port, "/ready"))[0] == 503
            tasks.cancel_scope.cancel()


async def test_health_while_stopping(app: App, queue_name: str) -> None:
    """Not ready from the first moment of the shutdown, alive until the last verdict is settled."""
    gate = anyio.Event()

    @app.task(queue=queue_name)
    async def handle() -> None:
        await gate.wait()

    async with app, probed(app, grace=30.0) as (worker, port):
        await handle.enqueue()
        await until(lambda: worker.statistics().running)
        assert (await get(port, "/ready"))[0] == 200
        worker.stop()
        assert (await get(port, "/ready"))[0] == 503
        assert (await get(port, "/live"))[0] == 200
        gate.set()


async def test_health_without_the_server_or_the_time(server_url: str, queue_name: str) -> None:
    """Not ready while disconnected or late, ready again after the next claim."""
    async with proxied(server_url) as proxy:
        app = App(proxy.url)

        @app.task(queue=queue_name)
        async def handle() -> None: ...

        async with app, probed(app) as (worker, port):
            worker._watchdog.tick(slept=0.0, lag=9.0)
            assert answer(b"GET", b"/ready", worker.statistics, "").status == 503
            worker._watchdog.tick(slept=0.0, lag=0.0)
            assert answer(b"GET", b"/ready", worker.statistics, "").status == 200
            proxy.refusing = True
            proxy.cut()
            await until(lambda: not worker.statistics().ready)
            assert (await get(port, "/ready"))[0] == 503
            assert (await get(port, "/live"))[0] == 200
            proxy.refusing = False
            await until(lambda: worker.statistics().ready)
            assert (await get(port, "/ready"))[0] == 200


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 TLS, say\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /live HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /live HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 20_000, 431),
        (b"GET /live HTTP/1.0\r\n\r\n", 200),
        (b"GET /live HTTP/1.1\r\nHost: x\r\n\r\nGET /live HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"POST /live HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\n" + b"x" * 4000, 405),
        (b"POST /live HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 405),
    ],
)
async def test_health_answers_broken_requests(app: App, task: Any, request_: bytes, status: int) -> None:
    """What is no request is told so, once, within bounds."""
    async with app, probed(app) as (worker, port):
        found, headers, _ = await ask(port, request_)
        assert found == status
        assert headers["Connection"] == "close"
        assert worker.statistics().ready


async def test_health_bounds_connections_and_never_keeps_a_probe_out(app: App, task: Any) -> None:
    """Hundreds of silent clients: the oldest make room, a probe is answered, the worker works on."""
    async with app, AsyncExitStack() as stack:
        worker, port = await stack.enter_async_context(probed(app))
        silent = [
            await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port)) for _ in range(4 * health.MOST)
        ]
        for stream in silent[::2]:
            await stream.send(b"GET /li")
        assert (await get(port, "/ready"))[0] == 200
        for stream in silent[: 2 * health.MOST]:
            with anyio.fail_after(10), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        await task.enqueue()
        await until(lambda: worker.statistics().counters.completed == 1)


@TRIO
async def test_health_ends_slow_connections(app: App, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not hold a connection: its time counts from the first."""
    monkeypatch.setattr(health, "WITHIN", 0.3)
    async with app, probed(app) as (worker, port):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            ended: list[BaseException] = []
            with anyio.fail_after(10):
                while not ended:
                    try:
                        await stream.send(b"x")
                    except anyio.BrokenResourceError as error:
                        ended.append(error)
                    await anyio.sleep(0.02)
        assert (await get(port, "/live"))[0] == 200
        assert worker.statistics().ready


async def test_health_outlives_clients_that_leave(app: App, task: Any) -> None:
    """Gone before, within and after the request, politely and by reset."""
    async with app, probed(app) as (worker, port):
        for request in (b"", b"GET /li", b"GET /statistics HTTP/1.1\r\nHost: x\r\n\r\n"):
            for reset in (False, True):
                stream = await anyio.connect_tcp("127.0.0.1", port)
                if request:
                    await stream.send(request)
                if reset:
                    raw = stream.extra(anyio.abc.SocketAttribute.raw_socket)
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                await anyio.aclose_forcefully(stream)
        assert (await get(port, "/ready"))[0] == 200
        assert worker.statistics().ready


async def test_health_outlives_a_lack_of_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that cannot be accepted is told in the log, and the next one is tried."""
    monkeypatch.setattr(health, "AGAIN", 0.01)
    tried: list[int] = []

    class Listener:
        async def accept(self) -> Any:
            tried.append(1)
            if len(tried) < 3:
                raise OSError(24, "Too many open files") if len(tried) == 1 else anyio.BrokenResourceError
            await anyio.sleep_forever()

    probes = Health(lambda: said(ready=True), name="me", host="127.0.0.1", port=0)
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(probes._accept, Listener(), tasks)
            await until(lambda: len(tried) == 3)
            tasks.cancel_scope.cancel()
    assert [line["event"] for line in logs] == ["health_not_accepted"] * 2


async def test_health_survives_a_mistake_of_its_own(app: App, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is wrong with the probes is told in the log; the worker works."""
    real = health.answer

    def answers(method: bytes, target: bytes, *args: Any) -> Answer:
        return real(method, target, *args) if target == b"/live" else 1 / 0  # type: ignore[return-value]

    monkeypatch.setattr(health, "answer", answers)
    async with app, probed(app) as (worker, port):
        async with await anyio.connect_tcp("127.0.0.1", port) as stream:
            await stream.send(b"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n")
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        assert (await get(port, "/live"))[0] == 200
        assert worker.statistics().ready


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens at."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield int(other.getsockname()[1])


async def test_health_port_that_is_taken_ends_the_worker(app: App, task: Any, taken: int) -> None:
    """It is said at the start, with host and port."""
    async with app:
        with pytest.raises(HealthPortError, match=rf"127\.0\.0\.1 port {taken}"):
            await run_worker(app, health_port=taken, **QUICK)


@pytest.mark.parametrize("port", [-1, 70_000, 80.0, True, "80"])
async def test_health_port_is_a_port(app: App, task: Any, port: Any) -> None:
    """Anything else is refused before anything is opened."""
    with pytest.raises(ValueError, match="health_port"):
        await run_worker(app, health_port=port)


def test_health_of_the_command(server_url: str, queue_name: str, peek: Peek) -> None:
    """`--health-port 0` logs the port; from SIGTERM on the process is alive and not ready, until it is gone."""
    job = put(peek, "gated")
    options = ("--grace", "30", "--lease", "100", "--health-port", "0")
    with worker_process(server_url, queue_name, *options) as worker:
        port = worker.wait_for("health_listening")["port"]
        worker.wait_told(f"began {job}")

        def status(path: str) -> int:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
                    return int(reply.status)
            except urllib.error.HTTPError as error:
                error.close()
                return error.code

        assert [status("/live"), status("/ready"), status("/x")] == [200, 200, 404]
        worker.signal(signal.SIGTERM)
        worker.wait_for("worker_stopping")
        assert [status("/live"), status("/ready")] == [200, 503]
        let_go(peek.client, queue_name)
        assert worker.wait() == 0
        with pytest.raises(urllib.error.URLError):
            status("/live")


def test_health_port_of_the_command_that_is_taken(server_url: str, queue_name: str, taken: int) -> None:
    """One clear line, code 1."""
    with worker_process(server_url, queue_name, "--health-port", str(taken)) as worker:
        assert worker.wait() == 1
        (line,) = worker.log("worker_failed")
        assert f"127.0.0.1 port {taken}" in line["error"]


def test_health_port_of_the_command_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bad argument."""
    monkeypatch.setattr(command, "configure_logs", lambda *_: None)
    done = CliRunner().invoke(command.main, ["tests.worker.jobs_app:app", "--health-port", "70000"])
    assert done.exit_code == 2
    assert "health_port is 70000" in done.output
