"""The commands that change, clear and look at workers and queues: what they say, and when they ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from echomq import sync
from echomq.cli import main
from echomq.protocol.ids import mint
from echomq.transitions import Pulse, Running, beat


@pytest.fixture
def queue(server_url: str, queue_name: str) -> sync.Queue:
    """The test's own queue."""
    return sync.Client(server_url).queue(queue_name)


@pytest.fixture
def run(server_url: str, queue_name: str) -> Any:
    """Run a command about the test's queue."""

    def call(*words: str, piped: bytes | None = None) -> Result:
        return CliRunner().invoke(main, [*words, "--url", server_url, "--queue", queue_name], input=piped)

    return call


def test_update_takes_the_payload_from_words_a_file_or_the_input(run: Any, queue: sync.Queue, tmp_path: Path) -> None:
    """One of them must be said."""
    id = queue.enqueue(b"old").id

    def payload() -> bytes:
        job = queue.job(id)
        assert job is not None
        return job.record.payload

    result = run("update", id, "--payload", '{"a": "é"}')
    assert (result.exit_code, result.stdout) == (0, f"{id}: updated\n")
    assert payload() == '{"a": "é"}'.encode()
    (tmp_path / "payload").write_bytes(b"\xff\x00")
    assert orjson.loads(run("update", id, "--file", str(tmp_path / "payload"), "--json").stdout)["outcome"] == "updated"
    assert payload() == b"\xff\x00"
    assert run("update", id, "--file", "-", piped=b"piped").exit_code == 0
    assert payload() == b"piped"
    assert run("update", id).exit_code == 2
    assert run("update", id, "--payload", "a", "--file", "-").exit_code == 2
    assert run("update", "nothing", "--payload", "a").exit_code == 2
    result = run("update", mint(), "--payload", "a")
    assert (result.exit_code, "not there" in result.stderr) == (1, True)


def test_reprioritise_answers_for_each(run: Any, queue: sync.Queue) -> None:
    """One that is gone fails the command, and not the others."""
    first, gone = queue.enqueue(b"").id, mint()
    result = run("reprioritise", gone, first, "--priority", "7")
    assert (result.exit_code, result.stdout) == (1, f"{first}: reprioritised\n")
    assert gone in result.stderr
    assert [job.record.priority for job in queue.find("pending")] == [7]
    assert run("reprioritise", first, "-p", "-3").exit_code == 0
    assert run("reprioritise", first, "-p", "2048").exit_code == 2
    assert run("reprioritise", first).exit_code == 2


def test_drain_asks_and_says_how_many(run: Any, queue: sync.Queue) -> None:
    """A lane, or all; the scheduled only when asked for."""
    queue.enqueue_many([b""] * 3)
    queue.enqueue_many([b""] * 2, lane="a")
    queue.enqueue(b"", lane="a", delay=60)
    queue.enqueue(b"", delay=60)
    result = run("drain")
    assert (result.exit_code, "5 ready jobs" in result.stderr, "--yes" in result.stderr) == (2, True, True)
    assert "the ready and scheduled jobs of lane 'a'" in run("drain", "--lane", "a", "--scheduled").stderr
    assert queue.counts().pending == 5
    result = run("drain", "--lane", "a", "--yes")
    assert (result.exit_code, result.stdout) == (0, "2 removed\n")
    assert orjson.loads(run("drain", "--yes", "--json").stdout)["removed"] == 3
    assert queue.counts().schedule == 2
    assert run("drain", "--lane", "a", "--scheduled", "--yes").stdout == "1 removed\n"
    assert run("drain", "--scheduled", "--yes").stdout == "1 removed\n"


def test_trim_asks_only_for_limits_of_its_own(run: Any, queue: sync.Queue) -> None:
    """What the settings say goes anyway."""
    assert run("trim").stdout == "0 dropped\n"
    result = run("trim", "--dead-max", "0", "--dead-age", "60")
    assert (result.exit_code, "beyond --dead-max 0 --dead-age 60" in result.stderr) == (2, True)
    assert orjson.loads(run("trim", "--dead-max", "0", "--yes", "--json").stdout) == {"queue": queue.name, "dropped": 0}
    assert run("trim", "--done-max", "-1", "--yes").exit_code == 2


def test_workers_and_queues_are_listed(server_url: str, queue_name: str, queue: sync.Queue) -> None:
    """Of one queue, or of all that are known; for people and for programs."""

    def run(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--url", server_url])

    assert run("workers", queue_name).stdout == "no worker is alive\n"
    queue.enqueue(b"")
    jobs = [Running(mint(), "send", 1, 90_000), *(Running(mint(), "", 1, 0) for _ in range(3))]
    pulse = Pulse(name="mailer [1]", host="h", pid=7, up_ms=1, concurrency=10, running=4, jobs=jobs)
    queue.runner.run(beat(queue.keys, queue.runner.call(), pulse=pulse))
    result = run("workers", queue_name)
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[0].split()[:6]) == (0, ["queue", "worker", "host", "pid", "since", "runs"])
    assert "mailer [1]" in lines[1]
    assert "4/10" in lines[1]
    assert f"{jobs[0].id} send 90 s" in lines[1]
    assert lines[4].strip() == "..."
    (worker,) = [each for each in orjson.loads(run("workers", "--json").stdout) if each["queue"] == queue_name]
    assert (worker["name"], worker["pid"], len(worker["jobs"])) == ("mailer [1]", 7, 4)
    assert queue_name in run("queues").stdout
    (known,) = [each for each in orjson.loads(run("queues", "--json").stdout) if each["queue"] == queue_name]
    assert known["used_at"].endswith("+00:00")
    assert run("workers", "no queue").exit_code == 2
    queue.obliterate(force=True)
