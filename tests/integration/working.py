"""A worker's part by hand: tests of producers decide how and when a job ends."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import anyio

from echomq.client import Client
from echomq.protocol.failures import ErrorRecord
from echomq.protocol.records import Claimed
from echomq.queue import Queue
from echomq.transitions import Completion, Ending, Failure, claim


async def claim_one(client: Client, queue: Queue) -> Claimed:
    """Claim the job next in turn."""
    reply = await client.wire.remembered(
        queue.keys, lambda call: claim(queue.keys, call, count=1, lease_ms=30_000), verb="claim"
    )
    return reply.jobs[0]


async def complete(client: Client, queue: Queue, result: bytes = b"null") -> str:
    """Claim the job next in turn and complete it."""
    job = await claim_one(client, queue)
    verdict = await client.wire.group(queue.keys, "complete")(Completion(job.id, job.token, job.nonce, result))
    assert verdict.ok
    return job.id


async def fail(client: Client, queue: Queue, error: Exception) -> str:
    """Claim the job next in turn and bury it."""
    job = await claim_one(client, queue)
    problem = ErrorRecord.from_exception(error).to_bytes()
    item = Failure(job.id, job.token, job.nonce, delay_ms=0, max_attempts=1, error=problem)
    verdict = await client.wire.group(queue.keys, "fail")(item)
    assert verdict.code == "dead"
    return job.id


async def end(client: Client, queue: Queue, kind: str, reason: str) -> str:
    """Claim the job next in turn and end it."""
    job = await claim_one(client, queue)
    verdict = await client.wire.group(queue.keys, "end")(Ending(job.id, job.token, job.nonce, kind, reason))
    assert verdict.ok
    return job.id


async def until(condition: Callable[[], Any]) -> None:
    """Ask again and again, for 10 s, until the answer is true."""
    with anyio.fail_after(10):
        while True:
            answer = condition()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await anyio.sleep(0.01)
