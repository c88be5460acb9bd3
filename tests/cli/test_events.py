"""`echomq events`: what has happened, by line and by JSON, and what happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from echomq import sync
from echomq.cli import main
from echomq.protocol.ids import mint


@pytest.fixture
def queue(server_url: str, queue_name: str) -> sync.Queue:
    """The test's own queue, which keeps all events."""
    queue = sync.Client(server_url).queue(queue_name)
    queue.configure(events="all")
    return queue


@pytest.fixture
def run(server_url: str) -> Any:
    """Run a command on the test's server."""

    def call(*words: str) -> Result:
        return CliRunner().invoke(main, ["events", *words, "--url", server_url])

    return call


def test_events_shows_what_is_kept(run: Any, queue: sync.Queue) -> None:
    """A line an event; of a job, of kinds, from a position or a moment on."""
    handle, other = queue.enqueue(b"", delay=60), queue.enqueue(b"")
    handle.cancel(reason="sold \x1b[2Jout")
    lines = run(queue.name).stdout.splitlines()
    assert [line.split()[2:4] for line in lines] == [
        ["enqueued", handle.id], ["enqueued", other.id], ["cancelled", handle.id]
    ]  # fmt: skip
    assert lines[2].endswith("reason=sold ?[2Jout")
    of_job = [orjson.loads(line) for line in run(queue.name, "--job", handle.id, "--json").stdout.splitlines()]
    assert [(it["kind"], it["job"], it["queue"]) for it in of_job] == [
        ("enqueued", handle.id, queue.name), ("cancelled", handle.id, queue.name)
    ]  # fmt: skip
    assert (of_job[1]["reason"], set(of_job[0])) == ("sold \x1b[2Jout", {"id", "kind", "queue", "job", "at"})
    assert len(run(queue.name, "--since", of_job[0]["id"]).stdout.splitlines()) == 2
    assert len(run(queue.name, "--since", of_job[1]["at"], "--kind", "cancelled").stdout.splitlines()) == 1
    assert run(queue.name, "--since", "2199-01-01T00:00Z", "--kind", "dead", "--kind", "failed").stdout == ""
    assert run(queue.name, "--job", mint()).stdout == ""


def test_events_spells_moments_and_gaps(run: Any, queue: sync.Queue) -> None:
    """A moment reads as one; what is gone is said in its place."""
    handle = queue.enqueue(b"")
    queue.reschedule([handle.id], delay=3600)
    (event,) = queue.events("0", follow=False, kinds=["rescheduled"])
    assert run(queue.name).stdout.splitlines()[1].endswith(f"due={event.due.isoformat(' ', 'milliseconds')}")  # type: ignore[union-attr]
    queue.configure(events_max=1)
    queue.enqueue_many([b""] * 300)
    gap = run(queue.name, "--since", "1-1").stdout.splitlines()[0]
    assert gap.startswith("-- perhaps some events are gone before they could be read")
    told = orjson.loads(run(queue.name, "--since", "1-1", "--json").stdout.splitlines()[0])
    assert (told["kind"], told["after"], told["missed"]) == ("gap", "1-1", None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--since", "soon"], "soon"), (["--since", "2026-01-01T00:00"], "needs an offset"), (["--since", "1:2"], "1:2"),
        (["--since", "2026-01-01"], "such as 2026-01-01T00:00Z"), (["--since", "tomorrow"], "nor a moment such as"),
        (["--kind", "died"], "died"), (["--job", "x"], "an id is"),
    ],
)  # fmt: skip
def test_events_refuses_what_it_cannot_read(run: Any, queue: sync.Queue, words: list[str], says: str) -> None:
    """With the value, and the exit code of bad arguments."""
    result = run(queue.name, *words)
    assert (result.exit_code, says in result.stderr) == (2, True), result.stderr


def test_events_follows_until_it_is_interrupted(server_url: str, queue: sync.Queue) -> None:
    """A process of its own, which shows each event as it comes, and goes by Ctrl-C."""
    queue.enqueue(b"")
    command = [
        sys.executable,
        "-m",
        "echomq",
        "events",
        queue.name,
        "--url",
        server_url,
        "--since",
        "0",
        "-f",
        "--json",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None
        assert orjson.loads(process.stdout.readline())["kind"] == "enqueued"
        queue.pause()
        assert orjson.loads(process.stdout.readline())["kind"] == "paused"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
