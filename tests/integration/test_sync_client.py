"""The client that blocks: the same verbs, from any thread, each call at most once whatever breaks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from echomq import (
    App,
    InvalidJobError,
    JobCancelledError,
    JobNotFoundError,
    JobStateError,
    OutOfMemoryError,
    PermissionDeniedError,
    ResultNotKeptError,
    State,
    UnavailableError,
    sync,
)
from echomq.embedded import Server, open_server
from echomq.errors import AuthenticationError
from echomq.protocol.ids import mint
from echomq.protocol.records import Claimed
from echomq.transitions import Completion, claim, complete
from tests.integration.cutting import CuttingProxy


@pytest.fixture
def queue(sync_client: sync.Client, queue_name: str) -> sync.Queue:
    """The test's own queue."""
    return sync_client.queue(queue_name)


@pytest.fixture
def own_server() -> Iterator[Server]:
    """A server that the test may spoil."""
    with open_server() as server:
        yield server


def claim_one(queue: sync.Queue) -> Claimed:
    """Claim the job next in turn."""
    keys = queue.keys
    return queue.runner.remembered(keys, "claim", lambda call: claim(keys, call, count=1, lease_ms=30_000)).jobs[0]


def finish(queue: sync.Queue, result: bytes = b"null") -> None:
    """Claim the job next in turn and complete it."""
    job = claim_one(queue)
    item = Completion(job.id, job.token, job.nonce, result)
    (verdict,) = queue.runner.remembered(queue.keys, "complete", lambda call: complete(queue.keys, call, [item]))
    assert verdict.ok


def test_sync_client_has_the_same_verbs(queue: sync.Queue) -> None:
    """Enqueue, look, pause, cancel, remove, redrive: each answers what its sibling does."""
    first = queue.enqueue(b"1", task="t", dedup="key", delay=60, headers={"a": "b"})
    again = queue.enqueue(b"1", dedup="key")
    assert (again.id, again.admitted, first.state()) == (first.id, False, State.SCHEDULE)
    second = queue.enqueue(b"2")
    counts = queue.counts()
    assert (counts.pending, counts.schedule) == (1, 1)
    assert [queue.pause(), queue.pause(), queue.resume()] == [True, False, True]
    assert [record.id for record, _ in queue.browse("pending").jobs] == [second.id]
    oldest = queue.age()
    assert oldest is not None
    assert oldest[0] == second.id
    assert first.cancel(reason="no") == "cancelled"
    with pytest.raises(JobNotFoundError):
        first.cancel()
    assert claim_one(queue).id == second.id
    assert second.cancel() == "asked"
    running, missing = queue.remove([second.id, mint()])
    assert isinstance(running, JobStateError)
    assert isinstance(missing, JobNotFoundError)
    assert isinstance(queue.redrive([second.id])[0], JobStateError)
    assert queue.configure(events="all") in {True, False}
    with pytest.raises(ValueError, match="lately"):
        queue.browse("lately")


def test_sync_enqueue_many_answers_in_order(queue: sync.Queue) -> None:
    """Any number, cut into calls by number and by bytes; a bad one fails no other."""
    told: list[int] = []
    payloads = [bytes((1 << 20) + 1)] * 300 + [b"x" * 60_000] * 9 + [b"%d" % n for n in range(300)]
    answers = queue.enqueue_many(iter(payloads), progress=told.append)
    assert [isinstance(answer, InvalidJobError) for answer in answers] == [True] * 300 + [False] * 309
    ids = [answer.id for answer in answers if isinstance(answer, sync.JobHandle)]
    assert ids == sorted(ids)
    assert queue.counts().pending == 309
    assert told[-1] == 609
    assert queue.enqueue_many([]) == []


def test_sync_client_enqueues_tasks_of_an_app(sync_client: sync.Client, queue_name: str) -> None:
    """A task's call is a value; its result comes as declared."""
    app = App("valkey://nowhere.invalid")

    @app.task(queue=queue_name, result_ttl=60)
    def double(n: int) -> tuple[int, int]:
        return n, n

    handle = sync_client.enqueue(double.call(4))
    finish(sync_client.queue(queue_name), double.dump_result((4, 4)))
    assert handle.result(timeout=5) == (4, 4)
    many = sync_client.enqueue_many(double.options(priority=n).call(n) for n in range(3))
    assert all(isinstance(answer, sync.JobHandle) for answer in many)


def test_sync_result_is_told_and_times_out(queue: sync.Queue) -> None:
    """The waiter hears by the channel; 0 only looks; a default job is refused at once."""
    handle = queue.enqueue(b"", result_ttl=60)
    for timeout in (0, 0.05):
        with pytest.raises(TimeoutError, match=handle.id):
            handle.result(timeout=timeout)
    with ThreadPoolExecutor() as threads:
        started = time.monotonic()
        waiting = threads.submit(handle.result)
        time.sleep(0.1)
        finish(queue, b"7")
        assert waiting.result(timeout=10) == 7
        assert time.monotonic() - started < 4  # less than the 5 s between looks
    with pytest.raises(ResultNotKeptError):
        queue.enqueue(b"").result()
    cancelled = queue.enqueue(b"", result_ttl=60)
    cancelled.cancel(reason="no")
    with pytest.raises(JobCancelledError, match="no"):
        cancelled.result()


# --- faults -----------------------------------------------------------------------------------


def test_sync_enqueue_with_three_replies_cut_runs_once(cutting: CuttingProxy, queue: sync.Queue) -> None:
    """Pitfall 2: the same bytes go four times, the job has ended meanwhile, and it is there once."""
    with sync.Client(cutting.url) as client:
        behind = client.queue(queue.name)
        behind.enqueue(b"warm up")
        finish(queue)
        cutting.requests.clear()
        cutting.cuts = 3
        done: list[None] = []

        def complete_once() -> None:
            if not done:
                done.append(None)
                finish(queue)

        cutting.before_cut = complete_once
        handle = behind.enqueue(b"once")
        assert handle.admitted
        assert len(cutting.requests) == 4
        assert len(set(cutting.requests)) == 1
        counts = queue.counts()
        assert (counts.pending, counts.active, counts.totals["completed"]) == (0, 0, 2)


def test_sync_calls_count_by_thread(server_url: str, queue_name: str) -> None:
    """Threads have tags of their own: none takes another's call for its own, and each job is there once."""
    with sync.Client(server_url) as client:
        queue = client.queue(queue_name)
        barrier = threading.Barrier(8)

        def work(n: int) -> str:
            barrier.wait()
            infos = [queue.enqueue(b"%d" % n).info() for _ in range(20)]
            (tag,) = {info.record.by for info in infos if info is not None}
            return tag

        with ThreadPoolExecutor(8) as threads:
            tags = list(threads.map(work, range(8)))
        assert len(set(tags)) == 8
        assert queue.counts().pending == 160


def test_sync_client_works_on_after_a_fork(server_url: str, queue_name: str) -> None:
    """The child has a tag and a connection of its own; the parent's goes on."""
    with sync.Client(server_url) as client:
        queue = client.queue(queue_name)
        first = queue.enqueue(b"parent")
        pid = os.fork()
        if pid == 0:
            try:
                queue.enqueue(b"child")
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        queue.enqueue(b"parent")
        page = queue.browse("pending")
        assert page.total == 3
        tags = [record.by for record, _ in page.jobs]
        info = first.info()
        assert info is not None
        assert tags.count(info.record.by) == 2


def test_sync_client_loads_scripts_anew(own_server: Server) -> None:
    """A server that has forgotten the scripts is told them again."""
    with sync.Client(own_server.url) as client, redis.Redis.from_url(own_server.url) as plain:
        for _ in range(2):
            client.queue("q").enqueue(b"")
            plain.script_flush()
        assert client.queue("q").counts().pending == 2


def test_sync_client_waits_for_a_server_and_gives_up(own_server: Server) -> None:
    """Never sent is said to be so; a bulk call tries once and no more."""
    with sync.Client("valkey://127.0.0.1:1", unavailable_after=0.2) as client:
        with pytest.raises(UnavailableError) as caught:
            client.queue("q").enqueue(b"")
        assert not caught.value.sent
        started = time.monotonic()
        answers = client.queue("q").enqueue_many([b""] * 2000)
        assert time.monotonic() - started < 10
        assert len(answers) == 2000
        assert all(isinstance(answer, UnavailableError) and not answer.sent for answer in answers)


def test_sync_call_cut_for_good_says_that_it_may_have_run(cutting: CuttingProxy, queue_name: str) -> None:
    """It ran, and nobody could tell: the error must not say otherwise."""
    with sync.Client(cutting.url, unavailable_after=0.3) as client:
        client.queue(queue_name).counts()
        cutting.cuts = 1000
        with pytest.raises(UnavailableError) as caught:
            client.queue(queue_name).enqueue(b"")
        assert caught.value.sent
        cutting.cuts = 0
        assert client.queue(queue_name).counts().pending == 1


def test_sync_errors_are_those_of_the_library(own_server: Server) -> None:
    """What redis-py says becomes what an operator acts on."""
    with redis.Redis.from_url(own_server.url) as plain:
        with sync.Client(own_server.url) as client:
            client.queue("q").enqueue(b"")
            plain.config_set("maxmemory", 1)
            with pytest.raises(OutOfMemoryError):
                client.queue("q").enqueue(b"")
            assert client.queue("q").counts().pending == 1
            plain.config_set("maxmemory", 0)
        plain.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "+@all", "~*", "-evalsha", "resetchannels")
        address = own_server.url.partition("://")[2].rpartition("@")[2]
        with sync.Client(f"valkey://reader:secret@{address}") as client, pytest.raises(PermissionDeniedError):
            client.queue("q").enqueue(b"")
        with sync.Client(f"valkey://reader:wrong@{address}") as client, pytest.raises(AuthenticationError):
            client.queue("q").enqueue(b"")


def test_sync_client_takes_a_redis_client_that_answers_bytes(server_url: str, queue_name: str) -> None:
    """Sentinel's, say. One that decodes replies would spoil payloads."""
    with redis.Redis.from_url(server_url) as plain:
        client = sync.Client(plain)
        client.queue(queue_name).enqueue(b"\xff")
        client.close()
        assert plain.ping()
    with redis.Redis.from_url(server_url, decode_responses=True) as plain, pytest.raises(ValueError, match="bytes"):
        sync.Client(plain)
    with pytest.raises(ValueError, match="not a server's URL"):
        sync.Client("http://localhost")


def test_sync_call_outlives_connections_lost_while_its_script_is_loaded(own_server: Server) -> None:
    """A lost load is no load that the server forgot: more of them than a call may have loads are only waited out."""
    with (
        redis.Redis.from_url(own_server.url) as plain,
        CuttingProxy("127.0.0.1", own_server.port) as proxy,
        sync.Client(proxy.url) as client,
    ):
        proxy.marker, proxy.cuts = b"SCRIPT", 5
        proxy.before_cut = plain.script_flush
        assert client.queue("q").enqueue(b"").admitted
        assert proxy.cuts == 0


def test_sync_load_that_is_never_answered_says_that_nothing_ran(own_server: Server) -> None:
    """The call was refused each time, so it has not run."""
    with (
        redis.Redis.from_url(own_server.url) as plain,
        CuttingProxy("127.0.0.1", own_server.port) as proxy,
        sync.Client(proxy.url, unavailable_after=0.3) as client,
    ):
        proxy.marker, proxy.cuts = b"SCRIPT", 1000
        proxy.before_cut = plain.script_flush
        with pytest.raises(UnavailableError) as caught:
            client.queue("q").enqueue(b"")
        assert not caught.value.sent


def test_sync_enqueue_many_groups_by_queue(sync_client: sync.Client, cutting: CuttingProxy, queue_name: str) -> None:
    """Calls of several queues in any order take a few round trips, and answers come in the calls' order."""
    app = App("valkey://nowhere.invalid")
    names = [f"{queue_name}-{n}" for n in range(3)]
    stubs = [app.task_stub("task", queue=name) for name in names]
    told: list[int] = []
    with sync.Client(cutting.url) as client:
        client.queue(names[0]).enqueue(b"")  # the script is there
        cutting.requests.clear()
        answers = client.enqueue_many((stubs[n % 3].call(n) for n in range(300)), progress=told.append)
        assert len(cutting.requests) == 3
    handles = [answer for answer in answers if isinstance(answer, sync.JobHandle)]
    assert [handle.queue for handle in handles] == [names[n % 3] for n in range(300)]
    infos = [handle.info() for handle in handles[:6]]
    assert [info is not None and info.record.payload for info in infos] == [b'{"args":[%d]}' % n for n in range(6)]
    assert told == sorted(told)
    assert told[-1] == 300
    assert sync_client.enqueue_many(iter(())) == []


def test_sync_enqueue_many_of_several_queues_tries_an_absent_server_once() -> None:
    """After the first queue's failure the others are not tried, and every call has its answer."""
    stubs = [App("valkey://nowhere.invalid").task_stub("task", queue=f"q{n}") for n in range(4)]
    with sync.Client("valkey://127.0.0.1:1", unavailable_after=0.2) as client:
        started = time.monotonic()
        answers = client.enqueue_many(stubs[n % 4].call(n) for n in range(20_000))
        assert time.monotonic() - started < 10
    assert len(answers) == 20_000
    assert all(isinstance(answer, UnavailableError) and not answer.sent for answer in answers)


@pytest.mark.parametrize("right", ["hset", "zadd", "lpush", "time"])
def test_sync_right_that_is_missing_in_a_script_is_named(own_server: Server, right: str) -> None:
    """Of one job and of many; a whole call that is refused and an item that is."""
    with redis.Redis.from_url(own_server.url) as plain:
        plain.execute_command("ACL", "SETUSER", "half", "on", ">secret", "+@all", "~*", "&*", f"-{right}")
    address = own_server.url.partition("://")[2].rpartition("@")[2]
    with sync.Client(f"valkey://half:secret@{address}") as client:
        with pytest.raises(PermissionDeniedError, match=right):
            client.queue("q").enqueue(b"")
        (answer,) = client.queue("q").enqueue_many([b""])
        assert isinstance(answer, PermissionDeniedError)
        assert f"'{right}'" in str(answer)
