"""`echomq top`: on a terminal, into a pipe, and while the server is away."""

from __future__ import annotations

import datetime as dt
import io
import os
import signal
import subprocess
import sys
import time
from typing import Any

import orjson
import pytest
from rich.console import Console

from echomq import sync
from echomq.cli.samples import Sample
from echomq.cli.top import View, lines, screen
from echomq.embedded import open_server
from echomq.transitions import Counts
from echomq.workers import RunningJob, WorkerInfo
from tests.cli.support import Runner
from tests.cli.test_interrupts import PATIENCE, Terminal, terminal

NOW = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


def ago(seconds: float) -> dt.datetime:
    """Answer a moment before `NOW`."""
    return NOW - dt.timedelta(seconds=seconds)


def made(**fields: Any) -> View:
    """Make a view of two queues, one of which cannot be read, with two workers that share one of them."""
    numbers = {"pending": 1200, "active": 2, "schedule": 3, "dead": 4, "waiting": 5, "done": 6, "paused_ms": 0}
    job = RunningJob(id="JOB0SUSSo66KLS", task="send [x]", attempt=2, since=ago(75))
    worker: Any = {"host": "h", "pid": 1, "since": ago(600), "seen": ago(3), "concurrency": 10}
    busy = WorkerInfo(name="w-busy", client="a", running=2, jobs=(job,), **worker)
    idle = WorkerInfo(name="w-idle", client="b", running=0, jobs=(), **worker)
    mails = Sample(queue="mails", at=1.0, counts=Counts(**numbers, totals={}), closed=("limit",), workers=[idle, busy])
    rates = {"completed": 1234.56, "failed": 1.0}
    bad = Sample(queue="bad", at=1.0, problem="another version")
    return View(now=NOW, url="valkey://here", queues=[(mails, rates), (bad, None)], **fields)


def drawn(view: View, width: int = 200) -> str:
    """Draw a view on a screen, a wide one unless told otherwise."""
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(screen(view, width))
    return console.export_text()


def test_screen_shows_queues_workers_and_slow_jobs() -> None:
    """Those workers first that have most jobs; names are shown as they are."""
    rows = [line.split() for line in drawn(made()).splitlines()]
    assert rows[0] == ["echomq", "top", "valkey://here", "12:00:00", "UTC"]
    assert ["mails", "1,200", "2", "3", "5", "4", "6", "-", "2", "1,234.6", "1.0", "0.0", "0.0", "limit"] in rows
    assert ["bad", *["?"] * 8, *["-"] * 4, "another", "version"] in rows
    workers = [row for row in rows if row and row[0].startswith("w-")]
    assert workers == [["w-busy", "mails", "2", "10", "3", "s", "ago"], ["w-idle", "mails", "0", "10", "3", "s", "ago"]]
    assert ["JOB0SUSSo66KLS", "mails", "send", "[x]", "1.2", "min", "2", "w-busy"] in rows


def test_narrow_screen_goes_without_some_columns() -> None:
    """And breaks no number."""
    rows = [line.split() for line in drawn(made(), 80).splitlines()]
    assert rows[2] == ["queue", "ready", "running", "dead", "oldest", "workers", "done/s", "fail/s", "remarks"]
    assert rows[3] == ["mails", "1,200", "2", "4", "-", "2", "1,234.6", "1.0", "limit"]
    assert max(map(len, drawn(made(), 80).splitlines())) <= 80


def test_view_of_a_server_that_is_away_says_so() -> None:
    """On the screen, which keeps what was seen last, and in lines."""
    view = made(away="no answer")
    assert "the server is away: no answer; trying on" in drawn(view)
    assert "mails" in drawn(view)
    assert list(lines(view)) == ["2026-01-02T12:00:00Z the server is away: no answer; trying on"]
    first, second = lines(made())
    assert first == (
        "2026-01-02T12:00:00Z mails ready=1,200 running=2 sched=3 parents=5 dead=4 kept=6 oldest=- workers=2 "
        "done/s=1234.6 fail/s=1.0 died/s=0.0 stall/s=0.0 (limit)"
    )
    assert second == "2026-01-02T12:00:00Z bad another version"


def test_top_once_shows_rates(command: Runner, queue: sync.Queue) -> None:
    """Of two looks, an interval apart."""
    queue.enqueue_many([b""] * 3, lane="acme")
    text = command.said("top", queue.name, "--once", "--interval", "0.1")
    rows = [line.split() for line in text.splitlines()]
    assert [queue.name, "3"] in [row[:2] for row in rows]
    assert ["acme", queue.name, "3", "0"] in [row[:4] for row in rows]
    view = command.json("top", queue.name, "--once", "--interval", "0.1")
    assert (view["queues"][0]["queue"], view["queues"][0]["rates"], view["away"]) == (queue.name, {}, None)
    assert command("top", queue.name, "--interval", "0").exit_code == 2


def refreshed(it: Terminal, times: int) -> None:
    """Wait until the screen was drawn so often."""
    while it.seen.count(b"echomq top") < times:
        it.read_until(b"echomq top")
        it.seen, before = b"", it.seen
        it.read_until(b"echomq top")
        it.seen = before + it.seen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_top_leaves_the_terminal_as_it_was(server_url: str, queue: sync.Queue, number: signal.Signals) -> None:
    """Drawn twice and more, then ended by Ctrl-C or a signal: the other screen is left, the cursor is there."""
    queue.enqueue(b"")
    with terminal("top", queue.name, "--interval", "0.1", "--url", server_url) as it:
        refreshed(it, 3)
        if number == signal.SIGINT:
            os.write(it.master, b"\x03")
        else:
            it.process.send_signal(number)
        assert it.ended() == (130 if number == signal.SIGINT else -number)
        assert it.seen.rfind(b"\x1b[?1049l") > it.seen.rfind(b"\x1b[?1049h") >= 0
        assert it.seen.rfind(b"\x1b[?25h") > it.seen.rfind(b"\x1b[?25l") >= 0
        assert b"Traceback" not in it.seen


def test_top_into_a_pipe_goes_on_when_the_server_is_back() -> None:
    """A line a refresh; while the server is stopped it says so, and afterwards there are lines again."""
    with open_server() as server:
        sync.Client(server.url).queue("q").enqueue(b"")
        words = ("top", "q", "--interval", "0.1", "--wait", "0.3", "--url", server.url)
        with subprocess.Popen([sys.executable, "-m", "echomq", *words], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            seen: list[str] = []

            def read(*texts: str) -> None:
                end = time.monotonic() + PATIENCE
                while not all(text in (seen[-1] if seen else "") for text in texts):
                    assert time.monotonic() < end, seen
                    seen.append(process.stdout.readline())  # type: ignore[union-attr]

            try:
                read("q ready=1", "done/s=0.0")
                os.kill(server.pid, signal.SIGSTOP)
                read("the server is away: ")
                os.kill(server.pid, signal.SIGCONT)
                read("q ready=1", "done/s=0.0")
            finally:
                os.kill(server.pid, signal.SIGCONT)
                process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 130


def test_top_for_programs_writes_an_object_a_line(server_url: str, queue: sync.Queue) -> None:
    """Until its reader has gone."""
    queue.enqueue(b"")
    words = ("top", queue.name, "--json", "--interval", "0.1", "--url", server_url)
    with subprocess.Popen(
        [sys.executable, "-m", "echomq", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as it:
        assert it.stdout is not None
        assert it.stderr is not None
        first, second = (orjson.loads(it.stdout.readline()) for _ in range(2))
        assert (first["queues"][0]["rates"], second["queues"][0]["rates"]) == (None, {})
        it.stdout.close()
        assert it.wait(PATIENCE) == 1
        assert b"Traceback" not in it.stderr.read()
