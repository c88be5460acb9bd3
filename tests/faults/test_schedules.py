"""One schedule in many hands: eight processes that define and remove it, and workers that die while they fire it."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack

import pytest
import redis

from echomq import sync
from echomq.protocol.times import from_unix_ms
from tests.faults.churn import EVERY, NAME, Entry, churn
from tests.worker.processes import wait_until, worker_process
from tests.worker.support import Peek

PROCESSES = 8
SECONDS = 7.5
LATE = 1.3
"""Seconds after a slot in which nobody may have removed the schedule, for the slot to count: what a park lasts, and some."""


def made(peek: Peek) -> Counter[int]:
    """Count the jobs that were made for each slot."""
    return Counter(int(fields[b"slot"]) for _, fields in peek.events("enqueued") if b"schedule" in fields)


def stood(diary: list[Entry], begin: float, end: float) -> list[int]:
    """Answer the slots at which the schedule verifiably stood: put before, and not removed until well after."""
    found, every = [], round(EVERY * 1000)
    removes = [each for each in diary if each.verb == "remove"]
    puts = [each for each in diary if each.verb == "put"]
    for slot_ms in range((round(begin * 1000) // every + 1) * every, round((end - LATE) * 1000), every):
        slot = slot_ms / 1000
        # The removes that may have been carried out before the slot, and any that may have been near it.
        if any(each.began < slot + LATE and each.ended > slot for each in removes):
            continue
        latest = max((each.ended for each in removes if each.ended <= slot), default=0.0)
        # A put that began after that, and was over a little before the slot.
        if any(each.began > latest and each.ended < slot - 0.02 for each in puts):
            found.append(slot_ms)
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_eight_processes_put_and_remove_a_schedule_and_each_slot_has_one_job(
    server_url: str, redis_client: redis.Redis, queue_name: str, peek: Peek
) -> None:
    """No slot has two jobs, none at which the schedule stood is without, and the series lives on."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["echomq", "tests.faults.churn"])
    with ExitStack() as stack:
        client = stack.enter_context(sync.Client(server_url))
        queue = client.queue(queue_name)
        queue.configure(events="all")
        workers = [stack.enter_context(worker_process(server_url, queue_name)) for _ in range(2)]
        for each in workers:
            each.wait_for("worker_started")
        pool = stack.enter_context(ProcessPoolExecutor(PROCESSES, mp_context=context))
        begin = time.time() + 1.5  # when all have begun
        until = begin + SECONDS
        doing = [pool.submit(churn, server_url, queue_name, seed, until) for seed in range(PROCESSES)]
        diaries = [each.result() for each in doing]
        # The series lives: nobody touches it any more.
        alive = time.time()
        queue.schedules.put(NAME, b"{}", every=EVERY, missed="all", task="quick")
        wait_until(lambda: max(made(peek), default=0) > (alive + 1.5) * 1000)
        queue.schedules.pause(NAME)
        wait_until(peek.empty)
        jobs = made(peek)
        # The workers saw nothing out of the ordinary, but perhaps a machine that stood still.
        for each in workers:
            seen = [line for line in each.log() if line["level"] in {"warning", "error"}]
            assert [line for line in seen if line["event"] != "event_loop_late"] == []
    diary = sorted((each for mine in diaries for each in mine), key=lambda each: each.began)
    done = Counter((each.verb, each.outcome) for each in diary)
    assert len(diaries) == PROCESSES
    assert all(len(mine) > 20 for mine in diaries), [len(mine) for mine in diaries]
    for what in (("put", "created"), ("put", "changed"), ("put", "same"), ("remove", "True"), ("remove", "False")):
        assert done[what] > 3, done
    assert {slot: count for slot, count in jobs.items() if count > 1} == {}
    sure = stood(diary, begin, until)
    assert len(sure) > 10
    assert [from_unix_ms(slot) for slot in sure if jobs[slot] != 1] == []
    # From the last put on, every slot.
    last = [slot for slot in sorted(jobs) if slot > alive * 1000 + 100]
    assert last == list(range(last[0], last[-1] + 1, round(EVERY * 1000)))
    assert len(last) >= 10
    assert peek.count("completed") == sum(jobs.values())
    assert redis_client.zrange(peek.keys.schedules, 0, -1) == [NAME.encode()]


@pytest.mark.slow
def test_worker_killed_between_reading_a_schedule_and_firing_it_loses_no_slot(
    server_url: str, queue_name: str, peek: Peek
) -> None:
    """The next one fires it, once."""
    with ExitStack() as stack:
        queue = stack.enter_context(sync.Client(server_url)).queue(queue_name)
        queue.configure(events="all")
        begun = round(peek.now()) - 10_000
        queue.schedules.put(NAME, b"{}", every=3600, start=from_unix_ms(begun), task="quick")
        peek.client.hset(peek.keys.schedule_of(NAME), "slot", begun)
        peek.client.zadd(peek.keys.schedules, {NAME: begun})
        for _ in range(2):
            dying = stack.enter_context(worker_process(server_url, queue_name, app="tests.faults.dying_app:app"))
            assert dying.wait() == -9
            assert made(peek) == {}
        worker = stack.enter_context(worker_process(server_url, queue_name))
        wait_until(lambda: peek.count("completed"))
        assert made(peek) == {begun: 1}
        assert worker.log("schedule_not_fired") == []
        info = queue.schedules.get(NAME)
        assert info is not None
        assert info.next_run == from_unix_ms(begun + 3_600_000)


@pytest.mark.slow
def test_worker_that_comes_late_goes_on_with_the_series(server_url: str, queue_name: str, peek: Peek) -> None:
    """Nobody was there for a day; one process makes up for it by the schedule's policy, and the next slot is ahead."""
    with ExitStack() as stack:
        queue = stack.enter_context(sync.Client(server_url)).queue(queue_name)
        queue.configure(events="all")
        begun = round(peek.now()) - 86_400_000 - 1_800_000
        for missed in ("skip", "last", "all"):
            queue.schedules.put(missed, b"{}", every=3600, start=from_unix_ms(begun), task="quick", missed=missed)
            peek.client.hset(peek.keys.schedule_of(missed), "slot", begun)
            peek.client.zadd(peek.keys.schedules, {missed: begun})
        stack.enter_context(worker_process(server_url, queue_name))
        wait_until(lambda: peek.count("completed") == 26)
        last = begun + 24 * 3_600_000
        assert made(peek) == Counter(range(begun, last + 1, 3_600_000)) + Counter([last])
        assert {each.next_run for each in queue.schedules} == {from_unix_ms(last + 3_600_000)}
        assert {each.name: each.count for each in queue.schedules} == {"skip": 0, "last": 1, "all": 25}
