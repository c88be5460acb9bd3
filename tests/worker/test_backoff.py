"""How long a failed job waits is the policy's word, whatever that does."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from echomq.app import App
from echomq.backoff import NEVER, ByError, Fixed, RetryAfter, Sequence
from echomq.protocol.times import to_ms
from echomq.verdicts import Retry
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("policy", ["raises", "exits", "negative", "nan", "text", "huge"])
async def test_backoff_policy_that_fails_is_replaced(app: App, queue_name: str, peek: Peek, policy: str) -> None:
    """A policy of the user's that raises or answers nonsense costs the log a line; the job is retried by the default."""

    def backoff(failures: int, error: BaseException, rng: Any) -> Any:
        if policy == "raises":
            raise LookupError
        if policy == "exits":
            sys.exit(1)
        return {"negative": -1, "nan": float("nan"), "text": "soon", "huge": 1e30}[policy]

    @app.task(queue=queue_name, backoff=backoff)
    async def handle() -> None:
        raise ValueError

    with capture_logs() as logs:
        async with app, running(app):
            job = await handle.enqueue()
            await until(lambda: peek.record(job.id).failures)
    assert {line["job"] for line in logs if line["event"] == "backoff_failed"} == {job.id}


async def test_backoff_policy_may_answer_a_timedelta(app: App, queue_name: str, peek: Peek) -> None:
    """Durations are seconds or timedeltas, here as everywhere."""

    def backoff(*_: Any) -> Any:
        return dt.timedelta(hours=1)

    @app.task(queue=queue_name, backoff=backoff)
    async def handle() -> None:
        raise ValueError

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    due = peek.client.zscore(peek.keys.schedule, job.id)
    assert due is not None
    assert float(due) - peek.record(job.id).since == 3_600_000


async def test_backoff_that_answers_none_buries_at_once(app: App, queue_name: str, peek: Peek) -> None:
    """An error that is for good is not tried again, and is kept; another one of the same task is."""

    @app.task(queue=queue_name, max_attempts=5, backoff=ByError({ValueError: NEVER}, default=Fixed(600)))
    async def handle(*, good: bool) -> None:
        raise KeyError("later") if good else ValueError("never")

    async with app, running(app):
        buried, kept = await handle.enqueue(good=False), await handle.enqueue(good=True)
        await until(lambda: peek.state(buried.id) == "dead" and peek.state(kept.id) == "schedule")
    record = peek.record(buried.id)
    assert record.failures == 1
    assert record.error is not None
    assert (record.error.type, record.error.message) == ("ValueError", "never")
    assert peek.record(kept.id).failures == 1


async def test_backoff_that_answers_none_yields_to_a_retry(app: App, queue_name: str, peek: Peek) -> None:
    """A handler that says `Retry` is tried again, whatever its policy says of errors."""

    @app.task(queue=queue_name, max_attempts=5, backoff=NEVER)
    async def handle(after: float | None) -> None:
        raise Retry(after)

    async with app, running(app):
        jobs = [await handle.enqueue(None), await handle.enqueue(600)]
        await until(lambda: all(peek.record(job.id).failures for job in jobs))
    assert all(peek.state(job.id) != "dead" for job in jobs)
    due = peek.client.zscore(peek.keys.schedule, jobs[1].id)
    assert due is not None
    assert float(due) - peek.record(jobs[1].id).since == 600_000


async def test_backoff_of_a_retry_without_a_delay_is_the_policys(app: App, queue_name: str, peek: Peek) -> None:
    """`Retry()` leaves the delay to the policy."""

    @app.task(queue=queue_name, backoff=Fixed(700))
    async def handle() -> None:
        raise Retry

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    due = peek.client.zscore(peek.keys.schedule, job.id)
    assert due is not None
    assert float(due) - peek.record(job.id).since == 700_000


async def test_backoff_of_a_timeout_is_that_of_its_error(app: App, queue_name: str, peek: Peek) -> None:
    """What ended by its timeout failed with a TimeoutError, which a policy may know."""

    @app.task(queue=queue_name, timeout=0.02, backoff=ByError({TimeoutError: NEVER}, default=Fixed(600)))
    async def handle() -> None:
        await anyio.sleep_forever()

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")


class SaidError(Exception):
    """What a server said."""

    retry_after = 77


@pytest.mark.parametrize(("policy", "seconds"), [(Sequence([5, 50]), 5), (RetryAfter(Fixed(1)), 77)])
async def test_backoff_delay_is_sent_as_it_stands(
    app: App, queue_name: str, peek: Peek, policy: Any, seconds: float
) -> None:
    """The worker computes the delay, the server's clock counts it."""

    @app.task(queue=queue_name, backoff=policy)
    async def handle() -> None:
        raise SaidError

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "schedule")
    due = peek.client.zscore(peek.keys.schedule, job.id)
    assert due is not None
    assert float(due) - peek.record(job.id).since == to_ms(seconds)
