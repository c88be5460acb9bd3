"""Jobs that this worker cannot run: bytes that are no call, tasks it does not know, arguments that do not fit."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.protocol.codec import JsonCodec
from tests.worker.support import TRIO, Peek, running, until

pytestmark = pytest.mark.anyio


class Rude(Exception):  # noqa: N818 - as rude as its name
    """An exception of a hook of the user's, which cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError


class RudeCodec:
    """A codec whose hooks fail."""

    encode = staticmethod(JsonCodec().encode)
    decode = staticmethod(JsonCodec().decode)

    def structure(self, value: Any, kind: Any, path: str) -> Any:
        raise Rude


PAYLOADS = [b"\xff\xfe not JSON", b"", b'{"args": 1}', b'["no", "call"]']


async def test_payload_that_is_no_call_is_buried_with_its_bytes(app: App, queue_name: str, peek: Peek) -> None:
    """Nothing helps but a look: buried at the first claim, readable, bytes kept; the neighbour runs."""
    done: list[int] = []

    @app.task(queue=queue_name, max_attempts=9)
    async def handle(n: int) -> None:
        done.append(n)

    async with app:
        queue = app.queue(queue_name)
        jobs = [await queue.enqueue(payload, task="handle") for payload in PAYLOADS]
        await handle.enqueue(1)
        async with running(app):
            await until(lambda: peek.empty() and done)
    for job, payload in zip(jobs, PAYLOADS, strict=True):
        record = peek.record(job.id)
        assert peek.state(job.id) == "dead"
        assert record.payload == payload
        assert record.attempts == 1
        assert record.error is not None
        assert record.error.type.endswith("DecodeError")


@TRIO
@pytest.mark.parametrize("kind", ["unknown", "few", "type", "hook"])
async def test_job_that_does_not_fit_is_put_off_and_then_buried(
    server_url: str, queue_name: str, peek: Peek, kind: str
) -> None:
    """What a rolling deploy looks like: put off without spending budget, and buried once `deploy_window` is over."""
    app = App(server_url, codec=RudeCodec() if kind == "hook" else None)

    @app.task(queue=queue_name, max_attempts=1)
    async def handle(n: float) -> None: ...

    task, payload = {
        "unknown": ("other", b"{}"), "few": ("handle", b"{}"), "type": ("handle", b'{"args":["x"]}'),
        "hook": ("handle", b'{"args":[1]}'),
    }[kind]  # fmt: skip
    with capture_logs() as logs:
        async with app:
            job = await app.queue(queue_name).enqueue(payload, task=task)
            async with running(app, deploy_window=0.2):
                await until(lambda: peek.state(job.id) == "schedule")
                record = peek.record(job.id)
                assert (record.failures, record.stalls) == (0, 0)
                await until(lambda: peek.state(job.id) == "dead")
    record = peek.record(job.id)
    assert record.payload == payload
    assert record.error is not None
    assert (kind == "unknown") == ("unknown task 'other'" in record.error.message)
    assert next(line["log_level"] for line in logs if line["event"] == "job_unfit") == "warning"
    assert [line["log_level"] for line in logs if line["event"] == "job_unfit"][-1] == "error"


@TRIO
async def test_job_that_did_not_fit_runs_where_it_does(app: App, queue_name: str, peek: Peek, server_url: str) -> None:
    """The newer worker takes what the older one put off."""
    done: list[int] = []
    newer = App(server_url)

    @app.task(queue=queue_name)
    async def old() -> None: ...

    @newer.task(queue=queue_name)
    async def new(n: int) -> None:
        done.append(n)

    async with app, newer:
        async with running(app):
            job = await new.enqueue(7)
            await until(lambda: peek.state(job.id) == "schedule")
        async with running(newer):
            await until(lambda: done == [7])


async def test_job_that_gets_no_thread_is_put_off(
    app: App, queue_name: str, peek: Peek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that may start no thread is in trouble, the job is not: another worker may have one."""

    async def refused(*_: Any, **__: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        raise RuntimeError("can't start new thread")

    @app.task(queue=queue_name, max_attempts=1)
    def handle() -> None:
        pass

    monkeypatch.setattr("anyio.to_thread.run_sync", refused)
    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    assert (peek.record(job.id).failures, peek.record(job.id).stalls) == (0, 0)


async def test_thread_handler_that_raises_has_failed(app: App, queue_name: str, peek: Peek) -> None:
    """Also with the error that a missing thread gives."""

    @app.task(queue=queue_name, max_attempts=1)
    def handle() -> None:
        raise RuntimeError("can't start new thread")

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
