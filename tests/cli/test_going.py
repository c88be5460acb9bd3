"""The commands that pause, resume and give jobs another time; and the words of what is refused."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
import redis
from click.testing import CliRunner, Result

from echomq import sync
from echomq.cli import main
from echomq.protocol.ids import mint


@pytest.fixture
def queue(server_url: str, queue_name: str) -> sync.Queue:
    """The test's own queue."""
    return sync.Client(server_url).queue(queue_name)


@pytest.fixture
def run(server_url: str) -> Any:
    """Run a command on the test's server."""

    def call(*words: str) -> Result:
        return CliRunner().invoke(main, [*words, "--url", server_url])

    return call


def test_pause_and_resume_say_whether_they_did_it(run: Any, queue: sync.Queue) -> None:
    """For people and for programs."""
    assert run("pause", queue.name).stdout == f"{queue.name}: paused\n"
    assert queue.settings().paused
    assert run("pause", queue.name).stdout == f"{queue.name}: was paused already\n"
    assert orjson.loads(run("resume", queue.name, "--json").stdout) == {
        "queue": queue.name, "paused": False, "changed": True
    }  # fmt: skip
    assert not queue.settings().paused
    assert run("pause").exit_code == 2
    assert run("pause", "a{b").exit_code == 2


def test_reschedule_and_promote_answer_for_each(run: Any, queue: sync.Queue) -> None:
    """One that is gone fails the command, and not the others."""
    id, gone = queue.enqueue(b"").id, mint()
    q = ("-q", queue.name)
    assert run("reschedule", id, *q, "--delay", "600").stdout == f"{id}: rescheduled\n"
    assert queue.counts().schedule == 1
    result = run("promote", gone, id, *q, "--json")
    assert result.exit_code == 1
    answers = orjson.loads(result.stdout)
    assert (answers[0]["id"], "error" in answers[0], answers[1]) == (gone, True, {"id": id, "outcome": "promoted"})
    assert queue.counts().pending == 1
    assert run("reschedule", id, *q, "--at", "2199-01-01T00:00+01:00").exit_code == 0
    assert queue.counts().schedule == 1
    for words in ((), ("--delay", "1", "--at", "2199-01-01T00:00Z"), ("--at", "soon"), ("--at", "2199-01-01")):
        result = run("reschedule", id, *q, *words)
        assert (result.exit_code, "--at" in result.stderr) == (2, True)
    assert run("promote", *q).exit_code == 2
    assert run("promote", "nothing", *q).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("schedules put x --every 5", "--task"),
        ("schedules put x --task t", "--cron or --every (neither"),
        ("schedules put x --task t --every 5 --cron *", "--cron or --every (both"),
        ("schedules put x --task t --every 5 --tz Europe/Berlin", "--tz is for --cron"),
        ("redrive --all --rate 5/1.2.3", "a rate is written as"),
        ("redrive --all --rate 5/.", "a rate is written as"),
        ("obliterate --yes", "or say --force"),
    ],
)
def test_refusals_speak_of_options(run: Any, queue: sync.Queue, words: str, said: str) -> None:
    """And not of Python."""
    queue.enqueue(b"")
    result = run(*words.split(), "-q", queue.name)
    assert result.exit_code != 0
    assert said in result.stderr
    assert "=" not in result.stderr
    assert [each.name for each in queue.schedules] == []


def test_next_wants_an_expression_or_an_interval() -> None:
    """One of them."""
    for words in ((), ("* * * * *", "--every", "5")):
        result = CliRunner().invoke(main, ["schedules", "next", *words])
        assert (result.exit_code, "either an EXPRESSION or --every" in result.stderr) == (2, True)


def test_obliterate_of_a_torn_queue_goes_on(run: Any, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """Though its jobs cannot be counted."""
    queue.enqueue(b"", lane="a")
    redis_client.delete(queue.keys.ring)
    redis_client.set(queue.keys.dead, "x")
    result = run("obliterate", "-q", queue.name, "--yes", "--force")
    assert (result.exit_code, redis_client.keys(f"{queue.keys.base}*")) == (0, [])
    redis_client.set(queue.keys.meta, "x")
    result = run("obliterate", "-q", queue.name, "--yes", "--force")
    assert (result.exit_code, "is no hash: rename it or delete it" in result.stderr) == (1, True)
    redis_client.delete(queue.keys.meta)
