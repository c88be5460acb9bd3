"""`set_lane`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from tests.lua.watching import changes


def set_lane(bench: Bench, lane: str, **settings: str) -> bool:
    """Run the verb."""
    return bool(bench.worker.plain("set_lane", lane=lane, settings=settings))


def test_set_lane_writes_one_field(bench: Bench) -> None:
    """All settings of a lane are one text; the first begins the rota."""
    answer, changed = changes(bench, lambda: set_lane(bench, "a", weight="3", limit="2", rate="10 1000 5"))
    assert (answer, changed) == (True, {"lanes[a] = -0 3 2 10 1000 5 0.000 0 0", "meta[rota] = 1"})
    answer, changed = changes(bench, lambda: set_lane(bench, "a", limit=""))
    assert (answer, changed) == (True, {"lanes[a] = -0 3 0 10 1000 5 0.000 0 0"})
    answer, changed = changes(bench, lambda: set_lane(bench, "a", weight="", rate=""))
    assert (answer, changed) == (True, {"lanes: gone"})


def test_set_lane_makes_meta(bench: Bench) -> None:
    """A lane may be set up before the queue's first job."""
    bench.server.delete(bench.keys.meta)
    _, changed = changes(bench, lambda: set_lane(bench, "a", weight="3"))
    assert {"meta[protocol] = 1.0", "meta[rota] = 1"} <= changed


def test_set_lane_puts_what_waits_on_the_ring(bench: Bench) -> None:
    """The jobs that have no lane are one from now on."""
    bench.add()
    _, changed = changes(bench, lambda: set_lane(bench, "a", weight="3"))
    assert changed == {
        "lanes[] = r0",
        "lanes[a] = -0 3 0 0 0 0 0.000 0 0",
        "meta[rota] = 1",
        "ring: 0 -> 1",
        "wake: 1 -> 2",
    }


def test_set_lane_pauses_and_resumes(bench: Bench) -> None:
    """A closed lane that is paused is closed for good; resumed, it is on the ring at once, and rings for each job."""
    bench.set_lane("a", limit="1")
    bench.add(lane="a")
    bench.take()
    bench.add(lane="a")
    bench.add(lane="a")
    _, changed = changes(bench, lambda: set_lane(bench, "a", paused="1"))
    assert changed == {"closed[a] = inf", "lanes[a] = c0 0 1 0 0 0 0.000 T 0"}
    bench.server.delete(bench.keys.wake)
    _, changed = changes(bench, lambda: set_lane(bench, "a", paused="", limit=""))
    assert changed == {"closed: gone", "lanes[a] = r0", "ring: 0 -> 1", "wake: 0 -> 2"}


def test_set_lane_of_what_is_so_already_changes_nothing(bench: Bench) -> None:
    """And answers that."""
    set_lane(bench, "a", weight="3", paused="1")
    assert changes(bench, lambda: set_lane(bench, "a", weight="3", paused="1")) == (False, set())
    assert changes(bench, lambda: set_lane(bench, "b", weight="", paused="")) == (False, set())


@pytest.mark.parametrize(
    ("name", "value"), [("weight", "0"), ("limit", "x"), ("rate", "1 1"), ("paused", "0"), ("hue", "1")]
)
def test_set_lane_refuses_what_is_no_setting(bench: Bench, name: str, value: str) -> None:
    """And sets none of the call."""

    def refused() -> None:
        with pytest.raises(CallRefusedError, match=f"EMQKIND {name} {value}$"):
            bench.worker.plain("set_lane", lane="a", settings={"weight": "2", "limit": "2", name: value})

    assert changes(bench, refused) == (None, set())
