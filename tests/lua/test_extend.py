"""`extend`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.transitions import CancelRequest, Renewal
from tests.lua.watching import assert_fenced, changes, running


def test_extend_moves_the_lease_and_nothing_else(bench: Bench) -> None:
    """But the longest lease in use, when it grows."""
    job = running(bench)
    bench.rescore("active", job.id, 1000)
    answer, changed = changes(bench, lambda: bench.settle("extend", job), A=job.id)
    assert (answer, changed) == ("ok", {"active[A] = T"})
    item = Renewal(job.id, job.token, job.nonce, 700_000)
    _, changed = changes(bench, lambda: bench.on("extend", item), A=job.id)
    assert changed == {"active[A] = T", "meta[lease_max_ms] = 700000"}


def test_extend_moves_the_lease_in_the_lane_too(bench: Bench) -> None:
    """To the same moment."""
    job = running(bench, lane="a")
    bench.expire(job.id)
    answer, changed = changes(bench, lambda: bench.settle("extend", job), A=job.id)
    assert (answer, changed) == ("ok", {"active[A] = T", "lane:a:active[A] = T"})
    assert bench.look().zset("active") == bench.look().zset("lane:a:active")


def test_extend_answers_a_cancel_request(bench: Bench) -> None:
    """The lease is renewed all the same, for the handler's cleanup."""
    job = running(bench)
    bench.on("cancel", CancelRequest(job.id, "no"))
    bench.rescore("active", job.id, 1000)
    answer, changed = changes(bench, lambda: bench.settle("extend", job), A=job.id)
    assert (answer, changed) == ("cancel no", {"active[A] = T"})


@pytest.mark.parametrize("lease", ["", "x", "0", "-1", "0.5", "nan", "inf", "604800001"])
def test_extend_refuses_a_lease_out_of_range(bench: Bench, lease: str) -> None:
    """From a millisecond to a week."""
    job = running(bench)
    answer, changed = changes(bench, lambda: bench.worker.bare("extend", job.id, 1, job.nonce, lease))
    assert (answer, changed) == ([f"EMQKIND lease_ms {lease}".encode()], set())


def test_extend_of_a_torn_set_says_so_to_each_item(bench: Bench) -> None:
    """The places are asked once a call: the error that this meets is not the first item's alone."""
    jobs = [running(bench) for _ in range(3)]
    bench.server.rename(bench.keys.active, f"{bench.keys.active}-kept")
    bench.server.set(bench.keys.active, "no set")
    answers = bench.on("extend", *(Renewal(job.id, job.token, job.nonce, 60_000) for job in jobs))
    assert [answer.split(" ")[:2] for answer in answers] == [["EMQTORN", "WRONGTYPE"]] * 3
    bench.server.rename(f"{bench.keys.active}-kept", bench.keys.active)


def test_extend_is_not_remembered(bench: Bench) -> None:
    """It simply runs again."""
    bench.settle("extend", running(bench))
    assert [suffix for suffix in bench.look().entries if suffix.endswith(":extend")] == []


def test_extend_is_fenced(bench: Bench) -> None:
    """Whoever does not hold the job changes nothing."""
    assert_fenced(bench, "extend")
