"""`echomq lanes ...`: what lanes are told and hold."""

from __future__ import annotations

import pytest

from echomq import sync
from tests.cli.support import Runner


def test_lanes_are_listed_with_settings_and_reasons(command: Runner, queue: sync.Queue) -> None:
    """For people and for programs; those first that have most jobs ready."""
    q = ("-q", queue.name)
    assert "has no lanes" in command.said("lanes", "list", *q)
    queue.enqueue_many([b""] * 3, lane="acme")
    queue.enqueue(b"", lane="globex")
    command.said("lanes", "configure", "acme", *q, "--weight", "3", "--limit", "5", "--rate", "100/60", "--burst", "7")
    command.said("lanes", "pause", "globex", *q)
    head, first, second = command.said("lanes", "list", *q).splitlines()
    assert head.split() == ["lane", "ready", "running", "oldest", "weight", "limit", "rate", "served"]
    assert first.split()[:3] == ["acme", "3", "0"]
    assert "100 per 60 s, 7 at once" in first
    assert second.endswith("no: it is paused")
    acme, globex = command.json("lanes", "list", *q)
    assert (acme["name"], acme["weight"], acme["limit"], acme["servable"]) == ("acme", 3, 5, True)
    assert acme["rate"] == {"count": 100, "per": 60.0, "burst": 7}
    assert (globex["name"], globex["closed"]) == ("globex", ["paused"])
    result = command("lanes", "list", *q, "-n", "1")
    assert (len(result.stdout.splitlines()), "there are more" in result.stderr) == (2, True)
    shown = command.json("lanes", "show", "globex", *q)
    assert shown == {**globex, "oldest": shown["oldest"]}
    assert "it is paused" in command.said("lanes", "show", "globex", *q)


def test_lanes_pause_resume_and_configure_say_whether_they_did_it(command: Runner, queue: sync.Queue) -> None:
    """Also of the lane without a name."""
    q = ("-q", queue.name)
    for name in ("acme", ""):
        assert command.json("lanes", "pause", name, *q) == {
            "lane": name, "queue": queue.name, "paused": True, "changed": True,
        }  # fmt: skip
        assert "was paused already" in command.said("lanes", "pause", name, *q)
        assert queue.lane(name).info().paused
        assert "goes on" in command.said("lanes", "resume", name, *q)
        assert not command.json("lanes", "resume", name, *q)["changed"]
    assert command.json("lanes", "configure", "acme", *q, "--weight", "2")["changed"]
    assert "stands so already" in command.said("lanes", "configure", "acme", *q, "--weight", "2")
    assert command.json("lanes", "configure", "acme", *q, "--clear", "weight", "--limit", "3")["weight"] == 1
    assert queue.lane("acme").info().limit == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("acme", "say what"),
        ("acme --burst 5", "--burst belongs to --rate"),
        ("acme --weight 2 --clear weight", "both set and cleared: weight"),
        ("acme --weight 0", "weight is 1 to 1000"),
        ("acme --rate 5/", "a rate is written as"),
        ("a{b --weight 2", "a lane's name"),
    ],
)
def test_lanes_configure_refuses_what_does_not_fit(command: Runner, queue: sync.Queue, words: str, said: str) -> None:
    """And changes nothing."""
    result = command("lanes", "configure", *words.split(), "-q", queue.name)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    assert command("lanes", "configure", "", "-q", queue.name, "--limit", "3").exit_code == 2
    assert [lane.name for lane in queue.lanes] == []
