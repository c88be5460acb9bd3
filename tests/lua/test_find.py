"""`find`: what it answers; it changes nothing."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.transitions import Failure, Found
from tests.lua.watching import changes, running


def dead(bench: Bench, error: bytes, **options: object) -> str:
    """Make a job that failed."""
    job = running(bench, **options)
    bench.on("fail", Failure(job.id, job.token, job.nonce, 0, 0, error))
    return job.id


def test_find_walks_in_steps(bench: Bench) -> None:
    """It says how large the set is and how far it came."""
    ids = [bench.add() for _ in range(5)]
    seen, changed = changes(bench, lambda: bench.worker.plain("find", state="pending", bound=3))
    assert changed == set()
    assert isinstance(seen, Found)
    assert seen == Found(now_ms=seen.now_ms, total=5, examined=3, ids=tuple(ids[:3]))
    seen = bench.worker.plain("find", state="pending", bound=3, offset=3, reverse=True)
    assert (seen.examined, seen.ids) == (2, tuple(reversed(ids[:2])))


def test_find_by_task_error_and_age(bench: Bench) -> None:
    """All that is asked must fit."""
    first = dead(bench, b'{"type": "KeyError", "message": "a.b"}', task="t")
    second = dead(bench, b'{"type": "OSError", "message": "a-b"}', task="u")

    def find(**options: object) -> set[str]:
        return set(bench.worker.plain("find", state="dead", **options).ids)

    assert find(task="t") == {first}
    assert find(error="a.b") == {first}
    assert find(error="OSError: a-b", task="t") == set()
    assert find(error="failed 1 of 0 times") == {first, second}
    assert find(before_ms=1) == set()
    assert find(before_ms=bench.clock() + 1) == {first, second}


def test_find_in_a_lane(bench: Bench) -> None:
    """Its own sets, or its jobs in a set of the whole queue."""
    mine, other = dead(bench, b"{}", lane="a"), dead(bench, b"{}")
    ready = bench.add(lane="a")
    assert bench.worker.plain("find", state="pending", lane="a").ids == (ready,)
    assert bench.worker.plain("find", state="dead", lane="a", of_lane=True).ids == (mine,)
    assert bench.worker.plain("find", state="dead", of_lane=True).ids == (other,)


def test_find_passes_a_row_by_that_cannot_be_read(bench: Bench) -> None:
    """It is for `repair`."""
    bench.torn = True
    first, second = bench.add(), bench.add()
    bench.server.delete(bench.keys.job(first))
    bench.server.set(bench.keys.job(first), "no hash")
    assert bench.worker.plain("find", state="pending").ids == (second,)


@pytest.mark.parametrize(
    "argv",
    [
        ("asleep", "", 0, 0, 1), ("nothing", "", 0, 0, 1), ("dead", "a", 0, 0, 1), ("dead", "", 0, -1, 1),
        ("dead", "", 0, "x", 1), ("dead", "", 0, 0, 0), ("dead", "", 0, 0, 1001), ("dead", "", 0, 0, "nan"),
    ],
)  # fmt: skip
def test_find_refuses_what_is_malformed(bench: Bench, argv: tuple[str | int, ...]) -> None:
    """The state, the offset, the bound."""
    with pytest.raises(CallRefusedError, match="EMQKIND"):
        bench.worker.bare("find", *argv, 0, "", "", 0)
