"""Parked workers cost little and wake promptly, by the doorbell or by their own timer."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
import redis
from structlog.testing import capture_logs

from echomq import transitions
from echomq.app import App
from echomq.protocol.keys import QueueKeys
from echomq.transitions import Call, Release
from tests.worker.support import TRIO, Peek, running, until
from tests.worker.test_command import put

pytestmark = pytest.mark.anyio

PROMPT = 4.0
"""Seconds that are prompt beside a park of ten."""


def sent_commands(client: redis.Redis) -> int:
    """Count what workers send; what their scripts call does not count, nor do we."""
    stats: Any = client.info("commandstats")
    names = (
        "evalsha",
        "eval",
        "blpop",
        "ping",
        "subscribe",
        "script|load",
        "hello",
        "client|setname",
        "client|setinfo",
    )
    return sum(stats.get(f"cmdstat_{name}", {}).get("calls", 0) for name in names)


@TRIO
async def test_idle_worker_sends_next_to_nothing(app: App, queue_name: str, redis_client: redis.Redis) -> None:
    """At most two commands a second and queue."""
    for n in range(2):

        @app.task(name=f"t{n}", queue=f"{queue_name}-{n}")
        async def handle() -> None: ...

    async with app, running(app):
        await anyio.sleep(0.3)
        before, began = sent_commands(redis_client), anyio.current_time()
        await anyio.sleep(2.0)
        sent, seconds = sent_commands(redis_client) - before, anyio.current_time() - began
        assert 0 < sent <= 2 * 2 * seconds


@TRIO
async def test_due_jobs_wake_one_worker_and_not_all(server_url: str, queue_name: str, long_parks: None) -> None:
    """Ten parked workers, ten delayed jobs: one of them keeps the time (pitfall 13)."""
    ran: list[int] = []
    async with AsyncExitStack() as stack:
        apps = []
        for _ in range(10):
            app = App(server_url)

            @app.task(queue=queue_name)
            async def handle(n: int) -> None:
                ran.append(n)

            apps.append(await stack.enter_async_context(app))
            await stack.enter_async_context(running(app))
        await anyio.sleep(0.2)

        def sent() -> int:
            return sum(app.client.wire.statistics.sent for app in apps)

        before = sent()
        task: Any = apps[0].tasks["handle"]
        for n in range(10):
            await task.options(delay=0.3 + 0.05 * n).enqueue(n)
        await until(lambda: len(ran) == 10)
        # All of them claiming for each job would be a hundred claims. Ours: ten enqueues, ten claims, ten verdicts, some
        # tokens, and one or two timers for each worker.
        assert sent() - before < 80


async def test_delayed_job_starts_when_it_is_due(app: App, queue_name: str, long_parks: None) -> None:
    """An idle worker's own timer wakes it; a nearer job that comes while it is parked moves the timer."""
    ran: list[int] = []

    @app.task(queue=queue_name)
    async def handle(n: int) -> None:
        ran.append(n)

    async with app, running(app):
        await anyio.sleep(0.1)
        await handle.options(delay=600).enqueue(0)
        await handle.options(delay=8).enqueue(0)
        await anyio.sleep(0.1)
        with anyio.fail_after(PROMPT):
            await handle.options(delay=0.2).enqueue(1)
            await until(lambda: ran == [1])
            await handle.options(delay=0.3).enqueue(2)
            await until(lambda: ran == [1, 2])


async def test_delayed_job_starts_when_it_is_due_after_a_claim_that_was_filled(
    app: App, queue_name: str, peek: Peek, long_parks: None
) -> None:
    """A claim that got all it asked for does not say when the next job is due: with slots left, ask again."""
    ran: list[int] = []

    @app.task(queue=queue_name)
    async def handle(n: int) -> None:
        ran.append(n)

    async with app:
        await handle.options(delay=1.5).enqueue(1)
        await app.enqueue_many(handle.call(0) for _ in range(50))
        peek.client.delete(peek.keys.wake)  # no bell: only the timer is left
        async with running(app, concurrency=100):
            with anyio.fail_after(PROMPT):
                await until(lambda: len(ran) == 51)
    assert ran[-1] == 1


@TRIO
@pytest.mark.parametrize("how", ["enqueue", "resume", "release", "reap", "redrive", "promote", "snooze", "fail"])
async def test_whatever_makes_work_ready_wakes_a_parked_worker(
    app: App, queue_name: str, peek: Peek, long_parks: None, how: str
) -> None:
    """Ready work implies a token (pitfall 12)."""
    ran: list[int] = []

    @app.task(queue=queue_name)
    async def handle() -> None:
        ran.append(1)

    me = Call("test")
    async with app:
        queue = app.queue(queue_name)
        job = await handle.enqueue() if how != "enqueue" else None
        held = peek.claim(lease=8.0) if how in {"release", "reap", "snooze", "fail", "redrive"} else []
        fence = (held[0].id, held[0].token, held[0].nonce) if held else ("", 0, "")
        if how == "resume":
            await queue.pause()
        elif how == "redrive":
            peek.run(transitions.fail(peek.keys, me, [transitions.Failure(*fence, 0, 0, b"{}")]))
        elif how == "promote":
            assert job is not None
            peek.client.zrem(peek.keys.pending, job.id)
            peek.client.hset(peek.keys.job(job.id), "state", "schedule")
            peek.client.zadd(peek.keys.schedule, {job.id: peek.now() + 9_000})
        async with running(app):
            await anyio.sleep(0.3)
            assert ran == []
            with anyio.fail_after(PROMPT):
                match how:
                    case "enqueue":
                        await handle.enqueue()
                    case "resume":
                        await queue.resume()
                    case "release":
                        peek.run(transitions.release(peek.keys, me, [Release(*fence)]))
                    case "reap":
                        peek.expire(held[0].id)
                        peek.reap()
                    case "redrive":
                        peek.run(transitions.redrive(peek.keys, me, [held[0].id]))
                    case "promote":
                        assert job is not None
                        peek.client.zadd(peek.keys.schedule, {job.id: 1})
                        peek.run(transitions.promote(peek.keys, me, bound=10))
                    case "snooze":
                        peek.run(transitions.snooze(peek.keys, me, [transitions.Snoozed(*fence, 100)]))
                    case "fail":
                        peek.run(transitions.fail(peek.keys, me, [transitions.Failure(*fence, 100, 3, b"{}")]))
                await until(lambda: ran == [1])


async def test_worker_that_stops_hands_its_token_on(
    server_url: str, queue_name: str, peek: Peek, long_parks: None
) -> None:
    """A worker that leaves its park may have eaten a token: another one gets the work at once."""
    ran: list[str] = []

    def make(name: str) -> App:
        app = App(server_url)

        @app.task(queue=queue_name)
        async def handle() -> None:
            ran.append(name)

        return app

    one, two = make("one"), make("two")
    async with one, two, running(one) as first:
        await anyio.sleep(0.2)
        async with running(two):
            await anyio.sleep(0.2)
            # Who parked first is served first; he is told to stop before he has read it.
            put(peek, "handle")
            time.sleep(0.05)
            first.stop()
            with anyio.fail_after(PROMPT):
                await until(lambda: ran)
    assert ran == ["two"]


@TRIO
async def test_queue_that_fails_is_left_alone_and_slows_no_other(app: App, queue_name: str, peek: Peek) -> None:
    """Claims from a queue that the server refuses are tried now and then; the doorbell of the others is heard."""
    ran: list[int] = []

    @app.task(queue=queue_name)
    async def good(n: int) -> None:
        ran.append(n)

    @app.task(queue=f"{queue_name}-bad")
    async def bad() -> None:
        pass

    broken = QueueKeys(queue=f"{queue_name}-bad").pending
    peek.client.set(broken, "no set")
    try:
        with capture_logs() as logs:
            async with app, running(app):
                for n in range(100):
                    await good.enqueue(n)
                    await until(lambda: ran[-1:] == [n])  # noqa: B023 - awaited at once
        failures = [line for line in logs if line["event"] == "claim_failed"]
        assert len(failures) == 1  # for each reason, and not for each try
        assert {line["queue"] for line in failures} == {f"{queue_name}-bad"}
    finally:
        peek.client.delete(broken)
