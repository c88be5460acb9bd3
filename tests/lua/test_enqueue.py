"""`enqueue`: the whole keyspace before and after."""

from __future__ import annotations

import pytest

from echomq.conformance.bench import Bench
from echomq.conformance.driver import CallRefusedError
from echomq.conformance.items import YEAR_MS
from echomq.protocol.records import NewJob
from tests.lua.watching import changes

PLAIN: list[bytes | str | int] = [0, 0, "", "", 0, "", 1, "payload", "x"]


def test_enqueue_places_a_job_in_pending(bench: Bench) -> None:
    """Row, place, token; and nothing that is a default."""
    job = NewJob(payload=b"x", task="t", priority=2, max_attempts=5, headers={"a": "b"})
    answer, changed = changes(bench, lambda: bench.on("enqueue", job), A=job.id)
    assert answer == ["admitted"]
    assert changed == {
        "job:A[state] = pending", "job:A[since] = T", "job:A[by] = PRODUCER", "job:A[payload] = x", "job:A[task] = t",
        "job:A[priority] = 2", "job:A[max_attempts] = 5", 'job:A[headers] = {"a":"b"}', "pending[A] = -2.0",
        "wake: 0 -> 1", "event enqueued A",
    }  # fmt: skip


def test_enqueue_places_a_later_job_in_the_schedule(bench: Bench) -> None:
    """And rings, for it is the schedule's first."""
    job = NewJob(delay_ms=1000, dedup="k", dedup_window_ms=YEAR_MS)
    _, changed = changes(bench, lambda: bench.on("enqueue", job), A=job.id)
    assert changed == {
        "job:A[state] = schedule", "job:A[since] = T", "job:A[by] = PRODUCER", "job:A[payload] = ", "job:A[dedup] = k",
        f"job:A[dedup_window_ms] = {YEAR_MS}",
        "dedup:k = A with a TTL", "schedule[A] = T", "wake: 0 -> 1", "event enqueued A",
    }  # fmt: skip


def test_enqueue_writes_when_a_job_is_too_late(bench: Bench) -> None:
    """As moments, whatever they were spelled as."""
    job = NewJob(expires="+60000", deadline="99999999999999")
    _, changed = changes(bench, lambda: bench.on("enqueue", job), A=job.id)
    assert {"job:A[expires_ms] = T", "job:A[deadline_ms] = 99999999999999"} <= changed


def test_enqueue_admits_a_job_whose_event_cannot_be_told(bench: Bench) -> None:
    """Its dedup key stays: a second one would be a living job's double."""
    bench.server.delete(bench.keys.events)
    bench.server.set(bench.keys.events, "no stream")
    first, second = NewJob(dedup="k"), NewJob(dedup="k")
    assert bench.on("enqueue", first) == ["admitted"]
    assert bench.count("torn") == 1
    assert bench.on("enqueue", second) == [f"duplicate {first.id}"]
    bench.server.delete(bench.keys.events)


def test_enqueue_makes_meta(bench: Bench) -> None:
    """The first job of a queue brings the protocol's version."""
    bench.server.delete(bench.keys.meta)
    _, changed = changes(bench, bench.enqueue)
    assert "meta[protocol] = 1.0" in changed


def test_enqueue_refuses_a_duplicate_and_a_collision(bench: Bench) -> None:
    """And changes nothing."""
    first = NewJob(dedup="k")
    bench.on("enqueue", first)
    items = [NewJob(dedup="k"), NewJob(id=first.id)]
    answer, changed = changes(bench, lambda: bench.on("enqueue", *items, driver=bench.other))
    assert (answer, changed) == ([f"duplicate {first.id}", "collision"], set())


def test_enqueue_refuses_a_closing_queue(bench: Bench) -> None:
    """No row, no key, no setting."""
    bench.server.hset(bench.keys.meta, "closing", "1")
    assert changes(bench, bench.enqueue) == ("EMQSTATE closing", set())


@pytest.mark.parametrize(
    ("at", "name", "bad"),
    [
        (at, name, bad)
        for at, name in ((0, "priority"), (1, "due"), (2, "ends"), (4, "rule"))
        for bad in (
            "",
            "x",
            "-3000",
            "0.5",
            "nan",
            "inf",
            "1e300",
            "+-1",
            "+0.5",
            "+",
            "+1e300",
            "0 0",
            "1 x",
            "+1 nan",
        )
        if (name, bad) != ("ends", "")
    ],
)
def test_enqueue_refuses_numbers_out_of_range(bench: Bench, at: int, name: str, bad: str) -> None:
    """Before any write."""
    argv = [NewJob().id, *PLAIN]
    argv[at + 1] = bad
    answer, changed = changes(bench, lambda: bench.producer.bare("enqueue", *argv))
    assert (answer, changed) == ([f"EMQKIND {name} {bad}".encode()], set())


@pytest.mark.parametrize(
    "tail",
    [
        ["id"],
        ["id", 0, 0, "", "", 0, "", 65],
        ["id", 0, 0, "", "", 0, "", 1, "payload"],
        ["id", 0, 0, "", "", 0, "", "x"],
    ],
)
def test_enqueue_refuses_a_malformed_call_whole(bench: Bench, tail: list[bytes | str | int]) -> None:
    """Its well-formed items, too."""

    def enqueue() -> None:
        with pytest.raises(CallRefusedError, match="EMQKIND malformed call: item 2"):
            bench.producer.bare("enqueue", NewJob().id, *PLAIN, *tail)

    assert changes(bench, enqueue) == (None, set())


# --- lanes, and the modes of a dedup key -----------------------------------------------------


def test_enqueue_places_a_job_in_its_lane(bench: Bench) -> None:
    """The first begins the rota; the lane joins the ring."""
    job = NewJob(lane="acme", priority=2)
    answer, changed = changes(bench, lambda: bench.on("enqueue", job), A=job.id)
    assert answer == ["admitted"]
    assert changed == {
        "job:A[state] = pending", "job:A[since] = T", "job:A[by] = PRODUCER", "job:A[payload] = ", "job:A[priority] = 2",
        "job:A[lane] = acme", "lane:acme:pending[A] = -2.0", "lanes[acme] = r0", "ring: 0 -> 1", "meta[rota] = 1",
        "meta[laned] = 1", "wake: 0 -> 1", "event enqueued A",
    }  # fmt: skip
    second = NewJob(lane="acme")
    _, changed = changes(bench, lambda: bench.on("enqueue", second), B=second.id)
    assert changed == {
        "job:B[state] = pending", "job:B[since] = T", "job:B[by] = PRODUCER", "job:B[payload] = ", "job:B[lane] = acme",
        "lane:acme:pending[B] = 0.0", "meta[laned] = 2", "wake: 1 -> 2", "event enqueued B",
    }  # fmt: skip


def test_enqueue_into_a_closed_lane_rings_for_nobody(bench: Bench) -> None:
    """It is closed until somebody resumes it."""
    bench.set_lane("a", paused="1")
    job = NewJob(lane="a")
    _, changed = changes(bench, lambda: bench.on("enqueue", job), A=job.id)
    assert {"closed[a] = inf", "lanes[a] = c0 0 0 0 0 0 0.000 T 0"} <= changed
    assert not any(line.startswith(("wake", "ring")) for line in changed)


def test_enqueue_replaces_a_waiting_job(bench: Bench) -> None:
    """Its row is the new job's then, but for what it is and has been."""
    id = bench.add(dedup="k", task="t", priority=2, headers={"a": "b"})
    new = NewJob(dedup="k", dedup_mode="replace", payload=b"new", timeout_ms=5)
    answer, changed = changes(bench, lambda: bench.on("enqueue", new, driver=bench.other), A=id, B=new.id)
    assert answer == [f"replaced {id}"]
    assert changed == {
        "job:A[payload] = new", "job:A[timeout_ms] = 5", "job:A[task] = nothing", "job:A[priority] = nothing",
        "job:A[headers] = nothing", "pending[A] = 0.0", "event replaced A",
    }  # fmt: skip


def test_enqueue_starts_the_delay_of_a_waiting_job_again(bench: Bench) -> None:
    """Debounce: from wherever it waits."""
    id = bench.add(dedup="k", lane="a")
    bench.server.hset(bench.keys.job(id), "since", "1000")
    new = NewJob(dedup="k", dedup_mode="debounce", delay_ms=60_000)
    answer, changed = changes(bench, lambda: bench.on("enqueue", new), A=id)
    assert answer == [f"replaced {id}"]
    assert changed == {
        "job:A[state] = schedule", "job:A[since] = T", "lane:a:pending: gone", "schedule[A] = T",
        "meta[laned] = 0", "wake: 1 -> 2", "event replaced A",
    }  # fmt: skip


def test_enqueue_beyond_the_queues_capacity_is_refused(bench: Bench) -> None:
    """Also what this very call would add; nothing is left of it."""
    bench.configure(max_size="2")
    bench.add(delay_ms=1000)
    jobs = [NewJob(lane="a"), NewJob(dedup="k")]
    answer, changed = changes(bench, lambda: bench.on("enqueue", *jobs), A=jobs[0].id, B=jobs[1].id)
    assert answer == ["admitted", "EMQFULL 2"]
    assert not any("B" in line or "dedup" in line for line in changed - {"job:A[by] = PRODUCER"})
