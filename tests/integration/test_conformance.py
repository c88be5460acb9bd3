"""The conformance command against real servers, and what only a server of one's own can show."""

from __future__ import annotations

import re
import secrets

import pytest
import redis
from click.testing import CliRunner

from echomq.conformance.__main__ import main
from echomq.conformance.bench import Bench, spell
from echomq.conformance.driver import connect
from echomq.conformance.scenarios import SCENARIOS, run, scenario
from echomq.conformance.scenarios.registry import Scenario
from echomq.embedded import open_server
from echomq.protocol.records import NewJob
from echomq.transitions import Checkpoint, LogLine, Renewal


def test_conformance_passes_on_redis_7(redis7_url: str) -> None:
    """Every scenario passes there, too (`test_scenario` plays them on Valkey), and no key of ours is left."""
    prefix = f"emq-test-{secrets.token_hex(4)}"
    result = CliRunner().invoke(main, [redis7_url, "--prefix", prefix])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len([line for line in lines if line.startswith("pass  ")]) == len(SCENARIOS)
    assert lines[-1] == f"{len(SCENARIOS)} passed, 0 failed"
    with connect(redis7_url) as server:
        assert list(server.scan_iter(match=f"{prefix}*", count=1000)) == []


def test_conformance_touches_no_key_of_others(server_url: str) -> None:
    """What was on the server before is there afterwards, value by value."""
    with connect(server_url) as server:
        name = f"somebody-else-{secrets.token_hex(4)}"
        server.set(name, "untouched")
        assert CliRunner().invoke(main, [server_url, "--only", "enqueue"]).exit_code == 0
        assert server.getdel(name) == b"untouched"


def test_conformance_says_what_was_expected_and_seen(server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure shows its name, what was expected and what was seen, and makes the exit code 1."""

    def story(b: Bench) -> None:
        b.expect("the verdict", b.enqueue(), "refused")

    it = Scenario("a story with another end", (1,), story)
    monkeypatch.setattr("echomq.conformance.scenarios.SCENARIOS", [it])
    result = CliRunner().invoke(main, [server_url])
    assert result.exit_code == 1
    assert re.search(
        r"FAIL  a story with another end \[pitfall 1\]\n +the verdict\n +expected: refused\n +seen: +admitted",
        result.output,
    )


def test_conformance_says_when_there_is_no_server() -> None:
    """An address where nobody listens is one line and exit code 3; what is no address is a bad argument."""
    result = CliRunner().invoke(main, ["redis://127.0.0.1:1"])
    assert result.exit_code == 3
    assert "cannot use a server" in result.output
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2
    assert CliRunner().invoke(main, []).exit_code == 2
    assert CliRunner().invoke(main, ["--embedded", "--only", "no such story"]).exit_code == 2


def test_conformance_takes_every_scheme(server_url: str) -> None:
    """`valkey://` is as good as `redis://`."""
    host = server_url.partition("://")[2]
    for scheme in ("valkey", "redis"):
        result = CliRunner().invoke(main, [f"{scheme}://{host}", "--only", "late holder"])
        assert result.exit_code == 0, result.output


def test_conformance_runs_on_a_server_of_its_own() -> None:
    """`--embedded` needs no address."""
    result = CliRunner().invoke(main, ["--embedded", "--only", "late holder"])
    assert result.exit_code == 0
    assert "passed, 0 failed" in result.output


def test_scenario_names_are_unique() -> None:
    """Two stories of one name could not be told apart."""
    with pytest.raises(ValueError, match="two scenarios"):
        scenario(SCENARIOS[0].name)(SCENARIOS[0].story)


def test_scenarios_name_the_pitfalls_of_one_queue() -> None:
    """Each pitfall that one queue can show has a scenario of its own."""
    closed = {n for it in SCENARIOS for n in it.pitfalls}
    assert closed >= {
        1,
        2,
        3,
        6,
        7,
        8,
        10,
        12,
        13,
        14,
        17,
        19,
        21,
        22,
        24,
        27,
        28,
        29,
        33,
        35,
        40,
        41,
        43,
        44,
        45,
        46,
        48,
    }


@pytest.mark.parametrize("it", SCENARIOS, ids=lambda it: it.name)
def test_scenario(it: Scenario, redis_client: redis.Redis) -> None:
    """Each scenario by its name, for whoever wants to run one."""
    outcome = run(it, redis_client)
    if outcome.error is not None:
        raise outcome.error


@pytest.mark.parametrize("kind", ["valkey", "redis7"])
def test_full_server_drains(kind: str, request: pytest.FixtureRequest) -> None:
    """When memory is full, enqueue, log and checkpoint are refused, and all that lets the queue drain works."""
    binary = None
    if kind == "redis7":
        request.getfixturevalue("redis7_url")  # skips where there is none
        binary = "/usr/bin/redis-server"
    with open_server(config={"maxmemory-policy": "noeviction"}, binary=binary) as own, connect(own.url) as server:
        b = Bench(server)
        ids = [b.add(max_stalls=0) for _ in range(10)]
        # Every script is loaded, as it is on a server that has been at work.
        first = b.take()
        for verb in (
            "release",
            "extend",
            "fail",
            "snooze",
            "end",
            "progress",
            "checkpoint",
            "log",
            "cancel",
            "redrive",
        ):
            b.settle(verb, first, 1) if verb not in {"cancel", "redrive"} else b.on(verb)
        server.config_set("maxmemory", 1)

        with pytest.raises(redis.exceptions.OutOfMemoryError):
            b.enqueue()
        claimed = b.worker.claim(6).jobs
        assert len(claimed) == 6
        one, two, three, four, five, six = claimed
        for item, verb in (
            (LogLine(one.id, one.token, one.nonce, b"x"), "log"),
            (Checkpoint(one.id, one.token, one.nonce, 1, b"x"), "checkpoint"),
        ):
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                b.on(verb, item, driver=b.worker)
        assert b.settle("extend", one) == "ok"
        assert b.settle("progress", one) == "ok"
        assert b.settle("complete", one) == "ok"
        assert b.settle("fail", two) == "dead"
        assert b.settle("release", three) == "ok"
        assert b.settle("snooze", four, 1) == "ok"
        assert b.settle("end", five) == "ok"
        # Not even the proof may write plainly now: a lease of a millisecond ends by itself.
        assert b.on("extend", Renewal(six.id, six.token, six.nonce, 1), driver=b.worker) == ["ok"]
        while b.worker.plain("reap") == 0:
            pass
        assert b.state(six.id) == "dead"
        assert b.on("redrive", two.id) == ["ok"]
        assert b.worker.plain("pause") is True
        assert b.worker.plain("resume") is True
        assert b.worker.plain("ring") is True
        b.ground.end_all()
        b.ground.expect_empty()
        assert ids

        server.config_set("maxmemory", 0)
        assert spell(b.producer.item("enqueue", NewJob())) == "admitted"
