"""`echomq schedules ...`: what it prints, in both forms, and how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis
from click.testing import CliRunner, Result

from echomq.cli import main
from echomq.protocol.keys import QueueKeys

Command = Callable[..., Result]


@pytest.fixture
def run(server_url: str, queue_name: str) -> Command:
    """Run a command on the test's queue; `code` is what it must end with."""

    def run(verb: str, *words: str, code: int = 0, queue: str | None = queue_name, url: str = server_url) -> Result:
        where = [] if queue is None else ["--queue", queue]
        result = CliRunner(env={"ECHOMQ_URL": url}).invoke(main, ["schedules", verb, *where, *words])
        assert result.exit_code == code, result.output
        return result

    return run


def data(result: Result) -> Any:
    """Read what was answered in JSON."""
    return json.loads(result.stdout)


def test_schedules_are_put_and_listed(run: Command) -> None:
    """Put says what it did; list shows what stands."""
    assert run("list").stdout.endswith("has no recurring jobs\n")
    words = ("nightly", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", "--task", "report", "--args", "[1]")
    assert run("put", *words).stdout.startswith("nightly: created; next run 2")
    assert run("put", *words).stdout.startswith("nightly: stands so already")
    assert run("put", *words, "--overlap", "skip", "--lane", "[slow]").stdout.startswith("nightly: changed")
    listed = run("list", "--runs", "2").stdout.splitlines()
    assert listed[0].split()[:4] == ["name", "task", "slots", "next"]
    assert "30 2 * * * (Europe/Berlin)" in listed[1]
    assert "overlap: skip, lane: [slow]" in listed[1]
    assert len(listed) == 3  # a line for the second run
    (found,) = data(run("list", "--json"))
    assert (found["name"], found["task"], found["payload"], found["lane"]) == (
        "nightly", "report", '{"args":[1]}', "[slow]"
    )  # fmt: skip
    assert found["spec"] == {"v": 1, "cron": "30 2 * * *", "tz": "Europe/Berlin"}
    assert len(found["next_runs"]) == 1


def test_every_option_of_put_gets_there(run: Command, redis_client: redis.Redis, queue_name: str) -> None:
    """What a program can say, a person can type."""
    answer = data(
        run(
            "put", "all", "--every", "3600", "--start", "2030-01-01T00:00", "--end", "2030-01-01T05:00+01:00", "--limit", "9",
            "--missed", "all", "--jitter", "5", "--kwargs", '{"x": 2}', "--task", "t", "--priority", "3", "--expires", "60",
            "--deadline", "120", "--max-attempts", "4", "--timeout", "30", "--result-ttl", "60", "--json",
        )
    )  # fmt: skip
    assert answer == {"name": "all", "outcome": "created", "next_run": "2030-01-01T00:00:00+00:00"}
    (found,) = data(run("list", "--json", "--runs", "100"))
    assert found["spec"] == {
        "v": 1, "every": 3_600_000, "start": 1_893_456_000_000, "end": 1_893_470_400_000, "limit": 9, "missed": "all",
        "jitter": 5000,
    }  # fmt: skip
    assert len(found["next_runs"]) == 5
    row: Any = redis_client.hgetall(QueueKeys(queue=queue_name).schedule_of("all"))
    assert row[b"ends"] == b"+60000 +120000"
    assert row[b"priority"] == b"3"
    assert (row[b"f:max_attempts"], row[b"f:timeout_ms"], row[b"f:result_ttl_ms"]) == (b"4", b"30000", b"60000")


def test_schedule_is_paused_resumed_run_and_removed(run: Command, redis_client: redis.Redis, queue_name: str) -> None:
    """Each says whether it did something."""
    run("put", "a", "--every", "60", "--payload", "x")
    assert run("pause", "a").stdout == "a: paused\n"
    assert run("pause", "a").stdout == "a: was paused already\n"
    assert "paused since" in run("list").stdout
    assert data(run("resume", "a", "--json")) == {"name": "a", "paused": False, "changed": True}
    assert run("resume", "a").stdout == "a: was not paused\n"
    id = run("run", "a").stdout.strip()
    assert redis_client.zscore(QueueKeys(queue=queue_name).pending, id) is not None
    assert run("remove", "a").stdout == "a: removed\n"


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "remove"])
def test_unknown_schedule_is_code_1(run: Command, queue_name: str, verb: str) -> None:
    """One line on standard error names it."""
    result = run(verb, "none", code=1)
    assert result.stderr == f"error: queue {queue_name!r} has no recurring schedule 'none'\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("put", "a", "--task", "t"), "either --cron or --every"),
        (("put", "a", "--task", "t", "--every", "0"), "an interval is 0.1 seconds"),
        (("put", "a", "--task", "t", "--cron", "61 * * * *"), "its minute cannot be '61'"),
        (("put", "a", "--task", "t", "--cron", "* * * * *", "--tz", "Mars"), "there is no time zone 'Mars'"),
        (("put", "a b", "--task", "t", "--every", "5"), "a schedule's name"),
        (("put", "a", "--task", "t", "--every", "5", "--args", "{"), "--args is JSON"),
        (("put", "a", "--task", "t", "--every", "5", "--args", "5"), "--args is a JSON list, not 5"),
        (("put", "a", "--task", "t", "--every", "5", "--payload", "x", "--args", "[]"), "either --payload"),
        (("put", "a", "--task", "t", "--every", "5", "--priority", "9999"), "priority: 9999"),
        (("put", "a", "--task", "t", "--every", "5", "--start", "tomorrow"), "a time is written as"),
        (("put", "a", "--task", "t", "--every", "5", "--missed", "none"), "--missed"),
        (("list", "--url", "http://x"), "not a server's URL"),
        (("list", "--prefix", "{"), "a key prefix"),
    ],
)
def test_bad_arguments_are_code_2(run: Command, words: tuple[str, ...], says: str) -> None:
    """The message shows what is wrong, and nothing is sent."""
    assert says in run(*words, code=2).stderr
    assert "has no recurring jobs" in run("list").stdout


def test_commands_need_a_queue_and_a_server(run: Command) -> None:
    """Both are asked for by name."""
    assert "--queue" in run("list", code=2, queue=None).stderr
    assert "a queue's name is" in run("list", code=2, queue="x y").stderr
    assert "ECHOMQ_URL" in run("list", code=2, url="").stderr


def test_server_that_is_away_is_code_3(run: Command) -> None:
    """With what to look at, and nothing on standard output."""
    result = run("list", "--wait", "0.2", code=3, url="valkey://127.0.0.1:1")
    assert "is it running, and is --url (or $ECHOMQ_URL) right?" in result.stderr
    assert result.stdout == ""


def test_next_shows_the_runs_of_an_expression_without_a_server(run: Command) -> None:
    """In its zone and in UTC; a run that the clock skips is at the gap's end."""
    words = ("30 2 * * *", "--tz", "America/New_York", "--after", "2025-03-08T00:00", "-n", "3")
    result = run("next", *words, queue=None, url="")
    assert [line.split("  ") for line in result.stdout.splitlines()[1:]] == [
        ["2025-03-08 02:30:00-05:00", "2025-03-08 07:30:00+00:00"],
        ["2025-03-09 03:00:00-04:00", "2025-03-09 07:00:00+00:00"],
        ["2025-03-10 02:30:00-04:00", "2025-03-10 06:30:00+00:00"],
    ]
    found = data(run("next", *words, "--json", queue=None, url=""))
    assert found[1] == {"utc": "2025-03-09T07:00:00+00:00", "local": "2025-03-09T03:00:00-04:00"}
    result = run("next", "--every", "0.25", "--after", "2025-01-01T00:00", "-n", "1", queue=None, url="")
    assert "2025-01-01 00:00:00.250+00:00" in result.stdout
    assert "its hour cannot be '25'" in run("next", "0 25 * * *", code=2, queue=None, url="").stderr
    assert "there is no time zone" in run("next", "0 5 * * *", "--tz", "X", code=2, queue=None, url="").stderr


def test_list_shows_a_definition_that_cannot_be_read(run: Command, redis_client: redis.Redis, queue_name: str) -> None:
    """Control characters, if it has some, do not reach the terminal."""
    run("put", "a", "--task", "t", "--every", "60")
    row = QueueKeys(queue=queue_name).schedule_of("a")
    redis_client.hset(row, mapping={"spec": b'{"v":2}', "lane": b"\x1b[31mred", "f:task": b"\x07t"})
    listed = run("list").stdout
    assert "unreadable: not of version 1" in listed
    assert "\x1b[31m" not in listed
    assert "\x07" not in listed


def test_command_is_there_as_a_module(server_url: str, queue_name: str) -> None:
    """`python -m echomq`, and its help."""
    env = {**os.environ, "ECHOMQ_URL": server_url}
    for words, says in ((["--help"], "schedules"), (["schedules", "list", "-q", queue_name], "no recurring jobs")):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "echomq", *words],
            env=env,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert says in done.stdout
