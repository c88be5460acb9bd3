"""What the tests of the worker share: an app and its queue on the session's server."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import redis

from echomq.app import App
from echomq.job import Job
from echomq.worker import calls, intake
from tests.worker.scene import Scene
from tests.worker.support import Peek


@pytest.fixture
def app(server_url: str) -> App:
    """An app without tasks yet, on the session's server."""
    return App(server_url, unavailable_after=5.0)


@pytest.fixture
def peek(redis_client: redis.Redis, queue_name: str) -> Peek:
    """The test's queue behind everybody's back."""
    return Peek(redis_client, queue_name)


@pytest.fixture
def long_parks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Park for ten seconds, so that whoever wakes was woken."""
    monkeypatch.setattr(calls, "CAP", 10.0)
    monkeypatch.setattr(intake, "CAP", 10.0)


@pytest.fixture
async def scene(app: App, queue_name: str, peek: Peek) -> AsyncIterator[Scene]:
    """An open app, whose queue keeps all events."""
    scene: Scene

    @app.task(queue=queue_name)
    async def tick(job: Job) -> None:
        assert job.schedule is not None
        assert job.slot is not None
        slot_ms = round(job.slot.timestamp() * 1000)
        scene.ran.append((job.schedule, slot_ms, peek.now() - slot_ms))

    @app.task(queue=queue_name)
    async def long() -> None:
        await scene.hold.wait()

    async with app:
        scene = Scene(app, app.queue(queue_name), peek)
        await scene.queue.configure(events="all")
        yield scene
