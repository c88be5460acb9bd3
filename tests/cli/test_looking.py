"""The commands that look: `stats`, `ls`, `show`; what they say to people and to programs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import orjson
import pytest
import redis
from click.testing import CliRunner

from echomq import open_client, sync
from echomq.cli import main
from echomq.cli.output import spelled
from echomq.cli.samples import Sample
from echomq.protocol.ids import mint
from echomq.transitions import Counts
from tests.cli.support import Runner
from tests.cli.test_recovery import bury
from tests.integration.working import claim_one


def facts_of(text: str) -> dict[str, str]:
    """Read what `show` tells, by its names."""
    told = [line.partition("  ") for line in text.partition("\n\n")[0].splitlines()]
    return {name: value.strip() for name, _, value in told if name}


def claim(url: str, name: str) -> str:
    """Claim a job, which nobody then renews, and answer its id."""

    async def work() -> str:
        async with open_client(url) as client:
            return (await claim_one(client, client.queue(name))).id

    return anyio.run(work, backend="trio")


def test_stats_counts_by_state(command: Runner, queue: sync.Queue) -> None:
    """A row a queue, what is remarkable behind it; a queue that nobody uses has nothing."""
    queue.enqueue_many([b""] * 1200, lane="a")
    queue.enqueue(b"", delay=600)
    queue.pause()
    head, row, other = command.said("stats", queue.name, f"{queue.name}-other", queue.name).splitlines()
    assert head.split() == [
        "queue",
        "ready",
        "running",
        "sched",
        "parents",
        "dead",
        "kept",
        "oldest",
        "workers",
        "remarks",
    ]
    cells = row.split()
    assert (cells[:7], cells[-1]) == ([queue.name, "1,200", "0", "1", "0", "0", "0"], "paused")
    assert other.split() == [f"{queue.name}-other", "0", "0", "0", "0", "0", "0", "-", "0"]
    (seen,) = command.json("stats", queue.name)
    assert (seen["counts"]["pending"], seen["counts"]["schedule"], seen["closed"]) == (1200, 1, ["paused"])
    assert (seen["rates"], seen["workers"], seen["problem"]) == (None, [], None)


def test_stats_shows_all_queues_that_are_known(command: Runner, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """By name; and a queue that cannot be read does not keep the others away."""
    queue.enqueue(b"")
    bad = f"{queue.name}.bad"
    redis_client.zadd("emq:queues", {bad: 4e12})
    redis_client.hset(f"emq:{{{bad}}}:meta", "protocol", "9.0")
    try:
        seen = {each["queue"]: each for each in command.json("stats", "--over", "0.1")}
        text = command.said("stats")
    finally:
        redis_client.zrem("emq:queues", bad)
        redis_client.delete(f"emq:{{{bad}}}:meta")
    assert list(seen) == sorted(seen)
    assert seen[queue.name]["counts"]["pending"] == 1
    assert (seen[bad]["counts"], "9.0" in seen[bad]["problem"]) == (None, True)
    assert "9.0" in text


def test_rates_are_differences_of_counters() -> None:
    """One that went back counts from nought; of an unknown past there are none."""

    def sample(at: float, **totals: int) -> Sample:
        numbers = dict.fromkeys(("pending", "active", "schedule", "dead", "waiting", "done", "paused_ms"), 0)
        return Sample(queue="q", at=at, counts=Counts(**numbers, totals=totals))

    first, second = sample(1.0, completed=10, failed=5), sample(3.0, completed=30, failed=4, dead=1)
    assert second.rates(first) == {"completed": 10.0, "failed": 2.0, "dead": 0.5}
    assert second.rates(None) is None
    assert second.rates(second) is None
    assert second.rates(Sample(queue="q", at=1.0, problem="away")) is None


def test_ls_lists_by_state_lane_task_and_error(command: Runner, queue: sync.Queue, server_url: str) -> None:
    """In the order of their turn."""
    name = queue.name
    assert "has no such jobs" in command.said("ls", name)
    (dead,) = bury(server_url, name, ("send", TimeoutError("slow [server]\nagain")))
    plain = queue.enqueue(b"", task="send").id
    laned = queue.enqueue(b"", task="count", lane="acme").id
    later = queue.enqueue(b"", task="send", delay=600).id
    head, *rows = command.said("ls", name).splitlines()
    assert head.split() == ["id", "task", "lane", "attempts", "ready", "for", "error", "or", "reason"]
    assert {row.split()[0] for row in rows} == {plain, laned}
    listed = {words: [each["id"] for each in command.json("ls", name, *words.split())] for words in (
        "--lane acme", "--task count", "-s schedule", "-s schedule --task count", "-s dead --error slow",
        "-s dead --error fast", "-s dead --older 3600", "-s dead --lane acme", "-s active", "-s done", "-s waiting",
    )}  # fmt: skip
    assert listed == {
        "--lane acme": [laned], "--task count": [laned], "-s schedule": [later], "-s schedule --task count": [],
        "-s dead --error slow": [dead], "-s dead --error fast": [], "-s dead --older 3600": [], "-s dead --lane acme": [],
        "-s active": [], "-s done": [], "-s waiting": [],
    }  # fmt: skip
    assert command.json("ls", name, "--lane", "")[0]["id"] == plain
    (row,) = command.said("ls", name, "-s", "dead").splitlines()[1:]
    assert "failed 1 of 1 times" in row
    assert command.json("ls", name, "-s", "dead")[0]["error"] == {
        "type": "TimeoutError",
        "message": "slow [server]\nagain",
    }
    assert "due in" in command.said("ls", name, "-s", "schedule")
    running = {claim(server_url, name) for _ in range(2)}
    assert running == {plain, laned}
    for words, ids in (("", {plain, laned}), ("--lane acme", {laned}), ("--lane=", {plain})):
        assert {each["id"] for each in command.json("ls", name, "-s", "active", *words.split())} == ids


@pytest.mark.parametrize("lane", ["", "acme"])
def test_ls_goes_page_by_page(command: Runner, queue: sync.Queue, lane: str) -> None:
    """And says that there are more; also against the order."""
    ids = [handle.id for handle in queue.enqueue_many([b""] * 5, lane=lane)]  # type: ignore[union-attr]
    for filters in ((), ("--lane", lane), ("--older", "0")):
        pages = [command("ls", queue.name, "-n", "2", "-p", str(page), "--json", *filters) for page in (1, 2, 3, 4)]
        seen = [[each["id"] for each in _load(page.stdout)] for page in pages]
        assert seen == [ids[:2], ids[2:4], ids[4:], []]
    result = command("ls", queue.name, "-n", "2", "--reverse")
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == [ids[4], ids[3]]
    assert result.stderr == "there are more: --page 2\n"
    for words in ("--state nowhere", "-n 0", "-n 257", "-p 0", "--older x", "--lane a{b"):
        assert command("ls", queue.name, *words.split()).exit_code == 2


def _load(text: str) -> Any:
    return orjson.loads(text)


def test_show_tells_all_of_a_job(command: Runner, queue: sync.Queue, server_url: str) -> None:
    """That is ready, that runs, that is dead; without what is empty."""
    handle = queue.enqueue(
        b"\x1b[31m[red]" + b"x" * 600, task="send", lane="acme", priority=3, dedup="k", timeout=90, headers={"a": "b"}
    )
    text = command.said("show", queue.name, handle.id)
    facts = facts_of(text)
    assert facts["job"] == f"{handle.id} in {queue.name}"
    assert facts["state"].startswith("pending: ready for ")
    assert (facts["lane"], facts["priority"], facts["dedup"], facts["timeout"]) == ("acme", "3", "k", "1.5 min")
    assert facts["payload"].startswith("?[31m[red]xxx")
    assert "610 bytes: --whole" in facts["payload"]
    assert "x" * 600 in command.said("show", queue.name, handle.id, "--whole")
    assert not {"held by", "error", "parent", "cancel", "result"} & facts.keys()
    claim(server_url, queue.name)
    facts = facts_of(command.said("show", queue.name, handle.id))
    assert facts["state"].startswith("active: lease ends in ")
    assert facts["held by"].startswith("a worker that was not heard of")
    seen = command.json("show", queue.name, handle.id)
    assert (seen["state"], seen["attempts"], seen["worker"], seen["headers"]) == ("active", 1, None, {"a": "b"})
    assert 0 < seen["lease_left"] <= 30
    (dead,) = bury(server_url, queue.name, ("t", ValueError("one\ntwo")))
    text = command.said("show", queue.name, dead)
    facts = facts_of(text)
    assert (facts["outcome"], facts["error"]) == ("dead: failed 1 of 1 times", "ValueError: one")
    assert "history, as far as" in text
    assert [each["kind"] for each in command.json("show", queue.name, dead)["history"]] == ["dead"]


def test_show_of_what_is_torn_or_gone(command: Runner, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """What can be read is shown; what is not there is said."""
    id = queue.enqueue(b"", task="t").id
    redis_client.hset(queue.keys.job(id), mapping={"attempts": "many", "error": "{"})
    text = command.said("show", queue.name, id)
    facts = facts_of(text)
    assert facts["attempts"].startswith("cannot be read: ")
    assert facts["state"].startswith("pending: ready for ")
    seen = command.json("show", queue.name, id)
    assert (seen["task"], seen["attempts"], sorted(seen["torn"])) == ("t", None, ["attempts", "error"])
    assert "torn" in command.said("ls", queue.name)
    assert command.json("ls", queue.name)[0]["torn"]
    result = command("show", queue.name, mint())
    assert (result.exit_code, "not there" in result.stderr) == (1, True)
    assert command("show", queue.name, "nothing").exit_code == 2


def test_json_spells_what_a_terminal_would_obey() -> None:
    """It is the same value to a program, and harmless to whoever looks at it."""
    value = {"error": "\x1b[2J\x7f\x9b\u200b\u202e\U000e0041 ü \u20ac"}
    text = spelled(value)
    assert orjson.loads(text) == value
    assert text.isprintable()
    assert "ü \u20ac" in text


def test_answer_that_cannot_be_written_is_one_line(server_url: str) -> None:
    """A full disk is no traceback."""
    command = [sys.executable, "-m", "echomq", "queues", "--url", server_url]
    with open("/dev/full", "w", encoding="utf-8") as full:  # noqa: PTH123 - a device
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (1, "error: the answer could not be written: No space left on device\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_completes_the_command(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script names the command; what it calls answers commands and options."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, "_ECHOMQ_COMPLETE" in result.stdout, "echomq" in result.stdout) == (0, True, True)
    assert CliRunner().invoke(main, ["completion", "cmd"]).exit_code == 2
    for typed, wanted in (
        ("echomq ob", "obliterate"),
        ("echomq ls --st", "--state"),
        ("echomq ls q --state sche", "schedule"),
    ):
        *words, last = typed.split()
        monkeypatch.setenv("COMP_WORDS", typed if shell != "fish" else " ".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words)) if shell != "fish" else last)
        result = CliRunner().invoke(main, [], prog_name="echomq", env={"_ECHOMQ_COMPLETE": f"{shell}_complete"})
        assert wanted in result.stdout, (typed, result.stdout)


def test_conformance_answers_programs(command: Runner) -> None:
    """The command is the module's; with `--json` one document says which scenarios passed."""
    result = CliRunner().invoke(main, ["conformance", command.url, "--only", "late holder", "--json"])
    seen = _load(result.stdout)
    assert (result.exit_code, seen["failed"], seen["server"].split()[0]) == (0, 0, "Valkey")
    assert seen["passed"] == len(seen["scenarios"]) > 0
    assert all(each["passed"] and each["checks"] and each["error"] is None for each in seen["scenarios"])


@pytest.mark.parametrize(
    "words", ["stats", "stats q", "top --once", "ls q", "show q JOB0SUSSo66KLS", "enqueue q t", "lanes list -q q"]
)
def test_server_that_is_away_is_code_3(words: str) -> None:
    """In one line."""
    result = Runner("valkey://127.0.0.1:1")(*words.split(), "--wait", "0.05")
    assert (result.exit_code, result.stderr.count("\n"), "is it running" in result.stderr) == (3, 1, True), (
        result.stderr
    )
