"""What the worker command's log shows of a failed handler, and what it does not show."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import anyio
import pytest
import structlog
from structlog.testing import capture_logs

from echomq._logs import get_logger
from echomq.app import App
from echomq.redaction import Redaction
from echomq.worker import logs
from echomq.worker.logs import REDACT, configure_logs
from echomq.worker.readable import Readable
from tests.worker import process_jobs
from tests.worker.support import Peek, running, until

TEXT = """Traceback (most recent call last):
  File "{here}/jobs.py", line 7, in handle
    fetch(url)
  File "/usr/lib/python3.11/site-packages/httpx/_client.py", line 12, in get
    raise error
httpx.ConnectError: no route
"""


@pytest.fixture
def configured() -> Iterator[None]:
    """Put structlog's configuration back, and what is hidden."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    REDACT.redaction = Redaction()


class Terminal(io.StringIO):
    """A standard error that is one."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def written(monkeypatch: pytest.MonkeyPatch, form: str, stream: io.StringIO, **values: Any) -> str:
    """Answer what the command's log makes of a line."""
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs(form, "info")
    get_logger("test").warning("job_failed", job="J1", task="t", attempt=2, **values)
    return stream.getvalue()


@pytest.mark.usefixtures("configured")
def test_console_shows_a_short_traceback_below_the_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Paths from here, and of libraries from their package on; in the line before it job, task and attempt."""
    monkeypatch.chdir(tmp_path)
    text = written(monkeypatch, "console", io.StringIO(), exception=TEXT.format(here=tmp_path))
    first, rest = text.split("\n", 1)
    assert "attempt=2" in first
    assert "job=J1" in first
    assert rest.rstrip().split("\n") == [
        "Traceback (most recent call last):",
        "  jobs.py:7 in handle",
        "    fetch(url)",
        "  httpx/_client.py:12 in get",
        "    raise error",
        "httpx.ConnectError: no route",
    ]


@pytest.mark.usefixtures("configured")
def test_console_spells_what_a_terminal_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error's text may be anybody's: no escape, bell, return, NUL or reversed text of it reaches the terminal."""
    text = written(monkeypatch, "console", io.StringIO(), exception="ValueError: \x1b[31m\x07\r\x00\x9b\u202e\tü")
    assert text.endswith("ValueError: \\x1b[31m\\x07\\r\\x00\\x9b\\u202e\tü\n")


@pytest.mark.usefixtures("configured")
def test_console_has_colours_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets the same without them."""
    coloured = written(monkeypatch, "console", Terminal(), exception=TEXT)
    plain = written(monkeypatch, "console", io.StringIO(), exception=TEXT)
    assert "\033" not in plain
    assert "\033[31mhttpx.ConnectError: no route\033[0m" in coloured
    bare = re.sub(r"\033\[\d+m", "", coloured)
    assert bare.split("\n")[1:] == plain.split("\n")[1:]


@pytest.mark.usefixtures("configured")
def test_json_keeps_the_text_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """One object a line, with the whole paths."""
    line = json.loads(written(monkeypatch, "json", io.StringIO(), exception=TEXT))
    assert (line["exception"], line["job"]) == (TEXT, "J1")


def test_traceback_of_a_group_keeps_its_tree() -> None:
    """Frames in it are shortened, lines that are no frames stay."""
    text = '  + Exception Group Traceback:\n  |   File "/x/a.py", line 1, in f\n  | ExceptionGroup: two\n'
    shown = Readable(colors=False)(None, "", {"exception": text})["exception"]
    assert shown == "  + Exception Group Traceback:\n  |   /x/a.py:1 in f\n  | ExceptionGroup: two"


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize("form", ["console", "json"])
def test_log_hides_fields_by_their_names(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Also of a logger that was used before the names were known, and within values."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    configure_logs(form, "info")
    log = structlog.get_logger()
    log.info("before", token="shown")
    REDACT.redaction = Redaction.of(("token",))
    log.info("login", Token="s3cret", more={"user": "ada", "token": "s3cret"})
    structlog.contextvars.bind_contextvars(token="s3cret")
    log.info("bound")
    structlog.contextvars.unbind_contextvars("token")
    assert "shown" in stream.getvalue()
    assert "s3cret" not in stream.getvalue()
    assert stream.getvalue().count("[redacted]") == 3
    assert "ada" in stream.getvalue()


async def inner() -> None:
    """Fail where a task group runs it."""
    raise LookupError("on purpose")


@pytest.mark.anyio
async def test_failure_shows_the_frames_of_the_program_alone(app: App, queue_name: str, peek: Peek) -> None:
    """In the log's line and in the row: none of the worker's, the event loop's or the thread's."""

    @app.task(queue=queue_name, max_attempts=1)
    async def in_group() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inner)

    @app.task(queue=queue_name, max_attempts=1)
    def in_thread() -> None:
        raise LookupError("on purpose")

    app.task(queue=queue_name, max_attempts=1, run_in="process")(process_jobs.fail)
    with capture_logs() as captured:
        async with app, running(app, lease=30.0, pool=1) as worker:
            expected = {
                (await in_group.enqueue()).id: ["in_group", "inner"],
                (await in_thread.enqueue()).id: ["in_thread"],
                (await app.tasks["fail"].enqueue("error")).id: ["fail"],
            }
            await until(lambda: worker.statistics().counters.dead == len(expected))
    lines = {line["job"]: line for line in captured if line["event"] == "job_failed"}
    for job, names in expected.items():
        text = lines[job]["exception"]
        assert re.findall(r'File "[^"]+", line \d+, in (\w+)', text) == names
        error = peek.record(job).error
        assert error is not None
        assert error.traceback == text


@pytest.mark.anyio
async def test_failure_without_frames_shows_none(app: App, queue_name: str) -> None:
    """A timeout says all in its line."""

    @app.task(queue=queue_name, max_attempts=1, timeout=0.05)
    async def slow() -> None:
        await anyio.sleep_forever()

    with capture_logs() as captured:
        async with app, running(app) as worker:
            await slow.enqueue()
            await until(lambda: worker.statistics().counters.dead == 1)
    (line,) = [line for line in captured if line["event"] == "job_failed"]
    assert "exception" not in line


def test_this_process_hides_nothing_by_itself() -> None:
    """Names come with an app."""
    assert not logs.REDACT.redaction
