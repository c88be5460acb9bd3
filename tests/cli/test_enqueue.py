"""`echomq enqueue`: every option arrives in the row; what does not fit is said and sends nothing."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from echomq import sync
from echomq.protocol.newjob import MAX_PAYLOAD
from echomq.transitions import JobInFull
from tests.cli.support import Runner


def read(queue: sync.Queue, id: str) -> JobInFull:
    """Read a job, which must be there."""
    job = queue.job(id)
    assert job is not None
    return job


def test_enqueue_says_the_id_and_sends_all_options(command: Runner, queue: sync.Queue) -> None:
    """Each of them is in the row."""
    id = command.said(
        "enqueue", queue.name, "send", "--args", '["ann"]', "--kwargs", '{"copies": 2}', "--delay", "600", "--expires", "900",
        "--deadline", "2199-01-01T00:00Z", "--priority", "7", "--lane", "acme", "--dedup", "k", "--dedup-mode", "debounce",
        "--max-attempts", "4", "--max-stalls", "2", "--timeout", "1.5", "--result-ttl", "60",
        "--header", "a=b", "--header", "c=d=e",
    ).strip()  # fmt: skip
    row = read(queue, id).record
    assert orjson.loads(row.payload) == {"args": ["ann"], "kwargs": {"copies": 2}}
    assert (row.state, row.task, row.priority, row.lane, row.dedup) == ("schedule", "send", 7, "acme", "k")
    assert (row.max_attempts, row.max_stalls, row.timeout_ms, row.result_ttl_ms) == (4, 2, 1500, 60_000)
    assert row.headers == {"a": "b", "c": "d=e"}
    assert row.expires_ms is not None
    assert row.deadline_ms == 7_226_582_400_000


def test_enqueue_tells_a_duplicate(command: Runner, queue: sync.Queue) -> None:
    """And what became of the job, to programs in one word."""
    first = command.json("enqueue", queue.name, "send", "--dedup", "k")
    assert first == {"id": first["id"], "queue": queue.name, "outcome": "admitted"}
    assert "already" in command.said("enqueue", queue.name, "send", "--dedup", "k")
    again = command.json("enqueue", queue.name, "send", "--dedup", "k", "--dedup-mode", "replace", "--args", "[1]")
    assert (again["id"], again["outcome"]) == (first["id"], "replaced")
    assert queue.counts().pending == 1


def test_enqueue_takes_a_payload_from_words_a_file_or_the_input(
    command: Runner, queue: sync.Queue, tmp_path: Path
) -> None:
    """Bytes as they are; a file that is not there is a bad argument."""
    file = tmp_path / "payload"
    file.write_bytes(b"\x00\xff\n")
    id = command.said("enqueue", queue.name, "--file", str(file)).strip()
    assert (read(queue, id).record.payload, read(queue, id).record.task) == (b"\x00\xff\n", "")
    result = command("enqueue", queue.name, "--file", "-", stdin=b"\xfe")
    assert read(queue, result.stdout.strip()).record.payload == b"\xfe"
    assert command("enqueue", queue.name, "--file", "-", stdin=b"x" * (MAX_PAYLOAD + 1)).exit_code == 2
    result = command("enqueue", queue.name, "--file", str(tmp_path / "none"))
    assert (result.exit_code, "No such file" in result.stderr) == (2, True)
    id = command.said("enqueue", queue.name, "t", "--payload", "é").strip()
    assert (read(queue, id).record.payload, read(queue, id).record.task) == ("é".encode(), "t")
    assert queue.counts().pending == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "say a TASK"),
        ("send --payload x --args []", "say one of"),
        ("send --payload x --file -", "say one of"),
        ("send --args {}", "--args is a JSON list"),
        ("send --kwargs [", "--kwargs is JSON"),
        ("send --at 2199-01-01", "--at is written as"),
        ("send --at 2199-01-01T00:00Z --delay 5", "delay"),
        ("send --expires soon", "--expires is a number of seconds, or a time"),
        ("send --priority 9999", "priority"),
        ("send --header x", "NAME=TEXT"),
        ("send --lane a{b", "lane"),
        ("send --dedup k --dedup-window 5 --dedup-mode replace", "dedup"),
        ("a\x00b", "task"),
    ],
)
def test_enqueue_refuses_what_does_not_fit(command: Runner, queue: sync.Queue, words: str, said: str) -> None:
    """In one message that names it, before anything is sent."""
    result = command("enqueue", queue.name, *words.split())
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert queue.counts().pending == queue.counts().schedule == 0
