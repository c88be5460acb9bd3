"""`progress=` that cannot be called is one error, before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq import Client, Queue, sync

pytestmark = pytest.mark.anyio
BAD: Any = 5
SAID = "progress is a function that is told how many, not 5"


async def test_progress_that_cannot_be_called_is_refused_before_anything_is_sent(client: Client, queue: Queue) -> None:
    """By every method that takes it."""
    await queue.enqueue(b"", task="t", lane="a")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: queue.cancel_where(task="t", progress=BAD),
        lambda: queue.dead.redrive(progress=BAD),
        lambda: queue.dead.remove(progress=BAD),
        lambda: queue.repair(BAD),
        lambda: queue.obliterate(force=True, progress=BAD),
        lambda: queue.lane("a").drain(BAD),
        lambda: queue.lane("a").cancel(progress=BAD),
        lambda: queue.enqueue_many([b""], progress=BAD),
        lambda: client.enqueue_many([], progress=BAD),
    )
    for call in calls:
        with pytest.raises(TypeError, match=SAID):
            await call()
    for stream in (lambda: queue.enqueue_stream([b""], progress=BAD), lambda: client.enqueue_stream([], progress=BAD)):
        with pytest.raises(TypeError, match=SAID):
            stream()
    assert (await queue.counts()).pending == 1


def test_sync_progress_that_cannot_be_called_is_refused(sync_client: sync.Client, queue_name: str) -> None:
    """By the same methods."""
    queue = sync_client.queue(queue_name)
    queue.enqueue(b"", task="t", lane="a")
    calls: tuple[Callable[[], Any], ...] = (
        lambda: queue.cancel_where(task="t", progress=BAD),
        lambda: queue.dead.redrive(progress=BAD),
        lambda: queue.dead.remove(progress=BAD),
        lambda: queue.repair(BAD),
        lambda: queue.obliterate(force=True, progress=BAD),
        lambda: queue.lane("a").drain(BAD),
        lambda: queue.lane("a").cancel(progress=BAD),
        lambda: queue.enqueue_many([b""], progress=BAD),
        lambda: queue.enqueue_stream([b""], progress=BAD),
        lambda: sync_client.enqueue_many([], progress=BAD),
        lambda: sync_client.enqueue_stream([], progress=BAD),
    )
    for call in calls:
        with pytest.raises(TypeError, match=SAID):
            call()
    assert queue.counts().pending == 1
