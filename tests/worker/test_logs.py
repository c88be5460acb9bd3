"""A log that cannot be written hurts nothing: neither the command's, nor one that the program has configured itself."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from echomq._logs import get_logger
from echomq.app import App
from echomq.backoff import Fixed
from echomq.job import Job
from echomq.worker.logs import configure_logs
from tests.worker.support import Peek, running, until


@pytest.fixture
def configured() -> Iterator[None]:
    """Put structlog's configuration back."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


class Failing:
    """A processor of the program's that raises what it is told to."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error
        self.seen: list[dict[str, Any]] = []

    def __call__(self, _logger: Any, _method: str, values: Any) -> Any:
        if self.error is not None:
            raise self.error
        self.seen.append(dict(values))
        raise structlog.DropEvent


ERRORS = [OSError("full"), BrokenPipeError(), ValueError("closed"), SystemExit(1), GeneratorExit(), RecursionError()]


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_logger_raises_nothing_and_says_what_was_lost(error: BaseException) -> None:
    """What a configuration raises stays within; with the next line that is written the number of lost ones is told."""
    processor = Failing(error)
    structlog.configure(processors=[processor])
    log = get_logger("test")
    for write in (log.debug, log.info, log.warning, log.error, log.exception):
        write("lost", a=1)
    processor.error = None
    log.info("written")
    log.info("written too")
    assert [line["event"] for line in processor.seen] == ["written", "log_lines_lost", "written too"]
    assert processor.seen[1]["count"] == 5


@pytest.mark.usefixtures("configured")
def test_logger_follows_a_later_configuration() -> None:
    """Also one that was used while structlog kept loggers from their first use on."""
    first, second = Failing(None), Failing(None)
    log = get_logger("test")
    for processor in (first, second):
        structlog.configure(processors=[processor], cache_logger_on_first_use=True)
        log.info("written")
    assert [len(first.seen), len(second.seen)] == [1, 1]


@pytest.mark.usefixtures("configured")
def test_logger_lets_ctrl_c_out() -> None:
    """KeyboardInterrupt is not the log's to keep."""
    structlog.configure(processors=[Failing(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        get_logger("test").info("x")


@pytest.mark.anyio
@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("kind", ["error", "exit", "cancelled"])
async def test_worker_works_under_a_log_that_raises(app: App, queue_name: str, peek: Peek, kind: str) -> None:
    """Jobs fail, are put off, blocked, released and done as ever while not one line of the log can be written."""
    error: dict[str, BaseException] = {
        "error": OSError("full"),
        "exit": SystemExit(1),
        "cancelled": asyncio.CancelledError(),
    }
    structlog.configure(processors=[Failing(error[kind])], cache_logger_on_first_use=False)
    done = []

    @app.task(queue=queue_name, max_attempts=2, backoff=Fixed(0))
    async def failing() -> None:
        raise ValueError("on purpose")

    @app.task(queue=queue_name, max_attempts=1)
    async def broken_backoff(job: Job) -> None:
        raise ValueError("on purpose")

    @app.task(queue=queue_name)
    async def good() -> None:
        done.append(1)

    @app.task(queue=queue_name)
    async def endless() -> None:
        await anyio.sleep_forever()

    async with app:
        async with running(app):
            failed = await failing.enqueue()
            await broken_backoff.enqueue()
            await app.queue(queue_name).enqueue(b"no call", task="good")
            unknown = await app.queue(queue_name).enqueue(b"{}", task="unknown")
            await until(lambda: peek.count("dead") == 3 and peek.state(unknown.id) == "schedule")
            assert peek.record(failed.id).failures == 2
            await good.enqueue()
            await until(lambda: done)
            held = await endless.enqueue()
            await until(lambda: peek.state(held.id) == "active")
        record = peek.record(held.id)
    assert (peek.state(held.id), record.failures, record.stalls) == ("pending", 0, 0)


class Stream(io.TextIOBase):
    """A standard error that fails as told."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.text = ""

    def write(self, text: str) -> int:
        """Take the text or fail."""
        if self.error is not None:
            raise self.error
        self.text += text
        return len(text)


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("error", [OSError("full"), BrokenPipeError(), ValueError("closed")], ids=repr)
def test_command_log_swallows_what_its_stream_raises(
    monkeypatch: pytest.MonkeyPatch, form: str, error: BaseException
) -> None:
    """Also for lines of the handlers' own; lost lines are counted and told when the stream takes some again."""
    stream = Stream()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs(form, "info")
    log = structlog.get_logger("a handler's own")
    log.info("first")
    stream.error = error
    log.info("lost", name="\udcff")
    log.warning("lost")
    stream.error = None
    log.info("last", name="\udcff")
    lines = stream.text.splitlines()
    assert len(lines) == 3
    assert "first" in lines[0]
    assert "log_lines_lost" in lines[1]
    assert "2" in lines[1]
    assert "last" in lines[2]


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("form", ["json", "console"])
def test_command_log_does_without_a_standard_error(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """A process may be started without one, or its stream be closed: nothing is written, and nothing raised."""
    monkeypatch.setattr(sys, "stderr", None)
    configure_logs(form, "info")
    structlog.get_logger("x").info("x")
    closed = open(os.devnull, "w")  # noqa: PTH123, SIM115
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    configure_logs(form, "info")
    structlog.get_logger("y").info("y")


@pytest.mark.usefixtures("configured")
def test_command_that_ran_in_this_process_leaves_no_logger_silent() -> None:
    """A logger that was first used meanwhile keeps nothing of it: else what later tests look for would not be said."""
    log, before = get_logger("test"), structlog.get_config()
    configure_logs("console", "error")
    log.warning("not told")
    structlog.configure(**before)
    with capture_logs() as logs:
        log.warning("told")
    assert [each["event"] for each in logs] == ["told"]
