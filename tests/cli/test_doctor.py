"""`echomq doctor` on real queues: it finds what is torn and stuck, mends nothing, and says what does."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import pytest
import redis

from echomq import sync
from echomq.protocol.ids import mint
from echomq.wire.client import WireClient
from tests.cli.support import Runner
from tests.cli.test_recovery import bury


def by_check(report: dict[str, Any], queue: str) -> dict[str, tuple[str, str]]:
    """Answer level and text of a queue's checks, by their names."""
    return {each["check"]: (each["level"], each["text"]) for each in report["findings"] if each["queue"] == queue}


def test_doctor_finds_a_sound_queue_sound(command: Runner, queue: sync.Queue) -> None:
    """Jobs in every kind of place, lanes that wait for something among them; and it says so to people, too."""
    queue.enqueue_many([b""] * 3, lane="a")
    queue.enqueue_many([b""] * 3, lane="b")
    queue.lane("b").pause()
    queue.lane("empty").configure(weight=2)  # which has nothing that could be served
    queue.enqueue(b"")
    queue.enqueue(b"", delay=600)
    queue.pause()  # nobody works here, and need not
    text = command.said("doctor", queue.name)
    assert f"ok       lanes of {queue.name}: 4 looked at, none is stuck" in text
    report = command.json("doctor", queue.name, queue.name)
    assert report["problems"] == 0
    seen = by_check(report, queue.name)
    assert seen["rows"] == ("ok", "none is torn (8 rows looked at)")
    assert seen["lanes"][0] == seen["paused"][0] == seen["workers"][0] == "ok"
    queue.resume()
    seen = by_check(command.json("doctor", queue.name, code=1), queue.name)
    assert seen["workers"] == ("problem", "0 alive; 7 jobs ready, 0 running")
    assert {each["check"] for each in report["findings"]} >= {"server", "persistence", "eviction", "clock", "latency"}


def test_doctor_finds_what_repair_mends(command: Runner, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """Rows without a place, places without a row, lanes out of the rota; it changes no key, and `repair` ends them."""
    (dead,) = bury(command.url, queue.name, ("t", ValueError()))
    queue.enqueue(b"", lane="a")
    id, stray = queue.enqueue(b"", delay=600).id, mint()
    redis_client.zrem(queue.keys.schedule, id)
    redis_client.zadd(queue.keys.dead, {stray: 1})
    redis_client.delete(queue.keys.ring)
    queue.pause()  # nobody works here, and need not
    before = {key: redis_client.dump(key) for key in redis_client.keys(f"{queue.keys.base}*")}
    report = command.json("doctor", queue.name, code=1)
    assert {key: redis_client.dump(key) for key in redis_client.keys(f"{queue.keys.base}*")} == before
    seen = by_check(report, queue.name)
    assert seen["lanes"] == ("problem", "1 with ready jobs that nobody will serve: 'a'")
    assert seen["rows"][0] == "problem"
    assert f"{id}, which is not in schedule" in seen["rows"][1]
    assert f"{stray} in dead, without a row" in seen["rows"][1]
    assert dead not in seen["rows"][1]
    assert f"to do: echomq repair -q {queue.name}" in command.said("doctor", queue.name, code=1)
    command.said("repair", "-q", queue.name)
    assert command.json("doctor", queue.name)["problems"] == 0


def test_doctor_finds_a_row_that_cannot_be_read_and_a_key_of_another_type(
    command: Runner, queue: sync.Queue, redis_client: redis.Redis
) -> None:
    """Neither ends the command."""
    id = queue.enqueue(b"").id
    redis_client.hset(queue.keys.job(id), "state", "nowhere")
    level, text = by_check(command.json("doctor", queue.name, code=1), queue.name)["rows"]
    assert (level, "unknown state 'nowhere'" in text) == ("problem", True)
    redis_client.set(queue.keys.dead, "x")
    level, text = by_check(command.json("doctor", queue.name, code=1), queue.name)["rows"]
    assert (level, "of another type" in text) == ("problem", True)
    redis_client.delete(queue.keys.dead)


def test_doctor_tells_of_pauses_erasing_and_other_versions(
    command: Runner, queue: sync.Queue, redis_client: redis.Redis
) -> None:
    """By the server's clock."""
    queue.enqueue(b"")
    queue.pause()
    hours_ago = int((time.time() - 7200) * 1000)
    redis_client.hset(queue.keys.meta, mapping={"paused": hours_ago, "closing": hours_ago})
    seen = by_check(command.json("doctor", queue.name, code=1), queue.name)
    assert seen["paused"] == ("warning", "for 2.0 h; 1 jobs are ready")
    assert (seen["closing"][0], "2.0 h ago" in seen["closing"][1]) == ("problem", True)
    redis_client.hset(queue.keys.meta, "protocol", "9.0")
    (level, text), *more = by_check(command.json("doctor", queue.name, code=1), queue.name).values()
    assert (level, "9.0" in text, more) == ("problem", True, [])
    redis_client.hset(queue.keys.meta, "protocol", "1.0")


def test_doctor_of_a_user_who_may_not_look(server_url: str, queue: sync.Queue, redis_client: redis.Redis) -> None:
    """What it may not see is unknown, and no problem."""
    queue.enqueue(b"")
    queue.pause()
    name = f"looker-{mint()}"
    redis_client.acl_setuser(
        name,
        enabled=True,
        passwords=["+x"],
        keys=["*"],
        channels=["*"],
        commands=["+@all", "-info", "-config", "-scan"],
    )
    try:
        report = Runner(server_url.replace("://", f"://{name}:x@")).json("doctor", queue.name)
    finally:
        redis_client.acl_deluser(name)
    assert report["problems"] == 0
    levels = {each["check"]: each["level"] for each in report["findings"]}
    assert levels["server"] == levels["eviction"] == levels["rows"] == levels["lanes"] == "unknown"
    assert levels["clock"] == "ok"


def test_doctor_knows_redis_and_queues_that_are_not_there(redis7_url: str, queue_name: str) -> None:
    """The other server, too, answers every check; a name that nobody uses is not called sound."""
    report = Runner(redis7_url).json("doctor", queue_name)
    levels = {each["check"]: each["level"] for each in report["findings"] if not each["queue"]}
    assert "unknown" not in levels.values()
    assert report["findings"][0]["text"].startswith("Redis 7.")
    assert by_check(report, queue_name).keys() == {"exists"}


def test_doctor_refuses_bad_names_and_says_who_is_away() -> None:
    """As every command does."""
    nobody = Runner("valkey://127.0.0.1:1")
    assert nobody("doctor", "a{b").exit_code == 2
    result = nobody("doctor", "--wait", "0.1")
    assert (result.exit_code, "is it running" in result.stderr) == (3, True)


def test_doctor_looks_at_the_queues_used_last_and_lists_keys_once(
    command: Runner, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how many it left; a listing that ends early is no reason to call a small queue a sample."""
    monkeypatch.setattr(import_module("echomq.cli.doctor"), "QUEUES", 2)  # the package has the command by that name
    monkeypatch.setattr("echomq.cli.queue_findings.SCANS", 1)
    monkeypatch.setattr("echomq.cli.queue_findings.SCAN_COUNT", 1)
    prefix = mint().lower()
    with sync.Client(command.url, prefix=prefix) as client:
        for name in ("a", "b", "c"):
            it = client.queue(name)
            it.pause()
            it.enqueue_many([b""] * 3)
    redis_client.zadd(f"{prefix}:queues", {"a": 3e12, "b": 1, "c": 2e12})
    sent: list[Any] = []
    command_of = WireClient.command

    async def noted(self: WireClient, *words: Any, **options: Any) -> Any:
        sent.append(words[0])
        return await command_of(self, *words, **options)

    monkeypatch.setattr(WireClient, "command", noted)
    report = command.json("doctor", "--prefix", prefix)
    assert sent.count("SCAN") == 1
    seen = {each["check"]: each["text"] for each in report["findings"]}
    assert seen["queues"] == "3 are known: the 2 used last are looked at, 1 are not"
    assert {each["queue"] for each in report["findings"]} == {"", "a", "c"}
    for name in ("a", "c"):
        assert by_check(report, name)["rows"] == ("ok", "none is torn (3 rows looked at)")
    named = command.json("doctor", "b", "--prefix", prefix)
    assert by_check(named, "b")["rows"] == ("ok", "none is torn (3 rows looked at)")
    monkeypatch.setattr("echomq.cli.queue_findings.ROWS", 2)
    assert by_check(command.json("doctor", "b", "--prefix", prefix), "b")["rows"][1].endswith(
        "2 rows looked at, of more)"
    )
