"""`claim`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from echomq.transitions import CancelRequest
from tests.lua.watching import changes, running


def test_claim_moves_a_job_under_a_lease(bench: Bench) -> None:
    """Place, state, token and nonce; the wake tokens of an empty queue go."""
    id = bench.add()
    reply, changed = changes(bench, lambda: bench.worker.claim(2), A=id)
    assert [job.id for job in reply.jobs] == [id]  # type: ignore[attr-defined]
    assert changed - {"job:A[since] = T"} == {
        "pending: gone", "active[A] = T", "job:A[state] = active", "job:A[attempts] = 1", "job:A[holder] = WORKER.1",
        "meta[lease_max_ms] = 600000", "meta[keeper] = WORKER", "meta[keeper_until] = T", "wake: gone",
        "event claimed A",
    }  # fmt: skip


def test_claim_of_an_empty_queue_changes_nothing(bench: Bench) -> None:
    """Not even the keeper, for there is no moment to wait for."""
    reply, changed = changes(bench, lambda: bench.worker.claim(1))
    assert reply.next_ms == 1000  # type: ignore[attr-defined]
    assert changed == set()


def test_claim_of_a_paused_queue_leases_nothing(bench: Bench) -> None:
    """Jobs stay where they are."""
    bench.add()
    bench.worker.plain("pause")
    reply, changed = changes(bench, lambda: bench.worker.claim(1))
    assert reply.jobs == []  # type: ignore[attr-defined]
    assert changed == {"wake: gone"}


def test_claim_reaps_and_promotes_first(bench: Bench) -> None:
    """A dead worker's job and a due one are pending before any is leased."""
    lost = running(bench)
    due = bench.add(delay_ms=YEAR_MS)
    bench.expire(lost.id)
    bench.due(due)
    bench.worker.plain("pause")
    _, changed = changes(bench, lambda: bench.other.claim(1), A=lost.id, B=due)
    assert changed - {f"job:{name}[since] = T" for name in "AB"} == {
        "active: gone", "schedule: gone", "pending[A] = 0.0", "pending[B] = 0.0", "job:A[state] = pending",
        "job:A[stalls] = 1", "job:B[state] = pending", "counts[stalled] = 1", "event stalled A", "event promoted B",
        "wake: gone",
    }  # fmt: skip


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("bad", ["", "x", "0", "-1", "1.5", "nan", "inf", "1e15"])
def test_claim_refuses_numbers_out_of_range(bench: Bench, at: int, bad: str) -> None:
    """count, lease_ms, cap_ms, max_bytes, bound, min_size, linger_ms: the whole call, before its first write."""
    lost = running(bench)
    bench.expire(lost.id)
    argv: list[str | bytes | int] = [1, 1000, 1000, 1000, 10, 1, 0, 0]
    argv[at] = "1e15" if (at, bad) == (6, "0") else bad  # not to linger is in range

    def claim() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND claim"):
            bench.worker.bare("claim", *argv)

    assert changes(bench, claim) == (None, set())


def test_claim_sent_again_only_renews(bench: Bench) -> None:
    """The same jobs; no score but theirs changes."""
    id = bench.add()
    bench.worker.claim(1)
    bench.rescore("active", id, 1000)
    reply, changed = changes(bench, lambda: bench.worker.resend("claim"), A=id)
    assert [job.id for job in reply.jobs] == [id]  # type: ignore[attr-defined]
    assert changed == {"active[A] = T"}


def test_claim_sent_late_is_refused(bench: Bench) -> None:
    """A later call has run."""
    bench.add()
    bench.worker.claim(1)
    bench.worker.claim(1)

    def late() -> None:
        with pytest.raises(CallRefusedError, match="EMQSTALE call 1 is older than the last call 2"):
            bench.worker.resend("claim", back=2)

    assert changes(bench, late) == (None, set())


@pytest.mark.parametrize("count", [499, 500, 501, 1000, 1001, 4100])
def test_claim_of_more_than_one_command_carries(bench: Bench, count: int) -> None:
    """All go from one set to the other, and a claim sent again finds all of them."""
    jobs = [NewJob(task="t") for _ in range(count)]
    for at in range(0, count, 256):
        bench.on("enqueue", *jobs[at : at + 256])
    ids = [job.id for job in jobs]
    reply = bench.worker.claim(10_000)
    assert [job.id for job in reply.jobs] == ids
    snap = bench.look()
    assert sorted(snap.zset("active")) == ids
    assert snap.zset("pending") == {}
    for at in {0, 499, 500, 999, 1000, 1999, 2000, count - 1} & set(range(count)):
        bench.server.zadd(bench.keys.active, {ids[at]: 1})
    again = bench.worker.resend("claim")
    assert [(job.id, job.token) for job in again.jobs] == [(id, 1) for id in ids]
    assert min(bench.look().zset("active").values()) > 1
    bench.server.zrem(bench.keys.active, ids[-1])
    bench.torn = True
    assert [job.id for job in bench.worker.resend("claim").jobs] == ids[:-1]


# --- lanes -----------------------------------------------------------------------------------


def test_claim_of_a_lane_leases_in_two_sets(bench: Bench) -> None:
    """The lane's field turns with the ring; the emptied lane keeps none."""
    first, second, third = (bench.add(lane=lane) for lane in "abb")
    reply, changed = changes(bench, lambda: bench.worker.claim(2), A=first, B=second, C=third)
    assert [job.id for job in reply.jobs] == [first, second]  # type: ignore[attr-defined]
    assert changed - {f"job:{name}[since] = T" for name in "AB"} == {
        "lane:a:pending: gone", "lane:a:active[A] = T", "lane:b:pending[B] = nothing", "lane:b:active[B] = T", "active[A] = T",
        "active[B] = T", "job:A[state] = active", "job:A[attempts] = 1", "job:A[holder] = WORKER.1", "job:B[state] = active",
        "job:B[attempts] = 1", "job:B[holder] = WORKER.1", "lanes[a] = nothing", "lanes[b] = r1", "ring: 2 -> 1", "meta[laned] = 1",
        "meta[lease_max_ms] = 600000", "wake: 3 -> 4", "event claimed A", "event claimed B",
    }  # fmt: skip
    assert bench.ring() == ["b"]


def test_claim_leaves_what_is_left_of_a_turn(bench: Bench) -> None:
    """In the lane's field, for whoever claims next."""
    bench.set_lane("a", weight="3")
    first = bench.add(lane="a")
    for lane in "aab":
        bench.add(lane=lane)
    _, changed = changes(bench, lambda: bench.worker.claim(1), A=first)
    assert "lanes[a] = r2 3 0 0 0 0 0.000 0 0" in changed
    assert bench.ring() == ["a", "b"]


def test_claim_closes_a_lane_that_cannot_be_served(bench: Bench) -> None:
    """Full, out of its rate, or paused since: with the moment to look again."""
    bench.set_lane("a", limit="1")
    bench.set_lane("b", rate="1 60000 1")
    for lane in "aabbcc":
        bench.add(lane=lane)
    bench.set_lane("c", paused="1")
    reply, changed = changes(bench, lambda: bench.worker.claim(5))
    assert bench.lanes_of(reply) == "ab"  # type: ignore[arg-type]
    assert {"closed[a] = T", "closed[b] = T", "closed[c] = inf", "ring: gone"} <= changed
    assert {"lanes[a] = c0 0 1 0 0 0 0.000 0 0", "lanes[b] = c0 0 0 1 60000 1 T 0 0"} <= {
        line.replace("T.000", "T") for line in changed
    }
    empty, changed = changes(bench, lambda: bench.worker.claim(5))
    assert empty.jobs == []  # type: ignore[attr-defined]
    assert changed <= {"wake: gone", "meta[keeper] = WORKER", "meta[keeper_until] = T"}


def test_claim_within_the_limits_of_the_queue(bench: Bench) -> None:
    """The rate's text is written once a claim, whatever it took."""
    bench.configure(limit="2", rate="10 1000 5")
    for _ in range(3):
        bench.add()
    reply, changed = changes(bench, lambda: bench.worker.claim(5))
    assert len(reply.jobs) == 2  # type: ignore[attr-defined]
    assert "meta[limits] = 0 2 10 1000 5 T 0 0" in {line.replace("T.000", "T") for line in changed}
    _, changed = changes(bench, lambda: bench.other.claim(5))
    assert changed <= {"wake: gone", "meta[keeper] = OTHER", "meta[keeper_until] = T"}


def test_claim_that_waits_for_a_batch_leases_nothing(bench: Bench) -> None:
    """Nor does it close the lane, for the batch may be of any."""
    bench.add(lane="a")
    reply, changed = changes(bench, lambda: bench.worker.claim(5, min_size=2, linger_ms=60_000))
    assert reply.jobs == []  # type: ignore[attr-defined]
    assert changed == {"wake: gone", "meta[keeper] = WORKER", "meta[keeper_until] = T"}
    _, changed = changes(bench, lambda: bench.worker.claim(5, min_size=2, linger_ms=60_000, by_lane=True))
    assert {"closed[a] = T", "lanes[a] = c0", "ring: gone"} <= changed


def test_claim_sent_again_renews_both_leases(bench: Bench) -> None:
    """The lane's and the queue's, to the same moment."""
    id = bench.add(lane="a")
    bench.take()
    bench.expire(id)
    _, changed = changes(bench, lambda: bench.worker.resend("claim"), A=id)
    assert changed == {"active[A] = T", "lane:a:active[A] = T"}


def test_keeper_that_is_told_of_nothing_keeps_no_timer(bench: Bench) -> None:
    """Else who hears of a delayed job next, while its record lasts, would be told the cap: and nobody would watch."""
    first = bench.add(delay_ms=300)
    assert 0 < bench.worker.claim(5).next_ms <= 300  # it keeps the timer
    bench.on("cancel", CancelRequest(first, "why"))
    assert bench.worker.claim(5).next_ms == 1000
    bench.add(delay_ms=300)
    assert 0 < bench.other.claim(5).next_ms <= 300
