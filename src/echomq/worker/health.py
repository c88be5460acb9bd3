"""Probes over HTTP: is the process alive, is the worker ready, what has it done, what is measured.

Theory of operation
    One request a connection. A connection has `WITHIN` seconds in all and `MOST_BYTES` for its head, and there are at
    most `MOST` of them: a newcomer ends the oldest. So whoever is slow, silent or mad costs little, and never keeps a
    probe out. It is served by the worker's own event loop: when that is blocked there is no answer, which is the point
    of `/live`.

If you change this
    Nothing here may end the worker but a port that cannot be had, which is said at the start. It answers until the last
    verdict is settled: a probe that fails during the grace would have the process killed.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, Final, final

import anyio
import attrs
import h11
import orjson
from anyio.abc import SocketAttribute

from echomq._logs import get_logger
from echomq.errors import HealthPortError

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import ByteStream, TaskGroup

    from echomq.worker.statistics import WorkerStatistics

MOST: Final = 32
"""Connections at once."""
MOST_BYTES: Final = 8192
"""Bytes of a request's head, as other HTTP servers have it. As much of a body that nobody asked for is read away."""
WITHIN: Final = 5.0
"""Seconds for a connection, from its first byte to its last. Probes have their own timeouts, of a second mostly."""
AGAIN: Final = 0.1
"""Seconds until connections are accepted again, when the process has no descriptor left for one."""

_TEXT: Final = b"text/plain; charset=utf-8"
_PROMETHEUS: Final = b"text/plain; version=0.0.4; charset=utf-8"
_BROKEN: Final = (OSError, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)
_log = get_logger("echomq.worker")


@final
@attrs.frozen
class Answer:
    """What a request gets."""

    status: int
    body: bytes
    kind: bytes = _TEXT
    headers: tuple[tuple[bytes, bytes], ...] = ()


def _no_metrics() -> bytes | None:
    return None


def answer(
    method: bytes,
    target: bytes,
    statistics: Callable[[], WorkerStatistics],
    name: str,
    metrics: Callable[[], bytes | None] = _no_metrics,
) -> Answer:
    """Answer a request.

    Args:
        method: `GET` or `HEAD`; others are refused.
        target: The path, perhaps with a query, which means nothing.
        statistics: How the worker is.
        name: What the worker is called.
        metrics: Answers Prometheus text; None if it cannot be made.
    """
    path = target.partition(b"?")[0]
    if path not in {b"/live", b"/ready", b"/statistics", b"/metrics"}:
        return Answer(404, b"there are /live, /ready, /statistics and /metrics\n")
    if method not in {b"GET", b"HEAD"}:
        return Answer(405, b"GET or HEAD\n", headers=((b"Allow", b"GET, HEAD"),))
    if path == b"/live":
        return Answer(200, b"alive\n")
    if path == b"/metrics":
        text = metrics()
        if text is None:
            return Answer(404, b"/metrics needs prometheus-client: pip install 'echomq[prometheus]'\n")
        return Answer(200, text, _PROMETHEUS)
    now = statistics()
    if path == b"/ready":
        return Answer(200, b"ready\n") if now.ready else Answer(503, b"not ready\n")
    body = orjson.dumps({"worker": name, **attrs.asdict(now)}, option=orjson.OPT_APPEND_NEWLINE)
    return Answer(200, body, b"application/json")


@final
class Health:
    """The probes of one worker."""

    def __init__(
        self,
        statistics: Callable[[], WorkerStatistics],
        *,
        name: str,
        host: str,
        port: int,
        metrics: Callable[[], bytes | None] = _no_metrics,
    ) -> None:
        """Prepare; nothing is opened before `run`.

        Args:
            statistics: How the worker is.
            name: What the worker is called.
            host: Where to listen: a name or an address.
            port: At which port; 0: one that is free, which the log names.
            metrics: Answers Prometheus text; None if it cannot be made.
        """
        self._statistics = statistics
        self._name = name
        self._metrics = metrics
        self._host = host
        self._port = port
        self._open: dict[anyio.CancelScope, None] = {}  # an ordered set: the oldest first

    async def run(self) -> None:
        """Listen and answer until cancelled.

        Raises:
            HealthPortError: The port cannot be had.
        """
        try:
            listener = await anyio.create_tcp_listener(local_host=self._host, local_port=self._port)
        except OSError as error:
            raise HealthPortError(self._host, self._port, error.strerror or str(error)) from error
        async with AsyncExitStack() as stack:
            for each in listener.listeners:
                await stack.enter_async_context(each)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            port = listener.extra(SocketAttribute.local_port)  # noqa: S610 - anyio's `extra`, not Django's
            _log.info("health_listening", worker=self._name, host=self._host, port=port)
            for each in listener.listeners:
                tasks.start_soon(self._accept, each, tasks)

    async def _accept(self, listener: Any, tasks: TaskGroup) -> None:
        while True:
            try:
                stream = await listener.accept()
            except (OSError, anyio.BrokenResourceError) as error:
                _log.warning("health_not_accepted", worker=self._name, error=str(error.__cause__ or error))
                await anyio.sleep(AGAIN)
                continue
            while len(self._open) >= MOST:
                oldest = next(iter(self._open))
                del self._open[oldest]
                oldest.cancel()
            scope = anyio.CancelScope(deadline=anyio.current_time() + WITHIN)
            self._open[scope] = None
            tasks.start_soon(self._serve, stream, scope)

    async def _serve(self, stream: ByteStream, scope: anyio.CancelScope) -> None:
        try:
            with scope, suppress(*_BROKEN):
                await self._converse(stream)
        except Exception:  # noqa: BLE001 - a mistake of ours here must not end the worker
            _log.exception("health_failed", worker=self._name)
        finally:
            self._open.pop(scope, None)
            with anyio.CancelScope(shield=True), suppress(OSError):
                await anyio.aclose_forcefully(stream)

    async def _converse(self, stream: ByteStream) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_BYTES)
        head = False
        try:
            while (event := connection.next_event()) is h11.NEED_DATA:
                connection.receive_data(await _receive(stream))
        except h11.RemoteProtocolError as error:
            found = Answer(error.error_status_hint, b"not a request\n")
        else:
            if not isinstance(event, h11.Request):
                return  # left without a word
            head = event.method == b"HEAD"
            found = answer(event.method, event.target, self._statistics, self._name, self._metrics)
        data = connection.send(
            h11.Response(
                status_code=found.status,
                headers=[
                    (b"Content-Type", found.kind),
                    (b"Content-Length", str(len(found.body)).encode()),
                    (b"Cache-Control", b"no-store"),
                    (b"Connection", b"close"),
                    *found.headers,
                ],
            )
        )
        await stream.send((data or b"") + (b"" if head else found.body))
        await stream.send_eof()
        # What is still unread when a socket is closed makes the peer lose the answer.
        left = MOST_BYTES
        while left > 0 and (more := await _receive(stream)):
            left -= len(more)


async def _receive(stream: ByteStream) -> bytes:
    """Read some bytes; none at the end."""
    try:
        return await stream.receive(MOST_BYTES)
    except anyio.EndOfStream:
        return b""
