"""The commands that cancel, redrive, mend and erase: what they say to people and programs, and when they ask."""

from __future__ import annotations

from typing import Any

import anyio
import orjson
import pytest
import redis
from click.testing import CliRunner, Result

from echomq import Client, Queue, open_client, sync
from echomq.cli import main
from echomq.protocol.ids import mint
from tests.integration.working import fail


@pytest.fixture
def queue(server_url: str, queue_name: str) -> sync.Queue:
    """The test's own queue."""
    return sync.Client(server_url).queue(queue_name)


@pytest.fixture
def run(server_url: str, queue_name: str) -> Any:
    """Run a command about the test's queue."""

    def call(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--url", server_url, "--queue", queue_name])

    return call


def bury(url: str, name: str, *jobs: tuple[str, Exception]) -> list[str]:
    """Have jobs die."""

    async def work() -> list[str]:
        async with open_client(url) as client:
            return [await one(client, client.queue(name), task, error) for task, error in jobs]

    async def one(client: Client, queue: Queue, task: str, error: Exception) -> str:
        await queue.enqueue(b"", task=task)
        return await fail(client, queue, error)

    return anyio.run(work, backend="trio")


def test_cancel_by_id_answers_for_each(run: Any, queue: sync.Queue) -> None:
    """One that is gone fails the command, and not the others."""
    first, second = queue.enqueue(b""), queue.enqueue(b"")
    result = run("cancel", first.id, "--reason", "no more")
    assert (result.exit_code, result.stdout) == (0, f"{first.id}: cancelled\n")
    gone = mint()
    result = run("cancel", gone, second.id, "--json")
    assert result.exit_code == 1
    answers = orjson.loads(result.stdout)
    assert answers[0]["id"] == gone
    assert "not there" in answers[0]["error"]
    assert answers[1] == {"id": second.id, "outcome": "cancelled"}


def test_cancel_of_many_asks_first(run: Any, queue: sync.Queue) -> None:
    """Where nobody can be asked, it wants to be told."""
    queue.enqueue_many([b""] * 3, task="t", lane="a")
    queue.enqueue(b"", dedup="k")
    result = run("cancel", "--task", "t")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert queue.counts().pending == 4
    result = run("cancel", "--task", "t", "--lane", "a", "--yes")
    assert (result.exit_code, result.stdout) == (0, "3 cancelled, 0 running asked\n")
    result = run("cancel", "--dedup", "k", "--json")
    assert orjson.loads(result.stdout) == {"dedup": "k", "outcome": "cancelled"}
    assert run("cancel").exit_code == 2
    assert run("cancel", mint(), "--task", "t").exit_code == 2
    assert run("cancel", "nothing").exit_code == 2


def test_question_is_answered(run: Any, queue: sync.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """No is no, as is the end of the input; yes is yes."""
    answers = iter(["", "what?\n", "No\n", "y\n"])
    monkeypatch.setattr("echomq.cli.asking.can_ask", lambda: True)
    monkeypatch.setattr("echomq.cli.frame.read_line", lambda: next(answers))
    queue.enqueue(b"", lane="a")
    for _ in range(2):
        result = run("cancel", "--lane", "a")
        assert (result.exit_code, "nothing was done" in result.stderr) == (1, True)
        assert queue.counts().pending == 1
    assert run("cancel", "--lane", "a").exit_code == 0
    assert queue.counts().pending == 0


def test_dead_jobs_are_shown(run: Any, server_url: str, queue_name: str) -> None:
    """With error, attempts and age, for people in a table, for programs in full."""
    first, second = bury(server_url, queue_name, ("send", TimeoutError("slow [server]")), ("count", KeyError("x")))
    result = run("dead")
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert lines[0].split() == ["id", "task", "attempts", "dead", "for", "error", "reason"]
    assert first in lines[1]
    assert "TimeoutError: slow [server]" in lines[1]
    assert second in lines[2]
    (job,) = orjson.loads(run("dead", "--error", "KeyError", "--json").stdout)
    assert (job["id"], job["task"], job["attempts"]) == (second, "count", 1)
    assert job["error"]["type"] == "KeyError"
    assert len(orjson.loads(run("dead", "--json", "-n", "1").stdout)) == 1
    assert "no such dead jobs" in run("dead", "--older", "3600").stdout


def test_redrive_by_id_by_filter_and_all(run: Any, queue: sync.Queue, server_url: str) -> None:
    """It says how many; which ones must be said."""
    dead = bury(server_url, queue.name, *[("t", ValueError())] * 4, ("u", KeyError()))
    assert run("redrive").exit_code == 2
    assert run("redrive", dead[0], "--all").exit_code == 2
    assert run("redrive", dead[0], "--rate", "5").exit_code == 2
    result = run("redrive", dead[0], mint(), "--json")
    assert result.exit_code == 1
    assert orjson.loads(result.stdout)["redriven"] == 1
    assert orjson.loads(run("redrive", "--error", "ValueError", "-n", "2", "--rate", "100/1", "--json").stdout) == {
        "redriven": 2
    }
    result = run("redrive", "--all", "--rate", "1000")
    assert (result.exit_code, result.stdout) == (0, "2 redriven\n")
    assert queue.counts().pending == 5
    assert run("redrive", "--all", "--rate", "fast").exit_code == 2


def test_repair_says_what_it_did(run: Any, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """And names what is nobody's."""
    queue.enqueue_many([b""] * 3)
    redis_client.delete(queue.keys.pending)
    redis_client.set(f"{queue.keys.base}stranger", "x")
    result = run("repair")
    assert result.exit_code == 0
    assert result.stdout.startswith("3 mended, 0 buried, 0 dropped; ")
    assert "'stranger'" in result.stdout
    report = orjson.loads(run("repair", "--json").stdout)
    assert (report["mended"], report["unknown"]) == (0, ["stranger"])


def test_obliterate_asks_and_erases(run: Any, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """A queue that is not paused is refused, unless forced."""
    queue.enqueue_many([b""] * 300)
    assert run("obliterate").exit_code == 2
    result = run("obliterate", "--yes")
    assert (result.exit_code, "paused" in result.stderr) == (1, True)
    assert queue.counts().pending == 300
    result = run("obliterate", "--yes", "--force", "--json")
    assert orjson.loads(result.stdout) == {"queue": queue.name, "erased": 300}
    assert redis_client.keys(f"{queue.keys.base}*") == []
