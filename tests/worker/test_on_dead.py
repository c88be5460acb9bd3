"""Tasks that are told of dead jobs: declared by the app, set by its workers, one for a queue."""

from __future__ import annotations

from typing import Any

import pytest

from echomq import App, Batch, JobBatch
from echomq.job import Job, SyncJob
from tests.worker.support import Peek, running, until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("how", ["coroutine", "thread", "no job", "batch queue"])
async def test_on_dead_is_told_of_each_death(app: App, queue_name: str, peek: Peek, how: str) -> None:
    """By the dead job's id, in the same queue, once a death; not of its own."""
    told: list[tuple[str, str]] = []

    if how == "batch queue":

        @app.task(queue=queue_name, batch=Batch(max_size=3), max_attempts=1)
        async def batch(batch: JobBatch[int]) -> None:
            raise ValueError("bad")

    else:

        @app.task(queue=queue_name, max_attempts=1)
        async def single(n: int) -> None:
            raise ValueError("bad")

    if how == "thread":

        @app.on_dead(queue=queue_name, max_attempts=1)
        def in_thread(job: SyncJob, dead_id: str) -> None:
            told.append((job.id, dead_id))
            raise RuntimeError

    elif how == "no job":

        @app.on_dead
        async def jobless(dead_id: str) -> None:
            told.append((f"DED{dead_id[3:]}", dead_id))

    else:

        @app.on_dead(queue=[queue_name, "not-served"], name="an.alert", max_attempts=1)
        async def alert(job: Job, dead_id: str) -> None:
            told.append((job.id, dead_id))
            raise RuntimeError

    async with app, running(app):
        await until(lambda: peek.client.hget(peek.keys.meta, "on_dead"))
        (task,) = app.tasks
        jobs = [await app.enqueue(app.tasks[task].call(i)) for i in range(3)]
        await until(lambda: len(told) == 3)
        await until(peek.empty)
    assert sorted(told) == sorted((f"DED{job.id[3:]}", job.id) for job in jobs)
    assert not peek.client.exists("emq:{not-served}:meta")


async def test_on_dead_is_off_by_default(app: App, queue_name: str, peek: Peek) -> None:
    """Nothing is set where nothing is declared."""

    @app.task(queue=queue_name, max_attempts=1)
    async def handle() -> None:
        raise ValueError("bad")

    async with app, running(app):
        job = await handle.enqueue()
        await until(lambda: peek.state(job.id) == "dead")
    assert peek.client.hget(peek.keys.meta, "on_dead") is None
    assert peek.empty()


def test_on_dead_has_one_task_a_queue() -> None:
    """A second one, a name that is taken, and a handler that takes no id are refused in words."""
    app = App()

    @app.task(queue="mails")
    async def send() -> None: ...

    @app.on_dead(queue="mails")
    async def tell(job: Job, dead_id: str) -> None: ...

    def declare(function: Any, **given: Any) -> None:
        app.on_dead(**given)(function)

    async def another(dead_id: str) -> None: ...
    async def takes_none() -> None: ...

    with pytest.raises(ValueError, match="'mails' tells 'tell' of dead jobs already"):
        declare(another, queue=["other", "mails"])
    with pytest.raises(ValueError, match="'tell' is told of dead jobs already"):
        declare(another)
    with pytest.raises(ValueError, match="the task name 'send' is taken"):
        declare(another, queue="other", name="send")
    with pytest.raises(ValueError, match="the task name 'tell' is taken"):
        app.task(name="tell")(another)
    with pytest.raises(TypeError, match=r"called with .job, dead_id."):
        declare(takes_none, queue="other")
    with pytest.raises(ValueError, match="not of none"):
        declare(another, queue=[])
    assert app.queues == ("mails",)
    declare(another, queue="other")
    assert (app.on_dead.of("mails"), app.on_dead.of("elsewhere")) == (tell, None)
