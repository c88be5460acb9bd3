"""How long a failed job waits is the policy's word, whatever that does."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from echomq.app import App
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("policy", ["raises", "exits", "negative", "nan", "text", "none", "huge"])
async def test_backoff_policy_that_fails_is_replaced(app: App, queue_name: str, peek: Peek, policy: str) -> None:
    """A policy of the user's that raises or answers nonsense costs the log a line; the job is retried by the default."""

    def backoff(failures: int, error: BaseException, rng: Any) -> Any:
        if policy == "raises":
            raise LookupError
        if policy == "exits":
            sys.exit(1)
        return {"negative": -1, "nan": float("nan"), "text": "soon", "none": None, "huge": 1e30}[policy]

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
