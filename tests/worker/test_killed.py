"""Workers that die, and workers that stop and come back: what they held is recovered, what they say late is refused."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from echomq import transitions
from echomq.transitions import Call
from tests.worker.processes import let_go, told, wait_until, worker_process
from tests.worker.support import Peek
from tests.worker.test_command import put

LEASE = 2.0
OPTIONS = ("--lease", str(LEASE), "--grace", "0.3", "--cleanup", "0.5")


def all_events(peek: Peek) -> None:
    """Have the queue keep every event: their ids are the server's clock."""
    peek.run(transitions.configure(peek.keys, Call("test"), settings={"events": "all"}))


@pytest.mark.slow
def test_killed_workers_jobs_are_recovered_by_a_parked_one(server_url: str, queue_name: str, peek: Peek) -> None:
    """SIGKILL under load: within a lease and a second of the last renewal everything runs elsewhere, and is done once."""
    all_events(peek)
    with worker_process(server_url, queue_name, "--concurrency", "5", *OPTIONS) as victim:
        jobs = [put(peek, "gated", max_attempts=1) for _ in range(5)]
        wait_until(lambda: sum(line.startswith("began") for line in victim.told()) == 5)
        with worker_process(server_url, queue_name, *OPTIONS) as survivor:
            survivor.wait_for("worker_started")
            # The lease moves with each renewal: the last one that the server saw is the score at the kill.
            victim.signal(signal.SIGKILL)
            victim.wait()
            renewed = {id: score - LEASE * 1000 for id, score in peek.active().items()}
            assert sorted(renewed) == sorted(jobs)
            wait_until(lambda: sum(line.startswith("began") for line in survivor.told()) == 5)
            let_go(peek.client, queue_name)
            wait_until(lambda: sum(line.startswith("ended") for line in survivor.told()) == 5)
            survivor.signal(signal.SIGTERM)
            assert survivor.wait() == 0
    again = [(at, fields[b"job"].decode()) for at, fields in peek.events("claimed") if fields[b"token"] == b"2"]
    assert sorted(id for _, id in again) == sorted(jobs)
    for at, id in again:
        # Lease, park and pick-up; two seconds more for a machine that is busy with other tests.
        assert at - renewed[id] <= (LEASE + 1.0 + 2.0) * 1000
    assert peek.count("completed") == 5
    assert peek.count("dead") == 0


@pytest.mark.slow
def test_stopped_worker_comes_back_too_late(server_url: str, queue_name: str, peek: Peek) -> None:
    """SIGSTOP past the lease, SIGCONT: its handler is cancelled as lost, its writes are refused, the other's count."""
    job = put(peek, "gated", result_ttl_ms=60_000)
    with worker_process(server_url, queue_name, "--concurrency", "1", *OPTIONS) as stopped:
        stopped.wait_told(f"began {job} 1")
        stopped.signal(signal.SIGSTOP)
        with worker_process(server_url, queue_name, *OPTIONS) as other:
            other.wait_told(f"began {job} 2")
            row = peek.record(job).row
            stopped.signal(signal.SIGCONT)
            stopped.wait_told(f"stopped {job} lease_lost")
            stopped.wait_for("lease_lost")
            assert peek.record(job).row == row
            let_go(peek.client, queue_name)
            wait_until(lambda: peek.state(job) == "done")
            for worker in (other, stopped):
                worker.signal(signal.SIGTERM)
                assert worker.wait() == 0
    record = peek.record(job)
    assert (record.kind, record.result, record.attempts, record.failures) == ("completed", b"2", 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", pytest.param("exit", marks=pytest.mark.prove)])
def test_job_that_kills_its_workers_is_buried(server_url: str, queue_name: str, peek: Peek, how: str) -> None:
    """After `max_stalls` expired leases it is buried with a readable reason, and its neighbour runs."""
    job = put(peek, "killer", how, max_stalls=1)
    codes = []
    for _ in range(2):
        with worker_process(server_url, queue_name, *OPTIONS) as worker:
            codes.append(worker.wait())
        peek.expire(job)
    neighbour = put(peek, "quick")
    with worker_process(server_url, queue_name, *OPTIONS) as worker:
        worker.wait_told(f"ran {neighbour}")
        wait_until(lambda: peek.state(job) == "dead")
    assert codes == ([-signal.SIGKILL] * 2 if how == "kill" else [3] * 2)
    record = peek.record(job)
    assert record.reason == "stalled: its lease expired 2 times, max_stalls is 1"
    assert (record.attempts, record.failures, record.stalls) == (2, 0, 2)


@pytest.mark.slow
def test_job_that_kills_its_workers_takes_no_neighbour_along(server_url: str, queue_name: str, peek: Peek) -> None:
    """Claimed together, stalled together, time after time: but on their last life each runs without the others."""
    neighbours = [put(peek, "sleeper", 0.3, max_stalls=1) for _ in range(3)]
    killer = put(peek, "killer", "kill", max_stalls=1)
    neighbours += [put(peek, "sleeper", 0.3, max_stalls=1) for _ in range(3)]
    for _ in range(2):
        with worker_process(server_url, queue_name, *OPTIONS) as worker:
            worker.wait()
        for id in peek.active():
            peek.expire(id)
    with worker_process(server_url, queue_name, *OPTIONS) as worker:
        wait_until(lambda: peek.state(killer) == "dead", seconds=20)
        wait_until(lambda: peek.count("completed") == len(neighbours), seconds=40)
    assert peek.count("dead") == 1
    assert peek.record(killer).reason == "stalled: its lease expired 2 times, max_stalls is 1"


@pytest.mark.slow
def test_killed_workers_batch_is_half_done(server_url: str, queue_name: str, peek: Peek) -> None:
    """SIGKILL amid a batch: what was settled stays settled, the rest is taken back and runs elsewhere."""
    jobs = [put(peek, "half", 0.2 if n < 2 else 60.0, result_ttl_ms=60_000) for n in range(10)]
    with worker_process(server_url, queue_name, *OPTIONS, app="tests.worker.jobs_app:batches") as victim:
        victim.wait_told("began 10")
        wait_until(lambda: peek.count("completed") == 5)
        victim.signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
    assert [peek.state(job) for job in jobs] == ["done", "active"] * 5
    for id in peek.active():
        peek.expire(id)
        peek.client.hset(peek.keys.job(id), "payload", '{"args":[0]}')
    with worker_process(server_url, queue_name, *OPTIONS, app="tests.worker.jobs_app:batches") as survivor:
        survivor.wait_told("began 5")
        wait_until(lambda: [peek.state(job) for job in jobs] == ["done"] * 10)
    assert [peek.record(job).result for job in jobs] == [b"1", b"2"] * 5
    assert [peek.record(job).stalls for job in jobs] == [0, 1] * 5


def test_at_most_once_runs_at_most_once(server_url: str, queue_name: str, peek: Peek) -> None:
    """`max_stalls=0` with one attempt: a worker that dies takes the job with it."""
    job = put(peek, "killer", "kill", max_stalls=0, max_attempts=1)
    with worker_process(server_url, queue_name, *OPTIONS) as worker:
        assert worker.wait() == -signal.SIGKILL
    peek.expire(job)
    with worker_process(server_url, queue_name, *OPTIONS):
        wait_until(lambda: peek.state(job) == "dead")
    assert Counter(line.split()[1] for line in told(peek.client, queue_name)) == {"began": 1}


@pytest.mark.prove
def test_workers_killed_at_random_lose_and_double_nothing(server_url: str, queue_name: str, peek: Peek) -> None:
    """Three workers, one killed every half second for a while: every job completes, exactly once on the books."""
    jobs = [put(peek, "sleeper", 0.05 * (n % 10), max_stalls=1000) for n in range(400)]
    for _ in range(6):
        with (
            worker_process(server_url, queue_name, "--concurrency", "5", *OPTIONS) as one,
            worker_process(server_url, queue_name, "--concurrency", "5", *OPTIONS) as two,
        ):
            one.wait_told("began")
            wait_until(lambda: any(line.startswith("ended") for line in two.told()) or peek.empty())
            one.signal(signal.SIGKILL)
            two.signal(signal.SIGKILL)
    with worker_process(server_url, queue_name, "--burst", *OPTIONS) as last:
        assert last.wait(120) == 0
    assert peek.count("completed") == len(jobs)
    assert peek.count("dead") == 0
    assert peek.empty()
