"""Worker processes that are stopped past their leases and wake up: whatever they write then is refused."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import redis

from echomq.protocol.keys import QueueKeys
from echomq.protocol.records import Claimed
from echomq.transitions import Call, Completion, complete
from tests.faults.support import frozen
from tests.worker.processes import wait_until, worker_process
from tests.worker.support import Peek
from tests.worker.test_command import put

APP = "tests.faults.jobs_app:app"
VERDICTS = ("complete", "fail", "snooze", "end")
NOTES = ("progress", "checkpoint", "log")
VERBS = (*VERDICTS, *NOTES, "nothing")
FATES = ("running", "gone", "kept")
"""What has become of the job meanwhile: another runs it; another has finished it, and its row is gone, or kept."""
REFUSALS = {"running": "EMQSTALE", "gone": "EMQGONE", "kept": "EMQSTALE"}

pytestmark = pytest.mark.slow


def rows(peek: Peek) -> dict[bytes, Any]:
    """Answer all that a worker may not have changed, byte for byte: all but the bell, the timer, and who is alive."""
    of_workers = f"{peek.keys.base}worker".encode()
    return {
        name: value
        for name, value in frozen(peek.client, peek.keys).items()
        if not name.endswith((b":meta", b":wake")) and not name.startswith(of_workers)
    }


def take_over(peek: Peek, jobs: list[str], fate: str) -> None:
    """Claim the jobs as another worker, as soon as their leases are over, and let them meet their fate."""
    held: list[Claimed] = []
    until = time.monotonic() + 20
    while len(held) < len(jobs):
        assert time.monotonic() < until
        held += peek.claim(len(jobs))
    assert {each.id for each in held} == set(jobs)
    assert {each.token for each in held} == {2}
    if fate != "running":
        verdicts = peek.run(
            complete(peek.keys, Call("other"), [Completion(h.id, h.token, h.nonce, b"1") for h in held])
        )
        assert all(verdict.ok for verdict in verdicts)


@attrs.frozen
class Awake:
    """What was seen of a worker that woke up too late."""

    jobs: dict[str, str]
    told: list[str]
    log: list[dict[str, Any]]
    before: dict[bytes, Any]
    after: dict[bytes, Any]


@pytest.fixture(scope="module", params=FATES)
def fate(request: pytest.FixtureRequest) -> str:
    """The fate of the jobs, each in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def awake(server_url: str, fate: str) -> Iterator[Awake]:
    """One process with a job for each verb, stopped in the middle of their steps, for longer than its leases."""
    queue = f"zombies-{fate}-{time.monotonic_ns()}"
    with redis.Redis.from_url(server_url) as client:
        peek = Peek(client, queue)
        options: dict[str, Any] = {"result_ttl_ms": 600_000} if fate == "kept" else {}
        jobs = {verb: put(peek, "late", verb, len(VERBS), **options) for verb in VERBS}
        arguments = ("--lease", "1", "--grace", "0.3", "--cleanup", "0.5", "--concurrency", str(len(VERBS)))
        with worker_process(server_url, queue, *arguments, app=APP) as zombie:
            zombie.wait_told("stepping")
            zombie.signal(signal.SIGSTOP)
            take_over(peek, list(jobs.values()), fate)
            before = rows(peek)
            client.set(f"go:{queue}", "1", ex=600)
            zombie.signal(signal.SIGCONT)
            wait_until(lambda: len(zombie.log("verdict_refused")) >= len(VERDICTS))
            wait_until(lambda: sum(line.startswith("stopped") for line in zombie.told()) >= len(NOTES) + 1)
            wait_until(lambda: len(zombie.log("lease_lost")) >= len(NOTES) + 1)
            yield Awake(jobs, zombie.told(), zombie.log(), before, rows(peek))
        keys = QueueKeys(queue=queue)
        client.delete(*client.keys(f"{keys.base}*"), f"told:{queue}", f"go:{queue}")


@pytest.mark.parametrize("verb", VERDICTS)
def test_late_verdict_of_a_stopped_worker_is_refused(awake: Awake, fate: str, verb: str) -> None:
    """The handler ended in the step in which it was stopped, so its verdict is sent: refused, and named in the log."""
    job = awake.jobs[verb]
    refused = [line for line in awake.log if line["event"] == "verdict_refused" and line["job"] == job]
    assert [(line["verb"], line["refusal"], line["attempt"]) for line in refused] == [(verb, REFUSALS[fate], 1)]


@pytest.mark.parametrize("verb", NOTES)
def test_late_note_of_a_stopped_worker_is_refused(awake: Awake, verb: str) -> None:
    """One kind of error, whatever the note and whatever became of the job; then the handler is cancelled as lost."""
    job = awake.jobs[verb]
    assert [line for line in awake.told if job in line][-2:] == [
        f"refused {job} LeaseLostError",
        f"stopped {job} lease_lost",
    ]


def test_handler_of_a_stopped_worker_is_cancelled(awake: Awake) -> None:
    """It writes nothing: the deadline passed while it was stopped, and ends it at the first step that waits."""
    job = awake.jobs["nothing"]
    assert [line for line in awake.told if job in line][-1] == f"stopped {job} lease_lost"
    lost = {line["job"] for line in awake.log if line["event"] == "lease_lost"}
    assert lost == {awake.jobs[verb] for verb in (*NOTES, "nothing")}


def test_stopped_worker_changes_no_byte(awake: Awake) -> None:
    """After all these writes every key is what the other one made of it: rows, sets, logs, counters and events."""
    assert awake.after == awake.before
    assert awake.before


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("verb", ["extend", "release"])
def test_late_renewal_and_return_of_a_stopped_worker_are_refused(
    server_url: str, queue_name: str, peek: Peek, verb: str, fate: str
) -> None:
    """Its own clock still gives it time: the renewal, or the job that SIGTERM has it give back, is refused."""
    job = put(peek, "sleeper", 60.0, **({"result_ttl_ms": 600_000} if fate == "kept" else {}))
    arguments = ("--lease", "3" if verb == "extend" else "60", "--grace", "0", "--cleanup", "5", "--concurrency", "1")
    with worker_process(server_url, queue_name, *arguments) as zombie:
        zombie.wait_told(f"began {job}")
        zombie.signal(signal.SIGSTOP)
        peek.expire(job)
        take_over(peek, [job], fate)
        before = rows(peek)
        if verb == "release":
            zombie.signal(signal.SIGTERM)
        zombie.signal(signal.SIGCONT)
        if verb == "extend":
            zombie.wait_told(f"stopped {job} lease_lost")
            assert zombie.wait_for("lease_lost")["detail"] == REFUSALS[fate]
        else:
            zombie.wait_told(f"stopped {job} shutdown")
            line = zombie.wait_for("verdict_refused")
            assert (line["verb"], line["refusal"]) == ("release", REFUSALS[fate])
            assert zombie.wait() == 0
        assert rows(peek) == before


def test_late_thread_of_a_stopped_worker_is_refused(server_url: str, queue_name: str, peek: Peek) -> None:
    """Nothing interrupts a thread: its notes are refused, it can read why, and so is the verdict when it returns."""
    job = put(peek, "late_in_thread")
    arguments = ("--lease", "1", "--grace", "0.3", "--cleanup", "0.5", "--concurrency", "1")
    with worker_process(server_url, queue_name, *arguments, app=APP) as zombie:
        zombie.wait_told(f"began {job}")
        zombie.signal(signal.SIGSTOP)
        take_over(peek, [job], "running")
        before = rows(peek)
        peek.client.set(f"go:{queue_name}", "1", ex=600)
        zombie.signal(signal.SIGCONT)
        line = zombie.wait_for("verdict_refused")
        assert (line["verb"], line["refusal"]) == ("complete", "EMQSTALE")
        assert zombie.told()[1:] == [*[f"refused {job} LeaseLostError"] * 3, f"saw {job} lease_lost"]
        assert rows(peek) == before
